//! Methods of lists, tuples and ranges.

use minijinja::Value;

use super::super::super::budget;
use super::super::super::error::{Fallible, fail};
use super::super::super::value::{iterate, length, list, to_vec};
use super::super::call::{Args, int_arg, required};
use super::super::equal::equal;
use super::unknown;

pub(super) const LIST_NAMES: &[&str] = &["copy", "count", "index"];
/// Of tuples and ranges.
pub(super) const NAMES: &[&str] = &["count", "index"];
pub(super) const MUTATING: &[&str] = &["append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"];

pub(super) fn call(receiver: &Value, name: &str, args: &Args<'_>) -> Fallible<Value> {
    args.only_positional(name)?;
    match name {
        "copy" => {
            args.bind::<0>(name, [])?;
            list(to_vec(receiver)?)
        }
        "count" => {
            let [item] = args.bind(name, [""])?;
            count(receiver, &required(item, name, "value")?)
        }
        "index" => {
            let [item, start, stop] = args.bind(name, ["", "", ""])?;
            let len = length(receiver).unwrap_or(0);
            let bound = |value: Option<Value>, default| value.map_or(Ok(default), |value| position(&value, len));
            index(receiver, &required(item, name, "value")?, bound(start, 0)?, bound(stop, len)?)
        }
        _ => Err(unknown(name)),
    }
}

fn count(receiver: &Value, item: &Value) -> Fallible<Value> {
    let mut count = 0;
    for found in iterate(receiver)? {
        budget::steps(3)?;
        count += usize::from(equal(&found?, item)?);
    }
    Ok(Value::from(count))
}

fn index(receiver: &Value, item: &Value, start: usize, stop: usize) -> Fallible<Value> {
    budget::steps(start.min(length(receiver).unwrap_or(0)))?;
    for (at, found) in iterate(receiver)?.enumerate().take(stop).skip(start) {
        budget::steps(3)?;
        if equal(&found?, item)? {
            return Ok(Value::from(at));
        }
    }
    Err(fail("the value is not in the list"))
}

fn position(value: &Value, len: usize) -> Fallible<usize> {
    let at = int_arg(value)?;
    let at = if at < 0 { at.saturating_add(i64::try_from(len).unwrap_or(i64::MAX)) } else { at };
    Ok(usize::try_from(at).unwrap_or(0))
}
