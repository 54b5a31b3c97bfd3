//! Code for statements.

use minijinja::Value;
use minijinja::machinery::Instruction;

use super::super::ast::{Expr, ExprKind, Function, Name, Stmt, StmtKind, Target};
use super::super::error::CompileError;
use super::super::scope::{line_of, mentions};
use super::expressions::text_literal;
use super::{Codegen, Frame};

type Done = Result<(), CompileError>;

/// Whether there is a `{% generation %}` block anywhere.
pub(super) fn has_generation(body: &[Stmt]) -> bool {
    body.iter()
        .any(|stmt| matches!(stmt.kind, StmtKind::Generation(_)) || stmt.bodies().into_iter().any(has_generation))
}

/// What a statement puts out as it stands.
fn printed_text(stmt: &Stmt) -> Option<&str> {
    match &stmt.kind {
        StmtKind::Data(text) => Some(text),
        StmtKind::Print(expr) => text_literal(expr),
        _ => None,
    }
}

impl Codegen {
    pub(super) fn body(&mut self, frame: Frame, body: &[Stmt]) -> Done {
        let mut rest = body;
        while let Some((first, after)) = rest.split_first() {
            let texts: Vec<&str> = rest.iter().map_while(printed_text).collect();
            if texts.is_empty() {
                self.stmt(frame, first)?;
                rest = after;
            } else {
                self.at_line(first.line);
                self.constant(Value::from(texts.concat()));
                self.emit()?;
                rest = &rest[texts.len()..];
            }
        }
        Ok(())
    }

    fn stmt(&mut self, frame: Frame, stmt: &Stmt) -> Done {
        self.at_line(stmt.line);
        match &stmt.kind {
            // What is printed as it stands has been put together with what follows it.
            StmtKind::Data(_) => Ok(()),
            StmtKind::Print(expr) => {
                self.expr(frame, expr)?;
                self.emit()
            }
            StmtKind::For(node) => self.for_loop(frame, node),
            StmtKind::If(branches, otherwise) => self.condition(frame.soft(), branches, otherwise),
            StmtKind::Set(target, value) => self.set(frame, target, value),
            StmtKind::SetBlock(target, filter, body) => self.set_block(frame, target, filter.as_ref(), body),
            StmtKind::With(assignments, body) => self.with(frame, assignments, body),
            StmtKind::Macro(name, function) => {
                self.macro_function(frame, Some(name), function)?;
                self.assign_name(frame, name);
                Ok(())
            }
            StmtKind::Call(call, function) => self.call_block(frame, call, function),
            StmtKind::Filter(filter, body) => self.filter_block(frame, filter, body),
            StmtKind::Generation(body) => self.generation(frame, body),
            StmtKind::Block(body) => self.block(body),
            StmtKind::RequiredBlock(name) => {
                self.constant(Value::from(format!("Required block '{name}' not found")));
                self.op("fail", 1)?;
                self.add(Instruction::DiscardTop);
                Ok(())
            }
            StmtKind::Scope(body) => {
                let inner = self.inner(frame, body);
                self.enter_scope(inner.scope);
                self.body(inner, body)
            }
            StmtKind::Load(source, _) => {
                self.expr(frame, source)?;
                self.constant(Value::from("no loader for this environment specified"));
                self.op("fail", 2)?;
                self.add(Instruction::DiscardTop);
                Ok(())
            }
            StmtKind::Break => self.leave_round(true),
            StmtKind::Continue => self.leave_round(false),
        }
    }

    /// Puts out the value on the stack.
    pub(super) fn emit(&mut self) -> Done {
        let at_root = self.functions.len() == 1 && self.function().captures == 0;
        if self.counts_output && at_root {
            self.op("count_output", 1)?;
        }
        self.add(Instruction::Emit);
        Ok(())
    }

    fn condition(&mut self, frame: Frame, branches: &[(Expr, Vec<Stmt>)], otherwise: &[Stmt]) -> Done {
        let mut ends = Vec::new();
        for (at, (test, body)) in branches.iter().enumerate() {
            self.expr(frame, test)?;
            let next = self.add(Instruction::JumpIfFalse(!0));
            self.body(frame, body)?;
            if at + 1 < branches.len() || !otherwise.is_empty() {
                ends.push(self.add(Instruction::Jump(!0)));
            }
            self.land(next);
        }
        self.body(frame, otherwise)?;
        ends.into_iter().for_each(|end| self.land(end));
        Ok(())
    }

    fn set(&mut self, frame: Frame, target: &Target, value: &Expr) -> Done {
        if value.has_call() {
            self.check_namespaces(frame, target)?;
        }
        self.expr(frame, value)?;
        self.assign(frame, target)
    }

    /// Jinja2 looks whether the targets are namespaces before it evaluates the value.
    fn check_namespaces(&mut self, frame: Frame, target: &Target) -> Done {
        match target {
            Target::Name(_) => Ok(()),
            Target::Tuple(targets) => targets.iter().try_for_each(|target| self.check_namespaces(frame, target)),
            Target::Attribute(name, _) => {
                self.load_name(frame, name)?;
                self.op("check_namespace", 1)?;
                self.add(Instruction::DiscardTop);
                Ok(())
            }
        }
    }

