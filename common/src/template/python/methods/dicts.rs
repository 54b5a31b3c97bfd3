//! Methods of dicts.

use minijinja::Value;

use super::super::super::error::Fallible;
use super::super::super::value::{Dict, View, ViewKind, none};
use super::super::call::{Args, required};
use super::unknown;

pub(super) const NAMES: &[&str] = &["copy", "fromkeys", "get", "items", "keys", "values"];
pub(super) const MUTATING: &[&str] = &["clear", "pop", "popitem", "setdefault", "update"];

pub(super) fn call(receiver: &Value, dict: &Dict, name: &str, args: &Args<'_>) -> Fallible<Value> {
    match name {
        "get" => {
            args.only_positional("get")?;
            let [key, default] = args.bind("get", ["", ""])?;
            let found = dict.get(&required(key, "get", "key")?)?.cloned();
            Ok(found.or(default).unwrap_or_else(none))
        }
        "fromkeys" => super::objects::from_keys(args),
        "items" => view(receiver, ViewKind::Items, name, args),
        "keys" => view(receiver, ViewKind::Keys, name, args),
        "values" => view(receiver, ViewKind::Values, name, args),
        "copy" => {
            args.bind::<0>(name, [])?;
            Dict::value(dict.entries().to_vec())
        }
        _ => Err(unknown(name)),
    }
}

fn view(receiver: &Value, kind: ViewKind, name: &str, args: &Args<'_>) -> Fallible<Value> {
    args.bind::<0>(name, [])?;
    Ok(View::value(kind, receiver))
}
