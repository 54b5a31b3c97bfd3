//! Filters for texts.

use minijinja::Value;

use crate::arguments::Args;
use crate::error::{Fallible, fail};
use crate::interpreter::Interpreter;
use crate::python::convert::{flag, int_arg, or_none, text_arg};
use crate::python::{arithmetic, markup, printf, repr, text};
use crate::text_buffer::TextBuffer;
use crate::unicode::is_space;
use crate::value::{Dict, length as value_len, safe_text, text as new_text, text_like, text_part, tuple, type_name};
use crate::{budget, taint, unicode};

/// Returns texts unchanged and other values as text, as jinja2's `soft_str` does.
fn soft_str(interpreter: &mut dyn Interpreter, value: &Value) -> Fallible<Value> {
    match value.as_str() {
        Some(content) => {
            budget::walk(content.len())?;
            Ok(value.clone())
        }
        None => new_text(repr::to_str(interpreter, value)?),
    }
}

/// Fails if the text in upper case would not fit; a character may become three.
pub(crate) fn make_room(content: &str) -> Fallible<()> {
    if content.is_ascii() { Ok(()) } else { budget::room(3 * content.len()) }
}

/// Applies a function from text to text and keeps the kind of the text.
fn change(
    interpreter: &mut dyn Interpreter,
    value: &Value,
    args: &Args<'_>,
    name: &str,
    change: fn(&str) -> String,
) -> Fallible<Value> {
    args.bind::<0>(name, [])?;
    let content = soft_str(interpreter, value)?;
    make_room(content.as_str().unwrap_or_default())?;
    text_like(&content, taint::rewrite(content.as_str().unwrap_or_default(), change))
}

pub(super) fn upper(interpreter: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    change(interpreter, value, args, "upper", str::to_uppercase)
}

pub(super) fn lower(interpreter: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    change(interpreter, value, args, "lower", str::to_lowercase)
}

pub(super) fn capitalize(interpreter: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    change(interpreter, value, args, "capitalize", text::capitalize)
}

/// Begins words, unlike Python's method, only after white space, hyphens and opening brackets.
pub(super) fn title(interpreter: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    args.bind::<0>("title", [])?;
    let content = soft_str(interpreter, value)?;
    let content = content.as_str().unwrap_or_default();
    make_room(content)?;
    // Every word is joined from two parts.
    budget::walk(content.len())?;
    new_text(taint::rewrite(content, title_case))
}

fn title_case(content: &str) -> String {
    let separates = |c: char| matches!(c, '-' | '(' | '{' | '[' | '<') || is_space(c);
    let mut out = String::with_capacity(content.len());
    let mut rest = content;
    while let Some(first) = rest.chars().next() {
        let in_word = !separates(first);
        let end = rest.find(|c| separates(c) == in_word).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        out.extend(first.to_uppercase());
        out.push_str(&word[first.len_utf8()..].to_lowercase());
        rest = after;
    }
    out
}

pub(super) fn trim(interpreter: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    let [chars] = args.bind("trim", ["chars"])?;
    let chars = or_none(chars);
    let chars = chars.as_ref().map(|chars| text_arg(chars, "strip")).transpose()?;
    let content = soft_str(interpreter, value)?;
    let stripped = text::strip(content.as_str().unwrap_or_default(), chars, true, true);
    text_part(&content, stripped)
}

pub(super) fn replace(interpreter: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    let [old, new, count] = args.bind("replace", ["old", "new", "count"])?;
    let (Some(old), Some(new)) = (old, new) else {
        return Err(fail("replace() missing required arguments"));
    };
    let count = usize::try_from(or_none(count).map_or(Ok(-1), |count| int_arg(&count))?).ok();
    let content = if interpreter.autoescapes() && (old.is_safe() || new.is_safe()) {
        markup::escape(interpreter, value)?
    } else {
        value.clone()
    };
    let is_safe = interpreter.autoescapes() && content.is_safe();
    let old = repr::to_str(interpreter, &old)?;
    let new_is_safe = new.is_safe();
    let new = repr::to_str(interpreter, &new)?;
    let new = if is_safe && !new_is_safe { markup::escape_html(&new)? } else { new };
    let replaced = text::replace(&repr::to_str(interpreter, &content)?, &old, &new, count)?;
    if is_safe { safe_text(replaced) } else { new_text(replaced) }
}

