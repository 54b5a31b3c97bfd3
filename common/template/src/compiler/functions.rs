//! Macros and all other code that is a separate function: call blocks, recursive loops, and the
//! `if` of a counted loop.

use std::sync::Arc;

use minijinja::Value;

use super::state::{CompileResult, Compiler, Frame, Open};
use crate::ast::{self, Name};
use crate::program::MacroSpec;
use crate::program::{Escaping, Function, Local, Node, NodeKind, Statement, Target};
use crate::scope::{Place, ScopeId, Slot, mentions};
use crate::value::{PyObject, py_object};

/// The special parameters of a macro whose body uses them, in the order in which they are passed.
const SPECIAL: [&str; 3] = ["caller", "kwargs", "varargs"];

impl Compiler {
    pub(super) fn macro_function(
        &mut self,
        frame: Frame,
        name: Option<&Name>,
        node: &ast::Function,
    ) -> CompileResult<Arc<Function>> {
        let explicit_caller = node.params.iter().position(|param| &**param == "caller");
        let mut special = SPECIAL.map(|name| mentions(&node.body, name) && !node.params.iter().any(|p| **p == *name));
        if let Some(at) = explicit_caller
            && mentions(&node.body, "caller")
        {
            if node.default(at).is_none() {
                return self.fail("the special \"caller\" argument must be omitted or be given a default".to_owned());
            }
            special[0] = false;
        }
        let [takes_caller, takes_kwargs, takes_varargs] = special;
        let spec = MacroSpec {
            name: name.map(|name| Arc::from(&**name)),
            params: node.params.iter().map(|param| Value::from(&**param)).collect(),
            required: node.params.len() - node.defaults.len(),
            takes_caller,
            takes_kwargs,
            takes_varargs,
            weight: 0,
        };
        self.new_function(
            frame,
            spec,
            Some(Escaping::WhenOn),
            |compiler, scope| compiler.declare_params(scope, node, special),
            |compiler, frame, steps| compiler.macro_body(frame, node, steps).map(|()| None),
        )
    }

    fn declare_params(&mut self, scope: ScopeId, node: &ast::Function, special: [bool; 3]) {
        for param in &node.params {
            self.scopes.declare(scope, param);
        }
        for (name, used) in SPECIAL.into_iter().zip(special) {
            if used {
                self.scopes.declare(scope, &name.into());
            }
        }
        node.defaults.iter().for_each(|default| self.scopes.visit_expr(scope, default));
        self.scopes.visit_all(scope, &node.body);
    }

    fn macro_body(&mut self, frame: Frame, node: &ast::Function, steps: &mut Vec<Statement>) -> CompileResult<()> {
        let slots: Vec<Option<Slot>> =
            node.params.iter().map(|param| self.scopes.assigned_slot(frame.scope, param)).collect();
        let required = node.params.len() - node.defaults.len();
        self.function().unset = slots.iter().skip(required).flatten().copied().collect();
        for (slot, default) in slots.into_iter().skip(required).zip(&node.defaults) {
            if let Some(slot) = slot {
                self.param_default(frame, slot, default, steps)?;
            }
        }
        self.body(frame, &node.body, steps)
    }

    /// Evaluates a parameter's default if no argument was passed.
    fn param_default(
        &mut self,
        frame: Frame,
        slot: Slot,
        default: &ast::Expr,
        steps: &mut Vec<Statement>,
    ) -> CompileResult<()> {
        let local = self.scopes.local(slot);
        let default = self.expr(frame, default)?;
        let line = default.line;
        let param = Node { kind: NodeKind::Variable(local, Value::UNDEFINED), line };
        let missing = Node { kind: NodeKind::Check(is_missing, Box::new(param)), line };
        steps.push(Statement::If(vec![(missing, vec![Statement::Set(Target::Variable(local), default)])], Vec::new()));
        self.function().unset.remove(&slot);
        Ok(())
    }

    /// Compiles a function. `safe` is when its text is marked as safe; `declare` creates its
    /// parameters, before any other variable; `body` returns its result.
    pub(super) fn new_function(
        &mut self,
        frame: Frame,
        spec: MacroSpec,
        safe: Option<Escaping>,
        declare: impl FnOnce(&mut Self, ScopeId),
        body: impl FnOnce(&mut Self, Frame, &mut Vec<Statement>) -> CompileResult<Option<Node>>,
    ) -> CompileResult<Arc<Function>> {
        let start = self.size;
        let id = self.function_count;
        self.function_count += 1;
        self.functions.push(Open { id, ..Open::default() });
        let scope = self.scopes.open(Some(frame.scope), id);
        declare(self, scope);
        let mut steps = Vec::new();
        self.enter_scope(scope, &mut steps);
        let result = body(self, Frame { scope, soft: false }, &mut steps)?;
        let shared = self.functions.pop().map(|open| open.shared.into_values().collect()).unwrap_or_default();
        let spec = MacroSpec { weight: self.weight_since(start), ..spec };
        Ok(Arc::new(Function { spec, locals: self.scopes.count_of(id), shared, body: steps, result, safe }))
    }

    /// Returns the place of a name that a scope of the open function declares.
    pub(super) fn declared(&self, scope: ScopeId, name: &str) -> Option<(Local, Place)> {
        let slot = self.scopes.assigned_slot(scope, &name.into())?;
        Some((self.scopes.local(slot), self.scopes.variable(slot)))
    }
}

fn is_missing(value: &Value) -> bool {
    matches!(py_object(value), Some(PyObject::Missing))
}
