//! Filters for lists and other iterables.

use minijinja::Value;

use crate::arguments::{Args, required};
use crate::error::{Fallible, fail};
use crate::filters::path::Path;
use crate::interpreter::Interpreter;
use crate::python::convert::{flag, int_arg, or_none};
use crate::python::{arithmetic, attribute, markup, order, repr};
use crate::text_buffer::TextBuffer;
use crate::value::{
    Generator, GeneratorKind, KeySet, PyObject, PyValue, Seq, SeqKind, Undefined, ViewKind, dict, equal, iterate,
    length, list, none, py_object, py_value, safe_text, text, text_like, to_vec, tuple, type_name,
};
use crate::{budget, taint};

pub(super) fn list_of(_: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    args.bind::<0>("list", [])?;
    Seq::charged_for(SeqKind::List, to_vec(value)?)
}

pub(super) fn first(_: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    args.bind::<0>("first", [])?;
    iterate(value)?.next().unwrap_or_else(|| Ok(Undefined::because("No first item, sequence was empty.")))
}

pub(super) fn last(_: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    args.bind::<0>("last", [])?;
    let items = reversed(value)?;
    Ok(items.into_iter().next().unwrap_or_else(|| Undefined::because("No last item, sequence was empty.")))
}

/// Returns the first item. Jinja2 picks a random one, but a prompt must not be random.
pub(super) fn random(_: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    args.bind::<0>("random", [])?;
    match length(value) {
        Some(0) => Ok(Undefined::because("No random item, sequence was empty.")),
        Some(_) => attribute::subscript(value, &Value::from(0))?
            .ok_or_else(|| fail(format!("'{}' object has no item 0", type_name(value)))),
        None => Err(fail(format!("object of type '{}' has no len()", type_name(value)))),
    }
}

/// Returns Python's `reversed(value)`.
fn reversed(value: &Value) -> Fallible<Vec<Value>> {
    match py_object(value) {
        Some(PyObject::Generator(_)) => Err(fail(format!("'{}' object is not reversible", type_name(value)))),
        _ => {
            let mut items = to_vec(value)?;
            items.reverse();
            Ok(items)
        }
    }
}

pub(super) fn reverse(_: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    args.bind::<0>("reverse", [])?;
    match py_value(value) {
        PyValue::Str(content) => {
            budget::scan(2 * content.len())?;
            text_like(value, content.chars().rev().collect())
        }
        PyValue::Object(PyObject::Generator(_)) => {
            let mut items = to_vec(value)?;
            items.reverse();
            list(items)
        }
        _ => {
            let items = reversed(value).map_err(|_| fail("argument must be iterable"))?;
            let name = reversed_type(value);
            Generator::value(GeneratorKind::Type(name), |out| {
                out.extend(items);
                Ok(())
            })
        }
    }
}

/// Returns the type of Python's iterator of `reversed(value)`.
fn reversed_type(value: &Value) -> &'static str {
    match py_object(value) {
        Some(PyObject::Seq(seq)) if seq.is_list() => "list_reverseiterator",
        Some(PyObject::Dict(_)) => "dict_reversekeyiterator",
        Some(PyObject::View(view)) => match view.kind() {
            ViewKind::Keys => "dict_reversekeyiterator",
            ViewKind::Values => "dict_reversevalueiterator",
            ViewKind::Items => "dict_reverseitemiterator",
        },
        Some(PyObject::Range(_)) => "range_iterator",
        _ => "reversed",
    }
}

pub(super) fn join(interpreter: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    let [separator, attribute] = args.bind("join", ["d", "attribute"])?;
    let separator = separator.unwrap_or_else(|| Value::from(""));
    let path = or_none(attribute).map(|attribute| Path::parse(&attribute)).transpose()?;
    if interpreter.autoescapes() {
        return join_escaped(interpreter, value, &separator, path.as_ref());
    }
    let separator = repr::to_str(interpreter, &separator)?;
    let mut out = TextBuffer::new();
    for (at, item) in iterate(value)?.enumerate() {
        let mut item = item?;
        budget::steps(1)?;
        if let Some(path) = &path {
            item = path.get(interpreter, &item, None)?;
        }
        if at > 0 {
            out.push(&separator)?;
        }
        match item.as_str() {
            Some(content) => out.push(content)?,
            None => out.push(&repr::to_str(interpreter, &item)?)?,
        }
    }
    text(out.finish())
}

