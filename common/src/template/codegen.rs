//! Turns the syntax tree into instructions for minijinja's machine.
//!
//! Only the machine's control flow is used: jumps, loops, variables, captures and macros. Everything that touches a
//! value is one of our own operations, called as a filter, so that no rule of minijinja's own values ever applies.

mod attributes;
mod calls;
mod constants;
mod expressions;
mod functions;
mod loops;
mod statements;

use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

use minijinja::Value;
use minijinja::machinery::{CodeGenerator, Instruction, Instructions, Span, ast};

use super::ast::{Name, Stmt};
use super::error::CompileError;
use super::globals;
use super::machine::operation_name;
use super::scope::{FunctionId, Place, ScopeId, Scopes, Slot, line_of, mentions, slot_name};

/// A template, ready to run.
pub(crate) struct Program {
    pub(crate) instructions: Instructions<'static>,
    /// The name of every slot.
    pub(crate) names: Vec<String>,
    /// The slots whose values the context gives.
    pub(crate) context: Vec<Slot>,
}

/// Compiles a template. Code that `explains` tells more of what went wrong, and is slower.
pub(crate) fn compile(template: &[Stmt], explains: bool) -> Result<Program, CompileError> {
    if mentions(template, "self") {
        let line = line_of(template, "self").unwrap_or(1);
        return Err(CompileError::Unsupported { line, construct: "the variable 'self'".to_owned() });
    }
    let mut codegen = Codegen::new(statements::has_generation(template), explains);
    let scope = codegen.scopes.open(None, 0);
    codegen.scopes.visit_all(scope, template);
    codegen.enter_scope(scope);
    codegen.body(Frame { scope, soft: false }, template)?;
    codegen.scopes.check_size()?;
    Ok(Program {
        instructions: codegen.instructions,
        names: codegen.scopes.slot_names(),
        context: codegen.scopes.context_slots(),
    })
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

/// A function whose code is being made.
#[derive(Debug, Default)]
struct Function {
    /// Variables of surrounding functions that it uses.
    captured: BTreeSet<Slot>,
    loops: Vec<Loop>,
    /// How many captures of output are open.
    captures: usize,
    /// Parameters that have no value yet while defaults are evaluated.
    unset: BTreeSet<Slot>,
}

/// A loop whose code is being made.
#[derive(Debug)]
struct Loop {
    start: u32,
    /// Jumps to the end, whose target is not known yet.
    exits: Vec<u32>,
    /// How many captures were open when it began.
    captures: usize,
}

struct Codegen {
    instructions: Instructions<'static>,
    /// Where the next instruction goes.
    here: u32,
    line: u16,
    /// The operations used so far: what the machine calls them, and where it caches them.
    filters: HashMap<&'static str, (&'static str, u8)>,
    scopes: Scopes,
    /// The functions being made, outermost first, with their ids.
    functions: Vec<(FunctionId, Function)>,
    function_count: usize,
    /// The template has `{% generation %}`, so the length of the output must be known at any time.
    counts_output: bool,
    explains: bool,
    /// Inside of an expression that Jinja2 computes when it compiles, if it can.
    folds: bool,
}

/// The instruction that begins a capture. minijinja does not export its operand's type, so it is taken from compiled code.
static BEGIN_CAPTURE: LazyLock<Instruction<'static>> = LazyLock::new(|| {
    let target = ast::Expr::Var(ast::Spanned::new(ast::Var { id: "" }, Span::default()));
    let block = ast::SetBlock { target, filter: None, body: Vec::new() };
    let mut generator = CodeGenerator::new("", "");
    generator.compile_stmt(&ast::Stmt::SetBlock(ast::Spanned::new(block, Span::default())));
    generator.finish().0.get(0).cloned().unwrap_or(Instruction::Return)
});

/// The machine's own instructions are faster than our operations.
const INSTRUCTIONS_PER_STEP: u64 = 4;

/// minijinja caches this many filters per run.
const CACHED_FILTERS: u8 = 50;

impl Codegen {
    fn new(counts_output: bool, explains: bool) -> Self {
        Self {
            instructions: Instructions::new("template", ""),
            here: 0,
            line: 1,
            filters: HashMap::new(),
            scopes: Scopes::default(),
            functions: vec![(0, Function::default())],
            function_count: 1,
            counts_output,
            explains,
            folds: false,
        }
    }

    fn at_line(&mut self, line: u32) {
        self.line = u16::try_from(line).unwrap_or(u16::MAX);
    }

