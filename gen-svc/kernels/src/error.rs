//! Why a call was refused. Nothing was computed or written then.

use std::fmt;

/// A request that does not fit together, or that the machine cannot hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// A slice, or a pair of things that must agree, has another size than the call needs.
    Shape { what: &'static str, expected: usize, found: usize },
    /// A size must be a positive multiple, as rows of block formats are.
    Multiple { what: &'static str, of: usize, found: usize },
    /// A number that selects something, such as a block of the cache, is beyond the last.
    Range { what: &'static str, limit: usize, found: usize },
    /// Weights in an integer format need input in integers, and the call had none.
    NotQuantized,
    /// The allocator refused, or the size is beyond what can be addressed.
    Memory { bytes: Option<usize> },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shape { what, expected, found } => write!(f, "{what}: expected {expected}, found {found}"),
            Self::Multiple { what, of, found } => {
                write!(f, "{what} must be a positive multiple of {of}, found {found}")
            }
            Self::Range { what, limit, found } => write!(f, "{what} {found} is not below {limit}"),
            Self::NotQuantized => f.write_str("weights in an integer format need input in integers"),
            Self::Memory { bytes: Some(bytes) } => write!(f, "no memory for {bytes} bytes"),
            Self::Memory { bytes: None } => f.write_str("the size is beyond what can be addressed"),
        }
    }
}

impl std::error::Error for Error {}

/// Refuses a size that is not the expected one.
pub(crate) fn expect(what: &'static str, expected: usize, found: usize) -> Result<(), Error> {
    if expected == found { Ok(()) } else { Err(Error::Shape { what, expected, found }) }
}

/// Refuses a size that is zero or not a multiple.
pub(crate) fn expect_multiple(what: &'static str, of: usize, found: usize) -> Result<(), Error> {
    if found > 0 && found.is_multiple_of(of) { Ok(()) } else { Err(Error::Multiple { what, of, found }) }
}

/// Refuses a number that is not below its limit.
pub(crate) fn expect_below(what: &'static str, limit: usize, found: usize) -> Result<(), Error> {
    if found < limit { Ok(()) } else { Err(Error::Range { what, limit, found }) }
}

/// The product of sizes, unless it is beyond what can be addressed.
pub(crate) fn product(sizes: &[usize]) -> Result<usize, Error> {
    let product = sizes.iter().try_fold(1_usize, |product, size| product.checked_mul(*size));
    product.filter(|bytes| *bytes <= isize::MAX as usize).ok_or(Error::Memory { bytes: None })
}
