//! The filter `pprint`, as Python's module of that name: it breaks lines between items, and long
//! texts between words.

use std::cmp::Ordering;

use minijinja::Value;

use crate::arguments::Args;
use crate::budget;
use crate::error::Fallible;
use crate::interpreter::Interpreter;
use crate::python::{order, repr, text};
use crate::taint::strip_char;
use crate::text_buffer::TextBuffer;
use crate::unicode::is_space;
use crate::value::{Dict, PyObject, PyValue, Seq, SeqKind, py_object, py_value, text as new_text, type_name};

/// The maximum length of a line in characters.
const WIDTH: usize = 80;

pub(super) fn pprint(_: &mut dyn Interpreter, value: &Value, args: &Args<'_>) -> Fallible<Value> {
    args.bind::<0>("pprint", [])?;
    let mut printer = Printer { out: TextBuffer::new() };
    printer.value(value, Place { indent: 0, after: 0, level: 0 })?;
    new_text(printer.out.finish())
}

/// The position of a value in the printed text.
#[derive(Clone, Copy)]
struct Place {
    /// The number of characters before the value in the line.
    indent: usize,
    /// The number of characters after the value that must fit into the same line.
    after: usize,
    /// The nesting depth of the value.
    level: usize,
}

impl Place {
    fn inside(self, indent: usize, after: usize) -> Self {
        Self { indent, after, level: self.level + 1 }
    }
}

struct Printer {
    out: TextBuffer,
}

impl Printer {
    fn value(&mut self, value: &Value, place: Place) -> Fallible<()> {
        let line = one_line(value)?;
        if chars(&line)? <= WIDTH.saturating_sub(place.indent + place.after) {
            return self.out.push(&line);
        }
        match (py_value(value), py_object(value)) {
            (PyValue::Str(content), _) if !value.is_safe() => self.text(content, &line, place),
            (_, Some(PyObject::Dict(dict))) => self.dict(dict, place),
            (_, Some(PyObject::Seq(seq))) if seq.kind() != SeqKind::Group => self.sequence(seq, place),
            _ => self.out.push(&line),
        }
    }

    fn break_line(&mut self, indent: usize) -> Fallible<()> {
        self.out.push("\n")?;
        self.out.push(&" ".repeat(indent))
    }

    fn dict(&mut self, dict: &Dict, place: Place) -> Fallible<()> {
        self.out.push("{")?;
        let indent = place.indent + 1;
        let entries = sorted(dict)?;
        for (at, (key, item)) in entries.iter().enumerate() {
            let last = at + 1 == entries.len();
            let key = one_line(key)?;
            self.out.push(&key)?;
            self.out.push(": ")?;
            let after = if last { place.after + 1 } else { 1 };
            self.value(item, place.inside(indent + chars(&key)? + 2, after))?;
            if !last {
                self.out.push(",")?;
                self.break_line(indent)?;
            }
        }
        self.out.push("}")
    }

    fn sequence(&mut self, seq: &Seq, place: Place) -> Fallible<()> {
        let (open, close) = match (seq.is_list(), seq.items().len()) {
            (true, _) => ("[", "]"),
            (false, 1) => ("(", ",)"),
            (false, _) => ("(", ")"),
        };
        self.out.push(open)?;
        let indent = place.indent + 1;
        for (at, item) in seq.items().iter().enumerate() {
            let last = at + 1 == seq.items().len();
            self.value(item, place.inside(indent, if last { place.after + close.len() } else { 1 }))?;
            if !last {
                self.out.push(",")?;
                self.break_line(indent)?;
            }
        }
        self.out.push(close)
    }

    /// Prints a long text as several literals, in parentheses if it is not inside another value.
    fn text(&mut self, content: &str, line: &str, place: Place) -> Fallible<()> {
        let alone = usize::from(place.level == 0);
        let (indent, after) = (place.indent + alone, place.after + alone);
        let pieces = pieces(content, WIDTH.saturating_sub(indent), after)?;
        if pieces.len() < 2 {
            return self.out.push(line);
        }
        self.out.push(if alone == 1 { "(" } else { "" })?;
        for (at, piece) in pieces.iter().enumerate() {
            if at > 0 {
                self.break_line(indent)?;
            }
            self.out.push(piece)?;
        }
        self.out.push(if alone == 1 { ")" } else { "" })
    }
}

