//! Expressions.

use minijinja::Value;

use super::constants::constant;
use super::state::{CompileResult, Compiler, Frame};
use crate::ast::{BinaryOp, CompareOp, Conditional, Expr, ExprKind, UnaryOp};
use crate::interpreter::{Binary, Comparison};
use crate::program::{Node, NodeKind};
use crate::python::{arithmetic, contains, order};
use crate::value::{Undefined, equal, none};

impl Compiler {
    pub(super) fn expr(&mut self, frame: Frame, expr: &Expr) -> CompileResult<Node> {
        self.line = expr.line;
        self.size += 1;
        let is_display = matches!(expr.kind, ExprKind::Tuple(_) | ExprKind::List(_) | ExprKind::Dict(_));
        let around = self.folds;
        self.folds = around || !is_display;
        let kind = self.kind(frame, expr);
        self.folds = around;
        self.line = expr.line;
        Ok(self.folded(Node { kind: kind?, line: expr.line }))
    }

    fn kind(&mut self, frame: Frame, expr: &Expr) -> CompileResult<NodeKind> {
        match &expr.kind {
            ExprKind::Const(literal) => Ok(NodeKind::Const(literal.value())),
            ExprKind::Name(name) => Ok(self.name(frame, name)),
            ExprKind::Tuple(items) => Ok(NodeKind::Tuple(self.all(frame, items)?)),
            ExprKind::List(items) => Ok(NodeKind::List(self.all(frame, items)?)),
            ExprKind::Dict(entries) => self.dict(frame, entries),
            ExprKind::Concat(items) => {
                let items = self.all(frame, items)?;
                let make = self.concat(&items);
                Ok(joined(items, make))
            }
            ExprKind::Unary(op, operand) => self.unary(frame, *op, operand),
            ExprKind::Binary(op, left, right) => self.binary(frame, *op, left, right),
            ExprKind::And(left, right) => self.either(frame, left, right, false),
            ExprKind::Or(left, right) => self.either(frame, left, right, true),
            ExprKind::Compare(first, rest) => self.compare(frame, first, rest),
            ExprKind::If(parts) => self.conditional(frame, parts),
            ExprKind::Attribute(operand, name) => self.attribute(frame, operand, name),
            ExprKind::Item(operand, index) => self.item(frame, operand, index),
            ExprKind::Slice(operand, bounds) => self.slice(frame, operand, bounds),
            ExprKind::Call(callee, args) => self.call(frame, callee, args, None),
            ExprKind::Filter(Some(operand), name, args) => {
                self.check_filter(frame, name)?;
                let operand = self.expr(frame, operand)?;
                self.filter(frame, operand, name, args)
            }
            // A filter without an operand is compiled with its block.
            ExprKind::Filter(None, ..) => Ok(NodeKind::Const(none())),
            ExprKind::Test(operand, name, args) => self.test(frame, operand, name, args),
        }
    }

    fn all<'a>(&mut self, frame: Frame, items: impl IntoIterator<Item = &'a Expr>) -> CompileResult<Vec<Node>> {
        items.into_iter().map(|item| self.expr(frame, item)).collect()
    }

    fn unary(&mut self, frame: Frame, op: UnaryOp, operand: &Expr) -> CompileResult<NodeKind> {
        let operand = Box::new(self.expr(frame, operand)?);
        Ok(match op {
            UnaryOp::Not => NodeKind::Not(operand),
            UnaryOp::Neg => NodeKind::Unary(arithmetic::negate, operand),
            UnaryOp::Pos => NodeKind::Unary(arithmetic::plus, operand),
        })
    }

    /// Compiles an operator. A long sum is one operation, so that its texts are copied once, unless
    /// the order of evaluation could be observed.
    fn binary(&mut self, frame: Frame, op: BinaryOp, left: &Expr, right: &Expr) -> CompileResult<NodeKind> {
        if op == BinaryOp::Add && !left.has_call() && !right.has_call() {
            let mut summands = Vec::new();
            flatten_sum(left, &mut summands);
            summands.push(right);
            return Ok(joined(self.all(frame, summands)?, NodeKind::Sum));
        }
        let operands = Box::new([self.expr(frame, left)?, self.expr(frame, right)?]);
        Ok(NodeKind::Binary(binary_function(op), operands))
    }

    /// Compiles `and` or `or`. The right side is not compiled after a constant left side that
    /// decides.
    fn either(&mut self, frame: Frame, left: &Expr, right: &Expr, decides: bool) -> CompileResult<NodeKind> {
        let left = self.expr(frame, left)?;
        match constant(&left).map(Value::is_true) {
            Some(truth) if truth == decides => Ok(left.kind),
            Some(_) => Ok(self.expr(frame, right)?.kind),
            None => {
                let sides = Box::new([left, self.expr(frame, right)?]);
                Ok(if decides { NodeKind::Or(sides) } else { NodeKind::And(sides) })
            }
        }
    }

    fn compare(&mut self, frame: Frame, first: &Expr, rest: &[(CompareOp, Expr)]) -> CompileResult<NodeKind> {
        let first = self.expr(frame, first)?;
        let mut operands = Vec::with_capacity(rest.len());
        for (op, operand) in rest {
            operands.push((*op, self.expr(frame, operand)?));
        }
        if operands.len() == 1
            && let Some((op, operand)) = operands.pop()
        {
            return Ok(comparison(op, first, operand));
        }
        let rest = operands.into_iter().map(|(op, operand)| (compare_function(op), operand)).collect();
        Ok(NodeKind::Chain(Box::new(first), rest))
    }

    fn conditional(&mut self, frame: Frame, parts: &Conditional) -> CompileResult<NodeKind> {
        let (frame, line) = (frame.soft(), self.line);
        let test = self.expr(frame, &parts.test)?;
        let then = self.expr(frame, &parts.then)?;
        if constant(&test).is_some_and(Value::is_true) && constant(&then).is_some() {
            return Ok(then.kind);
        }
        let otherwise = match &parts.otherwise {
            Some(otherwise) => self.expr(frame, otherwise)?,
            None => {
                let reason = format!("the inline if-expression on line {line} evaluated to false and has no else");
                Node { kind: NodeKind::Const(Undefined::because(reason)), line }
            }
        };
        if constant(&test).is_some_and(|test| !test.is_true()) && constant(&otherwise).is_some() {
            return Ok(otherwise.kind);
        }
        Ok(NodeKind::If(Box::new([test, then, otherwise])))
    }

    fn slice(&mut self, frame: Frame, operand: &Expr, bounds: &[Option<Expr>; 3]) -> CompileResult<NodeKind> {
        let line = self.line;
        let operand = self.expr(frame, operand)?;
        let mut bound = |bound: &Option<Expr>| match bound {
            Some(bound) => self.expr(frame, bound),
            None => Ok(Node { kind: NodeKind::Const(none()), line }),
        };
        Ok(NodeKind::Slice(Box::new([operand, bound(&bounds[0])?, bound(&bounds[1])?, bound(&bounds[2])?])))
    }
}

