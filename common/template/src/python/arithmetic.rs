//! `+`, `-`, `*`, `/`, `//`, `%`, `**` and signs.

use minijinja::Value;
use num_bigint::BigInt as Digits;

use crate::budget;
use crate::error::Limit;
use crate::error::limit;
use crate::error::{Fallible, fail};
use crate::interpreter::Interpreter;
use crate::python::markup;
use crate::python::number::as_float;
use crate::python::printf;
use crate::value::{PyObject, PyValue, Seq, SeqKind, as_digits, int_value, joined, py_value, safe_text, type_name};

/// Two numbers of the same type.
enum Pair {
    Small(i128, i128),
    Big(Digits, Digits),
    Floats(f64, f64),
}

/// Converts two numbers to the same type; nothing if one is not a number.
fn pair(left: &Value, right: &Value) -> Fallible<Option<Pair>> {
    if let (Some(left), Some(right)) = (small(left), small(right)) {
        return Ok(Some(Pair::Small(left, right)));
    }
    let is_float = |value| matches!(py_value(value), PyValue::Float(_));
    if !is_float(left)
        && !is_float(right)
        && let (Some(left), Some(right)) = (as_digits(left), as_digits(right))
    {
        return Ok(Some(Pair::Big(left, right)));
    }
    match (as_float(left)?, as_float(right)?) {
        (Some(left), Some(right)) => Ok(Some(Pair::Floats(left, right))),
        _ => Ok(None),
    }
}

fn small(value: &Value) -> Option<i128> {
    match py_value(value) {
        PyValue::Int(int) => Some(int),
        PyValue::Bool(flag) => Some(i128::from(flag)),
        _ => None,
    }
}

fn unsupported<T>(op: &str, left: &Value, right: &Value) -> Fallible<T> {
    for operand in [left, right] {
        if let PyValue::Undefined(undefined) = py_value(operand) {
            return Err(undefined.error());
        }
    }
    let (left, right) = (type_name(left), type_name(right));
    Err(fail(format!("unsupported operand type(s) for {op}: '{left}' and '{right}'")))
}

/// Computes `left + right`.
pub(crate) fn add(left: &Value, right: &Value) -> Fallible<Value> {
    match (py_value(left), py_value(right)) {
        (PyValue::Str(left_text), PyValue::Str(right_text)) => add_texts(left, left_text, right, right_text),
        (PyValue::Object(PyObject::Seq(left_seq)), PyValue::Object(PyObject::Seq(right_seq)))
            if left_seq.is_list() == right_seq.is_list() =>
        {
            add_sequences(left_seq, right_seq)
        }
        (PyValue::Str(_), PyValue::Undefined(undefined)) | (PyValue::Undefined(undefined), PyValue::Str(_)) => {
            Err(undefined.error())
        }
        (PyValue::Str(_), _) => Err(fail(format!("can only concatenate str (not \"{}\") to str", type_name(right)))),
        _ => match pair(left, right)? {
            Some(Pair::Small(left, right)) => small_or_big(left.checked_add(right), || Digits::from(left) + right),
            Some(Pair::Big(left, right)) => int_value(left + right),
            Some(Pair::Floats(left, right)) => Ok(Value::from(left + right)),
            None => unsupported("+", left, right),
        },
    }
}

/// Adds texts. A text that is marked as safe has the other escaped.
fn add_texts(left: &Value, left_text: &str, right: &Value, right_text: &str) -> Fallible<Value> {
    match (left.is_safe(), right.is_safe()) {
        (false, false) => joined([left_text, right_text].into_iter()),
        (true, true) => safe_text(format!("{left_text}{right_text}")),
        (true, false) => safe_text(format!("{left_text}{}", markup::escape_html(right_text)?)),
        (false, true) => safe_text(format!("{}{right_text}", markup::escape_html(left_text)?)),
    }
}

