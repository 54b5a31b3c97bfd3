//! Writes values to the output, and joins texts at its end.

use std::borrow::Cow;
use std::fmt::Write;

use minijinja::Value;

use super::locals::Locals;
use super::state::Machine;
use crate::budget;
use crate::error::{Fallible, fail};
use crate::program::{Escaping, Node, NodeKind};
use crate::python::{arithmetic, markup, repr};
use crate::text_buffer::TextBuffer;
use crate::value::{safe_text, text, type_name};

/// The most digits of a 64-bit integer.
const MAX_INT_DIGITS: usize = 20;

impl Machine {
    /// Runs code and returns its output.
    pub(super) fn captured<T>(&mut self, run: impl FnOnce(&mut Self) -> Fallible<T>) -> Fallible<(T, Value)> {
        let (start, depth) = self.begin_capture();
        let result = run(self);
        self.output.captures.truncate(depth);
        let text = self.text_since(start);
        self.output.text.truncate(start);
        Ok((result?, text))
    }

    fn begin_capture(&mut self) -> (usize, usize) {
        let (start, depth) = (self.output.text.len(), self.output.captures.len());
        self.output.captures.push(start);
        (start, depth)
    }

    /// Runs code and records its output as a generation block.
    pub(super) fn generation<T>(&mut self, run: impl FnOnce(&mut Self) -> Fallible<T>) -> Fallible<T> {
        let written = self.output.written();
        let (start, depth) = self.begin_capture();
        let result = run(self);
        self.output.captures.truncate(depth);
        let result = result?;
        let chars = self.output.text[start..].chars().count();
        self.output.spans.push((written, chars));
        Ok(result)
    }

    /// Writes a text.
    pub(super) fn write_text(&mut self, text: &str) -> Fallible<()> {
        budget::output(text.len())?;
        self.output.text.push_str(text);
        Ok(())
    }

    /// Writes `str(value)`.
    fn write(&mut self, value: &Value) -> Fallible<()> {
        if let Some(text) = value.as_str() {
            return self.write_text(text);
        }
        match value.is_integer().then(|| value.as_i64()).flatten() {
            Some(int) => {
                budget::output(MAX_INT_DIGITS)?;
                write!(self.output.text, "{int}").map_err(|_| fail("the output cannot be written"))
            }
            None => {
                let text = repr::to_str(self, value)?;
                self.write_text(&text)
            }
        }
    }

    /// Writes the result of a call or filter block, which must be a text.
    pub(super) fn write_only_text(&mut self, value: &Value) -> Fallible<()> {
        match value.as_str() {
            Some(text) => self.write_text(text),
            None => Err(fail(format!("expected str instance, {} found", type_name(value)))),
        }
    }

    /// Writes the value of a node; a sum or concatenation is written in pieces.
    pub(super) fn print(&mut self, locals: &Locals, node: &Node) -> Fallible<()> {
        let printed = match &node.kind {
            NodeKind::If(parts) => {
                let chosen = self.chosen(locals, parts)?;
                return self.print(locals, chosen);
            }
            NodeKind::Sum(parts) => self.print_parts(|machine| machine.write_sum(locals, parts)),
            NodeKind::Concat(parts) => self.print_parts(|machine| machine.write_all(locals, parts)),
            _ => {
                let value = self.eval(locals, node)?;
                self.write(&value)
            }
        };
        printed.map_err(|error| error.at(node.line))
    }

    /// Writes the value of a node, escaped unless it is marked as safe.
    pub(super) fn print_escaped(&mut self, locals: &Locals, node: &Node, escaping: Escaping) -> Fallible<()> {
        if !self.escapes(escaping) {
            return self.print(locals, node);
        }
        let value = self.eval(locals, node)?;
        let text = markup::escape(self, &value).map_err(|error| error.at(node.line))?;
        self.write(&text).map_err(|error| error.at(node.line))
    }

    /// The pieces do not belong to the output until the last one is written.
    fn print_parts(&mut self, write: impl FnOnce(&mut Self) -> Fallible<()>) -> Fallible<()> {
        let (_, depth) = self.begin_capture();
        let result = write(self);
        self.output.captures.truncate(depth);
        result
    }

