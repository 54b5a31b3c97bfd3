//! `'{} {name.attribute[0]!r:>10}'.format(...)`, as the sandbox runs it.

use minijinja::Value;

use super::spec::Spec;
use super::{attribute, repr};
use crate::error::{Fallible, fail};
use crate::interpreter::Interpreter;
use crate::python::markup;
use crate::taint::{self, strip_char};
use crate::text_buffer::TextBuffer;
use crate::{budget, unicode};

/// The deepest nesting of fields in specifications, as in Python.
const MAX_DEPTH: u8 = 2;

/// Formats a template text. `escape` is true if the text is marked as safe.
pub(crate) fn format(
    interpreter: &mut dyn Interpreter,
    template: &str,
    positional: &[Value],
    named: &[(Value, Value)],
    escape: bool,
) -> Fallible<String> {
    let mut formatter = Formatter { interpreter, positional, named, next: Some(0), escape };
    formatter.text(template, MAX_DEPTH)
}

/// The steps to find the value of a field.
const FIELD_STEPS: usize = 4;

struct Formatter<'a> {
    interpreter: &'a mut dyn Interpreter,
    positional: &'a [Value],
    named: &'a [(Value, Value)],
    /// The number of the next `{}`; nothing after a numbered field.
    next: Option<usize>,
    /// True if values are escaped for HTML unless they are marked as safe.
    escape: bool,
}

impl Formatter<'_> {
    fn text(&mut self, template: &str, depth: u8) -> Fallible<String> {
        let mut out = TextBuffer::new();
        let mut rest = template;
        while let Some(at) = rest.find(|c| matches!(strip_char(c), '{' | '}')) {
            out.push(&rest[..at])?;
            let (brace, after) = first(&rest[at..]);
            rest = after;
            if strip_char(brace) == rest.chars().next().map_or(' ', strip_char) {
                out.push(brace.encode_utf8(&mut [0; 4]))?;
                rest = first(rest).1;
            } else if strip_char(brace) == '}' {
                return Err(fail("Single '}' encountered in format string"));
            } else {
                let (field, after) = rest.split_at(field_end(rest)?);
                let written = self.field(&taint::strip(field), depth)?;
                out.push(&taint::with_taint_of(field, written))?;
                rest = first(after).1;
            }
        }
        out.push(rest)?;
        Ok(out.finish())
    }

    /// Formats a field: name, `!` conversion and `:` specification.
    fn field(&mut self, field: &str, depth: u8) -> Fallible<String> {
        if depth == 0 {
            return Err(fail("Max string recursion exceeded"));
        }
        budget::steps(FIELD_STEPS)?;
        let name_end = name_end(field);
        let (name, rest) = field.split_at(name_end);
        let value = self.value(name)?;
        let (conversion, spec) = match rest.strip_prefix('!') {
            Some(rest) => rest.split_once(':').unwrap_or((rest, "")),
            None => ("", rest.strip_prefix(':').unwrap_or_default()),
        };
        let value = self.convert(value, conversion, rest.starts_with('!'))?;
        let spec = self.text(spec, depth - 1)?;
        let safe = self.escape && value.is_safe();
        let formatted = if spec.is_empty() {
            repr::to_str(self.interpreter, &value)?
        } else if safe {
            return Err(fail("unsupported format specification for Markup"));
        } else {
            Spec::parse(&spec)?.format(&value)?
        };
        if self.escape && !safe { markup::escape_html(&formatted) } else { Ok(formatted) }
    }

    fn convert(&mut self, value: Value, conversion: &str, given: bool) -> Fallible<Value> {
        match conversion {
            "" if !given => Ok(value),
            "s" => Ok(Value::from(repr::to_str(self.interpreter, &value)?)),
            "r" => Ok(Value::from(repr::repr(&value)?)),
            "a" => Ok(Value::from(repr::ascii(&repr::repr(&value)?)?)),
            _ => Err(fail(format!("Unknown conversion specifier {conversion}"))),
        }
    }

    fn value(&mut self, name: &str) -> Fallible<Value> {
        let end = name.find(['.', '[']).unwrap_or(name.len());
        let (first, mut rest) = name.split_at(end);
        if rest.is_empty() {
            return self.numbered(first);
        }
        let mut value = self.argument(first)?;
        while !rest.is_empty() {
            budget::steps(FIELD_STEPS)?;
            if let Some(after) = rest.strip_prefix('.') {
                let end = after.find(['.', '[']).unwrap_or(after.len());
                value = attribute::attribute(self.interpreter, &value, &Value::from(&after[..end]))?;
                rest = &after[end..];
            } else {
                let after = rest.strip_prefix('[').ok_or_else(|| fail("Only '.' or '[' may follow ']'"))?;
                let end = after.find(']').ok_or_else(|| fail("Missing ']' in format string"))?;
                let key = number(&after[..end]).map_or_else(|| Value::from(&after[..end]), Value::from);
                value = attribute::item(self.interpreter, &value, &key)?;
                rest = &after[end + 1..];
            }
        }
        Ok(value)
    }

    /// Returns the value of a field that is an argument itself: only such fields are numbered.
    fn numbered(&mut self, name: &str) -> Fallible<Value> {
        if name.is_empty() {
            let Some(at) = self.next else {
                return Err(fail("cannot switch from manual field specification to automatic field numbering"));
            };
            self.next = Some(at + 1);
            return self.at(at);
        }
        if number(name).is_some() {
            if self.next.is_some_and(|next| next > 0) {
                return Err(fail("cannot switch from automatic field numbering to manual field specification"));
            }
            self.next = None;
        }
        self.argument(name)
    }

    fn argument(&mut self, name: &str) -> Fallible<Value> {
        if let Some(at) = number(name) {
            return self.at(at);
        }
        budget::steps(self.named.len() / 4)?;
        let found = self.named.iter().find(|(known, _)| known.as_str().is_some_and(|known| taint::same(known, name)));
        found.map(|(_, value)| value.clone()).ok_or_else(|| fail(format!("KeyError: '{name}'")))
    }

    fn at(&self, at: usize) -> Fallible<Value> {
        let missing = || fail(format!("Replacement index {at} out of range for positional args tuple"));
        self.positional.get(at).cloned().ok_or_else(missing)
    }
}

/// Parses a number in digits of any script.
fn number(digits: &str) -> Option<usize> {
    let digits: Option<String> = digits.chars().map(unicode::decimal).collect();
    digits?.parse().ok()
}

/// Returns the first character, and the rest.
fn first(text: &str) -> (char, &str) {
    let mut chars = text.chars();
    (chars.next().unwrap_or_default(), chars.as_str())
}

/// Returns the end of the field at the start of a text.
fn field_end(text: &str) -> Fallible<usize> {
    let mut depth = 1;
    for (at, c) in text.char_indices() {
        depth += i32::from(strip_char(c) == '{') - i32::from(strip_char(c) == '}');
        if depth == 0 {
            return Ok(at);
        }
    }
    Err(fail("expected '}' before end of string"))
}

/// Returns the end of a field's name; brackets may contain any character.
fn name_end(field: &str) -> usize {
    let mut in_brackets = false;
    for (at, c) in field.char_indices() {
        match c {
            '[' => in_brackets = true,
            ']' => in_brackets = false,
            '!' | ':' if !in_brackets => return at,
            _ => {}
        }
    }
    field.len()
}
