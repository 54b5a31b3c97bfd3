//! Numbers to text, and text to numbers.

use minijinja::Value;
use num_bigint::BigInt as Digits;

use crate::budget;
use crate::error::{Error, Fallible, Limit, fail, limit};
use crate::unicode::{self, is_space};
use crate::value::{PyObject, PyValue, exact_int, int_value, py_value};

/// The most digits of an integer that CPython converts to or from text.
const MAX_DIGITS: usize = 4300;

/// The most digits of an integer in the input.
const MAX_JSON_DIGITS: usize = 20_000;

/// Converts a number of a JSON text: an integer, unless it has a fraction or an exponent.
pub(crate) fn from_json(text: &str) -> Fallible<Value> {
    if let Ok(int) = text.parse::<i64>() {
        return Ok(Value::from(int));
    }
    if text.contains(['.', 'e', 'E']) {
        return text.parse::<f64>().map(Value::from).map_err(|_| fail("malformed number"));
    }
    if text.len() > MAX_JSON_DIGITS {
        return Err(limit(Limit::Integer));
    }
    text.parse::<Digits>().map_err(|_| fail("malformed number")).and_then(int_value)
}

/// Returns Python's `int(float)`.
pub(crate) fn truncate(float: f64) -> Fallible<Value> {
    match exact_int(float.trunc()) {
        Some(int) => int_value(int),
        None if float.is_nan() => Err(fail("cannot convert float NaN to integer")),
        None => Err(fail("cannot convert float infinity to integer")),
    }
}

/// Returns Python's `str(int)` for integers of any size.
pub(crate) fn int_to_str(int: &Digits) -> Fallible<String> {
    budget::steps(int.bits() as usize / 4)?;
    budget::product(int.bits(), int.bits())?;
    let text = int.to_string();
    if text.trim_start_matches('-').len() > MAX_DIGITS {
        return Err(fail("Exceeds the limit (4300 digits) for integer string conversion"));
    }
    Ok(text)
}

/// The steps to find the shortest digits of a float.
const FLOAT_REPR_STEPS: usize = 8;

/// Returns Python's `repr(float)`: the shortest digits that parse to the same float, with an
/// exponent where Python writes one.
pub(crate) fn float_repr(float: f64) -> String {
    budget::spend(FLOAT_REPR_STEPS);
    if float.is_nan() {
        return "nan".to_owned();
    }
    if float.is_infinite() {
        return if float > 0.0 { "inf".to_owned() } else { "-inf".to_owned() };
    }
    let scientific = format!("{float:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..16).contains(&exponent) {
        let plain = format!("{float}");
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    format!("{mantissa}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

/// Returns digits as Python reads them: of any script, with single underscores between them.
fn plain_digits(text: &str) -> Option<String> {
    let text = text.trim_matches(is_space);
    let mut plain = String::with_capacity(text.len());
    let mut after_digit = false;
    for c in text.chars() {
        if c == '_' {
            if !std::mem::take(&mut after_digit) {
                return None;
            }
            continue;
        }
        let c = unicode::decimal(c).unwrap_or(c);
        after_digit = c.is_ascii_alphanumeric();
        plain.push(c);
    }
    (after_digit || !text.ends_with('_')).then_some(plain)
}

/// Returns Python's `int(text, base)`.
pub(crate) fn parse_int(text: &str, base: u32) -> Fallible<Value> {
    let malformed = || fail(format!("invalid literal for int() with base {base}: '{text}'"));
    budget::walk(text.len())?;
    let plain = plain_digits(text).ok_or_else(malformed)?;
    let (negative, digits) = match plain.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, plain.strip_prefix('+').unwrap_or(&plain)),
    };
    let (radix, digits) = radix(digits, base).ok_or_else(malformed)?;
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return Err(malformed());
    }
    if digits.len() > MAX_DIGITS && !radix.is_power_of_two() {
        return Err(fail("Exceeds the limit (4300 digits) for integer string conversion"));
    }
    budget::steps(digits.len())?;
    let int = Digits::parse_bytes(digits.as_bytes(), radix).ok_or_else(malformed)?;
    int_value(if negative { -int } else { int })
}

/// Returns the base of digits, and the digits without its prefix.
fn radix(digits: &str, base: u32) -> Option<(u32, &str)> {
    let prefix = digits.get(..2).map(str::to_ascii_lowercase);
    let by_prefix = match prefix.as_deref() {
        Some("0b") => Some(2),
        Some("0o") => Some(8),
        Some("0x") => Some(16),
        _ => None,
    };
    match (base, by_prefix) {
        (0, Some(radix)) => Some((radix, &digits[2..])),
        (base, Some(radix)) if base == radix => Some((radix, &digits[2..])),
        (0, None) if digits.starts_with('0') && digits.contains(|c| c != '0') => None,
        (0, None) => Some((10, digits)),
        (2..=36, _) => Some((base, digits)),
        _ => None,
    }
}

