//! Evaluates expressions.

use std::borrow::Cow;

use minijinja::Value;

use super::super::budget;
use super::super::error::{Fallible, fail};
use super::super::marks;
use super::super::predicates::Predicate;
use super::super::program::{Args, Comparison, Escaping, Node, NodeKind};
use super::super::python::{attribute, call, repr};
use super::super::value::{Block, Dict, Obj, Undefined, list, obj, safe_text, tuple};
use super::{Locals, Machine};

/// Shorter texts are compared in no time.
const LONG_TEXT: usize = 64;

/// Stands for a value that is not there where nobody asks why.
static NOTHING: Value = Value::UNDEFINED;

impl Machine {
    /// The value of a node.
    pub(crate) fn eval<'a>(&mut self, locals: &'a Locals, node: &'a Node) -> Fallible<Cow<'a, Value>> {
        match &node.kind {
            NodeKind::Const(value) => Ok(Cow::Borrowed(value)),
            NodeKind::Context(place) => Ok(Cow::Borrowed(locals.context(*place))),
            NodeKind::Variable(local, unset) => {
                let value = locals.get(*local);
                Ok(if value.is_undefined() { Cow::Borrowed(unset) } else { value })
            }
            NodeKind::Key(operand, name) => {
                let value = self.eval(locals, operand)?;
                self.key(value, name).map_err(|error| error.at(node.line))
            }
            _ => self.compute(locals, node).map_err(|error| error.at(node.line)),
        }
    }

    fn compute<'a>(&mut self, locals: &'a Locals, node: &'a Node) -> Fallible<Cow<'a, Value>> {
        match &node.kind {
            NodeKind::And(sides) => self.either(locals, sides, false),
            NodeKind::Or(sides) => self.either(locals, sides, true),
            NodeKind::If(parts) => {
                let [test, then, otherwise] = &**parts;
                let chosen = if self.truth(locals, test)? { then } else { otherwise };
                self.eval(locals, chosen)
            }
            _ => self.make(locals, node).map(Cow::Owned),
        }
    }

    /// The value of a node that makes a new one.
    fn make(&mut self, locals: &Locals, node: &Node) -> Fallible<Value> {
        match &node.kind {
            NodeKind::Param(local) => Ok(present(&locals.get(*local))),
            NodeKind::Attribute(operand, name) => {
                let value = self.eval(locals, operand)?;
                attribute::attribute(self, &value, name)
            }
            NodeKind::Item(parts) => {
                let [value, key] = self.both(locals, parts)?;
                attribute::item(self, &value, &key)
            }
            NodeKind::Slice(parts) => self.slice(locals, parts),
            NodeKind::Unary(op, operand) => op(&*self.eval(locals, operand)?),
            NodeKind::Binary(op, parts) => {
                let [left, right] = self.both(locals, parts)?;
                op(self, &left, &right)
            }
            NodeKind::Sum(parts) => self.sum(locals, parts),
            NodeKind::Concat(parts) => self.concat(locals, parts),
            NodeKind::SafeConcat(parts) => self.safe_concat(locals, parts),
            NodeKind::Safe(operand, escaping) => self.marked_safe(locals, operand, *escaping),
            NodeKind::Chain(first, rest) => self.chain(locals, first, rest),
            NodeKind::List(items) => list(self.all(locals, items)?),
            NodeKind::Tuple(items) => tuple(self.all(locals, items)?),
            NodeKind::Dict(entries) => self.dict(locals, entries),
            NodeKind::Template(blocks) => self.template(locals, blocks),
            _ => self.called(locals, node),
        }
    }

    fn marked_safe(&mut self, locals: &Locals, operand: &Node, escaping: Escaping) -> Fallible<Value> {
        let value = self.eval(locals, operand)?;
        if value.is_safe() || !self.escapes(escaping) {
            return Ok(value.into_owned());
        }
        safe_text(repr::to_str(self, &value)?)
    }

