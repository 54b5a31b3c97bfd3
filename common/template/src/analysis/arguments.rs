//! The JSON type that a template expects for the `arguments` of a tool call.
//!
//! The values of `x.arguments` are followed by name through assignments, loops and macro
//! parameters, in any order of statements. Every use is evidence: some operations need an object,
//! some need a text, and a test (`is string`, `is mapping`) separates both.

use std::collections::HashMap;
use std::ops::{BitAnd, BitOr};

use crate::ast::{Args, BinaryOp, Const, Expr, ExprKind, For, Function, Stmt, StmtKind, Target, UnaryOp};
use crate::filters;

/// The JSON type that a template expects for the `arguments` of a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgumentsShape {
    /// The template never reads them.
    Unread,
    /// An object. A text would be quoted a second time, or fail.
    Object,
    /// The text of the JSON. An object would be printed as a Python dict.
    Text,
    /// The template distinguishes both, or treats them alike.
    Either,
}

/// Filters that return tool calls, or parts of them, for tool calls.
const PASS_CALLS_ON: &[&str] = &["first", "last", "list", "map", "reject", "rejectattr", "select", "selectattr"];

/// The passes over the template. Each pass follows names through one more assignment.
const MAX_PASSES: usize = 8;

/// Returns the shape, as far as the template shows it.
pub(super) fn shape(template: &[Stmt]) -> ArgumentsShape {
    let mut trace = Trace { narrowed: ANY, ..Trace::default() };
    trace.find_macros(template);
    for _ in 0..MAX_PASSES {
        trace.changed = false;
        trace.body(template);
        if !trace.changed {
            break;
        }
    }
    trace.evidence.shape()
}

/// The possible origins of a value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Origin(u8);

const NOTHING: Origin = Origin(0);
/// The arguments, which may be a text here.
const TEXT: Origin = Origin(1);
/// The arguments, which may be an object here.
const OBJECT: Origin = Origin(2);
/// The arguments, of any type.
const ANY: Origin = Origin(3);
/// A list or dict of the template with arguments in it that may be a text, or an object.
const HOLDS_TEXT: Origin = Origin(4);
const HOLDS_OBJECT: Origin = Origin(8);
/// A tool call of the conversation, or a list of them.
const CALLS: Origin = Origin(16);

impl BitOr for Origin {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for Origin {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl Origin {
    fn has(self, other: Self) -> bool {
        self & other != NOTHING
    }

    /// Returns the origin of a list or dict with this value in it.
    fn held(self) -> Self {
        let holds_text = if self.has(TEXT) { HOLDS_TEXT } else { NOTHING };
        let holds_object = if self.has(OBJECT) { HOLDS_OBJECT } else { NOTHING };
        (self & (HOLDS_TEXT | HOLDS_OBJECT | CALLS)) | holds_text | holds_object
    }

    /// Returns the types of the arguments inside.
    fn content(self) -> Self {
        let text = if self.has(HOLDS_TEXT) { TEXT } else { NOTHING };
        let object = if self.has(HOLDS_OBJECT) { OBJECT } else { NOTHING };
        text | object
    }
}

/// The evidence so far.
#[derive(Debug, Default)]
struct Evidence {
    read: bool,
    text: bool,
    object: bool,
    /// Whole tool calls are written as JSON.
    calls_as_json: bool,
}

impl Evidence {
    fn shape(&self) -> ArgumentsShape {
        match (self.object, self.text) {
            (true, true) => ArgumentsShape::Either,
            (true, false) => ArgumentsShape::Object,
            (false, true) => ArgumentsShape::Text,
            (false, false) if self.calls_as_json => ArgumentsShape::Object,
            (false, false) if self.read => ArgumentsShape::Either,
            (false, false) => ArgumentsShape::Unread,
        }
    }
}

/// The type that a use needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    Text,
    Object,
    /// Works for both types: evidence only where the type is known.
    None,
}

/// The state of the analysis.
#[derive(Debug, Default)]
struct Trace<'a> {
    /// The origins of names and of attributes of namespaces (`name.attribute`).
    names: HashMap<String, Origin>,
    macros: HashMap<&'a str, &'a Function>,
    /// The types that the surrounding tests allow.
    narrowed: Origin,
    evidence: Evidence,
    /// True if the last pass has added an origin.
    changed: bool,
}

