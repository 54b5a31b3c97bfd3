//! Filters for numbers.

use minijinja::Value;
use num_bigint::BigInt as Digits;

use crate::arguments::Args;
use crate::error::{Fallible, fail};
use crate::interpreter::Interpreter;
use crate::python::convert::{defined, flag, int_arg, or_none};
use crate::python::number::as_float;
use crate::python::{arithmetic, number};
use crate::value::{PyValue, as_digits, int_value, py_value, text, type_name};
use crate::{budget, taint};

pub(super) fn abs(_: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    args.bind::<0>("abs", [])?;
    match (py_value(defined(value)?), as_digits(value)) {
        (PyValue::Float(float), _) => Ok(Value::from(float.abs())),
        (_, Some(int)) if int < Digits::from(0) => int_value(-int),
        (_, Some(int)) => int_value(int),
        _ => Err(fail(format!("bad operand type for abs(): '{}'", type_name(value)))),
    }
}

/// Returns the default for an ordinary error.
fn or_default(result: Fallible<Value>, default: impl FnOnce() -> Value) -> Fallible<Value> {
    match result {
        Err(error) if !error.is_fatal() => Ok(default()),
        result => result,
    }
}

pub(super) fn int(_: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    let [default, base] = args.bind("int", ["default", "base"])?;
    let default = || default.unwrap_or_else(|| Value::from(0));
    let base = base.map_or(Ok(10), |base| int_arg(&base))?;
    budget::walk(value.as_str().map_or(0, str::len))?;
    budget::room(value.as_str().map_or(0, |content| 4 * content.len()))?;
    match py_value(value) {
        PyValue::Str(content) => {
            match number::parse_int(&taint::strip(content), u32::try_from(base).unwrap_or(u32::MAX)) {
                Ok(int) => Ok(int),
                Err(error) if error.is_fatal() => Err(error),
                Err(_) => match number::parse_float(&taint::strip(content)) {
                    Some(float) => or_default(number::truncate(float), default),
                    None => Ok(default()),
                },
            }
        }
        PyValue::Float(float) if float.is_infinite() => number::truncate(float),
        PyValue::Float(float) => or_default(number::truncate(float), default),
        PyValue::Undefined(undefined) => Err(undefined.error()),
        _ => match as_digits(value) {
            Some(int) => int_value(int),
            None => Ok(default()),
        },
    }
}

pub(super) fn float(_: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    let [default] = args.bind("float", ["default"])?;
    budget::walk(value.as_str().map_or(0, str::len))?;
    budget::room(value.as_str().map_or(0, |content| 2 * content.len()))?;
    let float = match py_value(value) {
        PyValue::Str(content) => number::parse_float(&taint::strip(content)),
        PyValue::Undefined(undefined) => return Err(undefined.error()),
        _ => as_float(value)?,
    };
    Ok(float.map(Value::from).or(default).unwrap_or_else(|| Value::from(0.0)))
}

pub(super) fn round(_: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    let [precision, method] = args.bind("round", ["precision", "method"])?;
    let precision = precision.unwrap_or_else(|| Value::from(0));
    let method = method.unwrap_or_else(|| Value::from("common"));
    match method.as_str().map(taint::strip).as_deref() {
        Some("common") => round_to_nearest(value, &precision),
        Some("ceil") => round_by(value, &precision, f64::ceil),
        Some("floor") => round_by(value, &precision, f64::floor),
        _ => Err(fail("method must be common, ceil or floor")),
    }
}

fn round_to_nearest(value: &Value, precision: &Value) -> Fallible<Value> {
    let whole = or_none(Some(precision.clone())).is_none();
    let digits = if whole { 0 } else { int_arg(precision)? };
    match (py_value(defined(value)?), as_digits(value)) {
        (PyValue::Float(float), _) if whole => number::truncate(number::round_float(float, 0)?),
        (PyValue::Float(float), _) => Ok(Value::from(number::round_float(float, digits)?)),
        (_, Some(int)) if digits >= 0 => int_value(int),
        (_, Some(int)) => {
            let digits = u32::try_from(digits.unsigned_abs()).unwrap_or(u32::MAX).min(5000);
            budget::product(4 * u64::from(digits), 4 * u64::from(digits))?;
            budget::product(2 * int.bits(), 4 * u64::from(digits))?;
            int_value(number::round_int(&int, &Digits::from(10).pow(digits), false))
        }
        _ => Err(fail(format!("type {} doesn't define __round__ method", type_name(value)))),
    }
}

fn round_by(value: &Value, precision: &Value, round: fn(f64) -> f64) -> Fallible<Value> {
    let unit = arithmetic::power(&Value::from(10), precision)?;
    let scaled = arithmetic::multiply(value, &unit)?;
    let rounded = match as_float(defined(&scaled)?)? {
        Some(float) if matches!(py_value(&scaled), PyValue::Float(_)) => number::truncate(round(float))?,
        Some(_) => scaled,
        None => return Err(fail(format!("must be real number, not {}", type_name(&scaled)))),
    };
    arithmetic::divide(&rounded, &unit)
}

pub(super) fn filesizeformat(_: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    const DECIMAL: [&str; 8] = ["kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"];
    const BINARY: [&str; 8] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"];
    let [binary] = args.bind("filesizeformat", ["binary"])?;
    let (base, units): (f64, _) = if flag(binary) { (1024.0, BINARY) } else { (1000.0, DECIMAL) };
    budget::walk(value.as_str().map_or(0, str::len))?;
    let bytes = match py_value(defined(value)?) {
        PyValue::Str(content) => number::parse_float(&taint::strip(content)),
        _ => as_float(value)?,
    };
    let bytes = bytes.ok_or_else(|| fail("the filter 'filesizeformat' needs a number"))?;
    if bytes == 1.0 {
        return text("1 Byte");
    }
    if bytes < base {
        if bytes.is_infinite() {
            return Err(fail("cannot convert float infinity to integer"));
        }
        // An integer has no negative zero.
        return text(format!("{} Bytes", bytes.trunc() + 0.0));
    }
    let mut unit = base;
    for name in units {
        unit *= base;
        if bytes < unit || name == units[7] {
            return text(format!("{:.1} {name}", base * bytes / unit));
        }
    }
    Ok(Value::UNDEFINED)
}