    fn add(&mut self, instruction: Instruction<'static>) -> u32 {
        let at = self.instructions.add_with_line(instruction, self.line);
        self.here = at + 1;
        at
    }

    fn constant(&mut self, value: Value) -> u32 {
        self.add(Instruction::LoadConst(value))
    }

    /// Calls an operation on the top `operands` values.
    fn op(&mut self, name: &'static str, operands: usize) -> Result<(), CompileError> {
        let Ok(operands) = u16::try_from(operands) else {
            let (line, max) = (u32::from(self.line), usize::from(u16::MAX));
            return Err(CompileError::TooComplex { line, what: "the number of items or arguments", max });
        };
        let (name, id) = self.machine_filter(name);
        self.add(Instruction::ApplyFilter(name, Some(operands), id));
        Ok(())
    }

    /// What the machine calls an operation, and where it caches it.
    fn machine_filter(&mut self, name: &'static str) -> (&'static str, u8) {
        let next = u8::try_from(self.filters.len()).ok().filter(|next| *next < CACHED_FILTERS).unwrap_or(u8::MAX);
        *self.filters.entry(name).or_insert_with(|| (operation_name(name), next))
    }

    /// Makes an earlier jump go to the next instruction.
    fn land(&mut self, jump: u32) {
        let here = self.here;
        match self.instructions.get_mut(jump) {
            Some(
                Instruction::Jump(target)
                | Instruction::JumpIfFalse(target)
                | Instruction::JumpIfFalseOrPop(target)
                | Instruction::JumpIfTrueOrPop(target)
                | Instruction::Iterate(target),
            ) => *target = here,
            _ => debug_assert!(false, "only jumps land"),
        }
    }

    fn function(&mut self) -> &mut Function {
        // There is always the template's own function.
        let last = self.functions.len() - 1;
        &mut self.functions[last].1
    }

    fn function_id(&self) -> FunctionId {
        self.functions.last().map_or(0, |(id, _)| *id)
    }

    fn load_name(&mut self, frame: Frame, name: &Name) -> Result<(), CompileError> {
        let place = self.scopes.place(frame.scope, name);
        if matches!(place, Place::Context(_)) && globals::is_unsupported(name) {
            let (line, construct) = (self.line.into(), format!("the function '{name}'"));
            return Err(CompileError::Unsupported { line, construct });
        }
        self.load(place)
    }

    fn load(&mut self, place: Place) -> Result<(), CompileError> {
        match place {
            Place::Context(slot) => {
                self.add(Instruction::Lookup(slot_name(slot)));
            }
            Place::Variable(slot, owner) => {
                self.capture(slot, owner);
                self.add(Instruction::Lookup(slot_name(slot)));
                if self.function().unset.contains(&slot) {
                    self.op("present", 1)?;
                }
            }
        }
        Ok(())
    }

    /// Notes that the functions inside of a variable's own use it.
    fn capture(&mut self, slot: Slot, owner: FunctionId) {
        for (id, function) in self.functions.iter_mut().rev() {
            if *id == owner {
                return;
            }
            function.captured.insert(slot);
        }
    }

    fn store(&mut self, slot: Slot) {
        self.add(Instruction::StoreLocal(slot_name(slot)));
    }

    /// Gives the variables of a scope their first values.
    fn enter_scope(&mut self, scope: ScopeId) {
        for (slot, place) in self.scopes.starts(scope) {
            let source = match place {
                Place::Context(source) => source,
                Place::Variable(source, owner) => {
                    self.capture(source, owner);
                    source
                }
            };
            self.add(Instruction::Lookup(slot_name(source)));
            self.store(slot);
        }
    }

    /// A scope inside of a frame's, with the analysis of `body` done.
    fn inner(&mut self, frame: Frame, body: &[Stmt]) -> Frame {
        let scope = self.scopes.open(Some(frame.scope), self.function_id());
        self.scopes.visit_all(scope, body);
        Frame { scope, soft: false }
    }

    fn begin_capture(&mut self) {
        self.add(BEGIN_CAPTURE.clone());
        self.function().captures += 1;
    }

    fn end_capture(&mut self) {
        self.add(Instruction::EndCapture);
        self.function().captures -= 1;
    }

    fn fail<T>(&self, message: String) -> Result<T, CompileError> {
        Err(CompileError::Syntax { line: self.line.into(), message })
    }
}
