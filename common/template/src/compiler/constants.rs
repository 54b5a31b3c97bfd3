//! Computes constant expressions once, at compile time.
//!
//! Jinja2's optimizer does so too. The one error that it cannot defer to run time is a dict of
//! constants that cannot be a dict.

use std::borrow::Cow;

use minijinja::Value;

use super::state::{CompileResult, Compiler, Frame};
use crate::ast::{Const, Expr};
use crate::error::Fallible;
use crate::machine::Locals;
use crate::program::{Args, Node, NodeKind};
use crate::python::repr;
use crate::value::{BigInt, Dict, PyObject, PyValue, Seq, SeqKind, none, py_value};

/// The longest computed text that is written as data.
pub(super) const MAX_PRINTED_BYTES: usize = 64 * 1024;
/// The longest computed text or list that is kept.
const MAX_COMPUTED_LENGTH: usize = 256;

impl Const {
    pub(super) fn value(&self) -> Value {
        match self {
            Self::None => none(),
            Self::Bool(flag) => Value::from(*flag),
            Self::Int(int) => Value::from(*int),
            Self::BigInt(big) => PyObject::BigInt(BigInt::from(big.clone())).value(),
            Self::Float(float) => Value::from(*float),
            Self::Str(text) => Value::from(text.as_str()),
        }
    }
}

/// Returns the value of a constant node.
pub(super) fn constant(node: &Node) -> Option<&Value> {
    match &node.kind {
        NodeKind::Const(value) if !matches!(py_value(value), PyValue::Undefined(_)) => Some(value),
        _ => None,
    }
}

impl Compiler {
    /// Replaces a node by its value if it is constant.
    pub(super) fn folded(&mut self, node: Node) -> Node {
        if self.autoescape.is_unknown {
            return node;
        }
        let is_computed = has_constant_parts(&node.kind) || (has_slice(&node) && self.is_constant(&node));
        if !is_computed {
            return node;
        }
        let computed = self.machine.eval(&Locals::default(), &node).ok().map(Cow::into_owned);
        let max =
            if matches!(node.kind, NodeKind::List(_) | NodeKind::Tuple(_)) { usize::MAX } else { MAX_COMPUTED_LENGTH };
        match computed.and_then(|value| literal(value, max)) {
            Some(value) => Node { kind: NodeKind::Const(value), line: node.line },
            None => node,
        }
    }

    pub(super) fn dict(&mut self, frame: Frame, entries: &[(Expr, Expr)]) -> CompileResult<NodeKind> {
        let line = self.line;
        let mut nodes = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            nodes.push([self.expr(frame, key)?, self.expr(frame, value)?]);
        }
        match self.constant_dict(&nodes) {
            Some(Ok(value)) if all(nodes.iter().flatten()) && !self.changes_dicts => Ok(NodeKind::Const(value)),
            Some(Err(error)) if self.folds && !error.is_fatal() => {
                self.line = line;
                self.fail(error.to_string())
            }
            _ => Ok(NodeKind::Dict(nodes)),
        }
    }

    /// Returns the dict of these entries if all are constant; an error if it cannot be a dict.
    fn constant_dict(&mut self, entries: &[[Node; 2]]) -> Option<Fallible<Value>> {
        let mut values = Vec::with_capacity(entries.len());
        for [key, value] in entries {
            values.push((self.computed(key)?, self.computed(value)?));
        }
        Some(Dict::free_of_charge(values))
    }

    /// Returns the output of a node that Jinja2 computes at compile time. It differs from the
    /// output at run time only for slices: a value that cannot be sliced is then undefined.
    pub(super) fn printed_constant(&mut self, node: &Node) -> Option<String> {
        if !has_slice(node) || !self.is_constant(node) {
            return None;
        }
        let value = self.machine.eval(&Locals::default(), node).ok()?.into_owned();
        repr::to_str(&mut self.machine, &value).ok().filter(|text| text.len() <= MAX_PRINTED_BYTES)
    }

    /// Returns true if Jinja2 computes the node at compile time, even if that fails.
    pub(super) fn is_constant(&mut self, node: &Node) -> bool {
        match &node.kind {
            NodeKind::Filter(..) | NodeKind::Test(..) | NodeKind::Check(..) if self.autoescape.is_unknown => false,
            NodeKind::Const(_) => constant(node).is_some(),
            NodeKind::And(sides) | NodeKind::Or(sides) => {
                let decides = matches!(node.kind, NodeKind::Or(_));
                self.constant_truth(&sides[0]).is_some_and(|truth| truth == decides || self.is_constant(&sides[1]))
            }
            NodeKind::If(parts) => {
                let chosen = self.constant_truth(&parts[0]).map(|truth| &parts[if truth { 1 } else { 2 }]);
                chosen.is_some_and(|chosen| self.is_constant(chosen))
            }
            NodeKind::Filter(filter, ..) if filter.needs_context => false,
            kind => parts(kind).is_some_and(|parts| parts.into_iter().all(|part| self.is_constant(part))),
        }
    }

    pub(super) fn constant_truth(&mut self, node: &Node) -> Option<bool> {
        let constant = self.is_constant(node);
        constant.then(|| self.machine.eval(&Locals::default(), node).ok().map(|value| value.is_true()))?
    }

    /// Returns the value of a node that can be computed, even if it cannot replace the node.
    fn computed(&mut self, node: &Node) -> Option<Value> {
        if let Some(value) = constant(node) {
            return Some(value.clone());
        }
        if !has_constant_parts(&node.kind) && !self.is_constant(node) {
            return None;
        }
        let computed = self.machine.eval(&Locals::default(), node).ok()?.into_owned();
        (!matches!(py_value(&computed), PyValue::Object(PyObject::Generator(_)))).then_some(computed)
    }
}

