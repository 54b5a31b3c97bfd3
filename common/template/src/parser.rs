//! Builds the syntax tree by Jinja2's grammar: nesting, precedence, and tuples without parentheses.

mod expressions;
mod statements;

use std::vec::IntoIter;

use crate::ast::{Expr, ExprKind, Stmt};
use crate::error::CompileError;
use crate::lexer::{Token, TokenKind, normalize, tokenize};

/// The largest template in bytes.
const MAX_SOURCE_BYTES: usize = 4 * 1024 * 1024;
/// The deepest nesting of expressions. CPython refuses the code that Jinja2 generates for more than
/// 200 levels.
const MAX_EXPR_DEPTH: u16 = 250;
/// The deepest nesting of blocks.
const MAX_BLOCK_DEPTH: u16 = 100;

/// Parses the statements of a template.
pub(crate) fn parse(source: &str) -> Result<Vec<Stmt>, CompileError> {
    if source.len() > MAX_SOURCE_BYTES {
        return Err(CompileError::TooComplex { line: 1, what: "the template's size in bytes", max: MAX_SOURCE_BYTES });
    }
    let tokens = tokenize(&normalize(source))?;
    let mut parser = Parser::new(tokens);
    let (body, _) = parser.body(&[])?;
    Ok(body)
}

/// The state of the parser. The grammar looks at two tokens, `current` and `next`.
struct Parser {
    current: Token,
    next: Option<Token>,
    tokens: IntoIter<Token>,
    expr_depth: u16,
    block_depth: u16,
    loop_depth: u16,
    /// The open tags, for messages.
    open_tags: Vec<(String, u32)>,
    block_names: Vec<String>,
}

impl Parser {
    fn new(tokens: Vec<Token>) -> Self {
        let mut tokens = tokens.into_iter();
        let current = tokens.next().unwrap_or(Token { kind: TokenKind::Eof, line: 1 });
        let next = tokens.next();
        Self {
            current,
            next,
            tokens,
            expr_depth: 0,
            block_depth: 0,
            loop_depth: 0,
            open_tags: Vec::new(),
            block_names: Vec::new(),
        }
    }

    fn line(&self) -> u32 {
        self.current.line
    }

    /// Takes the current token; the last token is never consumed.
    fn take(&mut self) -> Token {
        let next = self.next.take().unwrap_or(Token { kind: TokenKind::Eof, line: self.current.line });
        self.next = self.tokens.next();
        std::mem::replace(&mut self.current, next)
    }

    fn is_op(&self, op: &str) -> bool {
        matches!(self.current.kind, TokenKind::Op(found) if found == op)
    }

    fn is_name(&self, name: &str) -> bool {
        matches!(&self.current.kind, TokenKind::Name(found) if found == name)
    }

    fn next_is_op(&self, op: &str) -> bool {
        matches!(&self.next, Some(Token { kind: TokenKind::Op(found), .. }) if *found == op)
    }

    fn next_is_name(&self, name: &str) -> bool {
        matches!(&self.next, Some(Token { kind: TokenKind::Name(found), .. }) if found == name)
    }

    fn skip_op(&mut self, op: &str) -> bool {
        let found = self.is_op(op);
        if found {
            self.take();
        }
        found
    }

    fn skip_name(&mut self, name: &str) -> bool {
        let found = self.is_name(name);
        if found {
            self.take();
        }
        found
    }

    fn expect_op(&mut self, op: &str) -> Result<(), CompileError> {
        if self.skip_op(op) { Ok(()) } else { self.expected(&format!("'{op}'")) }
    }

    fn expect_word(&mut self, name: &str) -> Result<(), CompileError> {
        if self.skip_name(name) { Ok(()) } else { self.expected(&format!("'{name}'")) }
    }

    fn expect_name(&mut self) -> Result<String, CompileError> {
        match &mut self.current.kind {
            TokenKind::Name(name) => {
                let name = std::mem::take(name);
                self.take();
                Ok(name)
            }
            _ => self.expected("a name"),
        }
    }

    fn expect_block_end(&mut self) -> Result<(), CompileError> {
        match self.current.kind {
            TokenKind::BlockEnd => {
                self.take();
                Ok(())
            }
            _ => self.expected("end of statement block"),
        }
    }

    fn expected<T>(&self, what: &str) -> Result<T, CompileError> {
        self.fail(format!("expected {what}, got '{}'", self.current.kind.describe()))
    }

    fn fail<T>(&self, message: impl Into<String>) -> Result<T, CompileError> {
        Err(CompileError::Syntax { line: self.line(), message: message.into() })
    }

    /// Returns a node over its parts; fails if the tree is too deep.
    fn node(&self, line: u32, kind: ExprKind) -> Result<Expr, CompileError> {
        let depth = 1 + kind.depth();
        if depth > MAX_EXPR_DEPTH {
            return Err(too_deep(line));
        }
        Ok(Expr { kind, line, depth })
    }

    /// Runs one level of a recursive rule.
    fn nested<T>(&mut self, rule: impl FnOnce(&mut Self) -> Result<T, CompileError>) -> Result<T, CompileError> {
        if self.expr_depth >= MAX_EXPR_DEPTH {
            return Err(too_deep(self.line()));
        }
        self.expr_depth += 1;
        let result = rule(self);
        self.expr_depth -= 1;
        result
    }
}

fn too_deep(line: u32) -> CompileError {
    CompileError::TooComplex { line, what: "the nesting of an expression", max: MAX_EXPR_DEPTH.into() }
}

impl ExprKind {
    /// Returns the height of the highest part.
    fn depth(&self) -> u16 {
        match self {
            Self::Const(_) | Self::Name(_) => 0,
            Self::Tuple(items) | Self::List(items) | Self::Concat(items) => deepest(items),
            Self::Dict(items) => deepest(items.iter().flat_map(|(key, value)| [key, value])),
            Self::Unary(_, expr) | Self::Attribute(expr, _) => expr.depth,
            Self::Binary(_, left, right) | Self::And(left, right) | Self::Or(left, right) | Self::Item(left, right) => {
                left.depth.max(right.depth)
            }
            Self::Compare(first, rest) => first.depth.max(deepest(rest.iter().map(|(_, expr)| expr))),
            Self::If(parts) => deepest([&parts.test, &parts.then].into_iter().chain(&parts.otherwise)),
            Self::Slice(expr, bounds) => expr.depth.max(deepest(bounds.iter().flatten())),
            Self::Call(expr, args) | Self::Test(expr, _, args) => expr.depth.max(deepest(args.iter())),
            Self::Filter(expr, _, args) => deepest(expr.as_deref().into_iter().chain(args.iter())),
        }
    }
}

fn deepest<'a>(exprs: impl IntoIterator<Item = &'a Expr>) -> u16 {
    exprs.into_iter().map(|expr| expr.depth).max().unwrap_or(0)
}
