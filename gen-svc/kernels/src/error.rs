//! The errors of the kernels. A method that fails has computed and written nothing.

use std::fmt;

/// Arguments that do not fit together, or an allocation that fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// A slice has the wrong size, or two sizes that must be equal differ.
    Shape { subject: &'static str, expected: usize, found: usize },
    /// A size is not a positive multiple, for example of the block length.
    Multiple { subject: &'static str, of: usize, found: usize },
    /// An index, for example of a KV cache block, is not below its limit.
    Range { subject: &'static str, limit: usize, found: usize },
    /// The weights are in an integer format, and the call has no quantized input.
    NotQuantized,
    /// A state slot has another position than the run that starts from it. `None`: the slot holds no
    /// state.
    Position { slot: usize, expected: usize, found: Option<usize> },
    /// A run writes a state slot that the same step reads or writes elsewhere.
    SharedSlot { slot: usize },
    /// The allocation failed, or the size exceeds the address space (`None`).
    Memory { bytes: Option<usize> },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shape { subject, expected, found } => write!(f, "{subject}: expected {expected}, found {found}"),
            Self::Multiple { subject, of, found } => {
                write!(f, "{subject} must be a positive multiple of {of}, found {found}")
            }
            Self::Range { subject, limit, found } => write!(f, "{subject} {found} is not below {limit}"),
            Self::NotQuantized => f.write_str("weights in an integer format need quantized input"),
            Self::Position { slot, expected, found: Some(found) } => {
                write!(f, "state slot {slot} is at position {found}, expected {expected}")
            }
            Self::Position { slot, expected, found: None } => {
                write!(f, "state slot {slot} holds no state, expected position {expected}")
            }
            Self::SharedSlot { slot } => write!(f, "state slot {slot} is written and used twice in a step"),
            Self::Memory { bytes: Some(bytes) } => write!(f, "cannot allocate {bytes} bytes"),
            Self::Memory { bytes: None } => f.write_str("size exceeds the address space"),
        }
    }
}

impl std::error::Error for Error {}

/// Fails if a size differs from the expected size.
pub(crate) fn expect(subject: &'static str, expected: usize, found: usize) -> Result<(), Error> {
    if expected == found { Ok(()) } else { Err(Error::Shape { subject, expected, found }) }
}

/// Fails if a size is zero or not a multiple.
pub(crate) fn expect_multiple(subject: &'static str, of: usize, found: usize) -> Result<(), Error> {
    if found > 0 && found.is_multiple_of(of) { Ok(()) } else { Err(Error::Multiple { subject, of, found }) }
}

/// Fails if an index is not below its limit.
pub(crate) fn expect_below(subject: &'static str, limit: usize, found: usize) -> Result<(), Error> {
    if found < limit { Ok(()) } else { Err(Error::Range { subject, limit, found }) }
}

/// Returns the sum of sizes. Fails if it exceeds the address space.
pub(crate) fn sum(sizes: &[usize]) -> Result<usize, Error> {
    let sum = sizes.iter().try_fold(0_usize, |sum, size| sum.checked_add(*size));
    sum.filter(|bytes| *bytes <= isize::MAX as usize).ok_or(Error::Memory { bytes: None })
}

/// Returns the product of sizes. Fails if it exceeds the address space.
pub(crate) fn product(sizes: &[usize]) -> Result<usize, Error> {
    let product = sizes.iter().try_fold(1_usize, |product, size| product.checked_mul(*size));
    product.filter(|bytes| *bytes <= isize::MAX as usize).ok_or(Error::Memory { bytes: None })
}