    /// The value of a node that calls something.
    fn called(&mut self, locals: &Locals, node: &Node) -> Fallible<Value> {
        match &node.kind {
            NodeKind::Call(callee, args) => {
                let callee = self.eval(locals, callee)?;
                let args = self.args(locals, args)?;
                call::call(self, &callee, &args)
            }
            NodeKind::Method(receiver, name, args) => {
                let receiver = self.eval(locals, receiver)?;
                let args = self.args(locals, args)?;
                call::call_method(self, &receiver, name, &args)
            }
            NodeKind::Filter(filter, operand, args) => {
                let value = self.eval(locals, operand)?;
                let args = self.args(locals, args)?;
                filter(self, &value, &args)
            }
            NodeKind::Fail(parts, message) => {
                parts.iter().try_for_each(|part| self.eval(locals, part).map(drop))?;
                Err(fail(message.as_str()))
            }
            _ => self.truth(locals, node).map(Value::from),
        }
    }

    /// Whether the value of a node is true, without making a value where none is needed.
    pub(super) fn truth(&mut self, locals: &Locals, node: &Node) -> Fallible<bool> {
        let truth = match &node.kind {
            NodeKind::Not(operand) => Ok(!self.truth(locals, operand)?),
            NodeKind::And(sides) => Ok(self.truth(locals, &sides[0])? && self.truth(locals, &sides[1])?),
            NodeKind::Or(sides) => Ok(self.truth(locals, &sides[0])? || self.truth(locals, &sides[1])?),
            NodeKind::Check(check, operand) => Ok(check(&*self.look(locals, operand)?)),
            NodeKind::IsText(operand, text, wanted) => {
                let value = self.look(locals, operand)?;
                budget::steps(text.len() / LONG_TEXT)?;
                Ok(value.as_str().is_some_and(|found| marks::same(found, text)) == *wanted)
            }
            NodeKind::Compare(compare, parts) => {
                self.both(locals, parts).and_then(|[left, right]| compare(&left, &right))
            }
            NodeKind::Test(test, operand, args) => self.passes(locals, *test, operand, args),
            _ => Ok(self.look(locals, node)?.is_true()),
        };
        truth.map_err(|error| error.at(node.line))
    }

    fn passes(&mut self, locals: &Locals, test: Predicate, operand: &Node, args: &Args) -> Fallible<bool> {
        let value = self.eval(locals, operand)?;
        let args = self.args(locals, args)?;
        test.holds(self, &value, &args)
    }

    /// The value of a node, where it does not matter why a value is not there.
    fn look<'a>(&mut self, locals: &'a Locals, node: &'a Node) -> Fallible<Cow<'a, Value>> {
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

    fn key<'a>(&mut self, value: Cow<'a, Value>, name: &Value) -> Fallible<Cow<'a, Value>> {
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

    /// `and` and `or`: the right side is evaluated only if the left does not decide.
    fn either<'a>(&mut self, locals: &'a Locals, sides: &'a [Node; 2], decides: bool) -> Fallible<Cow<'a, Value>> {
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
        Ok(Obj::Template(references).value())
    }

    fn slice(&mut self, locals: &Locals, parts: &[Node; 4]) -> Fallible<Value> {
        let [operand, bounds @ ..] = parts;
        let value = self.eval(locals, operand)?;
        let bounds = self.all(locals, bounds)?;
        match attribute::slice(&value, &bounds) {
            Err(error)
                if self.computes_constants && !error.is_fatal() && attribute::slices_to_undefined(&value, &bounds) =>
            {
                Ok(Undefined::because("a slice of what cannot be sliced"))
            }
            result => result,
        }
    }

    /// `a < b < c`: every operand is evaluated once, and none after a comparison that does not hold.
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

    fn args(&mut self, locals: &Locals, args: &Args) -> Fallible<call::Args<'static>> {
        if args.is_empty() {
            return Ok(call::Args::of(&[]));
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
        Ok(call::Args { positional: positional.into(), keywords })
    }
}

fn text(name: &Value) -> &str {
    name.as_str().unwrap_or_default()
}

/// A parameter that was not passed is undefined to the defaults of others.
fn present(value: &Value) -> Value {
    match obj(value) {
        Some(Obj::Missing) => Undefined::because("a parameter has no value yet"),
        _ => value.clone(),
    }
}
