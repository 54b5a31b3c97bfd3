//! Resolves names to variables by Jinja2's rules for scopes, before any code is generated.
//!
//! A scope (template, loop body, macro, `with`, ...) owns the names that it assigns. Such a name
//! starts with the value that it has in the surrounding scope. A name that no scope assigns is
//! looked up in the context. Every variable has a separate place in its function, so two variables
//! of the same name are never confused.

mod mentions;

use std::collections::{HashMap, HashSet};

use crate::ast::{Expr, ExprKind, Name, Stmt, StmtKind, Target};
use crate::program::Local;

pub(crate) use mentions::{has_scoped_block, line_of, mentions};

/// A variable: an index into [`Scopes`].
pub(crate) type Slot = usize;
/// A scope: an index into [`Scopes`].
pub(crate) type ScopeId = usize;
/// A function: the template's code or one macro. A function has separate variables at run time.
pub(crate) type FunctionId = usize;

/// The first value of a variable when its scope is entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// The code that enters the scope sets the value.
    Given,
    /// From the context, by its name.
    Context,
    /// From a variable of a surrounding scope.
    Copy(Slot),
    /// The variable has no value.
    Undefined,
}

#[derive(Debug)]
struct Variable {
    name: Name,
    function: FunctionId,
    local: Local,
    /// The scope of the name. None if the variable has no name or belongs to the context.
    scope: Option<ScopeId>,
    start: Start,
}

#[derive(Debug)]
struct Scope {
    parent: Option<ScopeId>,
    function: FunctionId,
    slots: HashMap<Name, Slot>,
    /// The variables of the scope, in order of appearance.
    variables: Vec<Slot>,
    assigned: HashSet<Name>,
    /// The assigned names in order, so that an `if` can find the names that its branches added.
    assigned_log: Vec<Name>,
}

/// All scopes and variables of a template.
#[derive(Debug, Default)]
pub(crate) struct Scopes {
    scopes: Vec<Scope>,
    variables: Vec<Variable>,
    /// The number of places of each function.
    locals: Vec<Local>,
    context: HashMap<Name, u32>,
    /// The names of the context, by place.
    context_names: Vec<Name>,
}

/// The place of a name's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the context, at this index. Every function can read it.
    Context(u32),
    /// In a variable of a function.
    Variable(Slot, FunctionId),
}

impl Scopes {
    pub(crate) fn open(&mut self, parent: Option<ScopeId>, function: FunctionId) -> ScopeId {
        self.scopes.push(Scope {
            parent,
            function,
            slots: HashMap::new(),
            variables: Vec::new(),
            assigned: HashSet::new(),
            assigned_log: Vec::new(),
        });
        self.scopes.len() - 1
    }

    /// Returns the names of the context, by place.
    pub(crate) fn context_names(&self) -> &[Name] {
        &self.context_names
    }

    /// Returns the number of variables of a function.
    pub(crate) fn count_of(&self, function: FunctionId) -> usize {
        self.locals.get(function).map_or(0, |count| *count as usize)
    }

    /// Adds a place for a variable of a function.
    pub(crate) fn new_local(&mut self, function: FunctionId) -> Local {
        if self.locals.len() <= function {
            self.locals.resize(function + 1, 0);
        }
        let local = self.locals[function];
        self.locals[function] += 1;
        local
    }

    /// Returns the place of a variable in its function.
    pub(crate) fn local(&self, slot: Slot) -> Local {
        self.info(slot).local
    }

    /// Returns the name of a variable.
    pub(crate) fn name(&self, slot: Slot) -> &str {
        &self.info(slot).name
    }

    /// Adds a variable without a name.
    pub(crate) fn hidden(&mut self, function: FunctionId) -> Slot {
        self.new_variable("".into(), function, None, Start::Given)
    }

    fn new_variable(&mut self, name: Name, function: FunctionId, scope: Option<ScopeId>, start: Start) -> Slot {
        let local = self.new_local(function);
        self.variables.push(Variable { name, function, local, scope, start });
        self.variables.len() - 1
    }

