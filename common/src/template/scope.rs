//! Which variable a name means: Jinja2's rules for scopes, worked out before any code is made.
//!
//! A scope (template, loop body, macro, `with`, ...) owns the names that it assigns. A name that a scope assigns starts
//! there as what the surrounding scope calls by that name; a name that no scope assigns is looked up in the context.
//! Every variable gets a slot of its own, so code never mixes up two variables of the same name.

mod mentions;

use std::collections::{HashMap, HashSet};

use super::ast::{Expr, ExprKind, Name, Stmt, StmtKind, Target};
use super::error::CompileError;

pub(crate) use mentions::{line_of, mentions};

/// A variable: an index into the program's slots.
pub(crate) type Slot = u32;
/// A scope: an index into [`Scopes`].
pub(crate) type ScopeId = usize;
/// The template's own code, or one macro: what runs in one frame of the machine.
pub(crate) type FunctionId = usize;

/// Slots that a template may use.
const MAX_SLOTS: usize = 4096;
const SLOT_DIGITS: usize = 3;

/// All slot names, one after the other: "000", "001", ...
static SLOT_NAMES: [u8; MAX_SLOTS * SLOT_DIGITS] = slot_names();

const fn slot_names() -> [u8; MAX_SLOTS * SLOT_DIGITS] {
    let mut names = [0; MAX_SLOTS * SLOT_DIGITS];
    let mut slot = 0;
    while slot < MAX_SLOTS {
        let mut digit = 0;
        while digit < SLOT_DIGITS {
            let shift = 4 * (SLOT_DIGITS - 1 - digit);
            names[slot * SLOT_DIGITS + digit] = b"0123456789abcdef"[(slot >> shift) & 15];
            digit += 1;
        }
        slot += 1;
    }
    names
}

/// What the machine calls a slot.
pub(crate) fn slot_name(slot: Slot) -> &'static str {
    let start = slot as usize * SLOT_DIGITS;
    let name = SLOT_NAMES.get(start..start + SLOT_DIGITS).unwrap_or_default();
    std::str::from_utf8(name).unwrap_or_default()
}

/// The slot of that name.
pub(crate) fn slot_of(name: &str) -> Option<Slot> {
    Slot::from_str_radix(name, 16).ok()
}

/// How a variable gets its value when its scope is entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// The code that enters the scope sets it.
    Given,
    /// From the context, by its name.
    Context,
    /// From a variable of a surrounding scope.
    Copy(Slot),
    /// It has none.
    Undefined,
}

#[derive(Debug)]
struct Variable {
    name: Name,
    function: FunctionId,
    /// The scope that the name belongs to, if it is not hidden or of the context.
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
    /// The assigned names in order, so that an `if` knows which its branches added.
    assigned_log: Vec<Name>,
}

/// All scopes and variables of a template.
#[derive(Debug, Default)]
pub(crate) struct Scopes {
    scopes: Vec<Scope>,
    variables: Vec<Variable>,
    context: HashMap<Name, Slot>,
}

