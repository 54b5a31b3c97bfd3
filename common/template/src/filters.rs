//! Jinja2's filters: what follows `|`.

mod basic;
mod entities;
pub(super) mod html;
mod json;
mod numbers;
mod pretty;
mod select;
mod sequences;
mod texts;
mod wrap;

use minijinja::Value;

use super::budget;
use super::error::{Fallible, fail};
use super::machine::Machine;
use super::marks;
use super::program::Filter;
use super::python::attribute;
use super::python::call::Args;
use super::value::{Obj, Py, is_undefined, obj, py, text};

/// The filters by name, in order.
const FILTERS: &[(&str, Filter)] = &[
    ("abs", numbers::abs),
    ("attr", basic::attr),
    ("batch", sequences::batch),
    ("capitalize", texts::capitalize),
    ("center", texts::center),
    ("count", basic::length_of),
    ("d", basic::default),
    ("default", basic::default),
    ("dictsort", sequences::dictsort),
    ("e", html::escape),
    ("escape", html::escape),
    ("filesizeformat", numbers::filesizeformat),
    ("first", sequences::first),
    ("float", numbers::float),
    ("forceescape", html::forceescape),
    ("format", texts::format),
    ("groupby", sequences::groupby),
    ("indent", texts::indent),
    ("int", numbers::int),
    ("items", basic::items),
    ("join", sequences::join),
    ("last", sequences::last),
    ("length", basic::length_of),
    ("list", sequences::list_of),
    ("lower", texts::lower),
    ("map", select::map),
    ("max", sequences::max),
    ("min", sequences::min),
    ("pprint", pretty::pprint),
    ("random", sequences::random),
    ("reject", select::reject),
    ("rejectattr", select::rejectattr),
    ("replace", texts::replace),
    ("reverse", sequences::reverse),
    ("round", numbers::round),
    ("safe", html::safe),
    ("select", select::select),
    ("selectattr", select::selectattr),
    ("slice", sequences::slice),
    ("sort", sequences::sort),
    ("string", basic::string),
    ("striptags", html::striptags),
    ("sum", sequences::sum),
    ("title", texts::title),
    ("tojson", json::tojson),
    ("trim", texts::trim),
    ("truncate", texts::truncate),
    ("unique", sequences::unique),
    ("upper", texts::upper),
    ("urlencode", html::urlencode),
    ("wordcount", texts::wordcount),
    ("wordwrap", wrap::wordwrap),
    ("xmlattr", html::xmlattr),
];

/// The filter of Jinja2 that is refused: it is for web pages.
pub(crate) fn is_unsupported(name: &str) -> bool {
    name == "urlize"
}

/// The filter of that name.
pub(crate) fn find(name: &str) -> Option<Filter> {
    let at = FILTERS.binary_search_by(|(known, _)| (*known).cmp(name)).ok()?;
    Some(FILTERS[at].1)
}

/// Whether Jinja2 hands the filter the template's variables, so that it is never computed when a template is compiled.
pub(crate) fn needs_context(filter: Filter) -> bool {
    let names = ["map", "random", "reject", "rejectattr", "select", "selectattr"];
    names.into_iter().filter_map(find).any(|found| std::ptr::fn_addr_eq(found, filter))
}

/// Applies a filter by its name, as `map` does.
fn apply(machine: &mut Machine, name: &Value, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    match name.as_str().and_then(|name| find(&marks::plain(name))) {
        Some(filter) => filter(machine, value, args),
        None => Err(fail(format!("No filter named '{name}'."))),
    }
}

/// Looks up an attribute by a path such as `user.name` or `items.0`.
struct Path(Vec<Value>);

impl Path {
    fn parse(path: &Value) -> Fallible<Self> {
        Ok(Self(match py(path) {
            Py::None => Vec::new(),
            Py::Str(text) => marks::plain(text).split('.').map(part).collect::<Fallible<_>>()?,
            _ => vec![path.clone()],
        }))
    }

    fn get(&self, machine: &mut Machine, value: &Value, default: Option<&Value>) -> Fallible<Value> {
        let mut value = value.clone();
        for part in &self.0 {
            budget::steps(1)?;
            value = attribute::item(machine, &value, part)?;
            if let Some(default) = default
                && is_undefined(&value)
            {
                value = default.clone();
            }
        }
        Ok(value)
    }
}

fn part(part: &str) -> Fallible<Value> {
    budget::alloc(budget::VALUE_BYTES + part.len())?;
    let is_number = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    Ok(match part.parse::<i64>() {
        Ok(number) if is_number => Value::from(number),
        _ => Value::from(part),
    })
}

/// Texts are compared in lower case; what is in lower case already is not copied.
fn ignore_case(value: Value) -> Fallible<Value> {
    let Some(content) = value.as_str() else {
        return Ok(value);
    };
    budget::scan(content.len())?;
    if content.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()) {
        return Ok(value);
    }
    budget::walk(content.len())?;
    budget::room(2 * content.len())?;
    text(marks::plain(content).to_lowercase())
}

/// Whether a boolean argument is on.
fn flag(value: Option<Value>) -> bool {
    value.is_some_and(|value| value.is_true())
}

/// Whether the value is a mapping.
fn is_mapping(value: &Value) -> bool {
    matches!(obj(value), Some(Obj::Dict(_)))
}
