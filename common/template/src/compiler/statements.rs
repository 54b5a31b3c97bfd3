//! Statements.

use super::expressions::text;
use super::state::{CompileResult, Compiler, Frame};
use crate::ast::{self, Expr, ExprKind, Name, Stmt, StmtKind};
use crate::program::{Node, NodeKind, Statement, Target};

type Done = CompileResult<()>;

impl Compiler {
    pub(super) fn body(&mut self, frame: Frame, body: &[Stmt], steps: &mut Vec<Statement>) -> Done {
        body.iter().try_for_each(|stmt| self.stmt(frame, stmt, steps))
    }

    fn stmt(&mut self, frame: Frame, stmt: &Stmt, steps: &mut Vec<Statement>) -> Done {
        self.line = stmt.line;
        self.size += 1;
        match &stmt.kind {
            StmtKind::Data(text) => print_text(text, steps),
            StmtKind::Print(expr) => {
                let node = self.expr(frame, expr)?;
                match (self.escaping(), self.printed_constant(&node)) {
                    (Some(escaping), _) => self.print_escaped(node, escaping, steps),
                    (None, Some(text)) => print_text(&text, steps),
                    (None, None) => print(node, steps),
                }
            }
            StmtKind::For(node) => self.for_loop(frame, node, steps)?,
            StmtKind::If(branches, otherwise) => steps.push(self.condition(frame.soft(), branches, otherwise)?),
            StmtKind::Set(target, value) => self.set(frame, target, value, steps)?,
            StmtKind::SetBlock(target, filter, body) => self.set_block(frame, target, filter.as_ref(), body, steps)?,
            StmtKind::With(assignments, body) => self.with(frame, assignments, body, steps)?,
            StmtKind::Macro(name, function) => self.define(frame, name, function, steps)?,
            StmtKind::Call(call, function) => self.call_block(frame, call, function, steps)?,
            StmtKind::Filter(filter, body) => self.filter_block(frame, filter, body, steps)?,
            StmtKind::Generation(body) => self.generation(frame, body, steps)?,
            StmtKind::Block(name, body, scoped) => self.block(frame, name, *scoped, body, steps)?,
            StmtKind::RequiredBlock(name) => {
                steps.push(self.failure(Vec::new(), format!("Required block '{name}' not found")));
            }
            StmtKind::Autoescape(enabled, body) => self.autoescape(frame, enabled, body, steps)?,
            StmtKind::Load(source, _) => {
                let source = self.expr(frame, source)?;
                steps.push(self.failure(vec![source], "no loader for this environment specified".to_owned()));
            }
            StmtKind::Break => steps.push(Statement::Break),
            StmtKind::Continue => steps.push(Statement::Continue),
        }
        Ok(())
    }

    fn failure(&self, parts: Vec<Node>, message: String) -> Statement {
        Statement::Print(Node { kind: NodeKind::Fail(parts, message), line: self.line })
    }

    fn condition(
        &mut self,
        frame: Frame,
        branches: &[(Expr, Vec<Stmt>)],
        otherwise: &[Stmt],
    ) -> CompileResult<Statement> {
        let mut made = Vec::with_capacity(branches.len());
        for (test, body) in branches {
            let test = self.expr(frame, test)?;
            let mut steps = Vec::new();
            self.body(frame, body, &mut steps)?;
            made.push((test, steps));
        }
        let mut steps = Vec::new();
        self.body(frame, otherwise, &mut steps)?;
        Ok(Statement::If(made, steps))
    }

    fn set(&mut self, frame: Frame, target: &ast::Target, value: &Expr, steps: &mut Vec<Statement>) -> Done {
        if value.has_call() {
            self.check_namespaces(frame, target, steps)?;
        }
        let value = self.expr(frame, value)?;
        steps.push(Statement::Set(self.target(frame, target)?, value));
        Ok(())
    }

    /// Jinja2 checks that the targets are namespaces before it evaluates the value.
    fn check_namespaces(&mut self, frame: Frame, target: &ast::Target, steps: &mut Vec<Statement>) -> Done {
        match target {
            ast::Target::Name(_) => Ok(()),
            ast::Target::Tuple(targets) => {
                targets.iter().try_for_each(|target| self.check_namespaces(frame, target, steps))
            }
            ast::Target::Attribute(name, _) => {
                let kind = self.name(frame, name);
                steps.push(Statement::CheckNamespace(Node { kind, line: self.line }));
                Ok(())
            }
        }
    }

    /// Returns the target of an assignment in this frame.
    pub(super) fn target(&mut self, frame: Frame, target: &ast::Target) -> CompileResult<Target> {
        match target {
            ast::Target::Name(name) => match self.scopes.assigned_slot(frame.scope, name) {
                Some(slot) => Ok(Target::Variable(self.scopes.local(slot))),
                None => self.fail(format!("'{name}' is assigned but not declared in this scope")),
            },
            ast::Target::Tuple(targets) => Ok(Target::Unpack(
                targets.iter().map(|target| self.target(frame, target)).collect::<CompileResult<_>>()?,
            )),
            ast::Target::Attribute(name, attribute) => {
                let kind = self.name(frame, name);
                Ok(Target::Attribute(Box::new(Node { kind, line: self.line }), (&**attribute).into()))
            }
        }
    }