/// Joins items. If an item or the separator is marked as safe, so is the result, and the others are
/// escaped.
fn join_escaped(
    interpreter: &mut dyn Interpreter,
    value: &Value,
    separator: &Value,
    path: Option<&Path>,
) -> Fallible<Value> {
    let mut items = Vec::new();
    for item in iterate(value)? {
        budget::alloc_values(1)?;
        let item = item?;
        items.push(path.map_or_else(|| Ok(item.clone()), |path| path.get(interpreter, &item, None))?);
    }
    let is_safe = separator.is_safe() || items.iter().any(Value::is_safe);
    let mut written = |value: &Value| {
        let text = repr::to_str(interpreter, value)?;
        if is_safe && !value.is_safe() { markup::escape_html(&text) } else { Ok(text) }
    };
    let separator = written(separator)?;
    let mut out = TextBuffer::new();
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push(&separator)?;
        }
        out.push(&written(item)?)?;
    }
    if is_safe { safe_text(out.finish()) } else { text(out.finish()) }
}

pub(super) fn sum(interpreter: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    let [attribute, start] = args.bind("sum", ["attribute", "start"])?;
    let path = or_none(attribute).map(|attribute| Path::parse(&attribute)).transpose()?;
    let mut sum = start.unwrap_or_else(|| Value::from(0));
    if sum.as_str().is_some() {
        return Err(fail("sum() can't sum strings [use ''.join(seq) instead]"));
    }
    for item in iterate(value)? {
        let mut item = item?;
        budget::steps(3)?;
        if let Some(path) = &path {
            item = path.get(interpreter, &item, None)?;
        }
        sum = arithmetic::add(&sum, &item)?;
    }
    Ok(sum)
}

pub(super) fn min(interpreter: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    extreme(interpreter, value, args, "<")
}

pub(super) fn max(interpreter: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    extreme(interpreter, value, args, ">")
}

fn extreme(interpreter: &mut dyn Interpreter, value: &Value, args: &Args<'_>, op: &str) -> Fallible<Value> {
    let [case_sensitive, attribute] = args.bind("min", ["case_sensitive", "attribute"])?;
    let keys = Keys::new(attribute, flag(case_sensitive))?;
    let mut best: Option<(Value, Value)> = None;
    for item in iterate(value)? {
        let item = item?;
        budget::steps(3)?;
        let key = keys.of(interpreter, &item)?;
        let better = match &best {
            Some((best, _)) => order::compare(&key, best, op)?,
            None => true,
        };
        if better {
            best = Some((key, item));
        }
    }
    Ok(best.map_or_else(|| Undefined::because("No aggregated item, sequence was empty."), |(_, item)| item))
}

/// The keys by which items are compared.
struct Keys {
    path: Path,
    ignore_case: bool,
}

impl Keys {
    fn new(attribute: Option<Value>, case_sensitive: bool) -> Fallible<Self> {
        Ok(Self { path: Path::parse(&attribute.unwrap_or_else(none))?, ignore_case: !case_sensitive })
    }

    fn of(&self, interpreter: &mut dyn Interpreter, item: &Value) -> Fallible<Value> {
        self.of_or(interpreter, item, None)
    }

    fn of_or(&self, interpreter: &mut dyn Interpreter, item: &Value, default: Option<&Value>) -> Fallible<Value> {
        let key = self.path.get(interpreter, item, default)?;
        if self.ignore_case { ignore_case(key) } else { Ok(key) }
    }
}

pub(super) fn sort(interpreter: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    let [reverse, case_sensitive, attribute] = args.bind("sort", ["reverse", "case_sensitive", "attribute"])?;
    let mut keys = Vec::new();
    for path in sort_paths(attribute)? {
        keys.push(Keys::new(Some(path), flag(case_sensitive.clone()))?);
    }
    let mut items = Vec::new();
    for item in iterate(value)? {
        let item = item?;
        budget::alloc_values(KEYED_VALUES)?;
        let parts = keys.iter().map(|keys| keys.of(interpreter, &item)).collect::<Fallible<Vec<_>>>()?;
        items.push((list(parts)?, item));
    }
    list(order::sort(items, flag(reverse))?)
}

/// The values that an item costs while it is sorted.
const KEYED_VALUES: usize = 2;

/// Returns the attributes to sort by, separated by commas.
fn sort_paths(attribute: Option<Value>) -> Fallible<Vec<Value>> {
    match attribute.as_ref().and_then(Value::as_str) {
        Some(paths) => paths.split(',').map(text).collect(),
        None => Ok(vec![attribute.unwrap_or_else(none)]),
    }
}