fn all<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> bool {
    nodes.into_iter().all(|node| constant(node).is_some())
}

fn with_args(operand: &Node, args: &Args) -> bool {
    constant(operand).is_some() && all(args.iter())
}

/// Returns the parts of a node that Jinja2 computes from constants.
fn parts(kind: &NodeKind) -> Option<Vec<&Node>> {
    Some(match kind {
        NodeKind::Key(node, _) | NodeKind::Attribute(node, _) | NodeKind::Not(node) => vec![node],
        NodeKind::Unary(_, node) | NodeKind::IsText(node, ..) | NodeKind::Check(_, node) => vec![node],
        NodeKind::Item(nodes) | NodeKind::Binary(_, nodes) | NodeKind::Compare(_, nodes) => nodes.iter().collect(),
        NodeKind::And(nodes) | NodeKind::Or(nodes) => nodes.iter().collect(),
        NodeKind::If(nodes) => nodes.iter().collect(),
        NodeKind::Slice(nodes) => nodes.iter().collect(),
        NodeKind::Sum(nodes) | NodeKind::Concat(nodes) | NodeKind::SafeConcat(nodes) => nodes.iter().collect(),
        NodeKind::List(nodes) | NodeKind::Tuple(nodes) => nodes.iter().collect(),
        NodeKind::Dict(entries) => entries.iter().flatten().collect(),
        NodeKind::Chain(first, rest) => std::iter::once(&**first).chain(rest.iter().map(|(_, node)| node)).collect(),
        NodeKind::Filter(_, operand, args) => std::iter::once(&**operand).chain(args.iter()).collect(),
        NodeKind::Test(_, operand, args) => std::iter::once(&**operand).chain(args.iter()).collect(),
        _ => return None,
    })
}

/// Returns true if a node contains a slice.
fn has_slice(node: &Node) -> bool {
    matches!(node.kind, NodeKind::Slice(_)) || parts(&node.kind).is_some_and(|parts| parts.into_iter().any(has_slice))
}

/// Returns true if the node computes a value from constants, as Jinja2 would.
fn has_constant_parts(kind: &NodeKind) -> bool {
    match kind {
        NodeKind::Key(node, _) | NodeKind::Attribute(node, _) | NodeKind::Not(node) => constant(node).is_some(),
        NodeKind::Unary(_, node) | NodeKind::IsText(node, ..) | NodeKind::Check(_, node) => constant(node).is_some(),
        NodeKind::Item(nodes) | NodeKind::Binary(_, nodes) | NodeKind::Compare(_, nodes) => all(&**nodes),
        NodeKind::Slice(nodes) => all(&**nodes),
        NodeKind::Sum(nodes) | NodeKind::Concat(nodes) | NodeKind::List(nodes) | NodeKind::Tuple(nodes) => all(nodes),
        NodeKind::Chain(first, rest) => constant(first).is_some() && all(rest.iter().map(|(_, node)| node)),
        NodeKind::Filter(filter, operand, args) => !filter.needs_context && with_args(operand, args),
        NodeKind::Test(_, operand, args) => with_args(operand, args),
        _ => false,
    }
}

/// Returns a copy of the value that belongs to the template, if it can be a literal and is not too
/// large.
fn literal(value: Value, max: usize) -> Option<Value> {
    match py_value(&value) {
        PyValue::Undefined(_) => None,
        PyValue::Str(text) => (text.len() <= max).then(|| value.clone()),
        PyValue::Object(PyObject::Seq(seq)) if seq.items().len() <= max && seq.kind() != SeqKind::Group => {
            let items = seq.items().iter().map(|item| literal(item.clone(), MAX_COMPUTED_LENGTH));
            Seq::free_of_charge(seq.kind(), items.collect::<Option<_>>()?).ok()
        }
        PyValue::Object(PyObject::BigInt(_)) => Some(value),
        PyValue::Object(_) => None,
        PyValue::None | PyValue::Bool(_) | PyValue::Int(_) | PyValue::Float(_) => Some(value),
    }
}
