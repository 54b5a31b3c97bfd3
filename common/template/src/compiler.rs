//! Turns the syntax tree into a program: resolves names to places, and filters, tests and operators
//! to functions.

mod attributes;
mod autoescape;
mod blocks;
mod calls;
mod constants;
mod expressions;
mod functions;
mod loops;
mod state;
mod statements;

use std::sync::Arc;

use minijinja::Value;

use crate::ast::{Stmt, StmtKind};
use crate::error::CompileError;
use crate::program::{ContextName, Function, MacroSpec, Program};
use crate::python::globals;
use crate::scope::mentions;
use crate::value::Undefined;

use blocks::uses_self;
use state::{Compiler, Frame};

/// Compiles a template.
pub(crate) fn compile(template: &[Stmt]) -> Result<Program, CompileError> {
    let has = |is_such| template.iter().any(|stmt| stmt.has(is_such));
    let mut compiler = Compiler {
        changes_dicts: has(|kind| matches!(kind, StmtKind::SetBlock(target, ..) if target.has_attribute())),
        may_escape: has(|kind| matches!(kind, StmtKind::Autoescape(..))),
        ..Compiler::new()
    };
    let scope = compiler.scopes.open(None, 0);
    if mentions(template, "self") {
        compiler.scopes.declare(scope, &"self".into());
    }
    compiler.scopes.visit_all(scope, template);
    let mut body = Vec::new();
    compiler.enter_scope(scope, &mut body);
    let frame = Frame { scope, soft: false };
    if uses_self(template) {
        compiler.make_self(template, &mut body)?;
        compiler.set_self(frame, template, &mut body);
    }
    compiler.body(frame, template, &mut body)?;
    let locals = compiler.scopes.count_of(0);
    let main = Function { spec: MacroSpec::default(), locals, shared: Vec::new(), body, result: None, safe: None };
    let context = compiler.scopes.context_names().iter().map(|name| context_name(name)).collect();
    Ok(Program { main: Arc::new(main), context })
}

fn context_name(name: &str) -> ContextName {
    let default = globals::find(name).unwrap_or_else(|| Undefined::Variable(Value::from(name)).value());
    ContextName { name: name.into(), default }
}
