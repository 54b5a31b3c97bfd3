//! Integers beyond 128 bits. Smaller ones are minijinja's own.

use minijinja::Value;
use num_bigint::{BigInt as Digits, Sign};

use super::super::budget;
use super::super::error::{Fallible, Limit, limit};
use super::{Obj, Py, py};

/// CPython refuses to print integers of more than 4,300 digits; somewhat more may be computed with.
const MAX_BITS: u64 = 64 * 1024;

/// An integer that does not fit in 128 bits.
#[derive(Debug)]
pub(crate) struct BigInt(Digits);

impl BigInt {
    pub(crate) fn digits(&self) -> &Digits {
        &self.0
    }

    /// The nearest float; infinity if there is none.
    pub(crate) fn to_f64(&self) -> f64 {
        // The highest bits, and one for whatever is lost, are rounded by the conversion.
        const KEPT: u64 = 66;
        let shift = self.0.bits().saturating_sub(KEPT);
        let magnitude = self.0.magnitude();
        let (kept, lost) = (magnitude >> shift, magnitude.trailing_zeros().unwrap_or(0) < shift);
        let kept = i128::try_from(kept << 1_u8).unwrap_or(i128::MAX) | i128::from(lost);
        let exponent = i32::try_from(shift).map_or(i32::MAX, |shift| shift - 1);
        let float = kept as f64 * 2_f64.powi(exponent);
        if self.0.sign() == Sign::Minus { -float } else { float }
    }
}

/// The value of an integer of any size.
pub(crate) fn int_value(int: Digits) -> Fallible<Value> {
    if let Ok(small) = i128::try_from(&int) {
        return Ok(Value::from(small));
    }
    if int.bits() > MAX_BITS {
        return Err(limit(Limit::Integer));
    }
    Ok(Obj::BigInt(BigInt(int)).value())
}

/// The integer in a value (bools count), of any size.
pub(crate) fn as_digits(value: &Value) -> Option<Digits> {
    match py(value) {
        Py::Bool(flag) => Some(Digits::from(i32::from(flag))),
        Py::Int(int) => Some(Digits::from(int)),
        Py::Obj(Obj::BigInt(big)) => {
            budget::walked(big.0.bits() as usize / 8);
            Some(big.0.clone())
        }
        _ => None,
    }
}

impl From<Digits> for BigInt {
    fn from(digits: Digits) -> Self {
        Self(digits)
    }
}
