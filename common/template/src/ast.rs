//! The syntax tree of a template, as Jinja2's parser builds it.

use std::rc::Rc;

use num_bigint::BigInt;

/// A name in a template.
pub(crate) type Name = Rc<str>;

/// An expression and the line of its start.
#[derive(Debug)]
pub(crate) struct Expr {
    pub(crate) kind: ExprKind,
    pub(crate) line: u32,
    /// The height of the tree from this node down, itself included.
    pub(crate) depth: u16,
}

/// The kind of an expression.
#[derive(Debug)]
pub(crate) enum ExprKind {
    Const(Const),
    Name(Name),
    Tuple(Vec<Expr>),
    List(Vec<Expr>),
    Dict(Vec<(Expr, Expr)>),
    Unary(UnaryOp, Box<Expr>),
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    Concat(Vec<Expr>),
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    Compare(Box<Expr>, Vec<(CompareOp, Expr)>),
    If(Box<Conditional>),
    Attribute(Box<Expr>, Name),
    Item(Box<Expr>, Box<Expr>),
    Slice(Box<Expr>, Box<[Option<Expr>; 3]>),
    Call(Box<Expr>, Args),
    /// Has no operand in `{% filter %}` and `{% set %}` blocks, where it applies to the captured
    /// text.
    Filter(Option<Box<Expr>>, Name, Args),
    Test(Box<Expr>, Name, Args),
}

/// `then if test else otherwise`.
#[derive(Debug)]
pub(crate) struct Conditional {
    pub(crate) test: Expr,
    pub(crate) then: Expr,
    pub(crate) otherwise: Option<Expr>,
}

/// A literal.
#[derive(Debug)]
pub(crate) enum Const {
    None,
    Bool(bool),
    Int(i128),
    BigInt(BigInt),
    Float(f64),
    Str(String),
}

/// An operator with one operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnaryOp {
    Not,
    Neg,
    Pos,
}

/// An arithmetic operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BinaryOp {
    Add,
    Sub,
    Mul,
    Div,
    FloorDiv,
    Mod,
    Pow,
}

/// A comparison operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CompareOp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    In,
    NotIn,
}

/// The arguments of a call, filter or test.
#[derive(Debug, Default)]
pub(crate) struct Args {
    pub(crate) positional: Vec<Expr>,
    pub(crate) keywords: Vec<(Name, Expr)>,
    /// `*args`.
    pub(crate) splat: Option<Box<Expr>>,
    /// `**kwargs`.
    pub(crate) keyword_splat: Option<Box<Expr>>,
}

impl Args {
    /// Returns every argument expression, in the order of evaluation.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Expr> {
        let keywords = self.keywords.iter().map(|(_, value)| value);
        self.positional.iter().chain(keywords).chain(self.splat.as_deref()).chain(self.keyword_splat.as_deref())
    }
}

/// The target of an assignment.
#[derive(Debug)]
pub(crate) enum Target {
    Name(Name),
    Tuple(Vec<Target>),
    /// `namespace.attribute`.
    Attribute(Name, Name),
}

impl Target {
    /// Returns true if an attribute is assigned.
    pub(crate) fn has_attribute(&self) -> bool {
        match self {
            Self::Name(_) => false,
            Self::Tuple(targets) => targets.iter().any(Self::has_attribute),
            Self::Attribute(..) => true,
        }
    }
}

/// A statement and the line of its start.
#[derive(Debug)]
pub(crate) struct Stmt {
    pub(crate) kind: StmtKind,
    pub(crate) line: u32,
}

/// The kind of a statement.
#[derive(Debug)]
pub(crate) enum StmtKind {
    Data(String),
    Print(Expr),
    For(Box<For>),
    If(Vec<(Expr, Vec<Stmt>)>, Vec<Stmt>),
    Set(Target, Expr),
    SetBlock(Target, Option<Expr>, Vec<Stmt>),
    With(Vec<(Target, Expr)>, Vec<Stmt>),
    Macro(Name, Function),
    Call(Expr, Function),
    Filter(Expr, Vec<Stmt>),
    Generation(Vec<Stmt>),
    /// `{% block %}`; the flag is true if the block is scoped and sees the variables around it.
    Block(Name, Vec<Stmt>, bool),
    /// A block that an inheriting template would have to define.
    RequiredBlock(Name),
    Autoescape(Expr, Vec<Stmt>),
    /// `include`, `import`, `from` or `extends`; no loader exists. The names are the ones that
    /// would be imported.
    Load(Expr, Vec<Name>),
    Break,
    Continue,
}

/// `{% for target in iter if filter recursive %} body {% else %} otherwise {% endfor %}`.
#[derive(Debug)]
pub(crate) struct For {
    pub(crate) target: Target,
    pub(crate) iter: Expr,
    pub(crate) filter: Option<Expr>,
    pub(crate) recursive: bool,
    pub(crate) body: Vec<Stmt>,
    pub(crate) otherwise: Vec<Stmt>,
}