fn add_sequences(left: &Seq, right: &Seq) -> Fallible<Value> {
    budget::alloc_values(left.items().len() + right.items().len())?;
    let items = left.items().iter().chain(right.items()).cloned().collect();
    Seq::charged_for(if left.is_list() { SeqKind::List } else { SeqKind::Tuple }, items)
}

fn small_or_big(small: Option<i128>, big: impl FnOnce() -> Digits) -> Fallible<Value> {
    match small {
        Some(int) => Ok(Value::from(int)),
        None => int_value(big()),
    }
}

/// Computes `left - right`.
pub(crate) fn subtract(left: &Value, right: &Value) -> Fallible<Value> {
    match pair(left, right)? {
        Some(Pair::Small(left, right)) => small_or_big(left.checked_sub(right), || Digits::from(left) - right),
        Some(Pair::Big(left, right)) => int_value(left - right),
        Some(Pair::Floats(left, right)) => Ok(Value::from(left - right)),
        None => unsupported("-", left, right),
    }
}

/// Computes `left * right`; one side may be a text or list, which is repeated.
pub(crate) fn multiply(left: &Value, right: &Value) -> Fallible<Value> {
    match (py_value(left), py_value(right)) {
        (PyValue::Str(_) | PyValue::Object(PyObject::Seq(_)), _) => repeat(left, right),
        (_, PyValue::Str(_) | PyValue::Object(PyObject::Seq(_))) => repeat(right, left),
        _ => match pair(left, right)? {
            Some(Pair::Small(left, right)) => small_or_big(left.checked_mul(right), || Digits::from(left) * right),
            Some(Pair::Big(left, right)) => {
                budget::product(left.bits(), right.bits())?;
                int_value(left * right)
            }
            Some(Pair::Floats(left, right)) => Ok(Value::from(left * right)),
            None => unsupported("*", left, right),
        },
    }
}

fn repeat(value: &Value, times: &Value) -> Fallible<Value> {
    let Some(times) = as_digits(times) else {
        if let PyValue::Undefined(undefined) = py_value(times) {
            return Err(undefined.error());
        }
        return Err(fail(format!("can't multiply sequence by non-int of type '{}'", type_name(times))));
    };
    let times = i64::try_from(times).map_err(|_| fail("cannot fit 'int' into an index-sized integer"))?;
    let times = usize::try_from(times).unwrap_or(0);
    match py_value(value) {
        PyValue::Str(content) => {
            let size = content.len().saturating_mul(times);
            budget::alloc(size)?;
            let content = content.repeat(if size == 0 { 0 } else { times });
            let value = if value.is_safe() { Value::from_safe_string(content) } else { Value::from(content) };
            budget::track(&value);
            Ok(value)
        }
        PyValue::Object(PyObject::Seq(seq)) => {
            let size = seq.items().len().saturating_mul(times);
            budget::alloc_values(size)?;
            let items = seq.items().iter().cycle().take(size).cloned().collect();
            Seq::charged_for(if seq.is_list() { SeqKind::List } else { SeqKind::Tuple }, items)
        }
        _ => unsupported("*", value, value),
    }
}

/// Computes `left / right`, always a float.
pub(crate) fn divide(left: &Value, right: &Value) -> Fallible<Value> {
    let quotient = match pair(left, right)? {
        None => return unsupported("/", left, right),
        Some(Pair::Small(_, 0)) => return Err(fail("division by zero")),
        Some(Pair::Small(left, right)) => divide_ints(&left.into(), &right.into())?,
        Some(Pair::Big(_, right)) if right == Digits::from(0) => return Err(fail("division by zero")),
        Some(Pair::Big(left, right)) => divide_ints(&left, &right)?,
        Some(Pair::Floats(_, 0.0)) => return Err(fail("float division by zero")),
        Some(Pair::Floats(left, right)) => left / right,
    };
    Ok(Value::from(quotient))
}