/// Returns Python's `float(text)`.
pub(crate) fn parse_float(text: &str) -> Option<f64> {
    let plain = plain_digits(text)?;
    let unsigned = plain.trim_start_matches(['+', '-']).to_ascii_lowercase();
    let known = matches!(unsigned.as_str(), "inf" | "infinity" | "nan");
    if !known && unsigned.contains(|c: char| !matches!(c, '0'..='9' | '.' | 'e' | '+' | '-')) {
        return None;
    }
    plain.parse().ok()
}

/// Returns Python's `round(float, digits)`.
pub(crate) fn round_float(float: f64, digits: i64) -> Fallible<f64> {
    if !float.is_finite() || float == 0.0 {
        return Ok(float);
    }
    if digits > 323 {
        return Ok(float);
    }
    if digits < -308 {
        return Ok(0.0 * float);
    }
    let rounded = match usize::try_from(digits) {
        Ok(digits) => format!("{float:.digits$}").parse().ok(),
        Err(_) => round_left_of_point(float, digits.unsigned_abs() as usize),
    };
    rounded.filter(|float: &f64| float.is_finite()).ok_or_else(|| fail("rounded value too large to represent"))
}

/// Rounds to a multiple of a power of ten, by the exact decimal digits of the float, half to even.
fn round_left_of_point(float: f64, digits: usize) -> Option<f64> {
    let whole = exact_int(float.trunc())?;
    let unit = Digits::from(10).pow(u32::try_from(digits).ok()?);
    let has_rest = float.fract() != 0.0;
    round_int(&whole, &unit, has_rest).to_string().parse().ok()
}

/// Returns the multiple of `unit` nearest to an integer, half to even. `has_rest` is true if digits
/// behind the point were cut.
pub(crate) fn round_int(int: &Digits, unit: &Digits, has_rest: bool) -> Digits {
    let zero = Digits::from(0);
    let negative = *int < zero;
    let magnitude = if negative { -int } else { int.clone() };
    let quotient = &magnitude / unit;
    let twice_rest = (&magnitude % unit) * 2;
    let odd = &quotient % Digits::from(2) != zero;
    let up = twice_rest > *unit || (twice_rest == *unit && (has_rest || odd));
    let rounded = if up { quotient + 1 } else { quotient } * unit;
    if negative { -rounded } else { rounded }
}

/// Returns the float nearest to a number.
pub(crate) fn as_float(value: &Value) -> Fallible<Option<f64>> {
    Ok(match py_value(value) {
        PyValue::Int(int) => Some(int as f64),
        PyValue::Bool(flag) => Some(f64::from(u8::from(flag))),
        PyValue::Float(float) => Some(float),
        PyValue::Object(PyObject::BigInt(big)) => Some(big.to_f64())
            .filter(|float| float.is_finite())
            .map_or_else(|| Err(too_large()), |float| Ok(Some(float)))?,
        _ => None,
    })
}

fn too_large() -> Error {
    fail("int too large to convert to float")
}

#[cfg(test)]
mod tests {
    use super::{float_repr, parse_float, round_float};

    #[track_caller]
    fn check_repr(float: f64, expected: &str) {
        assert_eq!(float_repr(float), expected);
    }

    #[test]
    fn float_exponents_match_python_repr() {
        check_repr(0.0001, "0.0001");
        check_repr(1e-5, "1e-05");
        check_repr(1e15, "1000000000000000.0");
        check_repr(1e16, "1e+16");
        check_repr(1e301, "1e+301");
        check_repr(-0.0, "-0.0");
        check_repr(f64::NEG_INFINITY, "-inf");
        check_repr(f64::NAN, "nan");
    }

    #[test]
    fn floats_are_parsed_like_python() {
        assert_eq!(parse_float(" 1_000.5\n"), Some(1000.5));
        assert_eq!(parse_float("\u{0661}e2"), Some(100.0));
        assert_eq!(parse_float("-Infinity"), Some(f64::NEG_INFINITY));
        assert_eq!(parse_float("1__0"), None);
        assert_eq!(parse_float("0x10"), None);
    }

    #[test]
    fn halves_are_rounded_to_even() {
        assert_eq!(round_float(2.5, 0).ok(), Some(2.0));
        assert_eq!(round_float(3.5, 0).ok(), Some(4.0));
        assert_eq!(round_float(150.0, -2).ok(), Some(200.0));
        assert_eq!(round_float(250.0, -2).ok(), Some(200.0));
    }
}