    fn define(&mut self, frame: Frame, name: &Name, function: &ast::Function, steps: &mut Vec<Statement>) -> Done {
        let function = self.macro_function(frame, Some(name), function)?;
        if let Some(slot) = self.scopes.assigned_slot(frame.scope, name) {
            steps.push(Statement::Define(self.scopes.local(slot), function));
        }
        Ok(())
    }

    fn set_block(
        &mut self,
        frame: Frame,
        target: &ast::Target,
        filter: Option<&Expr>,
        body: &[Stmt],
        steps: &mut Vec<Statement>,
    ) -> Done {
        let value = self.captured(frame, filter, body, steps)?;
        let value = self.set_value(value);
        steps.push(Statement::Set(self.target(frame, target)?.of_block(), value));
        Ok(())
    }

    fn filter_block(&mut self, frame: Frame, filter: &Expr, body: &[Stmt], steps: &mut Vec<Statement>) -> Done {
        let value = self.captured(frame, Some(filter), body, steps)?;
        steps.push(Statement::PrintText(value));
        Ok(())
    }

    /// Compiles a body whose output is captured and filtered.
    fn captured(
        &mut self,
        frame: Frame,
        filter: Option<&Expr>,
        body: &[Stmt],
        steps: &mut Vec<Statement>,
    ) -> CompileResult<Node> {
        let inner = self.inner(frame, body);
        if let Some(name) = filter.and_then(|filter| self.scopes.unknown_name(inner.scope, filter)) {
            return self.fail(format!("'{name}' is not defined around the filter of a set block"));
        }
        let line = self.line;
        self.enter_scope(inner.scope, steps);
        let mut made = Vec::new();
        self.body(inner, body, &mut made)?;
        let (local, place) = self.hidden();
        steps.push(Statement::Capture(local, made));
        let text = self.load_at(place, line);
        match filter {
            Some(filter) => {
                let text = self.filter_input(text);
                self.filters(inner, filter, text)
            }
            None => Ok(text),
        }
    }

    /// Compiles filters over the captured text.
    fn filters(&mut self, frame: Frame, filter: &Expr, captured: Node) -> CompileResult<Node> {
        let ExprKind::Filter(operand, name, args) = &filter.kind else {
            return Ok(captured);
        };
        let operand = match operand {
            Some(operand) => self.filters(frame, operand, captured)?,
            None => captured,
        };
        self.line = filter.line;
        self.check_filter(frame, name)?;
        let kind = self.filter(frame, operand, name, args)?;
        Ok(Node { kind, line: filter.line })
    }

    fn with(
        &mut self,
        frame: Frame,
        assignments: &[(ast::Target, Expr)],
        body: &[Stmt],
        steps: &mut Vec<Statement>,
    ) -> Done {
        let scope = self.scopes.open(Some(frame.scope), self.function_id());
        assignments.iter().for_each(|(target, _)| self.scopes.declare_target(scope, target));
        self.scopes.visit_all(scope, body);
        self.enter_scope(scope, steps);
        let inner = Frame { scope, soft: false };
        for (target, value) in assignments {
            let value = self.expr(frame, value)?;
            steps.push(Statement::Set(self.target(inner, target)?, value));
        }
        self.body(inner, body, steps)
    }

    fn call_block(&mut self, frame: Frame, call: &Expr, function: &ast::Function, steps: &mut Vec<Statement>) -> Done {
        let ExprKind::Call(callee, args) = &call.kind else {
            return self.fail("expected call".to_owned());
        };
        let function = self.macro_function(frame, None, function)?;
        let (local, place) = self.hidden();
        steps.push(Statement::Define(local, function));
        let caller = self.load_at(place, call.line);
        self.line = call.line;
        let kind = self.call(frame, callee, args, Some(caller))?;
        steps.push(Statement::PrintText(Node { kind, line: call.line }));
        Ok(())
    }

    /// Compiles a block whose span in the output is recorded.
    fn generation(&mut self, frame: Frame, body: &[Stmt], steps: &mut Vec<Statement>) -> Done {
        let inner = self.inner(frame, body);
        self.enter_scope(inner.scope, steps);
        let mut made = Vec::new();
        self.body(inner, body, &mut made)?;
        steps.push(Statement::Generation(made));
        Ok(())
    }
}

/// Compiles the output of a text. Adjacent texts become one step.
pub(super) fn print_text(text: &str, steps: &mut Vec<Statement>) {
    match steps.last_mut() {
        Some(Statement::Text(before)) => before.push_str(text),
        _ => steps.push(Statement::Text(text.to_owned())),
    }
}

fn print(node: Node, steps: &mut Vec<Statement>) {
    match text(&node) {
        Some(text) => print_text(text, steps),
        None => steps.push(Statement::Print(node)),
    }
}