/// Returns the float nearest to the exact quotient of two integers.
fn divide_ints(left: &Digits, right: &Digits) -> Fallible<f64> {
    const EXACT_BITS: u64 = 53;
    if left.bits() <= EXACT_BITS && right.bits() <= EXACT_BITS {
        return Ok(digits_to_f64(left) / digits_to_f64(right));
    }
    budget::product(left.bits().max(right.bits()), right.bits())?;
    // Scale the quotient to at least 66 bits, keep one bit for the remainder, and let the
    // conversion round.
    let shift = 66 + right.bits() as i64 - left.bits() as i64;
    let (numerator, denominator) =
        if shift > 0 { (left << shift, right.clone()) } else { (left.clone(), right << -shift) };
    let mut quotient = &numerator / &denominator;
    if &quotient * &denominator != numerator {
        quotient = (quotient << 1) + if numerator.sign() == denominator.sign() { 1 } else { -1 };
    } else {
        quotient <<= 1;
    }
    let mantissa = i128::try_from(&quotient).unwrap_or_default() as f64;
    let result = scale(mantissa, -(shift + 1));
    if result.is_finite() { Ok(result) } else { Err(fail("integer division result too large for a float")) }
}

fn digits_to_f64(int: &Digits) -> f64 {
    i128::try_from(int).unwrap_or_default() as f64
}

/// Computes `float * 2 ** exponent` in steps that do not overflow.
fn scale(mut float: f64, mut exponent: i64) -> f64 {
    while exponent != 0 && float != 0.0 && float.is_finite() {
        let step = exponent.clamp(-1000, 1000);
        float *= 2_f64.powi(step as i32);
        exponent -= step;
    }
    float
}

/// Computes `left // right`.
pub(crate) fn floor_divide(left: &Value, right: &Value) -> Fallible<Value> {
    match pair(left, right)? {
        None => unsupported("//", left, right),
        Some(Pair::Small(_, 0)) => Err(fail("integer division or modulo by zero")),
        Some(Pair::Small(left, right)) => match left.checked_div_euclid(right) {
            Some(_) => Ok(Value::from(floor_small(left, right).0)),
            None => int_value(-Digits::from(left)),
        },
        Some(Pair::Big(left, right)) => Ok(int_value(floor_big(&left, &right)?.0)?),
        Some(Pair::Floats(_, 0.0)) => Err(fail("float floor division by zero")),
        Some(Pair::Floats(left, right)) => Ok(Value::from(floor_floats(left, right).0)),
    }
}

/// Returns quotient and remainder; the remainder has the sign of the divisor.
fn floor_small(left: i128, right: i128) -> (i128, i128) {
    let (quotient, rest) = (left.wrapping_div(right), left.wrapping_rem(right));
    if rest != 0 && (rest < 0) != (right < 0) { (quotient - 1, rest + right) } else { (quotient, rest) }
}

fn floor_big(left: &Digits, right: &Digits) -> Fallible<(Digits, Digits)> {
    let zero = Digits::from(0);
    if *right == zero {
        return Err(fail("integer division or modulo by zero"));
    }
    budget::product(left.bits(), 2 * right.bits())?;
    let (quotient, rest) = (left / right, left % right);
    let adjust = rest != zero && (rest < zero) != (*right < zero);
    Ok(if adjust { (quotient - 1, rest + right) } else { (quotient, rest) })
}

/// Returns both as CPython computes them, which keeps the sign of zeros.
fn floor_floats(left: f64, right: f64) -> (f64, f64) {
    let mut rest = left % right;
    let mut quotient = (left - rest) / right;
    if rest == 0.0 {
        rest = 0.0_f64.copysign(right);
    } else if (rest < 0.0) != (right < 0.0) {
        rest += right;
        quotient -= 1.0;
    }
    if quotient == 0.0 {
        return (0.0_f64.copysign(left / right), rest);
    }
    let floor = quotient.floor();
    (if quotient - floor > 0.5 { floor + 1.0 } else { floor }, rest)
}