    fn info(&self, slot: Slot) -> &Variable {
        &self.variables[slot]
    }

    fn define(&mut self, scope: ScopeId, name: &Name, start: Start) -> Slot {
        let slot = self.new_variable(name.clone(), self.scopes[scope].function, Some(scope), start);
        let scope = &mut self.scopes[scope];
        scope.slots.insert(name.clone(), slot);
        scope.variables.push(slot);
        slot
    }

    /// Finds the variable of a name in a scope or in the surrounding scopes.
    fn find(&self, scope: Option<ScopeId>, name: &str) -> Option<(ScopeId, Slot)> {
        let mut next = scope;
        while let Some(scope) = next {
            if let Some(&slot) = self.scopes[scope].slots.get(name) {
                return Some((scope, slot));
            }
            next = self.scopes[scope].parent;
        }
        None
    }

    /// Declares a name whose value is set by the code that enters the scope.
    pub(crate) fn declare(&mut self, scope: ScopeId, name: &Name) -> Slot {
        self.scopes[scope].assigned.insert(name.clone());
        self.define(scope, name, Start::Given)
    }

    fn assign(&mut self, scope: ScopeId, name: &Name) {
        let own = &mut self.scopes[scope];
        if own.assigned.insert(name.clone()) {
            own.assigned_log.push(name.clone());
        }
        if own.slots.contains_key(name) {
            return;
        }
        let start = match self.find(self.scopes[scope].parent, name) {
            Some((_, outer)) => Start::Copy(outer),
            None => Start::Undefined,
        };
        self.define(scope, name, start);
    }

    fn read(&mut self, scope: ScopeId, name: &Name) {
        if self.find(Some(scope), name).is_none() {
            self.define(scope, name, Start::Context);
        }
    }

    /// Sets the start of each name that only some branches of an `if` assign. The name keeps its
    /// outer value in the other branches.
    fn join_branches(&mut self, scope: ScopeId, log_start: usize) {
        for at in log_start..self.scopes[scope].assigned_log.len() {
            let name = self.scopes[scope].assigned_log[at].clone();
            let start = match self.find(self.scopes[scope].parent, &name) {
                Some((_, outer)) => Start::Copy(outer),
                None => Start::Context,
            };
            if let Some(&slot) = self.scopes[scope].slots.get(&name) {
                self.variables[slot].start = start;
            }
        }
    }

    fn context_place(&mut self, name: &Name) -> Place {
        let next = self.context_names.len() as u32;
        let place = *self.context.entry(name.clone()).or_insert(next);
        if place == next {
            self.context_names.push(name.clone());
        }
        Place::Context(place)
    }

    /// Returns the place to read a name from.
    pub(crate) fn place(&mut self, scope: ScopeId, name: &Name) -> Place {
        match self.find(Some(scope), name) {
            Some((_, slot)) => self.kept_at(slot),
            None => self.context_place(name),
        }
    }

    /// Returns the place of a variable. A variable that is never assigned needs no copy of the
    /// context's value.
    fn kept_at(&mut self, slot: Slot) -> Place {
        let Variable { name, function, scope, start, .. } = self.info(slot);
        let assigned = scope.is_none_or(|scope| self.scopes[scope].assigned.contains(name));
        if *start == Start::Context && !assigned {
            let name = name.clone();
            return self.context_place(&name);
        }
        Place::Variable(slot, *function)
    }

    /// Returns the place of a variable.
    pub(crate) fn variable(&self, slot: Slot) -> Place {
        Place::Variable(slot, self.info(slot).function)
    }

    /// Returns the variable that an assignment in this scope sets.
    pub(crate) fn assigned_slot(&self, scope: ScopeId, name: &Name) -> Option<Slot> {
        self.find(Some(scope), name).map(|(_, slot)| slot)
    }

