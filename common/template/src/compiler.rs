//! Turns the syntax tree into a program: resolves names to places, and filters, tests and operators to functions.

mod attributes;
mod autoescape;
mod blocks;
mod calls;
mod constants;
mod expressions;
mod functions;
mod loops;
mod statements;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use minijinja::Value;

use super::ast::{Name, Stmt, StmtKind};
use super::error::CompileError;
use super::globals;
use super::machine::Machine;
use super::program::{ContextName, Function, Local, Node, NodeKind, Program, Step};
use super::scope::{FunctionId, Place, ScopeId, Scopes, Slot, mentions};
use super::value::{MacroSpec, Undefined};

use autoescape::Autoescape;

/// The result of making one thing.
type Made<T> = Result<T, CompileError>;

/// Compiles a template.
pub(crate) fn compile(template: &[Stmt]) -> Made<Program> {
    let has = |is_such| template.iter().any(|stmt| stmt.has(is_such));
    let mut compiler = Compiler {
        changes_dicts: has(|kind| matches!(kind, StmtKind::SetBlock(target, ..) if target.has_attribute())),
        may_escape: has(|kind| matches!(kind, StmtKind::Autoescape(..))),
        ..Compiler::new()
    };
    let scope = compiler.scopes.open(None, 0);
    if mentions(template, "self") {
        compiler.scopes.declare(scope, &"self".into());
    }
    compiler.scopes.visit_all(scope, template);
    let mut body = Vec::new();
    compiler.enter_scope(scope, &mut body);
    let frame = Frame { scope, soft: false };
    if blocks::uses_self(template) {
        compiler.make_self(template, &mut body)?;
        compiler.set_self(frame, template, &mut body);
    }
    compiler.body(frame, template, &mut body)?;
    let locals = compiler.scopes.count_of(0);
    let main = Function { spec: MacroSpec::default(), locals, shared: Vec::new(), body, result: None, safe: None };
    let context = compiler.scopes.context_names().iter().map(|name| context_name(name)).collect();
    Ok(Program { main: Arc::new(main), context })
}

fn context_name(name: &str) -> ContextName {
    let default = globals::find(name).unwrap_or_else(|| Undefined::Variable(Value::from(name)).value());
    ContextName { name: name.into(), default }
}

/// Where code is being made for.
#[derive(Debug, Clone, Copy)]
struct Frame {
    scope: ScopeId,
    /// Inside of an `if`: an unknown filter is an error only once it is applied.
    soft: bool,
}

impl Frame {
    fn soft(self) -> Self {
        Self { soft: true, ..self }
    }
}

/// A function that is being made.
#[derive(Debug, Default)]
struct Open {
    id: FunctionId,
    /// Variables of surrounding functions that it uses: their places in the next one around it, and in this.
    shared: BTreeMap<Slot, (Local, Local)>,
    /// How many loops are open.
    loops: usize,
    /// Parameters that have no value yet while defaults are evaluated.
    unset: BTreeSet<Slot>,
}

struct Compiler {
    line: u32,
    scopes: Scopes,
    /// The functions being made, outermost first.
    functions: Vec<Open>,
    function_count: usize,
    /// Inside of an expression that Jinja2 computes when it compiles, if it can.
    folds: bool,
    /// What blocks see that are not scoped: all that is around the innermost scoped one, or the template.
    around_blocks: ScopeId,
    /// What `self` is, if the template uses it.
    template_reference: Option<Place>,
    /// A block sets an item of a dict, so that no dict can belong to the template.
    changes_dicts: bool,
    /// There is an `{% autoescape %}` block.
    may_escape: bool,
    autoescape: Autoescape,
    /// Computes what is constant.
    machine: Machine,
    /// How many expressions and statements there were so far.
    size: usize,
}

/// Expressions and statements that run in the time of one step.
const PARTS_PER_STEP: usize = 2;

impl Compiler {
    fn new() -> Self {
        Self {
            line: 1,
            scopes: Scopes::default(),
            functions: vec![Open::default()],
            function_count: 1,
            folds: false,
            around_blocks: blocks::TEMPLATE,
            template_reference: None,
            changes_dicts: false,
            may_escape: false,
            autoescape: Autoescape::default(),
            machine: Machine::for_constants(),
            size: 0,
        }
    }

    /// Steps that the code since `start` costs when it runs.
    fn weight_since(&self, start: usize) -> usize {
        (self.size - start).div_ceil(PARTS_PER_STEP)
    }

    fn function(&mut self) -> &mut Open {
        // There is always the template's own function.
        let last = self.functions.len() - 1;
        &mut self.functions[last]
    }

    fn function_id(&self) -> FunctionId {
        self.functions.last().map_or(0, |function| function.id)
    }

    fn name(&mut self, frame: Frame, name: &Name) -> NodeKind {
        let place = self.scopes.place(frame.scope, name);
        self.load(place)
    }

    fn load(&mut self, place: Place) -> NodeKind {
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

    fn load_at(&mut self, place: Place, line: u32) -> Node {
        Node { kind: self.load(place), line }
    }

    /// A variable that no name refers to.
    fn hidden(&mut self) -> (Local, Place) {
        let slot = self.scopes.hidden(self.function_id());
        (self.scopes.local(slot), self.scopes.variable(slot))
    }

    /// The place of a variable in the function being made, which shares it with its owner.
    fn share(&mut self, slot: Slot, owner: FunctionId) -> Local {
        let inside = self.functions.iter().position(|function| function.id == owner).map_or(0, |at| at + 1);
        let mut local = self.scopes.local(slot);
        for function in &mut self.functions[inside..] {
            let (_, own) = function.shared.entry(slot).or_insert_with(|| (local, self.scopes.new_local(function.id)));
            local = *own;
        }
        local
    }

    /// Gives the variables of a scope their first values.
    fn enter_scope(&mut self, scope: ScopeId, steps: &mut Vec<Step>) {
        let mut starts = Vec::new();
        for (slot, place) in self.scopes.starts(scope) {
            // Before the first round of a loop, nothing is set.
            if place.is_none() && self.function().loops == 0 {
                continue;
            }
            let line = self.line;
            starts.push((self.scopes.local(slot), place.map(|place| self.load_at(place, line))));
        }
        if !starts.is_empty() {
            steps.push(Step::Enter(starts));
        }
    }

    /// A scope inside of a frame's, with the analysis of `body` done.
    fn inner(&mut self, frame: Frame, body: &[Stmt]) -> Frame {
        let scope = self.scopes.open(Some(frame.scope), self.function_id());
        self.scopes.visit_all(scope, body);
        Frame { scope, soft: false }
    }

    fn fail<T>(&self, message: String) -> Made<T> {
        Err(CompileError::Syntax { line: self.line, message })
    }
}
