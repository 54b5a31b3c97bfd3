//! Calls, filters and tests.

use minijinja::Value;

use super::state::{CompileResult, Compiler, Frame};
use crate::ast::{self, Expr, ExprKind, Name};
use crate::error::CompileError;
use crate::filters;
use crate::interpreter::Predicate;
use crate::predicates;
use crate::program::{Args, Node, NodeKind};
use crate::python::method_names;

impl Compiler {
    /// Compiles a call; `caller` is the body of a call block.
    pub(super) fn call(
        &mut self,
        frame: Frame,
        callee: &Expr,
        args: &ast::Args,
        caller: Option<Node>,
    ) -> CompileResult<NodeKind> {
        match &callee.kind {
            ExprKind::Attribute(_, name) if method_names::is_unsupported(name) => {
                Err(CompileError::Unsupported { line: self.line, construct: format!("the method '{name}'") })
            }
            // The method is looked up together with the call, unless the arguments could show the
            // difference.
            ExprKind::Attribute(receiver, name) if !args.iter().any(Expr::has_call) => {
                let receiver = Box::new(self.expr(frame, receiver)?);
                Ok(NodeKind::Method(receiver, Value::from(&**name), Box::new(self.args(frame, args, caller)?)))
            }
            _ => {
                let callee = Box::new(self.expr(frame, callee)?);
                Ok(NodeKind::Call(callee, Box::new(self.args(frame, args, caller)?)))
            }
        }
    }

    fn args(&mut self, frame: Frame, args: &ast::Args, caller: Option<Node>) -> CompileResult<Args> {
        let positional = args.positional.iter().map(|arg| self.expr(frame, arg)).collect::<CompileResult<_>>()?;
        let splat = args.splat.as_deref().map(|splat| self.expr(frame, splat)).transpose()?;
        let mut keywords = Vec::with_capacity(args.keywords.len());
        for (name, value) in &args.keywords {
            keywords.push((Value::from(&**name), self.expr(frame, value)?));
        }
        keywords.extend(caller.map(|caller| (Value::from("caller"), caller)));
        let keyword_splat = args.keyword_splat.as_deref().map(|splat| self.expr(frame, splat)).transpose()?;
        Ok(Args { positional, splat, keywords, keyword_splat })
    }

    /// Compiles a filter of an existing node. The filter has passed [`Self::check_filter`].
    pub(super) fn filter(
        &mut self,
        frame: Frame,
        operand: Node,
        name: &Name,
        args: &ast::Args,
    ) -> CompileResult<NodeKind> {
        let args = self.args(frame, args, None)?;
        Ok(match filters::find(name) {
            Some(row) => NodeKind::Filter(row, Box::new(operand), Box::new(args)),
            None => NodeKind::Fail(parts(operand, args), format!("No filter named '{name}' found.")),
        })
    }

    /// Fails if the filter of this line is unknown or unsupported.
    pub(super) fn check_filter(&self, frame: Frame, name: &Name) -> CompileResult<()> {
        let line = self.line;
        if filters::is_unsupported(name) {
            return Err(CompileError::Unsupported { line, construct: format!("the filter '{name}'") });
        }
        if frame.soft || filters::find(name).is_some() {
            return Ok(());
        }
        Err(CompileError::Syntax { line, message: format!("No filter named '{name}'.") })
    }

    pub(super) fn test(
        &mut self,
        frame: Frame,
        operand: &Expr,
        name: &Name,
        args: &ast::Args,
    ) -> CompileResult<NodeKind> {
        let predicate = predicates::find(name);
        if predicate.is_none() && !frame.soft {
            return self.fail(format!("No test named '{name}'."));
        }
        let operand = self.expr(frame, operand)?;
        let args = self.args(frame, args, None)?;
        Ok(match predicate {
            Some(Predicate::Check(check)) if args.is_empty() => NodeKind::Check(check, Box::new(operand)),
            Some(predicate) => NodeKind::Test(predicate, Box::new(operand), Box::new(args)),
            None => NodeKind::Fail(parts(operand, args), format!("No test named '{name}' found.")),
        })
    }
}

/// Returns the parts that are evaluated before a failure.
fn parts(operand: Node, args: Args) -> Vec<Node> {
    let keywords = args.keywords.into_iter().map(|(_, value)| value);
    let splats = args.splat.into_iter().chain(args.keyword_splat);
    std::iter::once(operand).chain(args.positional).chain(keywords).chain(splats).collect()
}
