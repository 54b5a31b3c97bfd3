//! A compiled template: a tree of steps and nodes in which every name is a place, and every filter,
//! test and operator is a function.

use std::fmt;
use std::sync::Arc;

use minijinja::Value;

use crate::interpreter::{Binary, Check, Comparison, FilterRow, Predicate, Unary};

/// The place of a variable among those of its function.
pub(crate) type Local = u32;

/// A compiled template.
#[derive(Debug)]
pub(crate) struct Program {
    /// The template's own code.
    pub(crate) main: Arc<Function>,
    /// The names that are looked up in the context, by place.
    pub(crate) context: Vec<ContextName>,
}

/// A name that is looked up in the context.
#[derive(Debug)]
pub(crate) struct ContextName {
    pub(crate) name: Box<str>,
    /// The value if the conversation has none of this name.
    pub(crate) default: Value,
}

/// Code with its own variables: the template, a macro, a call block, a recursive loop, or the `if`
/// of a counted loop.
#[derive(Debug)]
pub(crate) struct Function {
    /// The parameters, which are the first variables.
    pub(crate) spec: MacroSpec,
    /// How many variables it has.
    pub(crate) locals: usize,
    /// The shared variables of the surrounding function: the place there and the place here.
    pub(crate) shared: Vec<(Local, Local)>,
    pub(crate) body: Vec<Statement>,
    /// The result, if it is not the text that the body writes.
    pub(crate) result: Option<Node>,
    /// When the text is marked as safe.
    pub(crate) safe: Option<Escaping>,
}

/// When texts are escaped for HTML, and when texts of the template are marked as safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Escaping {
    Always,
    /// Inside an `{% autoescape %}` block whose value is known at run time only.
    WhenOn,
}

/// An expression.
pub(crate) struct Node {
    pub(crate) kind: NodeKind,
    pub(crate) line: u32,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("line", &self.line).finish_non_exhaustive()
    }
}

/// The kind of an expression. [`Machine::eval`](crate::machine::Machine::eval) handles each.
pub(crate) enum NodeKind {
    Const(Value),
    /// A variable, and its value while no code has set it.
    Variable(Local, Value),
    /// A parameter, which may be unset while defaults are evaluated.
    Param(Local),
    Context(u32),
    /// `x.name` or `x['name']` for a name that is no attribute in Python.
    Key(Box<Node>, Value),
    Attribute(Box<Node>, Value),
    Item(Box<[Node; 2]>),
    /// The operand and three bounds.
    Slice(Box<[Node; 4]>),
    Not(Box<Node>),
    Unary(Unary, Box<Node>),
    Binary(Binary, Box<[Node; 2]>),
    /// `a + b + c`.
    Sum(Vec<Node>),
    /// `a ~ b ~ c`.
    Concat(Vec<Node>),
    /// `a ~ b ~ c`, where a text that is marked as safe has the others escaped.
    SafeConcat(Vec<Node>),
    /// A text that is marked as safe.
    Safe(Box<Node>, Escaping),
    And(Box<[Node; 2]>),
    Or(Box<[Node; 2]>),
    Compare(Comparison, Box<[Node; 2]>),
    /// `x == 'text'`, or `!=` if the flag is false.
    IsText(Box<Node>, Box<str>, bool),
    /// `a < b < c`.
    Chain(Box<Node>, Vec<(Comparison, Node)>),
    /// The test, then the two branches.
    If(Box<[Node; 3]>),
    List(Vec<Node>),
    Tuple(Vec<Node>),
    Dict(Vec<[Node; 2]>),
    /// The value of `self`: its blocks by name.
    Template(Vec<(Value, Node)>),
    Call(Box<Node>, Box<Args>),
    /// `x.name(...)`.
    Method(Box<Node>, Value, Box<Args>),
    Filter(&'static FilterRow, Box<Node>, Box<Args>),
    Test(Predicate, Box<Node>, Box<Args>),
    Check(Check, Box<Node>),
    /// Evaluates its parts, then fails.
    Fail(Vec<Node>, String),
}

/// The arguments of a call, filter or test.
#[derive(Debug, Default)]
pub(crate) struct Args {
    pub(crate) positional: Vec<Node>,
    pub(crate) splat: Option<Node>,
    pub(crate) keywords: Vec<(Value, Node)>,
    pub(crate) keyword_splat: Option<Node>,
}

impl Args {
    pub(crate) fn is_empty(&self) -> bool {
        self.positional.is_empty() && self.keywords.is_empty() && self.splat.is_none() && self.keyword_splat.is_none()
    }

