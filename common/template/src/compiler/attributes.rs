//! `value.name` and `value['name']`.

use minijinja::Value;

use super::state::{CompileResult, Compiler, Frame};
use crate::ast::Expr;
use crate::program::NodeKind;
use crate::python::attribute::is_special;

impl Compiler {
    pub(super) fn attribute(&mut self, frame: Frame, operand: &Expr, name: &str) -> CompileResult<NodeKind> {
        let operand = Box::new(self.expr(frame, operand)?);
        let value = Value::from(name);
        // A name that is no attribute in Python has the same meaning as an attribute and as an
        // item.
        Ok(if is_special(name) { NodeKind::Attribute(operand, value) } else { NodeKind::Key(operand, value) })
    }

    pub(super) fn item(&mut self, frame: Frame, operand: &Expr, index: &Expr) -> CompileResult<NodeKind> {
        let operand = self.expr(frame, operand)?;
        let index = self.expr(frame, index)?;
        match index.kind {
            NodeKind::Const(name) if name.as_str().is_some_and(|name| !is_special(name)) && !name.is_safe() => {
                Ok(NodeKind::Key(Box::new(operand), name))
            }
            _ => Ok(NodeKind::Item(Box::new([operand, index]))),
        }
    }
}
