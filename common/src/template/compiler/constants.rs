//! What always has the same value is computed once, when the template is compiled.
//!
//! Jinja2's optimizer does so too, and the one thing that it cannot put off until the code runs is a dict of constants
//! that cannot be a dict.

use std::borrow::Cow;

use minijinja::Value;

use super::super::ast::{Const, Expr};
use super::super::error::Fallible;
use super::super::machine::Locals;
use super::super::program::{Args, Node, NodeKind};
use super::super::value::{BigInt, Dict, Obj, Py, Seq, SeqKind, none, py};
use super::{Compiler, Frame, Made};

/// The longest text, and the longest list, that is kept for having been computed.
const MAX_COMPUTED: usize = 256;

impl Const {
    pub(super) fn value(&self) -> Value {
        match self {
            Self::None => none(),
            Self::Bool(flag) => Value::from(*flag),
            Self::Int(int) => Value::from(*int),
            Self::BigInt(big) => Obj::BigInt(BigInt::from(big.digits().clone())).value(),
            Self::Float(float) => Value::from(*float),
            Self::Str(text) => Value::from(text.as_str()),
        }
    }
}

/// The value of a node that always has the same.
pub(super) fn constant(node: &Node) -> Option<&Value> {
    match &node.kind {
        NodeKind::Const(value) if !matches!(py(value), Py::Undefined(_)) => Some(value),
        _ => None,
    }
}

impl Compiler {
    /// The node's value in its place, if it always has the same.
    pub(super) fn folded(&mut self, node: Node) -> Node {
        if !has_constant_parts(&node.kind) {
            return node;
        }
        let computed = self.machine.eval(&Locals::default(), &node).ok().map(Cow::into_owned);
        let max = if matches!(node.kind, NodeKind::List(_) | NodeKind::Tuple(_)) { usize::MAX } else { MAX_COMPUTED };
        match computed.and_then(|value| literal(value, max)) {
            Some(value) => Node { kind: NodeKind::Const(value), line: node.line },
            None => node,
        }
    }

    pub(super) fn dict(&mut self, frame: Frame, entries: &[(Expr, Expr)]) -> Made<NodeKind> {
        let line = self.line;
        let mut nodes = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            nodes.push([self.expr(frame, key)?, self.expr(frame, value)?]);
        }
        match self.constant_dict(&nodes) {
            Some(Ok(value)) if all(nodes.iter().flatten()) => Ok(NodeKind::Const(value)),
            Some(Err(error)) if self.folds && !error.is_fatal() => {
                self.line = line;
                self.fail(error.to_string())
            }
            _ => Ok(NodeKind::Dict(nodes)),
        }
    }

    /// The dict of these entries, if all are constant; an error if it cannot be one.
    fn constant_dict(&mut self, entries: &[[Node; 2]]) -> Option<Fallible<Value>> {
        let mut values = Vec::with_capacity(entries.len());
        for [key, value] in entries {
            values.push((self.computed(key)?, self.computed(value)?));
        }
        Some(Dict::free_of_charge(values))
    }

    /// The value of a node that can be computed at once, whether or not it can take the node's place.
    fn computed(&mut self, node: &Node) -> Option<Value> {
        if let Some(value) = constant(node) {
            return Some(value.clone());
        }
        if !has_constant_parts(&node.kind) {
            return None;
        }
        let computed = self.machine.eval(&Locals::default(), node).ok()?.into_owned();
        (!matches!(py(&computed), Py::Obj(Obj::Generator(_)))).then_some(computed)
    }
}

fn all<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> bool {
    nodes.into_iter().all(|node| constant(node).is_some())
}

fn with_args(operand: &Node, args: &Args) -> bool {
    constant(operand).is_some() && all(args.iter())
}

/// Whether the node computes something from constants, in a way that Jinja2 would.
fn has_constant_parts(kind: &NodeKind) -> bool {
    match kind {
        NodeKind::Key(node, _) | NodeKind::Attribute(node, _) | NodeKind::Not(node) => constant(node).is_some(),
        NodeKind::Unary(_, node) | NodeKind::IsText(node, ..) | NodeKind::Check(_, node) => constant(node).is_some(),
        NodeKind::Item(nodes) | NodeKind::Binary(_, nodes) | NodeKind::Compare(_, nodes) => all(&**nodes),
        NodeKind::Slice(nodes) => all(&**nodes),
        NodeKind::Sum(nodes) | NodeKind::Concat(nodes) | NodeKind::List(nodes) | NodeKind::Tuple(nodes) => all(nodes),
        NodeKind::Chain(first, rest) => constant(first).is_some() && all(rest.iter().map(|(_, node)| node)),
        NodeKind::Filter(_, operand, args) => with_args(operand, args),
        NodeKind::Test(_, operand, args) => with_args(operand, args),
        _ => false,
    }
}

/// The value as one that belongs to the template, if it can be written as a literal and is not too large to keep.
fn literal(value: Value, max: usize) -> Option<Value> {
    match py(&value) {
        Py::Undefined(_) => None,
        Py::Str(text) => (text.len() <= max).then(|| value.clone()),
        Py::Obj(Obj::Seq(seq)) if seq.items().len() <= max && seq.kind() != SeqKind::Group => {
            let items = seq.items().iter().map(|item| literal(item.clone(), MAX_COMPUTED));
            Seq::free_of_charge(seq.kind(), items.collect::<Option<_>>()?).ok()
        }
        Py::Obj(Obj::BigInt(_)) => Some(value),
        Py::Obj(_) => None,
        Py::None | Py::Bool(_) | Py::Int(_) | Py::Float(_) => Some(value),
    }
}
