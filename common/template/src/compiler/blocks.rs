//! Compiles `{% block %}`s. Template inheritance is not supported, so a block runs only in place
//! and through `self.name()`.

use std::sync::Arc;

use super::state::{Autoescape, TEMPLATE};
use super::state::{CompileResult, Compiler, Frame};
use crate::ast::{Name, Stmt, StmtKind};
use crate::error::CompileError;
use crate::program::MacroSpec;
use crate::program::{Escaping, Function, Node, NodeKind, Statement, Target};
use crate::scope::{ScopeId, line_of, mentions};
use crate::value::Undefined;

/// The maximum nesting of blocks in a template that uses `self`. Such a template compiles each
/// block again for every block around it.
const MAX_NESTED_BLOCKS: usize = 8;

/// Returns true if the template or one of its blocks uses `self`.
pub(super) fn uses_self(template: &[Stmt]) -> bool {
    mentions(template, "self") || blocks(template).iter().any(|(_, body)| mentions(body, "self"))
}

/// Returns every block and its name, in source order.
fn blocks(body: &[Stmt]) -> Vec<(&Name, &[Stmt])> {
    let mut found = Vec::new();
    for stmt in body {
        match &stmt.kind {
            StmtKind::Block(name, body, _) => found.push((name, body.as_slice())),
            StmtKind::RequiredBlock(name) => found.push((name, [].as_slice())),
            _ => {}
        }
        found.extend(stmt.bodies().into_iter().flat_map(blocks));
    }
    found
}

fn nesting(body: &[Stmt]) -> usize {
    let depth = |stmt: &Stmt| {
        let inside = stmt.bodies().into_iter().map(nesting).max().unwrap_or(0);
        inside + usize::from(matches!(stmt.kind, StmtKind::Block(..)))
    };
    body.iter().map(depth).max().unwrap_or(0)
}

impl Compiler {
    /// Creates the value of `self`: every block as a function that shares the template's variables.
    pub(super) fn make_self(&mut self, template: &[Stmt], steps: &mut Vec<Statement>) -> CompileResult<()> {
        if nesting(template) > MAX_NESTED_BLOCKS {
            let (line, what) = (self.line, "the nesting of blocks in a template that uses 'self'");
            return Err(CompileError::TooComplex { line, what, max: MAX_NESTED_BLOCKS });
        }
        let (local, place) = self.hidden();
        self.template_reference = Some(place);
        let mut references = Vec::new();
        for (name, body) in blocks(template) {
            let function = self.block_function(name, body)?;
            let (local, place) = self.hidden();
            steps.push(Statement::Define(local, function));
            references.push(((&**name).into(), self.load_at(place, 1)));
        }
        let value = Node { kind: NodeKind::Template(references), line: 1 };
        steps.push(Statement::Set(Target::Variable(local), value));
        Ok(())
    }

    fn block_function(&mut self, name: &Name, body: &[Stmt]) -> CompileResult<Arc<Function>> {
        let spec = MacroSpec { name: Some((&**name).into()), ..MacroSpec::default() };
        let frame = Frame { scope: TEMPLATE, soft: false };
        self.new_function(
            frame,
            spec,
            Some(Escaping::WhenOn),
            |compiler, scope| compiler.declare_block(scope, body),
            |compiler, frame, steps| compiler.block_body(frame, name, body, steps).map(|()| None),
        )
    }

    /// Compiles a block in place. The block can read the template's variables. It can read the
    /// variables of surrounding loops and macros only if it is scoped.
    pub(super) fn block(
        &mut self,
        frame: Frame,
        name: &Name,
        scoped: bool,
        body: &[Stmt],
        steps: &mut Vec<Statement>,
    ) -> CompileResult<()> {
        let around = if scoped { frame.scope } else { self.around_blocks };
        if around != TEMPLATE && mentions(body, "self") {
            // The blocks of this `self` would also have access to the variables around this block.
            let line = line_of(body, "self").unwrap_or(self.line);
            let construct = "the variable 'self' in a scoped block".to_owned();
            return Err(CompileError::Unsupported { line, construct });
        }
        let before = std::mem::replace(&mut self.around_blocks, around);
        let scope = self.scopes.open(Some(around), self.function_id());
        self.declare_block(scope, body);
        self.enter_scope(scope, steps);
        let done = self.block_body(Frame { scope, soft: false }, name, body, steps);
        self.around_blocks = before;
        done
    }

    fn declare_block(&mut self, scope: ScopeId, body: &[Stmt]) {
        for name in ["self", "super"] {
            if mentions(body, name) {
                self.scopes.declare(scope, &name.into());
            }
        }
        self.scopes.visit_all(scope, body);
    }

    fn block_body(
        &mut self,
        frame: Frame,
        name: &Name,
        body: &[Stmt],
        steps: &mut Vec<Statement>,
    ) -> CompileResult<()> {
        self.set_self(frame, body, steps);
        if mentions(body, "super")
            && let Some((local, _)) = self.declared(frame.scope, "super")
        {
            let kind = NodeKind::Const(Undefined::because(format!("there is no parent block called '{name}'.")));
            steps.push(Statement::Set(Target::Variable(local), Node { kind, line: self.line }));
        }
        let escaping = self.set_autoescape(Autoescape::default());
        let done = self.body(frame, body, steps);
        self.set_autoescape(escaping);
        done
    }

    /// Sets the variable `self` at the start of a body that uses it.
    pub(super) fn set_self(&mut self, frame: Frame, body: &[Stmt], steps: &mut Vec<Statement>) {
        let variable = if mentions(body, "self") { self.declared(frame.scope, "self") } else { None };
        if let (Some((local, _)), Some(reference)) = (variable, self.template_reference) {
            steps.push(Statement::Set(Target::Variable(local), self.load_at(reference, 1)));
        }
    }
}