    /// Returns every argument.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Node> {
        let keywords = self.keywords.iter().map(|(_, value)| value);
        self.positional.iter().chain(&self.splat).chain(keywords).chain(&self.keyword_splat)
    }
}

/// A statement.
#[derive(Debug)]
pub(crate) enum Statement {
    Text(String),
    Print(Node),
    PrintEscaped(Node, Escaping),
    /// Writes the result of a call or filter block, which must be a text.
    PrintText(Node),
    If(Vec<(Node, Vec<Statement>)>, Vec<Statement>),
    Set(Target, Node),
    /// Fails unless the value is a namespace.
    CheckNamespace(Node),
    /// Gives the variables of a scope their first values; `None` unsets one.
    Enter(Vec<(Local, Option<Node>)>),
    Define(Local, Arc<Function>),
    For(Box<For>),
    /// Captures the output of the body in a variable.
    Capture(Local, Vec<Statement>),
    /// Records the span of the body in the output.
    Generation(Vec<Statement>),
    /// Sets whether texts are escaped in the body.
    Autoescape(Node, Vec<Statement>),
    Break,
    Continue,
}

/// The target of an assignment.
#[derive(Debug)]
pub(crate) enum Target {
    Variable(Local),
    Unpack(Vec<Target>),
    /// An attribute of a namespace.
    Attribute(Box<Node>, Value),
    /// The target of a `{% set x.name %}` block: an attribute of a namespace or an item of a dict.
    Item(Box<Node>, Value),
}

impl Target {
    /// Returns the same target for the value of a block.
    pub(crate) fn of_block(self) -> Self {
        match self {
            Self::Attribute(owner, name) => Self::Item(owner, name),
            Self::Unpack(targets) => Self::Unpack(targets.into_iter().map(Self::of_block).collect()),
            target => target,
        }
    }
}

/// A loop.
#[derive(Debug)]
pub(crate) struct For {
    pub(crate) iter: Node,
    pub(crate) filter: Filtering,
    /// The variable `loop`, if the body uses it.
    pub(crate) counter: Option<Local>,
    pub(crate) recursion: Option<Recursion>,
    pub(crate) target: Target,
    pub(crate) body: Vec<Statement>,
    pub(crate) otherwise: Vec<Statement>,
    /// The steps of a round.
    pub(crate) weight: usize,
}

/// The `if` of a loop.
#[derive(Debug)]
pub(crate) enum Filtering {
    None,
    /// The item is assigned before the test is evaluated.
    Test(Target, Node),
    /// `loop` looks ahead, so it must be able to call the test.
    Function(Arc<Function>),
}

/// The variables of a recursive loop's function.
#[derive(Debug)]
pub(crate) struct Recursion {
    pub(crate) function: Node,
    pub(crate) depth: Local,
}

/// The parameters of a macro.
#[derive(Debug, Default)]
pub(crate) struct MacroSpec {
    /// None for the body of a call block.
    pub(crate) name: Option<Arc<str>>,
    pub(crate) params: Vec<Value>,
    /// The number of leading parameters without a default.
    pub(crate) required: usize,
    /// The body uses `caller`.
    pub(crate) takes_caller: bool,
    /// The body uses `kwargs`.
    pub(crate) takes_kwargs: bool,
    /// The body uses `varargs`.
    pub(crate) takes_varargs: bool,
    /// The steps of a call.
    pub(crate) weight: usize,
}
