//! Code for `for` blocks.
//!
//! A loop that does not use `loop` runs over the items alone. One that does runs over a [`Loop`] object, which counts.
//! If it also has an `if`, that becomes a function which the object calls, because `loop.last` must look ahead. A
//! recursive loop becomes a function of (items, depth) that the object calls again.

use minijinja::Value;
use minijinja::machinery::Instruction;

use super::super::ast::{Expr, For, Target};
use super::super::error::CompileError;
use super::super::scope::{Place, ScopeId, Slot, mentions};
use super::super::value::none;
use super::functions::Signature;
use super::{Codegen, Frame, INSTRUCTIONS_PER_STEP, Loop};

type Done = Result<(), CompileError>;

/// The parameters of a recursive loop's function. No template can use such names.
const RECURSION_ITEMS: &str = " items";
const RECURSION_DEPTH: &str = " depth";

/// What a round costs besides its body.
const ROUND_STEPS: u64 = 4;

/// Where a recursive loop's function finds what it was called with.
#[derive(Debug, Clone, Copy)]
struct Recursion {
    function: Slot,
    items: Slot,
    depth: Slot,
}

/// How a loop gets its items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rounds {
    Plain,
    Counted,
    CountedAndFiltered,
}

impl Codegen {
    pub(super) fn for_loop(&mut self, frame: Frame, node: &For) -> Done {
        if node.recursive { self.recursive_loop(frame, node) } else { self.plain_loop(frame, node, None) }
    }

    fn recursive_loop(&mut self, frame: Frame, node: &For) -> Done {
        let function = self.scopes.hidden(self.function_id());
        let signature = Signature { params: vec![Value::from("items"), Value::from("depth")], ..Signature::default() };
        self.new_function(
            frame,
            signature,
            |codegen, scope| {
                let names = [RECURSION_ITEMS, RECURSION_DEPTH];
                names.map(|name| codegen.scopes.declare(scope, &name.into())).to_vec()
            },
            |codegen, frame| codegen.recursion_body(frame, node, function),
        )?;
        self.store(function);
        let place = self.scopes.variable(function);
        self.load(place)?;
        self.expr(frame, &node.iter)?;
        self.constant(Value::from(0));
        self.op("call", 3)?;
        self.emit()
    }

    fn recursion_body(&mut self, frame: Frame, node: &For, function: Slot) -> Done {
        let items = self.scopes.assigned_slot(frame.scope, &RECURSION_ITEMS.into());
        let depth = self.scopes.assigned_slot(frame.scope, &RECURSION_DEPTH.into());
        match (items, depth) {
            (Some(items), Some(depth)) => self.plain_loop(frame, node, Some(Recursion { function, items, depth })),
            _ => Ok(()),
        }
    }

    fn plain_loop(&mut self, frame: Frame, node: &For, recursion: Option<Recursion>) -> Done {
        let has_else = !node.otherwise.is_empty();
        if has_else {
            self.constant(Value::from(true));
        }
        let counted = recursion.is_some() || mentions(&node.body, "loop");
        let scope = self.scopes.open(Some(frame.scope), self.function_id());
        let counter = counted.then(|| self.scopes.declare(scope, &"loop".into()));
        self.scopes.declare_target(scope, &node.target);
        self.scopes.visit_all(scope, &node.body);
        self.loop_items(frame, node, recursion)?;
        let rounds = match (counter, &node.filter) {
            (None, _) => Rounds::Plain,
            (Some(_), None) => Rounds::Counted,
            (Some(_), Some(_)) => Rounds::CountedAndFiltered,
        };
        let weight = self.loop_driver(frame, node, counter, rounds, recursion)?;
        self.rounds(frame, scope, node, counter, rounds)?;
        self.patch_weight(weight);
        if has_else {
            self.loop_else(frame, node)?;
        }
        Ok(())
    }

    /// What to loop over.
    fn loop_items(&mut self, frame: Frame, node: &For, recursion: Option<Recursion>) -> Done {
        match recursion {
            Some(recursion) => {
                let place = self.scopes.variable(recursion.items);
                self.load(place)
            }
            None => self.expr(frame, &node.iter),
        }
    }

    /// Turns the items on the stack into what minijinja's loop runs over; gives where the weight of a round is.
    fn loop_driver(
        &mut self,
        frame: Frame,
        node: &For,
        counter: Option<Slot>,
        rounds: Rounds,
        recursion: Option<Recursion>,
    ) -> Result<u32, CompileError> {
        let Some(counter) = counter else {
            let weight = self.constant(Value::from(1));
            self.op("rounds", 2)?;
            return Ok(weight);
        };
        match &node.filter {
            Some(filter) => self.filter_function(frame, &node.target, filter)?,
            None => {
                self.constant(none());
            }
        }
        self.load_recursion(recursion)?;
        self.op("loop", 4)?;
        self.add(Instruction::DupTop);
        self.store(counter);
        let weight = self.constant(Value::from(1));
        let op = if rounds == Rounds::Counted { "counted_rounds" } else { "endless_rounds" };
        self.op(op, 2)?;
        Ok(weight)
    }

