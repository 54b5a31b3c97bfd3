//! Code for macros and everything else that runs as a function of its own: call blocks, recursive loops, and the `if`
//! of a loop that counts its rounds.

use std::sync::Arc;

use minijinja::Value;
use minijinja::machinery::Instruction;

use super::super::ast::{self, Name};
use super::super::error::CompileError;
use super::super::scope::{ScopeId, Slot, mentions, slot_name};
use super::super::value::{MacroSpec, Obj};
use super::{Codegen, Frame, Function, INSTRUCTIONS_PER_STEP};

type Done = Result<(), CompileError>;

/// The special parameters that a macro has if its body uses them, in the order in which they are passed.
const SPECIAL: [&str; 3] = ["caller", "kwargs", "varargs"];

/// What a function takes, for those who call it.
#[derive(Debug, Default)]
pub(super) struct Signature {
    pub(super) name: Option<Arc<str>>,
    pub(super) params: Vec<Value>,
    pub(super) required: usize,
    pub(super) special: [bool; 3],
}

impl Codegen {
    /// Leaves a macro on the stack.
    pub(super) fn macro_function(&mut self, frame: Frame, name: Option<&Name>, node: &ast::Function) -> Done {
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
        let signature = Signature {
            name: name.map(|name| Arc::from(&**name)),
            params: node.params.iter().map(|param| Value::from(&**param)).collect(),
            required: node.params.len() - node.defaults.len(),
            special,
        };
        self.new_function(
            frame,
            signature,
            |codegen, scope| codegen.declare_params(scope, node, special),
            |codegen, frame| codegen.macro_body(frame, node),
        )
    }

    fn declare_params(&mut self, scope: ScopeId, node: &ast::Function, special: [bool; 3]) -> Vec<Slot> {
        let mut slots: Vec<Slot> = node.params.iter().map(|param| self.scopes.declare(scope, param)).collect();
        for (name, used) in SPECIAL.into_iter().zip(special) {
            if used {
                slots.push(self.scopes.declare(scope, &name.into()));
            }
        }
        node.defaults.iter().for_each(|default| self.scopes.visit_expr(scope, default));
        self.scopes.visit_all(scope, &node.body);
        slots
    }

    fn macro_body(&mut self, frame: Frame, node: &ast::Function) -> Done {
        let slots: Vec<Option<Slot>> =
            node.params.iter().map(|param| self.scopes.assigned_slot(frame.scope, param)).collect();
        let required = node.params.len() - node.defaults.len();
        self.function().unset = slots.iter().skip(required).flatten().copied().collect();
        for (slot, default) in slots.into_iter().skip(required).zip(&node.defaults) {
            if let Some(slot) = slot {
                self.param_default(frame, slot, default)?;
            }
        }
        self.body(frame, &node.body)
    }

    /// Evaluates a parameter's default if no argument was passed for it.
    fn param_default(&mut self, frame: Frame, slot: Slot, default: &ast::Expr) -> Done {
        self.add(Instruction::Lookup(slot_name(slot)));
        self.op("is_missing", 1)?;
        let passed = self.add(Instruction::JumpIfFalse(!0));
        self.expr(frame, default)?;
        self.store(slot);
        self.land(passed);
        self.function().unset.remove(&slot);
        Ok(())
    }

    /// Leaves a function on the stack. `declare` makes its parameters, `body` its code.
    pub(super) fn new_function(
        &mut self,
        frame: Frame,
        signature: Signature,
        declare: impl FnOnce(&mut Self, ScopeId) -> Vec<Slot>,
        body: impl FnOnce(&mut Self, Frame) -> Done,
    ) -> Done {
        let around = self.add(Instruction::Jump(!0));
        let start = self.here;
        self.functions.push((self.function_count, Function::default()));
        self.function_count += 1;
        let scope = self.scopes.open(Some(frame.scope), self.function_id());
        let params = declare(self, scope);
        params.iter().rev().for_each(|slot| self.store(*slot));
        self.enter_scope(scope);
        body(self, Frame { scope, soft: false })?;
        self.add(Instruction::Return);
        let weight = u64::from(self.here - start).div_ceil(INSTRUCTIONS_PER_STEP) as usize;
        self.land(around);
        self.close_function(start, &params);
        self.describe_function(signature, weight)
    }

    /// Builds minijinja's macro over the code that was just made.
    fn close_function(&mut self, start: u32, params: &[Slot]) {
        let captured = self.functions.pop().map(|(_, function)| function.captured).unwrap_or_default();
        for slot in captured {
            self.add(Instruction::Enclose(slot_name(slot)));
        }
        self.add(Instruction::GetClosure);
        let names: Vec<Value> = params.iter().map(|slot| Value::from(slot_name(*slot))).collect();
        self.constant(Value::from_object(names));
        self.add(Instruction::BuildMacro("macro", start, 0));
    }

    fn describe_function(&mut self, signature: Signature, weight: usize) -> Done {
        let [takes_caller, takes_kwargs, takes_varargs] = signature.special;
        let Signature { name, params, required, .. } = signature;
        let spec = MacroSpec { name, params, required, takes_caller, takes_kwargs, takes_varargs, weight };
        self.constant(Obj::MacroSpec(Arc::new(spec)).value());
        self.op("macro", 2)
    }
}
