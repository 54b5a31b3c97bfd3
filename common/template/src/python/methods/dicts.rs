//! Methods of dicts.

use minijinja::Value;

use crate::arguments::Args;
use crate::error::{Fallible, fail};
use crate::python::method_names::unsupported;
use crate::value::{Dict, View, ViewKind, none};

pub(super) fn call(receiver: &Value, dict: &Dict, name: &str, args: &Args<'_>) -> Fallible<Value> {
    match name {
        "get" => {
            let (key, default) = match args.only_positional("get")? {
                [key] => (key, None),
                [key, default] => (key, Some(default)),
                other => return Err(fail(format!("get expected 1 or 2 arguments, got {}", other.len()))),
            };
            Ok(dict.get(key)?.or(default).cloned().unwrap_or_else(none))
        }
        "fromkeys" => super::objects::from_keys(args),
        "items" => view(receiver, ViewKind::Items, name, args),
        "keys" => view(receiver, ViewKind::Keys, name, args),
        "values" => view(receiver, ViewKind::Values, name, args),
        "copy" => {
            args.bind::<0>(name, [])?;
            Dict::value(dict.entries().to_vec())
        }
        _ => Err(unsupported(name)),
    }
}

fn view(receiver: &Value, kind: ViewKind, name: &str, args: &Args<'_>) -> Fallible<Value> {
    args.bind::<0>(name, [])?;
    Ok(View::value(kind, receiver))
}