pub(super) fn dictsort(_: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    let [case_sensitive, by, reverse] = args.bind("dictsort", ["case_sensitive", "by", "reverse"])?;
    let case_sensitive = flag(case_sensitive);
    let by_key = match by.as_ref().map(Value::as_str) {
        None | Some(Some("key")) => true,
        Some(Some("value")) => false,
        Some(_) => return Err(fail("You can only sort by either \"key\" or \"value\"")),
    };
    let Some(entries) = dict(value) else {
        return match py_value(value) {
            PyValue::Undefined(undefined) => Err(undefined.error()),
            _ => Err(fail(format!("'{}' object has no attribute 'items'", type_name(value)))),
        };
    };
    let mut items = Vec::with_capacity(entries.len());
    for (key, item) in entries.entries() {
        let sort_by = if by_key { key.clone() } else { item.clone() };
        let sort_by = if case_sensitive { sort_by } else { ignore_case(sort_by)? };
        items.push((sort_by, tuple(vec![key.clone(), item.clone()])?));
    }
    list(order::sort(items, flag(reverse))?)
}

pub(super) fn groupby(interpreter: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    let [attribute, default, case_sensitive] = args.bind("groupby", ["attribute", "default", "case_sensitive"])?;
    let attribute = required(attribute, "groupby", "attribute")?;
    let default = default.filter(|default| !default.is_none());
    let exact = Keys::new(Some(attribute.clone()), true)?;
    let keys = Keys::new(Some(attribute), flag(case_sensitive))?;
    let mut items = Vec::new();
    for item in iterate(value)? {
        let item = item?;
        budget::alloc_values(KEYED_VALUES)?;
        items.push((keys.of_or(interpreter, &item, default.as_ref())?, item));
    }
    let mut groups: Vec<(Value, Value, Vec<Value>)> = Vec::new();
    for item in order::sort(items, false)? {
        let key = keys.of_or(interpreter, &item, default.as_ref())?;
        match groups.last_mut() {
            Some((last, _, group)) if equal(last, &key)? => group.push(item),
            _ => {
                let shown = exact.of_or(interpreter, &item, default.as_ref())?;
                groups.push((key, shown, vec![item]));
            }
        }
    }
    let groups = groups.into_iter().map(|(_, shown, group)| Seq::value(SeqKind::Group, vec![shown, list(group)?]));
    list(groups.collect::<Fallible<_>>()?)
}

pub(super) fn unique(interpreter: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    let [case_sensitive, attribute] = args.bind("unique", ["case_sensitive", "attribute"])?;
    let keys = Keys::new(attribute, flag(case_sensitive))?;
    Generator::value(GeneratorKind::Function("sync_do_unique"), |out| {
        let mut seen = KeySet::default();
        for item in iterate(value)? {
            let item = item?;
            budget::alloc_values(4)?;
            if seen.insert(keys.of(interpreter, &item)?)? {
                out.push(item);
            }
        }
        Ok(())
    })
}

pub(super) fn batch(_: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    let [count, fill] = args.bind("batch", ["linecount", "fill_with"])?;
    let count = required(count, "batch", "linecount")?;
    Generator::value(GeneratorKind::Function("do_batch"), |out| {
        let items = to_vec(value)?;
        if items.is_empty() {
            return Ok(());
        }
        // A row ends at this number of items. A count that is no whole number is never reached.
        let size = match py_value(&count) {
            PyValue::Float(float) if float >= 0.0 && float.fract() == 0.0 => float as usize,
            _ => int_arg(&count).ok().and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX),
        };
        if size == 0 {
            out.push(list(Vec::new())?);
        }
        for rows in items.chunks(if size == 0 { usize::MAX } else { size }) {
            let mut row = rows.to_vec();
            if let Some(fill) = or_none(fill.clone())
                && order::compare(&Value::from(row.len()), &count, "<")?
            {
                if matches!(py_value(&count), PyValue::Float(_)) {
                    return Err(fail("can't multiply sequence by non-int of type 'float'"));
                }
                budget::alloc_values(size - row.len())?;
                row.resize(size, fill);
            }
            out.push(list(row)?);
        }
        Ok(())
    })
}

pub(super) fn slice(_: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    let [count, fill] = args.bind("slice", ["slices", "fill_with"])?;
    let count = required(count, "slice", "slices")?;
    Generator::value(GeneratorKind::Function("sync_do_slice"), |out| {
        let items = to_vec(value)?;
        let slices = int_arg(&count)?;
        if slices == 0 {
            return Err(fail("integer division or modulo by zero"));
        }
        let slices = usize::try_from(slices).unwrap_or(0);
        budget::alloc_values(slices)?;
        let (per_slice, longer) = (items.len().checked_div(slices).unwrap_or(0), items.len() % slices.max(1));
        let mut rest = items.as_slice();
        for at in 0..slices {
            let (part, after) = rest.split_at((per_slice + usize::from(at < longer)).min(rest.len()));
            rest = after;
            let mut part = part.to_vec();
            part.extend(or_none(fill.clone()).filter(|_| at >= longer));
            out.push(list(part)?);
        }
        Ok(())
    })
}

/// Returns a text in lower case; one without upper-case letters is not copied.
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
    text(taint::strip(content).to_lowercase())
}