    /// Returns the places of the first values of a scope's variables. `None` unsets the variable.
    pub(crate) fn starts(&mut self, scope: ScopeId) -> Vec<(Slot, Option<Place>)> {
        let mut places = Vec::new();
        for slot in self.scopes[scope].variables.clone() {
            match self.info(slot).start {
                Start::Context => {
                    let name = self.info(slot).name.clone();
                    if self.scopes[scope].assigned.contains(&name) {
                        let place = self.context_place(&name);
                        places.push((slot, Some(place)));
                    }
                }
                Start::Copy(outer) => places.push((slot, Some(self.kept_at(outer)))),
                Start::Undefined => places.push((slot, None)),
                Start::Given => {}
            }
        }
        places
    }
}

/// The visit of a scope's own code.
impl Scopes {
    pub(crate) fn visit_all(&mut self, scope: ScopeId, body: &[Stmt]) {
        for stmt in body {
            self.visit(scope, stmt);
        }
    }

    fn visit(&mut self, scope: ScopeId, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Print(expr) | StmtKind::Call(expr, _) | StmtKind::Filter(expr, _) => self.visit_expr(scope, expr),
            StmtKind::For(node) => self.visit_expr(scope, &node.iter),
            StmtKind::If(branches, otherwise) => self.visit_if(scope, branches, otherwise),
            StmtKind::Set(target, value) => {
                self.visit_expr(scope, value);
                self.visit_target(scope, target);
            }
            StmtKind::SetBlock(target, ..) => self.visit_target(scope, target),
            StmtKind::With(assignments, _) => {
                assignments.iter().for_each(|(_, value)| self.visit_expr(scope, value));
            }
            StmtKind::Macro(name, _) => self.assign(scope, name),
            StmtKind::Load(source, names) => {
                self.visit_expr(scope, source);
                names.iter().for_each(|name| self.assign(scope, name));
            }
            StmtKind::Data(_) | StmtKind::Generation(_) | StmtKind::Block(..) | StmtKind::Autoescape(..) => {}
            StmtKind::RequiredBlock(_) | StmtKind::Break | StmtKind::Continue => {}
        }
    }

    fn visit_if(&mut self, scope: ScopeId, branches: &[(Expr, Vec<Stmt>)], otherwise: &[Stmt]) {
        let log_start = self.scopes[scope].assigned_log.len();
        for (test, body) in branches {
            self.visit_expr(scope, test);
            self.visit_all(scope, body);
        }
        self.visit_all(scope, otherwise);
        self.join_branches(scope, log_start);
    }

    fn visit_target(&mut self, scope: ScopeId, target: &Target) {
        match target {
            Target::Name(name) => self.assign(scope, name),
            Target::Tuple(targets) => targets.iter().for_each(|target| self.visit_target(scope, target)),
            Target::Attribute(name, _) => self.read(scope, name),
        }
    }

    /// Declares the names of a loop's or `with`'s targets, which get values on entry.
    pub(crate) fn declare_target(&mut self, scope: ScopeId, target: &Target) {
        match target {
            Target::Name(name) => {
                self.declare(scope, name);
            }
            Target::Tuple(targets) => targets.iter().for_each(|target| self.declare_target(scope, target)),
            Target::Attribute(..) => {}
        }
    }

    /// Returns a name in an expression that no code in this scope or around it has read or
    /// assigned.
    pub(crate) fn unknown_name<'a>(&self, scope: ScopeId, expr: &'a Expr) -> Option<&'a Name> {
        if let ExprKind::Name(name) = &expr.kind {
            return self.find(Some(scope), name).is_none().then_some(name);
        }
        let mut unknown = None;
        expr.for_each_part(&mut |part| unknown = unknown.or_else(|| self.unknown_name(scope, part)));
        unknown
    }

    pub(crate) fn visit_expr(&mut self, scope: ScopeId, expr: &Expr) {
        if let ExprKind::Name(name) = &expr.kind {
            self.read(scope, name);
        }
        expr.for_each_part(&mut |part| self.visit_expr(scope, part));
    }
}