/// The parameters and body of a macro or call block. Defaults belong to the last parameters.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) params: Vec<Name>,
    pub(crate) defaults: Vec<Expr>,
    pub(crate) body: Vec<Stmt>,
}

impl Function {
    /// Returns the default of a parameter.
    pub(crate) fn default(&self, param: usize) -> Option<&Expr> {
        let required = self.params.len() - self.defaults.len();
        self.defaults.get(param.checked_sub(required)?)
    }
}

impl Stmt {
    /// Visits every expression of the statement itself, not those of the statements inside it.
    pub(crate) fn for_each_expr<'a>(&'a self, visit: &mut dyn FnMut(&'a Expr)) {
        match &self.kind {
            StmtKind::Print(expr) | StmtKind::Set(_, expr) | StmtKind::Filter(expr, _) => visit(expr),
            StmtKind::Load(expr, _) | StmtKind::Autoescape(expr, _) => visit(expr),
            StmtKind::For(node) => std::iter::once(&node.iter).chain(&node.filter).for_each(visit),
            StmtKind::If(branches, _) => branches.iter().for_each(|(test, _)| visit(test)),
            StmtKind::SetBlock(_, filter, _) => filter.iter().for_each(visit),
            StmtKind::With(assignments, _) => assignments.iter().for_each(|(_, value)| visit(value)),
            StmtKind::Macro(_, function) => function.defaults.iter().for_each(visit),
            StmtKind::Call(call, function) => std::iter::once(call).chain(&function.defaults).for_each(visit),
            StmtKind::Data(_) | StmtKind::Generation(_) | StmtKind::Block(..) => {}
            StmtKind::RequiredBlock(_) | StmtKind::Break | StmtKind::Continue => {}
        }
    }

    /// Returns true if this statement, or one inside it, has a kind.
    pub(crate) fn has(&self, is_such: fn(&StmtKind) -> bool) -> bool {
        is_such(&self.kind) || self.bodies().into_iter().flatten().any(|stmt| stmt.has(is_such))
    }

    /// Returns the statements inside this one.
    pub(crate) fn bodies(&self) -> Vec<&[Self]> {
        match &self.kind {
            StmtKind::For(node) => vec![&node.body, &node.otherwise],
            StmtKind::If(branches, otherwise) => {
                branches.iter().map(|(_, body)| &**body).chain(std::iter::once(&**otherwise)).collect()
            }
            StmtKind::SetBlock(_, _, body) | StmtKind::With(_, body) | StmtKind::Filter(_, body) => vec![body],
            StmtKind::Generation(body) | StmtKind::Block(_, body, _) | StmtKind::Autoescape(_, body) => vec![body],
            StmtKind::Macro(_, function) | StmtKind::Call(_, function) => vec![&function.body],
            StmtKind::Data(_) | StmtKind::Print(_) | StmtKind::Set(..) | StmtKind::Load(..) => Vec::new(),
            StmtKind::RequiredBlock(_) | StmtKind::Break | StmtKind::Continue => Vec::new(),
        }
    }
}

impl Expr {
    /// Visits every direct part.
    pub(crate) fn for_each_part<'a>(&'a self, visit: &mut dyn FnMut(&'a Self)) {
        match &self.kind {
            ExprKind::Const(_) | ExprKind::Name(_) => {}
            ExprKind::Tuple(items) | ExprKind::List(items) | ExprKind::Concat(items) => items.iter().for_each(visit),
            ExprKind::Dict(items) => items.iter().flat_map(|(key, value)| [key, value]).for_each(visit),
            ExprKind::Unary(_, expr) | ExprKind::Attribute(expr, _) => visit(expr),
            ExprKind::Binary(_, left, right) | ExprKind::And(left, right) | ExprKind::Or(left, right) => {
                [left, right].into_iter().for_each(|expr| visit(expr));
            }
            ExprKind::Item(left, right) => [left, right].into_iter().for_each(|expr| visit(expr)),
            ExprKind::Compare(first, rest) => {
                visit(first);
                rest.iter().for_each(|(_, expr)| visit(expr));
            }
            ExprKind::If(parts) => {
                [&parts.test, &parts.then].into_iter().chain(&parts.otherwise).for_each(visit);
            }
            ExprKind::Slice(expr, bounds) => {
                visit(expr);
                bounds.iter().flatten().for_each(visit);
            }
            ExprKind::Call(expr, args) | ExprKind::Test(expr, _, args) => {
                visit(expr);
                args.iter().for_each(visit);
            }
            ExprKind::Filter(expr, _, args) => expr.as_deref().into_iter().chain(args.iter()).for_each(visit),
        }
    }

    /// Returns true if the evaluation may run other template code or raise the template's own
    /// error.
    pub(crate) fn has_call(&self) -> bool {
        let mut found = matches!(self.kind, ExprKind::Call(..));
        self.for_each_part(&mut |part| found = found || part.has_call());
        found
    }
}
