//! Methods of numbers.

use minijinja::Value;

use crate::arguments::Args;
use crate::budget;
use crate::error::{Fallible, fail};
use crate::python::method_names::unsupported;
use crate::value::{PyValue, as_digits, exact_int, int_value, py_value, tuple};

pub(super) fn call(receiver: &Value, name: &str, args: &Args<'_>) -> Fallible<Value> {
    args.bind::<0>(name, [])?;
    match (name, py_value(receiver), as_digits(receiver)) {
        ("conjugate", _, Some(int)) => int_value(int),
        ("conjugate", ..) => Ok(receiver.clone()),
        ("is_integer", PyValue::Float(float), _) => Ok(Value::from(float.is_finite() && float.fract() == 0.0)),
        ("bit_length", _, Some(int)) => Ok(Value::from(int.bits())),
        ("bit_count", _, Some(int)) => {
            Ok(Value::from(int.iter_u64_digits().map(u64::count_ones).map(u64::from).sum::<u64>()))
        }
        ("hex", PyValue::Float(float), _) => Ok(Value::from(hex(float))),
        ("as_integer_ratio", _, Some(int)) => tuple(vec![int_value(int)?, Value::from(1)]),
        ("as_integer_ratio", PyValue::Float(float), _) => ratio(float),
        _ => Err(unsupported(name)),
    }
}

/// Returns the float in base 16, exactly.
fn hex(float: f64) -> String {
    const MANTISSA_BITS: u32 = 52;
    let sign = if float.is_sign_negative() { "-" } else { "" };
    match float {
        _ if float.is_nan() => return "nan".to_owned(),
        _ if float.is_infinite() => return format!("{sign}inf"),
        0.0 => return format!("{sign}0x0.0p+0"),
        _ => {}
    }
    let bits = float.to_bits();
    let (mantissa, exponent) = (bits & ((1 << MANTISSA_BITS) - 1), ((bits >> MANTISSA_BITS) & 0x7ff) as i32);
    let (lead, exponent) = if exponent == 0 { (0, -1022) } else { (1, exponent - 1023) };
    format!("{sign}0x{lead}.{mantissa:013x}p{exponent:+}")
}

/// The steps of the smallest float, which is doubled 1,074 times.
const RATIO_STEPS: usize = 80;

/// Returns the float as a fraction in lowest terms, by doubling it until it is whole.
fn ratio(float: f64) -> Fallible<Value> {
    if !float.is_finite() {
        return Err(fail("cannot convert infinity or NaN to integer ratio"));
    }
    budget::steps(RATIO_STEPS)?;
    let mut numerator = float;
    let mut doublings = 0_u32;
    while numerator.fract() != 0.0 {
        numerator *= 2.0;
        doublings += 1;
    }
    let numerator = exact_int(numerator).unwrap_or_default();
    let denominator = num_bigint::BigInt::from(2).pow(doublings);
    tuple(vec![int_value(numerator)?, int_value(denominator)?])
}
