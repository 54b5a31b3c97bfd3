//! `for` blocks.
//!
//! A loop that does not use `loop` iterates over the items alone. Otherwise it iterates through a
//! `loop` object, which counts. If such a loop has an `if`, the `if` becomes a function that the
//! object calls, because `loop.last` looks ahead. A recursive loop becomes a function of items and
//! depth that the object calls again.

use std::sync::Arc;

use minijinja::Value;

use super::state::{CompileResult, Compiler, Frame};
use crate::ast::{self, Expr};
use crate::program::MacroSpec;
use crate::program::{Args, Filtering, For, Function, Node, NodeKind, Recursion, Statement, Target};
use crate::scope::{Place, has_scoped_block, mentions};

/// The parameters of a recursive loop's function and of a loop's `if`. No template can use such
/// names.
const ITEMS: &str = " items";
const DEPTH: &str = " depth";
const ITEM: &str = " item";

/// The steps of a round besides its body.
const ROUND_STEPS: usize = 4;

impl Compiler {
    pub(super) fn for_loop(&mut self, frame: Frame, node: &ast::For, steps: &mut Vec<Statement>) -> CompileResult<()> {
        if node.recursive {
            return self.recursive_loop(frame, node, steps);
        }
        let iter = self.expr(frame, &node.iter)?;
        let step = self.plain_loop(frame, node, iter, None)?;
        steps.push(step);
        Ok(())
    }

    fn recursive_loop(&mut self, frame: Frame, node: &ast::For, steps: &mut Vec<Statement>) -> CompileResult<()> {
        let (local, place) = self.hidden();
        let function = self.new_function(
            frame,
            MacroSpec { params: vec![Value::from("items"), Value::from("depth")], ..MacroSpec::default() },
            self.escaping(),
            |compiler, scope| {
                compiler.scopes.declare(scope, &ITEMS.into());
                compiler.scopes.declare(scope, &DEPTH.into());
            },
            |compiler, frame, steps| compiler.recursion_body(frame, node, place, steps).map(|()| None),
        )?;
        steps.push(Statement::Define(local, function));
        let iter = self.expr(frame, &node.iter)?;
        let line = iter.line;
        let depth = Node { kind: NodeKind::Const(Value::from(0)), line };
        let args = Box::new(Args { positional: vec![iter, depth], ..Args::default() });
        let callee = Box::new(self.load_at(place, line));
        steps.push(Statement::PrintText(Node { kind: NodeKind::Call(callee, args), line }));
        Ok(())
    }

    fn recursion_body(
        &mut self,
        frame: Frame,
        node: &ast::For,
        function: Place,
        steps: &mut Vec<Statement>,
    ) -> CompileResult<()> {
        if let (Some((_, items)), Some((depth, _))) =
            (self.declared(frame.scope, ITEMS), self.declared(frame.scope, DEPTH))
        {
            let line = node.iter.line;
            let (iter, function) = (self.load_at(items, line), self.load_at(function, line));
            let step = self.plain_loop(frame, node, iter, Some(Recursion { function, depth }))?;
            steps.push(step);
        }
        Ok(())
    }

    fn plain_loop(
        &mut self,
        frame: Frame,
        node: &ast::For,
        iter: Node,
        recursion: Option<Recursion>,
    ) -> CompileResult<Statement> {
        let start = self.size;
        let counted = recursion.is_some() || mentions(&node.body, "loop") || has_scoped_block(&node.body);
        let scope = self.scopes.open(Some(frame.scope), self.function_id());
        let counter = counted.then(|| self.scopes.declare(scope, &"loop".into())).map(|slot| self.scopes.local(slot));
        self.scopes.declare_target(scope, &node.target);
        self.scopes.visit_all(scope, &node.body);
        self.function().loops += 1;
        let filter = match &node.filter {
            None => Filtering::None,
            Some(filter) if counted => Filtering::Function(self.filter_function(frame, &node.target, filter)?),
            Some(filter) => self.filter_test(frame, &node.target, filter)?,
        };
        let inner = Frame { scope, soft: false };
        let target = self.target(inner, &node.target)?;
        let mut body = Vec::new();
        self.enter_scope(scope, &mut body);
        self.body(inner, &node.body, &mut body)?;
        self.function().loops -= 1;
        let weight = ROUND_STEPS + self.weight_since(start);
        let otherwise = self.loop_else(frame, &node.otherwise)?;
        Ok(Statement::For(Box::new(For { iter, filter, counter, recursion, target, body, otherwise, weight })))
    }

    /// Compiles the `if` of a loop as a function of an item.
    fn filter_function(&mut self, frame: Frame, target: &ast::Target, filter: &Expr) -> CompileResult<Arc<Function>> {
        self.new_function(
            frame,
            MacroSpec { params: vec![Value::from("item")], ..MacroSpec::default() },
            None,
            |compiler, scope| {
                compiler.scopes.declare(scope, &ITEM.into());
                compiler.scopes.declare_target(scope, target);
                compiler.scopes.visit_expr(scope, filter);
            },
            |compiler, frame, steps| {
                if let Some((_, item)) = compiler.declared(frame.scope, ITEM) {
                    let item = compiler.load_at(item, filter.line);
                    let target = compiler.target(frame, target)?;
                    steps.push(Statement::Set(target, item));
                }
                compiler.expr(frame, filter).map(Some)
            },
        )
    }

    /// Compiles the `if` of a loop as a test before each round.
    fn filter_test(&mut self, frame: Frame, target: &ast::Target, filter: &Expr) -> CompileResult<Filtering> {
        let scope = self.scopes.open(Some(frame.scope), self.function_id());
        self.scopes.declare_target(scope, target);
        self.scopes.visit_expr(scope, filter);
        let frame = Frame { scope, soft: false };
        let target: Target = self.target(frame, target)?;
        Ok(Filtering::Test(target, self.expr(frame, filter)?))
    }

    /// Compiles the `else` of a loop, which runs if no round was completed.
    fn loop_else(&mut self, frame: Frame, otherwise: &[ast::Stmt]) -> CompileResult<Vec<Statement>> {
        let inner = self.inner(frame, otherwise);
        let mut steps = Vec::new();
        self.enter_scope(inner.scope, &mut steps);
        self.body(inner, otherwise, &mut steps)?;
        Ok(steps)
    }
}
