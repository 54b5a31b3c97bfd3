//! The functions that every template can call.

use minijinja::Value;

use crate::arguments::{Args, required};
use crate::error::{Fallible, fail, raised};
use crate::interpreter::Interpreter;
use crate::python::convert::{int_arg, text_arg};
use crate::python::repr;
use crate::text_buffer::TextBuffer;
use crate::value::{
    Builtin, Counter, CounterKind, Dict, Namespace, PyObject, PyValue, Range, dict, iterate, py_value, to_vec,
    type_name,
};
use crate::{budget, strftime, taint};

/// The maximum length of `range(...)`, as in Jinja2's sandbox.
const MAX_RANGE: usize = 100_000;

/// Returns the global of this name.
pub(crate) fn find(name: &str) -> Option<Value> {
    let builtin = match name {
        "range" => Builtin::Range,
        "dict" => Builtin::Dict,
        "namespace" => Builtin::Namespace,
        "raise_exception" => Builtin::RaiseException,
        "strftime_now" => Builtin::StrftimeNow,
        "cycler" => Builtin::Cycler,
        "joiner" => Builtin::Joiner,
        "lipsum" => Builtin::Lipsum,
        _ => return None,
    };
    Some(PyObject::Builtin(builtin).value())
}

pub(crate) fn call(interpreter: &mut dyn Interpreter, builtin: Builtin, args: &Args<'_>) -> Fallible<Value> {
    match builtin {
        Builtin::Range => range(args),
        Builtin::Dict => Dict::value(entries("dict", args)?),
        Builtin::Namespace => namespace(args),
        Builtin::RaiseException => raise_exception(interpreter, args),
        Builtin::StrftimeNow => strftime_now(args),
        Builtin::Cycler => cycler(args),
        Builtin::Joiner => {
            let [separator] = args.bind("joiner", ["sep"])?;
            Counter::value(CounterKind::Joiner, vec![separator.unwrap_or_else(|| Value::from(", "))])
        }
        Builtin::Lipsum => lipsum(args),
    }
}

fn range(args: &Args<'_>) -> Fallible<Value> {
    let args = args.only_positional("range")?;
    let (start, stop, step) = match args {
        [stop] => (0, int_arg(stop)?, 1),
        [start, stop] => (int_arg(start)?, int_arg(stop)?, 1),
        [start, stop, step] => (int_arg(start)?, int_arg(stop)?, int_arg(step)?),
        _ => return Err(fail(format!("range expected 1 to 3 arguments, got {}", args.len()))),
    };
    if step == 0 {
        return Err(fail("range() arg 3 must not be zero"));
    }
    let range = Range::new(start.into(), stop.into(), step.into());
    if range.len() > MAX_RANGE {
        return Err(fail(format!("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({MAX_RANGE}).")));
    }
    Ok(PyObject::Range(range).value())
}

fn namespace(args: &Args<'_>) -> Fallible<Value> {
    let distinct = Dict::value(entries("namespace", args)?)?;
    Namespace::value(dict(&distinct).map(|dict| dict.entries().to_vec()).unwrap_or_default())
}

/// Returns the entries of `dict(...)`: first of the mapping or the pairs, then of the keywords.
fn entries(function: &str, args: &Args<'_>) -> Fallible<Vec<(Value, Value)>> {
    let mut entries = match args.positional.as_ref() {
        [] => Vec::new(),
        [source] => source_entries(source)?,
        more => return Err(fail(format!("{function} expected at most 1 argument, got {}", more.len()))),
    };
    budget::alloc_values(2 * args.keywords.len())?;
    entries.extend(args.keywords.iter().cloned());
    Ok(entries)
}

fn source_entries(source: &Value) -> Fallible<Vec<(Value, Value)>> {
    if let Some(dict) = dict(source) {
        budget::alloc_values(2 * dict.len())?;
        return Ok(dict.entries().to_vec());
    }
    if let PyValue::Undefined(undefined) = py_value(source) {
        return Err(undefined.error());
    }
    let mut entries = Vec::new();
    for (at, item) in iterate(source)?.enumerate() {
        match to_vec(&item?)?.as_slice() {
            [key, value] => entries.push((key.clone(), value.clone())),
            other => {
                let len = other.len();
                return Err(fail(format!("dictionary update sequence element #{at} has length {len}; 2 is required")));
            }
        }
    }
    Ok(entries)
}

fn raise_exception(interpreter: &mut dyn Interpreter, args: &Args<'_>) -> Fallible<Value> {
    let [message] = args.bind("raise_exception", ["message"])?;
    let message = required(message, "raise_exception", "message")?;
    Err(raised(repr::to_str(interpreter, &message)?))
}

fn strftime_now(args: &Args<'_>) -> Fallible<Value> {
    let [format] = args.bind("strftime_now", ["format"])?;
    let format = required(format, "strftime_now", "format")?;
    let format = match py_value(&format) {
        PyValue::Str(_) => text_arg(&format, "strftime")?,
        _ => return Err(fail(format!("strftime() argument 1 must be str, not {}", type_name(&format)))),
    };
    let mut written = TextBuffer::new();
    taint::write(&mut written, format, |out, format| out.push(&strftime::strftime(format)?))?;
    crate::value::text(written.finish())
}

fn cycler(args: &Args<'_>) -> Fallible<Value> {
    let items = args.only_positional("cycler")?;
    if items.is_empty() {
        return Err(fail("at least one item has to be provided"));
    }
    Counter::value(CounterKind::Cycler, items.to_vec())
}

/// Fails if text is requested. Jinja2 would return random text, but a prompt must not be random.
fn lipsum(args: &Args<'_>) -> Fallible<Value> {
    let [paragraphs, html, _, _] = args.bind("lipsum", ["n", "html", "min", "max"])?;
    if paragraphs.map_or(Ok(1), |paragraphs| int_arg(&paragraphs))? > 0 {
        return Err(fail("lipsum() returns random text, which is not supported"));
    }
    let is_html = html.is_none_or(|html| html.is_true());
    Ok(if is_html { Value::from_safe_string(String::new()) } else { Value::from("") })
}