    fn write_all(&mut self, locals: &Locals, parts: &[Node]) -> Fallible<()> {
        for part in parts {
            let value = self.eval(locals, part)?;
            self.write(&value)?;
        }
        Ok(())
    }

    /// Writes the sum of texts, or of other values.
    fn write_sum(&mut self, locals: &Locals, parts: &[Node]) -> Fallible<()> {
        let start = self.output.text.len();
        for (at, part) in parts.iter().enumerate() {
            let value = self.eval(locals, part)?;
            match value.as_str().filter(|_| !value.is_safe()) {
                Some(text) => self.write_text(text)?,
                None => {
                    let sum = self.rest_of_sum(start, at, value, locals, &parts[at + 1..])?;
                    return self.write(&sum);
                }
            }
        }
        Ok(())
    }

    /// Returns the sum of the text since `start`, which is `at` parts, and the other values.
    fn rest_of_sum(
        &mut self,
        start: usize,
        at: usize,
        value: Cow<'_, Value>,
        locals: &Locals,
        rest: &[Node],
    ) -> Fallible<Value> {
        let mut sum = if at == 0 { value.into_owned() } else { arithmetic::add(&self.text_since(start), &value)? };
        self.output.text.truncate(start);
        for node in rest {
            let value = self.eval(locals, node)?;
            sum = arithmetic::add(&sum, &value)?;
        }
        Ok(sum)
    }

    fn text_since(&self, start: usize) -> Value {
        Value::from(&self.output.text[start..])
    }

    /// Appends to a text that is being joined.
    fn collect(&mut self, text: &str) -> Fallible<()> {
        budget::alloc(text.len())?;
        self.output.text.push_str(text);
        Ok(())
    }

    /// Builds a value at the end of the output, and removes it there.
    fn put_together(&mut self, collect: impl FnOnce(&mut Self, usize) -> Fallible<Value>) -> Fallible<Value> {
        let (start, depth) = self.begin_capture();
        let result = collect(self, start);
        self.output.captures.truncate(depth);
        self.output.text.truncate(start);
        result
    }

    /// Evaluates `a + b + c ...`: adjacent texts are joined at once.
    pub(super) fn sum(&mut self, locals: &Locals, parts: &[Node]) -> Fallible<Value> {
        self.put_together(|machine, start| {
            for (at, part) in parts.iter().enumerate() {
                let value = machine.eval(locals, part)?;
                match value.as_str().filter(|_| !value.is_safe()) {
                    Some(text) => machine.collect(text)?,
                    None => return machine.rest_of_sum(start, at, value, locals, &parts[at + 1..]),
                }
            }
            Ok(machine.tracked_since(start))
        })
    }

    /// Evaluates `a ~ b ~ c`: the texts of all values.
    pub(super) fn concat(&mut self, locals: &Locals, parts: &[Node]) -> Fallible<Value> {
        self.put_together(|machine, start| {
            for part in parts {
                let value = machine.eval(locals, part)?;
                match value.as_str() {
                    Some(text) => machine.collect(text)?,
                    None => {
                        let text = repr::to_str(machine, &value)?;
                        machine.collect(&text)?;
                    }
                }
            }
            Ok(machine.tracked_since(start))
        })
    }

    /// Evaluates `a ~ b ~ c`: the texts of all values. If one is marked as safe, so is the result,
    /// and the others are escaped.
    pub(super) fn safe_concat(&mut self, locals: &Locals, parts: &[Node]) -> Fallible<Value> {
        let values = self.all(locals, parts)?;
        let is_safe = values.iter().any(Value::is_safe);
        let mut whole = TextBuffer::new();
        for value in &values {
            let text = repr::to_str(self, value)?;
            whole.push(&if is_safe && !value.is_safe() { markup::escape_html(&text)? } else { text })?;
        }
        if is_safe { safe_text(whole.finish()) } else { text(whole.finish()) }
    }

    fn tracked_since(&self, start: usize) -> Value {
        let text = self.text_since(start);
        budget::track(&text);
        text
    }
}