/// Splits a long text into literals, each at most `width` characters if its words are short enough.
/// `after` characters follow the last literal.
fn pieces(content: &str, width: usize, after: usize) -> Fallible<Vec<String>> {
    let lines = text::lines(content, true)?;
    let mut pieces = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let last = at + 1 == lines.len();
        let literal = quoted(line)?;
        if (chars(&literal)?) <= width.saturating_sub(if last { after } else { 0 }) {
            pieces.push(literal);
        } else {
            push_words(&mut pieces, line, width, if last { after } else { 0 })?;
        }
    }
    Ok(pieces)
}

fn push_words(pieces: &mut Vec<String>, line: &str, width: usize, after: usize) -> Fallible<()> {
    let words = words(line)?;
    let mut current = String::new();
    for (at, word) in words.iter().enumerate() {
        let room = width.saturating_sub(if at + 1 == words.len() { after } else { 0 });
        let candidate = format!("{current}{word}");
        if chars(&quoted(&candidate)?)? <= room {
            current = candidate;
            continue;
        }
        if !current.is_empty() {
            pieces.push(quoted(&current)?);
        }
        current = (*word).to_owned();
    }
    if !current.is_empty() {
        pieces.push(quoted(&current)?);
    }
    Ok(())
}

/// Splits a line into words, each with the space after it.
fn words(line: &str) -> Fallible<Vec<&str>> {
    let mut words = Vec::new();
    let mut rest = line;
    while !rest.is_empty() {
        let space = rest.find(|c| is_space(strip_char(c))).unwrap_or(rest.len());
        let end = rest[space..].find(|c| !is_space(strip_char(c))).map_or(rest.len(), |len| space + len);
        let (word, after) = rest.split_at(end);
        budget::alloc_values(1)?;
        words.push(word);
        rest = after;
    }
    Ok(words)
}

fn quoted(part: &str) -> Fallible<String> {
    let mut out = TextBuffer::new();
    repr::write_quoted(&mut out, part)?;
    Ok(out.finish())
}

fn chars(text: &str) -> Fallible<usize> {
    budget::scan(text.len())?;
    Ok(text.chars().count())
}

/// Returns the `repr` of a value with the keys of dicts sorted.
fn one_line(value: &Value) -> Fallible<String> {
    let mut out = TextBuffer::new();
    write_line(&mut out, value)?;
    Ok(out.finish())
}

fn write_line(out: &mut TextBuffer, value: &Value) -> Fallible<()> {
    match py_object(value) {
        Some(PyObject::Dict(dict)) => {
            let entries = sorted(dict)?;
            out.push("{")?;
            for (at, (key, item)) in entries.iter().enumerate() {
                out.push(if at > 0 { ", " } else { "" })?;
                write_line(out, key)?;
                out.push(": ")?;
                write_line(out, item)?;
            }
            out.push("}")
        }
        Some(PyObject::Seq(seq)) if seq.kind() != SeqKind::Group => {
            out.push(if seq.is_list() { "[" } else { "(" })?;
            for (at, item) in seq.items().iter().enumerate() {
                out.push(if at > 0 { ", " } else { "" })?;
                write_line(out, item)?;
            }
            let lonely = !seq.is_list() && seq.items().len() == 1;
            out.push(if lonely { "," } else { "" })?;
            out.push(if seq.is_list() { "]" } else { ")" })
        }
        _ => out.push(&repr::repr(value)?),
    }
}

/// Returns the entries sorted by key. Keys that cannot be compared are sorted by the names of their
/// types.
fn sorted(dict: &Dict) -> Fallible<Vec<(Value, Value)>> {
    let mut entries: Vec<(Value, Value)> = Vec::with_capacity(dict.len());
    budget::alloc_values(2 * dict.len())?;
    for entry in dict.entries() {
        let at = insertion_point(&entries, &entry.0)?;
        budget::steps(1 + (entries.len() - at) / 8)?;
        entries.insert(at, entry.clone());
    }
    Ok(entries)
}

fn insertion_point(entries: &[(Value, Value)], key: &Value) -> Fallible<usize> {
    let (mut low, mut high) = (0, entries.len());
    while low < high {
        let middle = low.midpoint(high);
        if is_before(key, &entries[middle].0)? {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Ok(low)
}

fn is_before(left: &Value, right: &Value) -> Fallible<bool> {
    match order::compare(left, right, "<") {
        Err(error) if error.is_fatal() || error.is_undefined() => Err(error),
        Err(_) => Ok(type_name(left).cmp(type_name(right)) == Ordering::Less),
        result => result,
    }
}
