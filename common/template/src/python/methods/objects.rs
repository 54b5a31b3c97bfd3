//! Methods of `loop`, cyclers and the global `dict`.

use minijinja::Value;

use super::super::super::budget;
use super::super::super::error::Fallible;
use super::super::super::value::{Dict, Obj, iterate, none};
use super::super::call::{Args, required};
use super::unknown;

pub(super) const LOOP_NAMES: &[&str] = &["changed", "cycle"];
pub(super) const CYCLER_NAMES: &[&str] = &["next", "reset"];
pub(super) const DICT_TYPE_NAMES: &[&str] = &["fromkeys"];

pub(super) fn call(object: &Obj, name: &str, args: &Args<'_>) -> Fallible<Value> {
    match (object, name) {
        (Obj::Loop(object), "cycle") => object.cycle(args.only_positional(name)?),
        (Obj::Loop(object), "changed") => object.changed(args.only_positional(name)?).map(Value::from),
        (Obj::Counter(counter), "next") => {
            args.bind::<0>(name, [])?;
            Ok(counter.advance())
        }
        (Obj::Counter(counter), "reset") => {
            args.bind::<0>(name, [])?;
            counter.reset();
            Ok(none())
        }
        (Obj::Builtin(_), "fromkeys") => from_keys(args),
        _ => Err(unknown(name)),
    }
}

/// `dict.fromkeys(keys, value)`.
pub(super) fn from_keys(args: &Args<'_>) -> Fallible<Value> {
    args.only_positional("fromkeys")?;
    let [keys, value] = args.bind("fromkeys", ["", ""])?;
    let value = value.unwrap_or_else(none);
    let mut entries = Vec::new();
    for key in iterate(&required(keys, "fromkeys", "iterable")?)? {
        budget::alloc_values(2)?;
        entries.push((key?, value.clone()));
    }
    Dict::value(entries)
}