/// Where a name's value is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the context; every function sees it.
    Context(Slot),
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

    /// The names of all slots, by slot.
    pub(crate) fn slot_names(&self) -> Vec<String> {
        self.variables.iter().map(|variable| variable.name.to_string()).collect()
    }

    /// The slots of the context.
    pub(crate) fn context_slots(&self) -> Vec<Slot> {
        let mut slots: Vec<Slot> = self.context.values().copied().collect();
        slots.sort_unstable();
        slots
    }

    /// An error if the template has more variables than there are slots.
    pub(crate) fn check_size(&self) -> Result<(), CompileError> {
        if self.variables.len() > MAX_SLOTS {
            return Err(CompileError::TooComplex { line: 1, what: "the number of variables", max: MAX_SLOTS });
        }
        Ok(())
    }

    /// A variable that no name refers to.
    pub(crate) fn hidden(&mut self, function: FunctionId) -> Slot {
        self.new_variable("", function)
    }

    fn new_variable(&mut self, name: &str, function: FunctionId) -> Slot {
        self.variables.push(Variable { name: name.into(), function, scope: None, start: Start::Given });
        (self.variables.len() - 1) as Slot
    }

    fn info(&self, slot: Slot) -> &Variable {
        &self.variables[slot as usize]
    }

    fn define(&mut self, scope: ScopeId, name: &Name, start: Start) -> Slot {
        let (function, scope_id) = (self.scopes[scope].function, Some(scope));
        self.variables.push(Variable { name: name.clone(), function, scope: scope_id, start });
        let slot = (self.variables.len() - 1) as Slot;
        let scope = &mut self.scopes[scope];
        scope.slots.insert(name.clone(), slot);
        scope.variables.push(slot);
        slot
    }

    /// The variable that a name means in a scope or the ones around it.
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

    /// The name is given a value by whatever enters the scope.
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

    /// A name that only some branches of an `if` assign keeps its outer value in the others.
    fn join_branches(&mut self, scope: ScopeId, log_start: usize) {
        for at in log_start..self.scopes[scope].assigned_log.len() {
            let name = self.scopes[scope].assigned_log[at].clone();
            let start = match self.find(self.scopes[scope].parent, &name) {
                Some((_, outer)) => Start::Copy(outer),
                None => Start::Context,
            };
            if let Some(&slot) = self.scopes[scope].slots.get(&name) {
                self.variables[slot as usize].start = start;
            }
        }
    }

    fn context_slot(&mut self, name: &Name) -> Slot {
        if let Some(&slot) = self.context.get(name) {
            return slot;
        }
        let slot = self.new_variable(name, 0);
        self.context.insert(name.clone(), slot);
        slot
    }

    /// Where to read a name.
    pub(crate) fn place(&mut self, scope: ScopeId, name: &Name) -> Place {
        match self.find(Some(scope), name) {
            Some((_, slot)) => self.kept_at(slot),
            None => Place::Context(self.context_slot(name)),
        }
    }

    /// Where a variable is kept: one that is never assigned needs no copy of what the context has.
    fn kept_at(&mut self, slot: Slot) -> Place {
        let Variable { name, function, scope, start } = self.info(slot);
        let assigned = scope.is_none_or(|scope| self.scopes[scope].assigned.contains(name));
        if *start == Start::Context && !assigned {
            let name = name.clone();
            return Place::Context(self.context_slot(&name));
        }
        Place::Variable(slot, *function)
    }

    /// The place of a variable.
    pub(crate) fn variable(&self, slot: Slot) -> Place {
        Place::Variable(slot, self.info(slot).function)
    }

    /// The variable that an assignment in this scope sets.
    pub(crate) fn assigned_slot(&self, scope: ScopeId, name: &Name) -> Option<Slot> {
        self.find(Some(scope), name).map(|(_, slot)| slot)
    }

    /// What to put into the scope's variables when it is entered.
    pub(crate) fn starts(&mut self, scope: ScopeId) -> Vec<(Slot, Place)> {
        let mut places = Vec::new();
        for slot in self.scopes[scope].variables.clone() {
            match self.info(slot).start {
                Start::Context => {
                    let name = self.info(slot).name.clone();
                    if self.scopes[scope].assigned.contains(&name) {
                        places.push((slot, Place::Context(self.context_slot(&name))));
                    }
                }
                Start::Copy(outer) => places.push((slot, self.kept_at(outer))),
                Start::Given | Start::Undefined => {}
            }
        }
        places
    }
}

/// The walk over a scope's own code.
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
            StmtKind::Data(_) | StmtKind::Generation(_) | StmtKind::Block(..) | StmtKind::Scope(_) => {}
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

    /// The names of a loop's or `with`'s targets are given values on entry.
    pub(crate) fn declare_target(&mut self, scope: ScopeId, target: &Target) {
        match target {
            Target::Name(name) => {
                self.declare(scope, name);
            }
            Target::Tuple(targets) => targets.iter().for_each(|target| self.declare_target(scope, target)),
            Target::Attribute(..) => {}
        }
    }

    pub(crate) fn visit_expr(&mut self, scope: ScopeId, expr: &Expr) {
        if let ExprKind::Name(name) = &expr.kind {
            self.read(scope, name);
        }
        expr.for_each_part(&mut |part| self.visit_expr(scope, part));
    }
}