/// Returns the operands of `a + b + c`, in order.
fn flatten_sum<'a>(expr: &'a Expr, summands: &mut Vec<&'a Expr>) {
    match &expr.kind {
        ExprKind::Binary(BinaryOp::Add, left, right) => {
            flatten_sum(left, summands);
            summands.push(right);
        }
        _ => summands.push(expr),
    }
}

/// Compiles `+` or `~` over many values; adjacent constant texts are joined.
fn joined(items: Vec<Node>, make: fn(Vec<Node>) -> NodeKind) -> NodeKind {
    let mut merged: Vec<Node> = Vec::with_capacity(items.len());
    for item in items {
        let both = merged.last().and_then(text).zip(text(&item)).map(|(before, after)| [before, after].concat());
        match (both, merged.last_mut()) {
            (Some(both), Some(last)) => last.kind = NodeKind::Const(Value::from(both)),
            _ => merged.push(item),
        }
    }
    match merged.pop() {
        Some(only) if merged.is_empty() && text(&only).is_some() => only.kind,
        last => {
            merged.extend(last);
            make(merged)
        }
    }
}

/// Returns the text of a constant node that is not marked as safe.
pub(super) fn text(node: &Node) -> Option<&str> {
    constant(node).filter(|value| !value.is_safe())?.as_str()
}

/// A text equals no value of another type.
fn comparison(op: CompareOp, left: Node, right: Node) -> NodeKind {
    let wanted = op == CompareOp::Eq;
    let is_equality = wanted || op == CompareOp::Ne;
    match (text(&left).map(Box::from), text(&right).map(Box::from)) {
        (_, Some(text)) if is_equality => NodeKind::IsText(Box::new(left), text, wanted),
        (Some(text), None) if is_equality => NodeKind::IsText(Box::new(right), text, wanted),
        _ => NodeKind::Compare(compare_function(op), Box::new([left, right])),
    }
}

fn binary_function(op: BinaryOp) -> Binary {
    match op {
        BinaryOp::Add => |_, left, right| arithmetic::add(left, right),
        BinaryOp::Sub => |_, left, right| arithmetic::subtract(left, right),
        BinaryOp::Mul => |_, left, right| arithmetic::multiply(left, right),
        BinaryOp::Div => |_, left, right| arithmetic::divide(left, right),
        BinaryOp::FloorDiv => |_, left, right| arithmetic::floor_divide(left, right),
        BinaryOp::Mod => arithmetic::modulo,
        BinaryOp::Pow => |_, left, right| arithmetic::power(left, right),
    }
}

fn compare_function(op: CompareOp) -> Comparison {
    match op {
        CompareOp::Eq => equal,
        CompareOp::Ne => |left, right| Ok(!equal(left, right)?),
        CompareOp::Lt => |left, right| order::compare(left, right, "<"),
        CompareOp::Le => |left, right| order::compare(left, right, "<="),
        CompareOp::Gt => |left, right| order::compare(left, right, ">"),
        CompareOp::Ge => |left, right| order::compare(left, right, ">="),
        CompareOp::In => |left, right| contains::contains(right, left),
        CompareOp::NotIn => |left, right| Ok(!contains::contains(right, left)?),
    }
}