impl<'a> Trace<'a> {
    fn find_macros(&mut self, body: &'a [Stmt]) {
        for stmt in body {
            if let StmtKind::Macro(name, function) = &stmt.kind {
                self.macros.insert(name, function);
            }
            stmt.bodies().into_iter().for_each(|body| self.find_macros(body));
        }
    }

    fn uses(&mut self, origin: Origin, need: Need) {
        match (origin & ANY, need) {
            (ANY, Need::Text) | (TEXT, _) => self.evidence.text = true,
            (ANY, Need::Object) | (OBJECT, _) => self.evidence.object = true,
            _ => {}
        }
    }

    fn learn(&mut self, name: &str, origin: Origin) {
        if origin == NOTHING {
            return;
        }
        let known = self.names.entry(name.to_owned()).or_default();
        let joined = *known | origin;
        self.changed = self.changed || joined != *known;
        *known = joined;
    }

    fn name(&self, name: &str) -> Origin {
        let origin = self.names.get(name).copied().unwrap_or_default();
        // The surrounding tests narrow the arguments, not their containers.
        (origin & self.narrowed) | (origin & (HOLDS_TEXT | HOLDS_OBJECT | CALLS))
    }

    /// Runs a visit in code where a test holds, or does not.
    fn where_test<T>(&mut self, test: &'a Expr, holds: bool, walk: impl FnOnce(&mut Self) -> T) -> T {
        let around = self.narrowed;
        self.narrowed = around & self.left_open(test, holds);
        let result = walk(self);
        self.narrowed = around;
        result
    }

    /// Returns the types of arguments for which a test may hold, or not.
    fn left_open(&self, test: &Expr, holds: bool) -> Origin {
        match &test.kind {
            ExprKind::Unary(UnaryOp::Not, inner) => self.left_open(inner, !holds),
            ExprKind::And(left, right) | ExprKind::Or(left, right) => {
                let (left, right) = (self.left_open(left, holds), self.left_open(right, holds));
                if holds == matches!(test.kind, ExprKind::And(..)) { left & right } else { left | right }
            }
            ExprKind::Test(operand, name, _) => match (&**name, holds) {
                ("string", true) | ("mapping", false) if self.is_arguments(operand) => TEXT,
                ("string", false) | ("mapping", true) if self.is_arguments(operand) => OBJECT,
                _ => ANY,
            },
            _ => ANY,
        }
    }

    /// Returns true if the expression is the arguments.
    fn is_arguments(&self, expr: &Expr) -> bool {
        match &expr.kind {
            ExprKind::Name(name) => self.may_be_arguments(name),
            ExprKind::Attribute(base, name) => {
                &**name == "arguments"
                    || matches!(&base.kind, ExprKind::Name(base) if self.may_be_arguments(&format!("{base}.{name}")))
            }
            ExprKind::Item(_, index) => is_text(index, "arguments"),
            ExprKind::Call(_, args) => args.positional.first().is_some_and(|key| is_text(key, "arguments")),
            ExprKind::Filter(Some(operand), ..) => self.is_arguments(operand),
            _ => false,
        }
    }

    fn may_be_arguments(&self, name: &str) -> bool {
        self.names.get(name).is_some_and(|origin| origin.has(ANY))
    }
}

/// Statements.
impl<'a> Trace<'a> {
    fn body(&mut self, body: &'a [Stmt]) {
        body.iter().for_each(|stmt| self.stmt(stmt));
    }

    fn stmt(&mut self, stmt: &'a Stmt) {
        match &stmt.kind {
            StmtKind::Print(expr) => {
                let origin = self.expr(expr);
                self.uses(origin, Need::Text);
            }
            StmtKind::For(node) => self.for_loop(node),
            StmtKind::If(branches, otherwise) => self.condition(branches, otherwise),
            StmtKind::Set(target, value) => self.assign(target, value),
            StmtKind::With(assignments, body) => {
                assignments.iter().for_each(|(target, value)| self.assign(target, value));
                self.body(body);
            }
            _ => {
                stmt.for_each_expr(&mut |expr| {
                    self.expr(expr);
                });
                stmt.bodies().into_iter().for_each(|body| self.body(body));
            }
        }
    }

