//! Evaluates expressions.

use std::borrow::Cow;

use minijinja::Value;

use super::locals::Locals;
use super::state::Machine;
use crate::arguments::Args;
use crate::budget;
use crate::error::{Fallible, fail};
use crate::interpreter::{Binary, Check, Comparison, Filter, Predicate};
use crate::program::{self, Escaping, Local, Node, NodeKind};
use crate::python::{attribute, call, repr};
use crate::taint;
use crate::value::{Block, Dict, PyObject, Undefined, list, py_object, safe_text, tuple};

/// Shorter texts are compared in negligible time.
const TEXT_BYTES_PER_STEP: usize = 64;

/// A missing value whose cause does not matter.
static NOTHING: Value = Value::UNDEFINED;

/// The evaluation of a node: a borrowed variable, constant or item, or a new value.
type Evaluated<'a> = Fallible<Cow<'a, Value>>;

impl Machine {
    /// Returns the value of a node.
    ///
    /// The match names every kind of node, so that a new kind fails to compile until it is handled.
    pub(crate) fn eval<'a>(&mut self, locals: &'a Locals, node: &'a Node) -> Evaluated<'a> {
        let value = match &node.kind {
            NodeKind::Const(value) => return Ok(Cow::Borrowed(value)),
            NodeKind::Context(place) => {
                self.is_read[*place as usize] = true;
                return Ok(Cow::Borrowed(locals.context(*place)));
            }
            NodeKind::Variable(local, unset) => {
                if let Some(place) = locals.given(*local) {
                    self.is_read[place as usize] = true;
                }
                return Ok(variable(locals, *local, unset));
            }
            NodeKind::Key(operand, name) => {
                let value = self.eval(locals, operand)?;
                self.key(value, name)
            }
            NodeKind::And(sides) => self.either(locals, sides, false),
            NodeKind::Or(sides) => self.either(locals, sides, true),
            NodeKind::If(parts) => {
                let chosen = self.chosen(locals, parts)?;
                return self.eval(locals, chosen);
            }
            NodeKind::Param(local) => owned(Ok(present(&locals.get(*local)))),
            NodeKind::Attribute(operand, name) => owned(self.attribute(locals, operand, name)),
            NodeKind::Item(parts) => owned(self.item(locals, parts)),
            NodeKind::Slice(parts) => owned(self.slice(locals, parts)),
            NodeKind::Unary(op, operand) => owned(self.eval(locals, operand).and_then(|value| op(&value))),
            NodeKind::Binary(op, parts) => owned(self.binary(locals, *op, parts)),
            NodeKind::Sum(parts) => owned(self.sum(locals, parts)),
            NodeKind::Concat(parts) => owned(self.concat(locals, parts)),
            NodeKind::SafeConcat(parts) => owned(self.safe_concat(locals, parts)),
            NodeKind::Safe(operand, escaping) => owned(self.marked_safe(locals, operand, *escaping)),
            NodeKind::Chain(first, rest) => owned(self.chain(locals, first, rest)),
            NodeKind::List(items) => owned(self.all(locals, items).and_then(list)),
            NodeKind::Tuple(items) => owned(self.all(locals, items).and_then(tuple)),
            NodeKind::Dict(entries) => owned(self.dict(locals, entries)),
            NodeKind::Template(blocks) => owned(self.template(locals, blocks)),
            NodeKind::Call(callee, args) => owned(self.called(locals, callee, args)),
            NodeKind::Method(receiver, name, args) => owned(self.method(locals, receiver, name, args)),
            NodeKind::Filter(filter, operand, args) => owned(self.filtered(locals, filter.run, operand, args)),
            NodeKind::Fail(parts, message) => owned(self.failed(locals, parts, message)),
            NodeKind::Not(operand) => boolean(self.truth(locals, operand).map(|truth| !truth)),
            NodeKind::Check(check, operand) => boolean(self.checks(locals, *check, operand)),
            NodeKind::IsText(operand, text, wanted) => boolean(self.is_text(locals, operand, text, *wanted)),
            NodeKind::Compare(compare, parts) => boolean(self.compares(locals, *compare, parts)),
            NodeKind::Test(test, operand, args) => boolean(self.passes(locals, *test, operand, args)),
        };
        value.map_err(|error| error.at(node.line))
    }