    /// Assigns the value on the stack.
    pub(super) fn assign(&mut self, frame: Frame, target: &Target) -> Done {
        match target {
            Target::Name(name) => {
                self.assign_name(frame, name);
                Ok(())
            }
            Target::Tuple(targets) => {
                self.constant(Value::from(targets.len()));
                self.op("unpack", 2)?;
                self.add(Instruction::UnpackList(targets.len()));
                targets.iter().try_for_each(|target| self.assign(frame, target))
            }
            Target::Attribute(name, attribute) => {
                self.load_name(frame, name)?;
                self.constant(Value::from(&**attribute));
                self.op("set_attribute", 3)?;
                self.add(Instruction::DiscardTop);
                Ok(())
            }
        }
    }

    fn assign_name(&mut self, frame: Frame, name: &Name) {
        if let Some(slot) = self.scopes.assigned_slot(frame.scope, name) {
            self.store(slot);
        }
    }

    fn set_block(&mut self, frame: Frame, target: &Target, filter: Option<&Expr>, body: &[Stmt]) -> Done {
        let inner = self.inner(frame, body);
        if let Some(filter) = filter {
            self.scopes.visit_expr(inner.scope, filter);
        }
        self.captured(inner, body)?;
        if let Some(filter) = filter {
            self.filters(inner, filter)?;
        }
        self.assign(frame, target)
    }

    /// Leaves what a body puts out on the stack.
    fn captured(&mut self, inner: Frame, body: &[Stmt]) -> Done {
        self.enter_scope(inner.scope);
        self.begin_capture();
        self.body(inner, body)?;
        self.end_capture();
        Ok(())
    }

    /// Filters over what was captured.
    fn filters(&mut self, frame: Frame, filter: &Expr) -> Done {
        if let ExprKind::Filter(operand, name, args) = &filter.kind {
            if let Some(operand) = operand {
                self.filters(frame, operand)?;
            }
            return self.filter(frame, None, name, args, filter.line);
        }
        Ok(())
    }

    fn with(&mut self, frame: Frame, assignments: &[(Target, Expr)], body: &[Stmt]) -> Done {
        let scope = self.scopes.open(Some(frame.scope), self.function_id());
        assignments.iter().for_each(|(target, _)| self.scopes.declare_target(scope, target));
        self.scopes.visit_all(scope, body);
        self.enter_scope(scope);
        let inner = Frame { scope, soft: false };
        for (target, value) in assignments {
            self.expr(frame, value)?;
            self.assign(inner, target)?;
        }
        self.body(inner, body)
    }

    fn call_block(&mut self, frame: Frame, call: &Expr, function: &Function) -> Done {
        let ExprKind::Call(callee, args) = &call.kind else {
            return self.fail("expected call".to_owned());
        };
        self.macro_function(frame, None, function)?;
        let caller = self.scopes.hidden(self.function_id());
        self.store(caller);
        self.call(frame, callee, args, Some(caller), call.line)?;
        self.op_at("expect_text", 1, call.line)?;
        self.emit()
    }

    fn filter_block(&mut self, frame: Frame, filter: &Expr, body: &[Stmt]) -> Done {
        let inner = self.inner(frame, body);
        self.scopes.visit_expr(inner.scope, filter);
        self.captured(inner, body)?;
        self.filters(inner, filter)?;
        self.op_at("expect_text", 1, filter.line)?;
        self.emit()
    }

    /// A block whose span in the output is noted.
    fn generation(&mut self, frame: Frame, body: &[Stmt]) -> Done {
        let inner = self.inner(frame, body);
        self.captured(inner, body)?;
        self.op("generation", 1)?;
        self.emit()
    }

    /// A named block sees the template's own variables, but not those of loops and the like around it.
    fn block(&mut self, body: &[Stmt]) -> Done {
        for name in ["super", "self"] {
            if mentions(body, name) {
                let line = line_of(body, name).unwrap_or(self.line.into());
                return Err(CompileError::Unsupported { line, construct: format!("the variable '{name}'") });
            }
        }
        let root = Frame { scope: 0, soft: false };
        let inner = self.inner(root, body);
        self.enter_scope(inner.scope);
        self.body(inner, body)
    }

    /// `break` and `continue`: throws away what was captured since the loop began.
    fn leave_round(&mut self, for_good: bool) -> Done {
        let captures = self.function().captures;
        let Some((start, opened)) = self.function().loops.last().map(|it| (it.start, it.captures)) else {
            return self.fail("'break' or 'continue' outside loop".to_owned());
        };
        for _ in opened..captures {
            self.add(Instruction::EndCapture);
            self.add(Instruction::DiscardTop);
        }
        let jump = self.add(Instruction::Jump(start));
        if for_good && let Some(current) = self.function().loops.last_mut() {
            current.exits.push(jump);
        }
        Ok(())
    }
}