    fn condition(&mut self, branches: &'a [(Expr, Vec<Stmt>)], otherwise: &'a [Stmt]) {
        let around = self.narrowed;
        for (test, body) in branches {
            self.expr(test);
            self.where_test(test, true, |trace| trace.body(body));
            self.narrowed = self.narrowed & self.left_open(test, false);
        }
        self.body(otherwise);
        self.narrowed = around;
    }

    fn for_loop(&mut self, node: &'a For) {
        let items = self.expr(&node.iter);
        self.uses(items, Need::Object);
        self.assign_origin(&node.target, items & CALLS);
        node.filter.iter().for_each(|filter| {
            self.expr(filter);
        });
        self.body(&node.body);
        self.body(&node.otherwise);
    }

    fn assign(&mut self, target: &'a Target, value: &'a Expr) {
        match (target, &value.kind) {
            (Target::Tuple(targets), ExprKind::Tuple(values)) if targets.len() == values.len() => {
                targets.iter().zip(values).for_each(|(target, value)| self.assign(target, value));
            }
            (Target::Name(name), ExprKind::Call(callee, args)) if is_name(callee, "namespace") => {
                for (attribute, value) in &args.keywords {
                    let origin = self.expr(value);
                    self.learn(&format!("{name}.{attribute}"), origin);
                }
            }
            _ => {
                let origin = self.expr(value);
                self.assign_origin(target, origin);
            }
        }
    }

    fn assign_origin(&mut self, target: &'a Target, origin: Origin) {
        match target {
            Target::Name(name) => self.learn(name, origin),
            Target::Tuple(targets) => targets.iter().for_each(|target| self.assign_origin(target, origin & CALLS)),
            Target::Attribute(name, attribute) => self.learn(&format!("{name}.{attribute}"), origin),
        }
    }
}

/// Expressions.
impl<'a> Trace<'a> {
    /// Returns the origin of an expression, and records the uses of its parts.
    fn expr(&mut self, expr: &'a Expr) -> Origin {
        match &expr.kind {
            ExprKind::Const(_) => NOTHING,
            ExprKind::Name(name) => self.name(name),
            ExprKind::Tuple(items) | ExprKind::List(items) => {
                items.iter().fold(NOTHING, |all, item| all | self.expr(item).held())
            }
            ExprKind::Dict(entries) => entries.iter().fold(NOTHING, |all, (key, value)| {
                self.expr(key);
                all | self.expr(value).held()
            }),
            ExprKind::Concat(parts) => self.as_text(parts),
            ExprKind::Binary(BinaryOp::Add | BinaryOp::Mod, left, right) => self.as_text([&**left, &**right]),
            ExprKind::And(left, right) | ExprKind::Or(left, right) => {
                let holds = matches!(expr.kind, ExprKind::And(..));
                self.expr(left) | self.where_test(left, holds, |trace| trace.expr(right))
            }
            ExprKind::If(parts) => {
                self.expr(&parts.test);
                let then = self.where_test(&parts.test, true, |trace| trace.expr(&parts.then));
                let otherwise = parts.otherwise.as_ref();
                then | self.where_test(&parts.test, false, |trace| otherwise.map_or(NOTHING, |expr| trace.expr(expr)))
            }
            ExprKind::Attribute(base, name) => self.member(base, name),
            ExprKind::Item(base, index) => self.item(base, index),
            ExprKind::Slice(base, _) => self.as_text([&**base]),
            ExprKind::Call(callee, args) => self.call(callee, args),
            ExprKind::Filter(operand, name, args) => self.filter(operand.as_deref(), name, args),
            ExprKind::Test(..) | ExprKind::Compare(..) | ExprKind::Unary(..) | ExprKind::Binary(..) => {
                expr.for_each_part(&mut |part| {
                    self.expr(part);
                });
                NOTHING
            }
        }
    }

