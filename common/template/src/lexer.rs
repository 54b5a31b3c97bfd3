//! Splits a template into tokens exactly as Jinja2 does, with `trim_blocks` and `lstrip_blocks` on.

mod literal;
mod tag;
mod text;

use crate::ast::Const;
use crate::error::CompileError;
use crate::unicode::is_space;

/// A token and the line of its start.
#[derive(Debug)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) line: u32,
}

/// The kind of a token.
#[derive(Debug)]
pub(crate) enum TokenKind {
    /// Text outside of tags.
    Data(String),
    /// `{{`
    VariableBegin,
    /// `}}`
    VariableEnd,
    /// `{%`
    BlockBegin,
    /// `%}`
    BlockEnd,
    Name(String),
    Str(String),
    Number(Const),
    /// An operator, brace or punctuation mark.
    Op(&'static str),
    Eof,
}

impl TokenKind {
    /// Returns the token's name in messages.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Data(_) => "template data / text".to_owned(),
            Self::VariableBegin => "begin of print statement".to_owned(),
            Self::VariableEnd => "end of print statement".to_owned(),
            Self::BlockBegin => "begin of statement block".to_owned(),
            Self::BlockEnd => "end of statement block".to_owned(),
            Self::Name(name) => name.clone(),
            Self::Str(_) => "string".to_owned(),
            Self::Number(Const::Float(_)) => "float".to_owned(),
            Self::Number(_) => "integer".to_owned(),
            Self::Op(op) => (*op).to_owned(),
            Self::Eof => "end of template".to_owned(),
        }
    }
}

/// Folds line ends to `\n` and drops one at the very end.
pub(crate) fn normalize(source: &str) -> String {
    let mut text = fold_newlines(source);
    if text.ends_with('\n') {
        text.pop();
    }
    text
}

fn fold_newlines(source: &str) -> String {
    if source.contains('\r') { source.replace("\r\n", "\n").replace('\r', "\n") } else { source.to_owned() }
}

/// Returns all tokens of a normalized source; the last is [`TokenKind::Eof`].
pub(crate) fn tokenize(source: &str) -> Result<Vec<Token>, CompileError> {
    let mut lexer = Lexer::new(source);
    while lexer.at < source.len() {
        lexer.text()?;
    }
    lexer.push(TokenKind::Eof);
    Ok(lexer.tokens)
}

/// The state of the lexer.
struct Lexer<'s> {
    source: &'s str,
    at: usize,
    line: u32,
    /// True if the last text ended with a line end, so that `lstrip_blocks` applies.
    line_starting: bool,
    tokens: Vec<Token>,
}

impl<'s> Lexer<'s> {
    fn new(source: &'s str) -> Self {
        Self { source, at: 0, line: 1, line_starting: true, tokens: Vec::new() }
    }

    fn rest(&self) -> &'s str {
        &self.source[self.at..]
    }

    fn push(&mut self, kind: TokenKind) {
        self.tokens.push(Token { kind, line: self.line });
    }

    /// Advances by `len` bytes.
    fn advance(&mut self, len: usize) -> &'s str {
        let passed = &self.rest()[..len];
        self.at += len;
        self.line += passed.bytes().filter(|&byte| byte == b'\n').count() as u32;
        self.line_starting = passed.ends_with('\n');
        passed
    }

    fn error<T>(&self, message: impl Into<String>) -> Result<T, CompileError> {
        Err(CompileError::Syntax { line: self.line, message: message.into() })
    }
}

/// Returns the length of the leading white space.
fn leading_space(text: &str) -> usize {
    text.len() - text.trim_start_matches(is_space).len()
}
