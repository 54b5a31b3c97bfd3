//! Methods of lists, tuples and ranges.

use minijinja::Value;

use crate::arguments::{Args, required};
use crate::budget;
use crate::error::{Fallible, fail};
use crate::python::convert::int_arg;
use crate::python::method_names::unsupported;
use crate::value::{equal, iterate, length, list, to_vec};

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
        _ => Err(unsupported(name)),
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
