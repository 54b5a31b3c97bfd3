//! Facts about a template from its source alone, without a render.

use std::collections::HashSet;

use crate::ast::{Const, Expr, ExprKind, Stmt, StmtKind};
use crate::program::Program;

/// Separates the texts in [`TemplateAnalysis::literal_text`], so that no match spans two of them.
const SEPARATOR: &str = "\0";

/// The facts about a template.
#[derive(Debug)]
pub(super) struct TemplateAnalysis {
    /// The names that the template looks up in the context, sorted.
    reads: Vec<String>,
    /// Every text in the template, each once.
    pub(super) literal_text: String,
}

impl TemplateAnalysis {
    pub(super) fn of(template: &[Stmt], program: &Program) -> Self {
        let mut reads: Vec<String> = program.context.iter().map(|used| used.name.to_string()).collect();
        reads.sort_unstable();
        Self { reads, literal_text: literal_text(template) }
    }

    /// Returns the names that the template looks up in the context, sorted.
    pub(super) fn variables(&self) -> impl Iterator<Item = &str> {
        self.reads.iter().map(String::as_str)
    }

    pub(super) fn reads(&self, name: &str) -> bool {
        self.reads.binary_search_by(|known| known.as_str().cmp(name)).is_ok()
    }
}

fn literal_text(template: &[Stmt]) -> String {
    let mut literals = Literals::default();
    literals.add_body(template);
    literals.texts.join(SEPARATOR)
}

/// The texts found so far, in order of appearance.
#[derive(Default)]
struct Literals<'a> {
    texts: Vec<&'a str>,
    known: HashSet<&'a str>,
}

impl<'a> Literals<'a> {
    fn add_body(&mut self, body: &'a [Stmt]) {
        for stmt in body {
            if let StmtKind::Data(text) = &stmt.kind {
                self.add(text);
            }
            stmt.for_each_expr(&mut |expr| self.add_expr(expr));
            stmt.bodies().into_iter().for_each(|body| self.add_body(body));
        }
    }

    fn add_expr(&mut self, expr: &'a Expr) {
        if let ExprKind::Const(Const::Str(text)) = &expr.kind {
            self.add(text);
        }
        expr.for_each_part(&mut |part| self.add_expr(part));
    }

    fn add(&mut self, text: &'a str) {
        if self.known.insert(text) {
            self.texts.push(text);
        }
    }
}
