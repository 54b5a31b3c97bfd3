//! Methods of `loop`, cyclers and the global `dict`.

use minijinja::Value;

use crate::arguments::{Args, required};
use crate::budget;
use crate::error::Fallible;
use crate::python::method_names::unsupported;
use crate::value::{Dict, PyObject, iterate, none};

pub(super) fn call(object: &PyObject, name: &str, args: &Args<'_>) -> Fallible<Value> {
    match (object, name) {
        (PyObject::Loop(object), "cycle") => object.cycle(args.only_positional(name)?),
        (PyObject::Loop(object), "changed") => object.changed(args.only_positional(name)?).map(Value::from),
        (PyObject::Counter(counter), "next") => {
            args.bind::<0>(name, [])?;
            Ok(counter.advance())
        }
        (PyObject::Counter(counter), "reset") => {
            args.bind::<0>(name, [])?;
            counter.reset();
            Ok(none())
        }
        (PyObject::Builtin(_), "fromkeys") => from_keys(args),
        _ => Err(unsupported(name)),
    }
}

/// Evaluates `dict.fromkeys(keys, value)`.
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