    /// Returns the truth of a node. For a test or a comparison, no value is created.
    pub(super) fn truth(&mut self, locals: &Locals, node: &Node) -> Fallible<bool> {
        let truth = match &node.kind {
            NodeKind::Not(operand) => self.truth(locals, operand).map(|truth| !truth),
            NodeKind::And(sides) => Ok(self.truth(locals, &sides[0])? && self.truth(locals, &sides[1])?),
            NodeKind::Or(sides) => Ok(self.truth(locals, &sides[0])? || self.truth(locals, &sides[1])?),
            NodeKind::Check(check, operand) => self.checks(locals, *check, operand),
            NodeKind::IsText(operand, text, wanted) => self.is_text(locals, operand, text, *wanted),
            NodeKind::Compare(compare, parts) => self.compares(locals, *compare, parts),
            NodeKind::Test(test, operand, args) => self.passes(locals, *test, operand, args),
            // `eval` never asks for the truth of the same node, so this cannot recurse without end.
            _ => Ok(self.look(locals, node)?.is_true()),
        };
        truth.map_err(|error| error.at(node.line))
    }

    fn checks(&mut self, locals: &Locals, check: Check, operand: &Node) -> Fallible<bool> {
        Ok(check(&*self.look(locals, operand)?))
    }

    fn is_text(&mut self, locals: &Locals, operand: &Node, text: &str, wanted: bool) -> Fallible<bool> {
        let value = self.look(locals, operand)?;
        budget::steps(text.len() / TEXT_BYTES_PER_STEP)?;
        Ok(value.as_str().is_some_and(|found| taint::same(found, text)) == wanted)
    }

    fn compares(&mut self, locals: &Locals, compare: Comparison, parts: &[Node; 2]) -> Fallible<bool> {
        let [left, right] = self.both(locals, parts)?;
        compare(&left, &right)
    }

    fn passes(&mut self, locals: &Locals, test: Predicate, operand: &Node, args: &program::Args) -> Fallible<bool> {
        let value = self.eval(locals, operand)?;
        let args = self.args(locals, args)?;
        test.holds(self, &value, &args)
    }

