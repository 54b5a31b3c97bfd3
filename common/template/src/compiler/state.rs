//! The state of a compilation: the open functions, and the places of names.

use std::collections::{BTreeMap, BTreeSet};

use minijinja::Value;

use crate::ast::{Name, Stmt};
use crate::error::CompileError;
use crate::machine::Machine;
use crate::program::{Local, Node, NodeKind, Statement};
use crate::scope::{FunctionId, Place, ScopeId, Scopes, Slot};
use crate::value::Undefined;

/// The result of a compilation step.
pub(super) type CompileResult<T> = Result<T, CompileError>;

/// The scope of the template's own code, which is opened first.
pub(super) const TEMPLATE: ScopeId = 0;

/// The surroundings of the code that is compiled.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    pub(super) scope: ScopeId,
    /// Inside an `if`, where an unknown filter is an error only when it is applied.
    pub(super) soft: bool,
}

impl Frame {
    pub(super) fn soft(self) -> Self {
        Self { soft: true, ..self }
    }
}

/// A function that is being compiled.
#[derive(Debug, Default)]
pub(super) struct Open {
    pub(super) id: FunctionId,
    /// The variables of surrounding functions that it uses: the place in the next function around
    /// it, and the place here.
    pub(super) shared: BTreeMap<Slot, (Local, Local)>,
    /// The number of open loops.
    pub(super) loops: usize,
    /// Parameters that are unset while defaults are evaluated.
    pub(super) unset: BTreeSet<Slot>,
}

/// The state of escaping where code is compiled.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Autoescape {
    pub(super) on: bool,
    /// Inside a block whose expression is not constant. Inner blocks do not reset it.
    pub(super) is_unknown: bool,
}

pub(super) struct Compiler {
    pub(super) line: u32,
    pub(super) scopes: Scopes,
    /// The open functions, outermost first.
    pub(super) functions: Vec<Open>,
    pub(super) function_count: usize,
    /// Inside an expression that Jinja2 computes at compile time if it can.
    pub(super) folds: bool,
    /// The scope that unscoped blocks see: that around the innermost scoped block, or the
    /// template's.
    pub(super) around_blocks: ScopeId,
    /// The place of `self`, if the template uses it.
    pub(super) template_reference: Option<Place>,
    /// A block sets an item of a dict, so no dict can belong to the template.
    pub(super) changes_dicts: bool,
    /// There is an `{% autoescape %}` block.
    pub(super) may_escape: bool,
    pub(super) autoescape: Autoescape,
    /// Computes constants.
    pub(super) machine: Machine,
    /// The number of expressions and statements so far.
    pub(super) size: usize,
}

/// Expressions and statements that run in the time of one step.
const PARTS_PER_STEP: usize = 2;

impl Compiler {
    pub(super) fn new() -> Self {
        Self {
            line: 1,
            scopes: Scopes::default(),
            functions: vec![Open::default()],
            function_count: 1,
            folds: false,
            around_blocks: TEMPLATE,
            template_reference: None,
            changes_dicts: false,
            may_escape: false,
            autoescape: Autoescape::default(),
            machine: Machine::for_constants(),
            size: 0,
        }
    }

    /// Returns the steps of the code since `start`.
    pub(super) fn weight_since(&self, start: usize) -> usize {
        (self.size - start).div_ceil(PARTS_PER_STEP)
    }

    pub(super) fn function(&mut self) -> &mut Open {
        // The template's own function is always open.
        let last = self.functions.len() - 1;
        &mut self.functions[last]
    }

    pub(super) fn function_id(&self) -> FunctionId {
        self.functions.last().map_or(0, |function| function.id)
    }

    pub(super) fn name(&mut self, frame: Frame, name: &Name) -> NodeKind {
        let place = self.scopes.place(frame.scope, name);
        self.load(place)
    }

    pub(super) fn load(&mut self, place: Place) -> NodeKind {
        match place {
            Place::Context(at) => NodeKind::Context(at),
            Place::Variable(slot, owner) => {
                let local = self.share(slot, owner);
                if self.function().unset.contains(&slot) {
                    return NodeKind::Param(local);
                }
                NodeKind::Variable(local, Undefined::Variable(Value::from(self.scopes.name(slot))).value())
            }
        }
    }

    pub(super) fn load_at(&mut self, place: Place, line: u32) -> Node {
        Node { kind: self.load(place), line }
    }

    /// Adds a variable without a name.
    pub(super) fn hidden(&mut self) -> (Local, Place) {
        let slot = self.scopes.hidden(self.function_id());
        (self.scopes.local(slot), self.scopes.variable(slot))
    }

    /// Returns the place of a variable in the open function, which shares it with its owner.
    pub(super) fn share(&mut self, slot: Slot, owner: FunctionId) -> Local {
        let inside = self.functions.iter().position(|function| function.id == owner).map_or(0, |at| at + 1);
        let mut local = self.scopes.local(slot);
        for function in &mut self.functions[inside..] {
            let (_, own) = function.shared.entry(slot).or_insert_with(|| (local, self.scopes.new_local(function.id)));
            local = *own;
        }
        local
    }

    /// Compiles the first values of a scope's variables.
    pub(super) fn enter_scope(&mut self, scope: ScopeId, steps: &mut Vec<Statement>) {
        let mut starts = Vec::new();
        for (slot, place) in self.scopes.starts(scope) {
            // Before the first round of a loop, no variable is set.
            if place.is_none() && self.function().loops == 0 {
                continue;
            }
            let line = self.line;
            starts.push((self.scopes.local(slot), place.map(|place| self.load_at(place, line))));
        }
        if !starts.is_empty() {
            steps.push(Statement::Enter(starts));
        }
    }

    /// Opens a scope inside a frame's, and analyses `body`.
    pub(super) fn inner(&mut self, frame: Frame, body: &[Stmt]) -> Frame {
        let scope = self.scopes.open(Some(frame.scope), self.function_id());
        self.scopes.visit_all(scope, body);
        Frame { scope, soft: false }
    }

    pub(super) fn fail<T>(&self, message: String) -> CompileResult<T> {
        Err(CompileError::Syntax { line: self.line, message })
    }
}