pub(super) fn center(interpreter: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    let [width] = args.bind("center", ["width"])?;
    let width = width.map_or(Ok(80), |width| int_arg(&width))?;
    let content = soft_str(interpreter, value)?;
    let centered = text::justify(content.as_str().unwrap_or_default(), width, ' ', text::Side::Center)?;
    text_like(&content, centered)
}

pub(super) fn format(interpreter: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    let values = match (args.positional.is_empty(), args.keywords.is_empty()) {
        (false, false) => return Err(fail("can't handle positional and keyword arguments at the same time")),
        (_, true) => tuple(args.positional.to_vec())?,
        (true, false) => Dict::value(args.keywords.clone())?,
    };
    let content = soft_str(interpreter, value)?;
    printf::format(interpreter, &content, &values)
}

pub(super) fn indent(_: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    let [width, first, blank] = args.bind("indent", ["width", "first", "blank"])?;
    let width = width.unwrap_or_else(|| Value::from(4));
    let indention = match width.as_str() {
        Some(_) => width.clone(),
        None => arithmetic::multiply(&Value::from(" "), &width)?,
    };
    // This fails for everything but texts.
    let content = arithmetic::add(value, &Value::from("\n"))?;
    let (content, indention) = match (content.as_str(), indention.as_str()) {
        (Some(content), Some(indention)) => (content, indention),
        _ => return Err(fail(format!("the filter 'indent' needs a text, not {}", type_name(value)))),
    };
    let lines = text::lines(content, false)?;
    let (first, blank) = (flag(first), flag(blank));
    let mut out = TextBuffer::new();
    for (at, line) in lines.iter().enumerate() {
        if at > 0 {
            out.push("\n")?;
        }
        let indented = if at == 0 { first } else { blank || !line.is_empty() };
        if indented {
            out.push(indention)?;
        }
        out.push(line)?;
    }
    text_like(value, out.finish())
}

pub(super) fn truncate(_: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    let [length, killwords, end, leeway] = args.bind("truncate", ["length", "killwords", "end", "leeway"])?;
    let length = length.map_or(Ok(255), |length| int_arg(&length))?;
    let end = end.unwrap_or_else(|| Value::from("..."));
    let end = text_arg(&end, "truncate")?;
    let leeway = or_none(leeway).map_or(Ok(5), |leeway| int_arg(&leeway))?;
    budget::walk(value.as_str().map_or(0, str::len).saturating_add(end.len()))?;
    let Some(len) = value_len(value) else {
        return Err(fail(format!("object of type '{}' has no len()", type_name(value))));
    };
    let end_len = end.chars().count() as i64;
    if length < end_len || leeway < 0 {
        return Err(fail(format!("expected length >= {end_len} and leeway >= 0")));
    }
    if len as i64 <= length.saturating_add(leeway) {
        return Ok(value.clone());
    }
    let content = text_arg(value, "truncate")?;
    let kept = usize::try_from(length - end_len).unwrap_or(0);
    let cut: String = content.chars().take(kept).collect();
    let words = if flag(killwords) { Vec::new() } else { text::rsplit(&cut, Some(" "), Some(1))? };
    let cut = words.first().map_or(cut.as_str(), |words| words);
    new_text(format!("{cut}{end}"))
}

pub(super) fn wordcount(interpreter: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    args.bind::<0>("wordcount", [])?;
    let content = soft_str(interpreter, value)?;
    let in_word = |c: char| c == '_' || unicode::is_alpha(c) || unicode::is_numeric(c);
    let content = taint::strip(content.as_str().unwrap_or_default());
    let words = content.split(|c| !in_word(c)).filter(|word| !word.is_empty());
    Ok(Value::from(words.count()))
}
