//! Literals, and lists, tuples and dicts of them, become values once, when the template is compiled.

use minijinja::Value;

use super::super::ast::{Const, Expr, ExprKind, UnaryOp};
use super::super::error::Fallible;
use super::super::python::attribute::subscript;
use super::super::value::{BigInt, Dict, Obj, Seq, SeqKind, as_digits, int_value, none};

impl Const {
    fn value(&self) -> Value {
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

/// The value of an expression that always has the same.
pub(super) fn constant(expr: &Expr) -> Option<Value> {
    match &expr.kind {
        ExprKind::Const(literal) => Some(literal.value()),
        ExprKind::List(items) => container(items, |items| Seq::free_of_charge(SeqKind::List, items)),
        ExprKind::Tuple(items) => container(items, |items| Seq::free_of_charge(SeqKind::Tuple, items)),
        ExprKind::Dict(entries) => constant_dict(entries)?.ok(),
        // What follows a side that decides is not even looked at.
        ExprKind::Or(left, right) => {
            constant(left).and_then(|left| if left.is_true() { Some(left) } else { constant(right) })
        }
        ExprKind::And(left, right) => {
            constant(left).and_then(|left| if left.is_true() { constant(right) } else { Some(left) })
        }
        ExprKind::Item(operand, index) => subscript(&constant(operand)?, &constant(index)?).ok()?,
        ExprKind::Unary(UnaryOp::Neg, operand) => negated(&constant(operand)?),
        _ => None,
    }
}

/// The dict of these entries, if they are constant; an error if it cannot be one.
pub(super) fn constant_dict(entries: &[(Expr, Expr)]) -> Option<Fallible<Value>> {
    let entries = entries.iter().map(|(key, value)| Some((constant(key)?, constant(value)?)));
    Some(Dict::free_of_charge(entries.collect::<Option<_>>()?))
}

fn container(items: &[Expr], make: impl Fn(Vec<Value>) -> Fallible<Value>) -> Option<Value> {
    make(items.iter().map(constant).collect::<Option<_>>()?).ok()
}

fn negated(value: &Value) -> Option<Value> {
    if value.is_integer() {
        return int_value(-as_digits(value)?).ok();
    }
    value.is_number().then(|| f64::try_from(value.clone()).ok().map(|float| Value::from(-float)))?
}
