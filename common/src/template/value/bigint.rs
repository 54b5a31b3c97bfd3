//! Integers beyond 128 bits. Smaller ones are minijinja's own.

use minijinja::Value;
use num_bigint::BigInt as Digits;

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
        self.0.to_string().parse().unwrap_or(f64::INFINITY)
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
        Py::Obj(Obj::BigInt(big)) => Some(big.0.clone()),
        _ => None,
    }
}

impl From<Digits> for BigInt {
    fn from(digits: Digits) -> Self {
        Self(digits)
    }
}
