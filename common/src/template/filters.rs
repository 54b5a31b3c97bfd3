//! Jinja2's filters: what follows `|`.

mod basic;
mod entities;
mod html;
mod json;
mod numbers;
mod pretty;
mod select;
mod sequences;
mod texts;
mod wrap;

use minijinja::{State, Value};

use super::error::{Fallible, fail};
use super::machine::Op;
use super::python::attribute;
use super::python::call::Args;
use super::value::{Obj, Py, is_undefined, obj, py};

/// A filter: its operand is the first argument.
type Filter = fn(&mut State<'_, '_>, &Value, &Args<'_>) -> Fallible<Value>;

/// Reads a filter's arguments and applies it.
macro_rules! op {
    ($filter:path) => {
        |state, values| apply_filter(state, values, $filter)
    };
}

/// The filters, each under its name with "|" in front.
pub(crate) const OPS: &[(&str, Op)] = &[
    ("|abs", op!(numbers::abs)),
    ("|attr", op!(basic::attr)),
    ("|batch", op!(sequences::batch)),
    ("|capitalize", op!(texts::capitalize)),
    ("|center", op!(texts::center)),
    ("|count", op!(basic::length_of)),
    ("|d", op!(basic::default)),
    ("|default", op!(basic::default)),
    ("|dictsort", op!(sequences::dictsort)),
    ("|e", op!(html::escape)),
    ("|escape", op!(html::escape)),
    ("|filesizeformat", op!(numbers::filesizeformat)),
    ("|first", op!(sequences::first)),
    ("|float", op!(numbers::float)),
    ("|forceescape", op!(html::forceescape)),
    ("|format", op!(texts::format)),
    ("|groupby", op!(sequences::groupby)),
    ("|indent", op!(texts::indent)),
    ("|int", op!(numbers::int)),
    ("|items", op!(basic::items)),
    ("|join", op!(sequences::join)),
    ("|last", op!(sequences::last)),
    ("|length", op!(basic::length_of)),
    ("|list", op!(sequences::list_of)),
    ("|lower", op!(texts::lower)),
    ("|map", op!(select::map)),
    ("|max", op!(sequences::max)),
    ("|min", op!(sequences::min)),
    ("|pprint", op!(pretty::pprint)),
    ("|reject", op!(select::reject)),
    ("|rejectattr", op!(select::rejectattr)),
    ("|replace", op!(texts::replace)),
    ("|reverse", op!(sequences::reverse)),
    ("|round", op!(numbers::round)),
    ("|safe", op!(html::safe)),
    ("|select", op!(select::select)),
    ("|selectattr", op!(select::selectattr)),
    ("|slice", op!(sequences::slice)),
    ("|sort", op!(sequences::sort)),
    ("|string", op!(basic::string)),
    ("|striptags", op!(html::striptags)),
    ("|sum", op!(sequences::sum)),
    ("|title", op!(texts::title)),
    ("|tojson", op!(json::tojson)),
    ("|trim", op!(texts::trim)),
    ("|truncate", op!(texts::truncate)),
    ("|unique", op!(sequences::unique)),
    ("|upper", op!(texts::upper)),
    ("|urlencode", op!(html::urlencode)),
    ("|wordcount", op!(texts::wordcount)),
    ("|wordwrap", op!(wrap::wordwrap)),
    ("|xmlattr", op!(html::xmlattr)),
];

/// Filters of Jinja2 that are refused: one is not deterministic, the other is for web pages.
pub(crate) fn is_unsupported(name: &str) -> bool {
    matches!(name, "random" | "urlize")
}

/// The operation of a filter.
pub(crate) fn op_name(name: &str) -> Option<&'static str> {
    OPS.iter().map(|(op, _)| *op).find(|op| &op[1..] == name)
}

fn apply_filter(state: &mut State<'_, '_>, values: &[Value], filter: Filter) -> Fallible<Value> {
    let Some((value, operands)) = values.split_first() else {
        return Err(fail("a filter needs a value"));
    };
    filter(state, value, &Args::read(operands)?)
}

/// Applies a filter by its name, as `map` does.
fn apply(state: &mut State<'_, '_>, name: &Value, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    let op = name.as_str().and_then(|name| OPS.iter().find(|(op, _)| &op[1..] == name));
    let Some((_, op)) = op else {
        return Err(fail(format!("No filter named '{name}'.")));
    };
    let (keywords, values): (Vec<_>, Vec<_>) = args.keywords.iter().cloned().unzip();
    let mut operands = args.after(value).positional.into_owned();
    operands.extend(values);
    if !keywords.is_empty() {
        let spec = super::python::call::CallSpec { keywords, splat: false, keyword_splat: false };
        operands.push(Obj::CallSpec(spec).value());
    }
    op(state, &operands)
}

/// Looks up an attribute by a path such as `user.name` or `items.0`.
struct Path(Vec<Value>);

impl Path {
    fn parse(path: &Value) -> Self {
        Self(match py(path) {
            Py::None => Vec::new(),
            Py::Str(text) => text.split('.').map(part).collect(),
            _ => vec![path.clone()],
        })
    }

    fn get(&self, state: &mut State<'_, '_>, value: &Value, default: Option<&Value>) -> Fallible<Value> {
        let mut value = value.clone();
        for part in &self.0 {
            value = attribute::item(state, &value, part)?;
            if let Some(default) = default
                && is_undefined(&value)
            {
                value = default.clone();
            }
        }
        Ok(value)
    }
}

fn part(part: &str) -> Value {
    let is_number = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    match part.parse::<i64>() {
        Ok(number) if is_number => Value::from(number),
        _ => Value::from(part),
    }
}

/// Texts are compared in lower case.
fn ignore_case(value: Value) -> Value {
    match value.as_str() {
        Some(text) if !text.is_empty() => Value::from(text.to_lowercase()),
        _ => value,
    }
}

/// Whether a boolean argument is on.
fn flag(value: Option<Value>) -> bool {
    value.is_some_and(|value| value.is_true())
}

/// Whether the value is a mapping.
fn is_mapping(value: &Value) -> bool {
    matches!(obj(value), Some(Obj::Dict(_)))
}