    /// Returns the branch of a conditional expression that its test selects.
    pub(super) fn chosen<'a>(&mut self, locals: &Locals, parts: &'a [Node; 3]) -> Fallible<&'a Node> {
        let [test, then, otherwise] = parts;
        Ok(if self.truth(locals, test)? { then } else { otherwise })
    }

    fn attribute(&mut self, locals: &Locals, operand: &Node, name: &Value) -> Fallible<Value> {
        let value = self.eval(locals, operand)?;
        attribute::attribute(self, &value, name)
    }

    fn item(&mut self, locals: &Locals, parts: &[Node; 2]) -> Fallible<Value> {
        let [value, key] = self.both(locals, parts)?;
        attribute::item(self, &value, &key)
    }

    fn binary(&mut self, locals: &Locals, op: Binary, parts: &[Node; 2]) -> Fallible<Value> {
        let [left, right] = self.both(locals, parts)?;
        op(self, &left, &right)
    }

    fn marked_safe(&mut self, locals: &Locals, operand: &Node, escaping: Escaping) -> Fallible<Value> {
        let value = self.eval(locals, operand)?;
        if value.is_safe() || !self.escapes(escaping) {
            return Ok(value.into_owned());
        }
        safe_text(repr::to_str(self, &value)?)
    }

    fn called(&mut self, locals: &Locals, callee: &Node, args: &program::Args) -> Fallible<Value> {
        let callee = self.eval(locals, callee)?;
        let args = self.args(locals, args)?;
        call::call(self, &callee, &args)
    }

    fn method(&mut self, locals: &Locals, receiver: &Node, name: &Value, args: &program::Args) -> Fallible<Value> {
        let receiver = self.eval(locals, receiver)?;
        let args = self.args(locals, args)?;
        call::call_method(self, &receiver, name, &args)
    }

    fn filtered(&mut self, locals: &Locals, filter: Filter, operand: &Node, args: &program::Args) -> Fallible<Value> {
        let value = self.eval(locals, operand)?;
        let args = self.args(locals, args)?;
        filter(self, &value, &args)
    }

    fn failed(&mut self, locals: &Locals, parts: &[Node], message: &str) -> Fallible<Value> {
        parts.iter().try_for_each(|part| self.eval(locals, part).map(drop))?;
        Err(fail(message))
    }

    /// Returns the value of a node whose cause, if it is missing, does not matter.
    fn look<'a>(&mut self, locals: &'a Locals, node: &'a Node) -> Evaluated<'a> {
        let NodeKind::Key(operand, name) = &node.kind else {
            return self.eval(locals, node);
        };
        let found = match self.eval(locals, operand)? {
            Cow::Borrowed(value) => attribute::key(self, value, text(name)),
            Cow::Owned(value) => {
                attribute::key(self, &value, text(name)).map(|found| found.map(|found| Cow::Owned(found.into_owned())))
            }
        };
        Ok(found.map_err(|error| error.at(node.line))?.unwrap_or(Cow::Borrowed(&NOTHING)))
    }

    fn key<'a>(&mut self, value: Cow<'a, Value>, name: &Value) -> Evaluated<'a> {
        match value {
            Cow::Borrowed(value) => {
                let found = attribute::key(self, value, text(name))?;
                Ok(found.unwrap_or_else(|| Cow::Owned(attribute::missing(value, name))))
            }
            Cow::Owned(value) => {
                let found = attribute::key(self, &value, text(name))?.map(Cow::into_owned);
                Ok(Cow::Owned(found.unwrap_or_else(|| attribute::missing(&value, name))))
            }
        }
    }

    /// Evaluates `and` or `or`: the right side only if the left does not decide.
    fn either<'a>(&mut self, locals: &'a Locals, sides: &'a [Node; 2], decides: bool) -> Evaluated<'a> {
        let left = self.eval(locals, &sides[0])?;
        if left.is_true() == decides { Ok(left) } else { self.eval(locals, &sides[1]) }
    }

    fn both<'a>(&mut self, locals: &'a Locals, parts: &'a [Node; 2]) -> Fallible<[Cow<'a, Value>; 2]> {
        Ok([self.eval(locals, &parts[0])?, self.eval(locals, &parts[1])?])
    }

    pub(super) fn all(&mut self, locals: &Locals, nodes: &[Node]) -> Fallible<Vec<Value>> {
        let mut values = Vec::with_capacity(nodes.len());
        for node in nodes {
            values.push(self.eval(locals, node)?.into_owned());
        }
        Ok(values)
    }

    fn dict(&mut self, locals: &Locals, entries: &[[Node; 2]]) -> Fallible<Value> {
        let mut values = Vec::with_capacity(entries.len());
        for [key, value] in entries {
            values.push((self.eval(locals, key)?.into_owned(), self.eval(locals, value)?.into_owned()));
        }
        Dict::value(values)
    }

    fn template(&mut self, locals: &Locals, blocks: &[(Value, Node)]) -> Fallible<Value> {
        let mut references = Vec::with_capacity(blocks.len());
        for (name, function) in blocks {
            references.push(Block { name: name.clone(), function: self.eval(locals, function)?.into_owned() });
        }
        Ok(PyObject::Template(references).value())
    }

    fn slice(&mut self, locals: &Locals, parts: &[Node; 4]) -> Fallible<Value> {
        let [operand, bounds @ ..] = parts;
        let value = self.eval(locals, operand)?;
        let bounds = self.all(locals, bounds)?;
        match attribute::slice(&value, &bounds) {
            Err(error)
                if self.computes_constants && !error.is_fatal() && attribute::slices_to_undefined(&value, &bounds) =>
            {
                Ok(Undefined::because("the sliced value cannot be sliced"))
            }
            result => result,
        }
    }

    /// Evaluates `a < b < c`: every operand once, and none after a comparison that does not hold.
    fn chain(&mut self, locals: &Locals, first: &Node, rest: &[(Comparison, Node)]) -> Fallible<Value> {
        let mut left = self.eval(locals, first)?;
        for (compare, operand) in rest {
            let right = self.eval(locals, operand)?;
            if !compare(&left, &right)? {
                return Ok(Value::from(false));
            }
            left = right;
        }
        Ok(Value::from(true))
    }

    fn args(&mut self, locals: &Locals, args: &program::Args) -> Fallible<Args<'static>> {
        if args.is_empty() {
            return Ok(Args::of(&[]));
        }
        let mut positional = self.all(locals, &args.positional)?;
        let splat = args.splat.as_ref().map(|splat| self.eval(locals, splat)).transpose()?;
        let mut keywords = Vec::with_capacity(args.keywords.len());
        for (name, value) in &args.keywords {
            keywords.push((name.clone(), self.eval(locals, value)?.into_owned()));
        }
        let keyword_splat = args.keyword_splat.as_ref().map(|splat| self.eval(locals, splat)).transpose()?;
        if let Some(splat) = splat {
            call::add_positional(&mut positional, &splat)?;
        }
        if let Some(splat) = keyword_splat {
            call::add_keywords(&mut keywords, &splat)?;
        }
        Ok(Args { positional: positional.into(), keywords })
    }
}

/// Returns a variable, or `unset` while no code has set it.
fn variable<'a>(locals: &'a Locals, local: Local, unset: &'a Value) -> Cow<'a, Value> {
    let value = locals.get(local);
    if value.is_undefined() { Cow::Borrowed(unset) } else { value }
}

fn owned<'a>(value: Fallible<Value>) -> Evaluated<'a> {
    value.map(Cow::Owned)
}

fn boolean<'a>(truth: Fallible<bool>) -> Evaluated<'a> {
    truth.map(|truth| Cow::Owned(Value::from(truth)))
}

fn text(name: &Value) -> &str {
    name.as_str().unwrap_or_default()
}

/// A parameter that was not passed is undefined to the defaults of others.
fn present(value: &Value) -> Value {
    match py_object(value) {
        Some(PyObject::Missing) => Undefined::because("a parameter has no value yet"),
        _ => value.clone(),
    }
}