/// Computes `left % right`, which formats if the left side is a text.
pub(crate) fn modulo(interpreter: &mut dyn Interpreter, left: &Value, right: &Value) -> Fallible<Value> {
    if left.as_str().is_some() {
        return printf::format(interpreter, left, right);
    }
    match pair(left, right)? {
        None => unsupported("%", left, right),
        Some(Pair::Small(_, 0)) => Err(fail("integer division or modulo by zero")),
        Some(Pair::Small(left, right)) => Ok(Value::from(floor_small(left, right).1)),
        Some(Pair::Big(left, right)) => int_value(floor_big(&left, &right)?.1),
        Some(Pair::Floats(_, 0.0)) => Err(fail("float modulo")),
        Some(Pair::Floats(left, right)) => Ok(Value::from(floor_floats(left, right).1)),
    }
}

/// Computes `left ** right`.
pub(crate) fn power(left: &Value, right: &Value) -> Fallible<Value> {
    let (Some(base), Some(exponent)) = (as_digits(left), as_digits(right)) else {
        return match (as_float(left)?, as_float(right)?) {
            (Some(base), Some(exponent)) => power_floats(base, exponent),
            _ => unsupported("** or pow()", left, right),
        };
    };
    if exponent < Digits::from(0) {
        let exponent = as_float(right)?.unwrap_or(f64::NAN);
        return power_floats(as_float(left)?.unwrap_or(f64::NAN), exponent);
    }
    power_ints(&base, &exponent)
}

fn power_ints(base: &Digits, exponent: &Digits) -> Fallible<Value> {
    /// As in [`int_value`], but checked before the digits are computed.
    const MAX_BITS: u64 = 64 * 1024;
    if base.bits() <= 1 {
        let odd = exponent % Digits::from(2) != Digits::from(0);
        let small = if *exponent == Digits::from(0) {
            Digits::from(1)
        } else if odd {
            base.clone()
        } else {
            base * base
        };
        return int_value(small);
    }
    let exponent = u32::try_from(exponent).map_err(|_| limit(Limit::Integer))?;
    if base.bits().saturating_mul(exponent.into()) > MAX_BITS {
        return Err(limit(Limit::Integer));
    }
    budget::product(base.bits() * u64::from(exponent), base.bits() * u64::from(exponent))?;
    int_value(base.pow(exponent))
}

fn power_floats(base: f64, exponent: f64) -> Fallible<Value> {
    if base == 0.0 && exponent < 0.0 {
        return Err(fail("0.0 cannot be raised to a negative power"));
    }
    if base < 0.0 && base.is_finite() && exponent.is_finite() && exponent.fract() != 0.0 {
        return Err(fail("complex numbers are not supported"));
    }
    let result = base.powf(exponent);
    if result.is_infinite() && base.is_finite() && exponent.is_finite() {
        return Err(fail("Numerical result out of range"));
    }
    Ok(Value::from(result))
}

/// Computes `-value`.
pub(crate) fn negate(value: &Value) -> Fallible<Value> {
    match (as_digits(value), py_value(value)) {
        (Some(int), _) => int_value(-int),
        (None, PyValue::Float(float)) => Ok(Value::from(-float)),
        (None, PyValue::Undefined(undefined)) => Err(undefined.error()),
        _ => Err(fail(format!("bad operand type for unary -: '{}'", type_name(value)))),
    }
}

/// Computes `+value`.
pub(crate) fn plus(value: &Value) -> Fallible<Value> {
    match (as_digits(value), py_value(value)) {
        (Some(int), _) => int_value(int),
        (None, PyValue::Float(_)) => Ok(value.clone()),
        (None, PyValue::Undefined(undefined)) => Err(undefined.error()),
        _ => Err(fail(format!("bad operand type for unary +: '{}'", type_name(value)))),
    }
}
