//! `tojson`, as transformers defines it: `json.dumps` without escapes for HTML.

use std::borrow::Cow;

use minijinja::Value;

use crate::arguments::Args;
use crate::budget;
use crate::error::{Fallible, fail};
use crate::interpreter::Interpreter;
use crate::python::convert::{flag, int_arg, or_none};
use crate::python::json::{Style, dumps};
use crate::value::{PyValue, py_value, text, to_vec, type_name};

/// Larger indentation is cut to this.
const MAX_INDENT: usize = 1 << 20;

pub(super) fn tojson(_: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    let is_text = value.as_str().is_some();
    let names = ["ensure_ascii", "indent", "separators", "sort_keys"];
    let [ensure_ascii, indent, separators, sort_keys] = args.bind("tojson", names)?;
    // Python ignores the indentation of a text.
    let indent =
        or_none(indent).map(|indent| if is_text { Ok(String::new()) } else { indentation(&indent) }).transpose()?;
    let (item_separator, key_separator) = match or_none(separators) {
        Some(pair) => separator_pair(&pair)?,
        None => (if indent.is_some() { "," } else { ", " }.into(), ": ".into()),
    };
    let style = Style {
        ensure_ascii: flag(ensure_ascii),
        indent: indent.map(Cow::Owned),
        item_separator: Cow::Owned(item_separator),
        key_separator: Cow::Owned(key_separator),
        sort_keys: flag(sort_keys),
    };
    text(dumps(value, &style)?)
}

fn indentation(indent: &Value) -> Fallible<String> {
    match py_value(indent) {
        PyValue::Str(text) => {
            budget::alloc(text.len())?;
            Ok(text.to_owned())
        }
        PyValue::Undefined(undefined) => Err(undefined.error()),
        _ => {
            let width = usize::try_from(int_arg(indent)?).unwrap_or(0).min(MAX_INDENT);
            budget::alloc(width)?;
            Ok(" ".repeat(width))
        }
    }
}

fn separator_pair(pair: &Value) -> Fallible<(String, String)> {
    let parts = to_vec(pair)?;
    match parts.as_slice() {
        [item, key] => Ok((separator(item)?, separator(key)?)),
        _ => Err(fail("separators must be a pair")),
    }
}

fn separator(value: &Value) -> Fallible<String> {
    match value.as_str() {
        Some(text) => {
            budget::alloc(text.len())?;
            Ok(text.to_owned())
        }
        None => Err(fail(format!("separators must be str, not {}", type_name(value)))),
    }
}
