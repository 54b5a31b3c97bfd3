//! `{% autoescape %}` blocks.
//!
//! Jinja2 decides at compile time, by the surrounding block, whether most values are escaped. For
//! the results of macros, set blocks and filters, it decides at run time. If a block's expression
//! is not constant, it decides at run time for all values except constants. Constants in such a
//! block are escaped as outside of the block.

use super::constants::MAX_PRINTED_BYTES;
use super::state::{CompileResult, Compiler, Frame};
use super::statements::print_text;
use crate::ast::{Expr, Stmt};
use crate::compiler::state::Autoescape;
use crate::error::Fallible;
use crate::machine::Locals;
use crate::program::{Escaping, Node, NodeKind, Statement};
use crate::python::{markup, repr};

impl Compiler {
    /// Returns the condition under which output is escaped at this point. None if it never is.
    pub(super) fn escaping(&self) -> Option<Escaping> {
        match self.autoescape {
            Autoescape { is_unknown: true, .. } => Some(Escaping::WhenOn),
            Autoescape { on: true, .. } => Some(Escaping::Always),
            Autoescape { .. } => None,
        }
    }

    /// Sets the escaping state, and returns the previous state.
    pub(super) fn set_autoescape(&mut self, autoescape: Autoescape) -> Autoescape {
        self.machine.autoescape(autoescape.on);
        std::mem::replace(&mut self.autoescape, autoescape)
    }

    pub(super) fn autoescape(
        &mut self,
        frame: Frame,
        enabled: &Expr,
        body: &[Stmt],
        steps: &mut Vec<Statement>,
    ) -> CompileResult<()> {
        let scope = self.scopes.open(Some(frame.scope), self.function_id());
        self.scopes.visit_expr(scope, enabled);
        self.scopes.visit_all(scope, body);
        self.enter_scope(scope, steps);
        let inner = Frame { scope, soft: false };
        let enabled = self.expr(inner, enabled)?;
        let autoescape = match self.truth_when_compiled(&enabled) {
            Some(on) => Autoescape { on, ..self.autoescape },
            None => Autoescape { is_unknown: true, ..self.autoescape },
        };
        let before = self.set_autoescape(autoescape);
        let mut made = Vec::new();
        let done = self.body(inner, body, &mut made);
        self.set_autoescape(before);
        steps.push(Statement::Autoescape(enabled, made));
        done
    }

    fn truth_when_compiled(&mut self, node: &Node) -> Option<bool> {
        match &node.kind {
            NodeKind::Const(value) => Some(value.is_true()),
            _ => self.constant_truth(node),
        }
    }

    /// Writes a value where texts may be escaped.
    pub(super) fn print_escaped(&mut self, node: Node, escaping: Escaping, steps: &mut Vec<Statement>) {
        match self.escaped_constant(&node) {
            Some(Ok(text)) if text.len() <= MAX_PRINTED_BYTES => print_text(&text, steps),
            _ => steps.push(Statement::PrintEscaped(node, escaping)),
        }
    }

    /// Returns the output of a node that Jinja2 computes at compile time.
    fn escaped_constant(&mut self, node: &Node) -> Option<Fallible<String>> {
        if !self.is_constant(node) {
            return None;
        }
        let value = self.machine.eval(&Locals::default(), node).ok()?.into_owned();
        let text = repr::to_str(&mut self.machine, &value);
        let is_escaped = self.autoescape.on && !value.is_safe();
        Some(if is_escaped { text.and_then(|text| markup::escape_html(&text)) } else { text })
    }

    /// Returns the node kind for `a ~ b ~ c`. A result that Jinja2 computes at compile time is
    /// never marked as safe.
    pub(super) fn concat(&mut self, parts: &[Node]) -> fn(Vec<Node>) -> NodeKind {
        let escapes = self.escaping() == Some(Escaping::Always);
        if escapes && !parts.iter().all(|part| self.is_constant(part)) {
            return NodeKind::SafeConcat;
        }
        NodeKind::Concat
    }

    /// Returns the value of a set block, marked as safe if the template may escape.
    pub(super) fn set_value(&self, value: Node) -> Node {
        if self.may_escape { safe(value, Escaping::WhenOn) } else { value }
    }

    /// Returns the input of a filter block's filters, marked as safe if output is escaped.
    pub(super) fn filter_input(&self, text: Node) -> Node {
        match self.escaping() {
            Some(escaping) => safe(text, escaping),
            None => text,
        }
    }
}

fn safe(node: Node, escaping: Escaping) -> Node {
    let line = node.line;
    Node { kind: NodeKind::Safe(Box::new(node), escaping), line }
}