    fn as_text(&mut self, parts: impl IntoIterator<Item = &'a Expr>) -> Origin {
        for part in parts {
            let origin = self.expr(part);
            self.uses(origin, Need::Text);
        }
        NOTHING
    }

    fn item(&mut self, base: &'a Expr, index: &'a Expr) -> Origin {
        match &index.kind {
            ExprKind::Const(Const::Str(name)) => self.member(base, name),
            ExprKind::Const(_) => self.expr(base) & CALLS,
            _ => {
                self.expr(index);
                let origin = self.expr(base);
                self.uses(origin, Need::Object);
                origin & CALLS
            }
        }
    }

    /// Returns the origin of `base.name`, `base['name']` or `base.get('name')`.
    fn member(&mut self, base: &'a Expr, name: &str) -> Origin {
        let origin = self.expr(base);
        self.uses(origin, Need::Object);
        match name {
            "arguments" => {
                self.evidence.read = true;
                self.narrowed
            }
            "tool_calls" => CALLS,
            "function" => origin & CALLS,
            _ => match &base.kind {
                ExprKind::Name(base) => self.name(&format!("{base}.{name}")),
                _ => NOTHING,
            },
        }
    }

    fn call(&mut self, callee: &'a Expr, args: &'a Args) -> Origin {
        match &callee.kind {
            ExprKind::Attribute(base, name) if &**name == "get" => {
                if let Some(ExprKind::Const(Const::Str(key))) = args.positional.first().map(|key| &key.kind) {
                    return self.args(args) | self.member(base, key);
                }
                self.method(base, Need::Object, args)
            }
            ExprKind::Attribute(base, name) => match &**name {
                "items" | "keys" | "values" => self.method(base, Need::Object, args),
                _ => self.method(base, Need::Text, args),
            },
            ExprKind::Name(name) => match self.macros.get(&**name) {
                Some(function) => self.call_macro(function, args),
                None if &**name == "dict" => self.args(args).held(),
                None if &**name == "raise_exception" => NOTHING,
                None => {
                    self.args(args);
                    NOTHING
                }
            },
            _ => {
                self.expr(callee);
                self.args(args);
                NOTHING
            }
        }
    }

    fn method(&mut self, base: &'a Expr, need: Need, args: &'a Args) -> Origin {
        let origin = self.expr(base);
        self.uses(origin, need);
        self.args(args);
        NOTHING
    }

    /// Returns the origins of all arguments of a call.
    fn args(&mut self, args: &'a Args) -> Origin {
        args.iter().fold(NOTHING, |all, arg| all | self.expr(arg))
    }

    fn call_macro(&mut self, function: &'a Function, args: &'a Args) -> Origin {
        for (param, arg) in function.params.iter().zip(&args.positional) {
            let origin = self.expr(arg);
            self.learn(param, origin);
        }
        for (name, arg) in &args.keywords {
            let origin = self.expr(arg);
            self.learn(name, origin);
        }
        NOTHING
    }

    fn filter(&mut self, operand: Option<&'a Expr>, name: &str, args: &'a Args) -> Origin {
        let given = self.args(args);
        let origin = operand.map_or(NOTHING, |operand| self.expr(operand));
        match name {
            "default" | "d" => return origin | given,
            "tojson" => {
                self.uses(origin, Need::Object);
                self.uses(origin.content(), Need::Object);
                self.evidence.calls_as_json |= origin.has(CALLS);
            }
            "items" | "dictsort" | "xmlattr" => self.uses(origin, Need::Object),
            "list" | "length" | "count" | "first" | "last" | "map" | "select" | "reject" => {
                self.uses(origin, Need::None)
            }
            // A filter that does not exist fails, so it is no evidence.
            _ if filters::find(name).is_none() => {}
            _ => self.uses(origin, Need::Text),
        }
        if PASS_CALLS_ON.contains(&name) { origin & CALLS } else { NOTHING }
    }
}

fn is_name(expr: &Expr, name: &str) -> bool {
    matches!(&expr.kind, ExprKind::Name(found) if **found == *name)
}

fn is_text(expr: &Expr, text: &str) -> bool {
    matches!(&expr.kind, ExprKind::Const(Const::Str(found)) if found == text)
}