    fn load_recursion(&mut self, recursion: Option<Recursion>) -> Done {
        match recursion {
            Some(Recursion { function, depth, .. }) => {
                // The function's own variable was made by the function around it.
                let place = self.scopes.variable(function);
                self.load(place)?;
                let place = self.scopes.variable(depth);
                self.load(place)
            }
            None => {
                self.constant(none());
                self.constant(Value::from(0));
                Ok(())
            }
        }
    }

    /// The `if` of a loop, as a function that puts something out for an item that passes.
    fn filter_function(&mut self, frame: Frame, target: &Target, filter: &Expr) -> Done {
        let signature = Signature { params: vec![Value::from("item")], ..Signature::default() };
        self.new_function(
            frame,
            signature,
            |codegen, scope| {
                let item = codegen.scopes.declare(scope, &" item".into());
                codegen.scopes.declare_target(scope, target);
                codegen.scopes.visit_expr(scope, filter);
                vec![item]
            },
            |codegen, frame| {
                if let Some(item) = codegen.scopes.assigned_slot(frame.scope, &" item".into()) {
                    let place = codegen.scopes.variable(item);
                    codegen.load(place)?;
                }
                codegen.assign(frame, target)?;
                codegen.expr(frame, filter)?;
                let rejected = codegen.add(Instruction::JumpIfFalse(!0));
                codegen.constant(Value::from("1"));
                codegen.add(Instruction::Emit);
                codegen.land(rejected);
                Ok(())
            },
        )
    }

    fn rounds(&mut self, frame: Frame, scope: ScopeId, node: &For, counter: Option<Slot>, rounds: Rounds) -> Done {
        self.add(Instruction::PushLoop(0));
        let start = self.add(Instruction::Iterate(!0));
        let captures = self.function().captures;
        self.function().loops.push(Loop { start, exits: vec![start], captures });
        match (rounds, counter, &node.filter) {
            (Rounds::CountedAndFiltered, Some(counter), _) => self.next_round(counter)?,
            (Rounds::Plain, _, Some(filter)) => self.filter_round(frame, &node.target, filter, start)?,
            _ => {}
        }
        let inner = Frame { scope, soft: false };
        self.assign(inner, &node.target)?;
        self.enter_scope(scope);
        self.body(inner, &node.body)?;
        if !node.otherwise.is_empty() {
            self.add(Instruction::DiscardTop);
            self.constant(Value::from(false));
        }
        self.add(Instruction::Jump(start));
        let exits = self.function().loops.pop().map(|it| it.exits).unwrap_or_default();
        exits.into_iter().for_each(|exit| self.land(exit));
        self.add(Instruction::PopLoopFrame);
        Ok(())
    }

    /// Asks the loop object for the next item, in place of the one that minijinja gave.
    fn next_round(&mut self, counter: Slot) -> Done {
        self.add(Instruction::DiscardTop);
        let place: Place = self.scopes.variable(counter);
        self.load(place)?;
        self.op("next_round", 1)?;
        self.add(Instruction::DupTop);
        self.op("is_missing", 1)?;
        let go_on = self.add(Instruction::JumpIfFalse(!0));
        self.add(Instruction::DiscardTop);
        let exit = self.add(Instruction::Jump(!0));
        if let Some(current) = self.function().loops.last_mut() {
            current.exits.push(exit);
        }
        self.land(go_on);
        Ok(())
    }

    /// Skips an item that does not pass the loop's `if`.
    fn filter_round(&mut self, frame: Frame, target: &Target, filter: &Expr, start: u32) -> Done {
        let scope = self.scopes.open(Some(frame.scope), self.function_id());
        self.scopes.declare_target(scope, target);
        self.scopes.visit_expr(scope, filter);
        let frame = Frame { scope, soft: false };
        self.add(Instruction::DupTop);
        self.assign(frame, target)?;
        self.expr(frame, filter)?;
        self.add(Instruction::Not);
        let passed = self.add(Instruction::JumpIfFalse(!0));
        self.add(Instruction::DiscardTop);
        self.add(Instruction::Jump(start));
        self.land(passed);
        Ok(())
    }

    /// A round costs by the number of instructions in its body.
    fn patch_weight(&mut self, at: u32) {
        let weight = ROUND_STEPS + u64::from(self.here - at) / INSTRUCTIONS_PER_STEP;
        if let Some(Instruction::LoadConst(value)) = self.instructions.get_mut(at) {
            *value = Value::from(weight);
        }
    }

    /// Runs `else` if no round got to its end.
    fn loop_else(&mut self, frame: Frame, node: &For) -> Done {
        let skip = self.add(Instruction::JumpIfFalse(!0));
        let inner = self.inner(frame, &node.otherwise);
        self.enter_scope(inner.scope);
        self.body(inner, &node.otherwise)?;
        self.land(skip);
        Ok(())
    }
}
