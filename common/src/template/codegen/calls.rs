//! Code for calls, filters and tests.

use minijinja::Value;

use super::super::ast::{Args, Expr, ExprKind, Name};
use super::super::error::CompileError;
use super::super::python::call::CallSpec;
use super::super::scope::Slot;
use super::super::value::Obj;
use super::super::{filters, predicates};
use super::{Codegen, Frame};

type Done = Result<(), CompileError>;

impl Codegen {
    /// A call; `caller` is the variable that holds the body of a call block.
    pub(super) fn call(&mut self, frame: Frame, callee: &Expr, args: &Args, caller: Option<Slot>, line: u32) -> Done {
        let fixed = match &callee.kind {
            // The method is looked up together with the call unless the arguments could show the difference.
            ExprKind::Attribute(receiver, name) if !args.iter().any(Expr::has_call) => {
                self.expr(frame, receiver)?;
                self.constant(Value::from(&**name));
                2
            }
            _ => {
                self.expr(frame, callee)?;
                1
            }
        };
        let operands = fixed + self.args(frame, args, caller)?;
        self.op_at(if fixed == 2 { "call_method" } else { "call" }, operands, line)
    }

    /// The arguments and, unless they are all positional, how to read them; gives the number of values.
    fn args(&mut self, frame: Frame, args: &Args, caller: Option<Slot>) -> Result<usize, CompileError> {
        for arg in args.positional.iter().chain(args.splat.as_deref()) {
            self.expr(frame, arg)?;
        }
        let mut keywords = Vec::new();
        for (name, value) in &args.keywords {
            self.expr(frame, value)?;
            keywords.push(Value::from(&**name));
        }
        if let Some(caller) = caller {
            let place = self.scopes.variable(caller);
            self.load(place)?;
            keywords.push(Value::from("caller"));
        }
        if let Some(splat) = &args.keyword_splat {
            self.expr(frame, splat)?;
        }
        let (splat, keyword_splat) = (args.splat.is_some(), args.keyword_splat.is_some());
        let values = args.positional.len() + usize::from(splat) + keywords.len() + usize::from(keyword_splat);
        if keywords.is_empty() && !splat && !keyword_splat {
            return Ok(values);
        }
        self.constant(Obj::CallSpec(CallSpec { keywords, splat, keyword_splat }).value());
        Ok(values + 1)
    }

    /// A filter; without an operand it applies to the value that is already on the stack.
    pub(super) fn filter(&mut self, frame: Frame, operand: Option<&Expr>, name: &Name, args: &Args, line: u32) -> Done {
        let op = filters::op_name(name);
        self.check_known(frame, op, "filter", name, line)?;
        if let Some(operand) = operand {
            self.expr(frame, operand)?;
        }
        let operands = 1 + self.args(frame, args, None)?;
        self.apply(op, "filter", name, operands, line)
    }

    pub(super) fn test(&mut self, frame: Frame, operand: &Expr, name: &Name, args: &Args, line: u32) -> Done {
        let op = predicates::op_name(name);
        self.check_known(frame, op, "test", name, line)?;
        self.expr(frame, operand)?;
        let operands = 1 + self.args(frame, args, None)?;
        self.apply(op, "test", name, operands, line)
    }

    fn check_known(&self, frame: Frame, op: Option<&str>, what: &str, name: &Name, line: u32) -> Done {
        if op.is_some() {
            return Ok(());
        }
        if filters::is_unsupported(name) && what == "filter" {
            return Err(CompileError::Unsupported { line, construct: format!("the filter '{name}'") });
        }
        if frame.soft {
            return Ok(());
        }
        Err(CompileError::Syntax { line, message: format!("No {what} named '{name}'.") })
    }

    fn apply(&mut self, op: Option<&'static str>, what: &str, name: &Name, operands: usize, line: u32) -> Done {
        match op {
            Some(op) => self.op_at(op, operands, line),
            None => {
                self.constant(Value::from(format!("No {what} named '{name}' found.")));
                self.op_at("fail", operands + 1, line)
            }
        }
    }
}
