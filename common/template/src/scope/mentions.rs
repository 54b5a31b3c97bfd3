//! The uses of special names (`loop`, `caller`, ...) in code.
//!
//! Jinja2 reads the occurrences of a name in a fixed order. A use has an effect unless an
//! assignment precedes it.

use std::ops::ControlFlow;

use crate::ast::{Expr, ExprKind, Function, Stmt, StmtKind, Target};

/// `Break(true)`: used; `Break(false)`: assigned first.
type Found = ControlFlow<bool>;

/// Returns true if the statements use the name before they assign it.
pub(crate) fn mentions(body: &[Stmt], name: &str) -> bool {
    in_body(body, name) == Found::Break(true)
}

fn in_body(body: &[Stmt], name: &str) -> Found {
    body.iter().try_for_each(|stmt| in_stmt(stmt, name))
}

fn in_stmt(stmt: &Stmt, name: &str) -> Found {
    match &stmt.kind {
        StmtKind::Print(expr) | StmtKind::Load(expr, _) => in_expr(expr, name),
        StmtKind::For(node) => {
            in_target(&node.target, name)?;
            in_expr(&node.iter, name)?;
            in_body(&node.body, name)?;
            in_body(&node.otherwise, name)?;
            node.filter.iter().try_for_each(|filter| in_expr(filter, name))
        }
        StmtKind::If(branches, otherwise) => {
            for (test, body) in branches {
                in_expr(test, name)?;
                in_body(body, name)?;
            }
            in_body(otherwise, name)
        }
        StmtKind::Set(target, value) => {
            in_target(target, name)?;
            in_expr(value, name)
        }
        StmtKind::SetBlock(target, filter, body) => {
            in_target(target, name)?;
            filter.iter().try_for_each(|filter| in_expr(filter, name))?;
            in_body(body, name)
        }
        StmtKind::With(assignments, body) => {
            assignments.iter().try_for_each(|(target, _)| in_target(target, name))?;
            assignments.iter().try_for_each(|(_, value)| in_expr(value, name))?;
            in_body(body, name)
        }
        StmtKind::Macro(_, function) => in_function(function, name),
        StmtKind::Call(call, function) => {
            in_expr(call, name)?;
            in_function(function, name)
        }
        StmtKind::Filter(filter, body) => {
            in_body(body, name)?;
            in_expr(filter, name)
        }
        StmtKind::Autoescape(enabled, body) => {
            in_expr(enabled, name)?;
            in_body(body, name)
        }
        StmtKind::Generation(body) => in_body(body, name),
        StmtKind::Data(_) | StmtKind::Block(..) | StmtKind::RequiredBlock(_) => Found::Continue(()),
        StmtKind::Break | StmtKind::Continue => Found::Continue(()),
    }
}

fn in_function(function: &Function, name: &str) -> Found {
    if function.params.iter().any(|param| **param == *name) {
        return Found::Break(false);
    }
    function.defaults.iter().try_for_each(|default| in_expr(default, name))?;
    in_body(&function.body, name)
}

fn in_target(target: &Target, name: &str) -> Found {
    match target {
        Target::Name(found) if **found == *name => Found::Break(false),
        Target::Tuple(targets) => targets.iter().try_for_each(|target| in_target(target, name)),
        _ => Found::Continue(()),
    }
}

fn in_expr(expr: &Expr, name: &str) -> Found {
    if matches!(&expr.kind, ExprKind::Name(found) if **found == *name) {
        return Found::Break(true);
    }
    let mut found = Found::Continue(());
    expr.for_each_part(&mut |part| {
        if found.is_continue() {
            found = in_expr(part, name);
        }
    });
    found
}

/// Returns true if the statements contain a scoped block. Uses inside such a block are not
/// searched.
pub(crate) fn has_scoped_block(body: &[Stmt]) -> bool {
    body.iter()
        .any(|stmt| matches!(stmt.kind, StmtKind::Block(_, _, true)) || stmt.bodies().into_iter().any(has_scoped_block))
}

/// Returns the first line with a name in an expression.
pub(crate) fn line_of(body: &[Stmt], name: &str) -> Option<u32> {
    body.iter().find_map(|stmt| {
        let mut line = None;
        stmt.for_each_expr(&mut |expr| line = line.or_else(|| line_in_expr(expr, name)));
        line.or_else(|| stmt.bodies().into_iter().find_map(|body| line_of(body, name)))
    })
}

fn line_in_expr(expr: &Expr, name: &str) -> Option<u32> {
    if matches!(&expr.kind, ExprKind::Name(found) if **found == *name) {
        return Some(expr.line);
    }
    let mut line = None;
    expr.for_each_part(&mut |part| line = line.or_else(|| line_in_expr(part, name)));
    line
}
