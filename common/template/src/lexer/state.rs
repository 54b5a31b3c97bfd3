//! The state of the lexer.

use super::token::{Token, TokenKind};
use crate::error::CompileError;
use crate::unicode::is_space;

/// The most tokens of a template. A token takes some hundred bytes until the program is built, and
/// checks for repeated names take a time that grows with the square of their number.
const MAX_TOKENS: usize = 1 << 16;

/// The state of the lexer.
pub(super) struct Lexer<'s> {
    pub(super) source: &'s str,
    pub(super) at: usize,
    pub(super) line: u32,
    /// True if the last text ended with a line end, so that `lstrip_blocks` applies.
    pub(super) line_starting: bool,
    pub(super) tokens: Vec<Token>,
}

impl<'s> Lexer<'s> {
    pub(super) fn new(source: &'s str) -> Self {
        Self { source, at: 0, line: 1, line_starting: true, tokens: Vec::new() }
    }

    pub(super) fn rest(&self) -> &'s str {
        &self.source[self.at..]
    }

    pub(super) fn push(&mut self, kind: TokenKind) {
        self.tokens.push(Token { kind, line: self.line });
    }

    /// Fails if there are too many tokens. Called once for each part of the text and of a tag, which
    /// adds a few.
    pub(super) fn check_count(&self) -> Result<(), CompileError> {
        if self.tokens.len() <= MAX_TOKENS {
            return Ok(());
        }
        Err(CompileError::TooComplex { line: self.line, what: "the template's number of tokens", max: MAX_TOKENS })
    }

    /// Advances by `len` bytes.
    pub(super) fn advance(&mut self, len: usize) -> &'s str {
        let passed = &self.rest()[..len];
        self.at += len;
        self.line += passed.bytes().filter(|&byte| byte == b'\n').count() as u32;
        self.line_starting = passed.ends_with('\n');
        passed
    }

    pub(super) fn error<T>(&self, message: impl Into<String>) -> Result<T, CompileError> {
        Err(CompileError::Syntax { line: self.line, message: message.into() })
    }
}

/// Returns the length of the leading white space.
pub(super) fn leading_space(text: &str) -> usize {
    text.len() - text.trim_start_matches(is_space).len()
}
