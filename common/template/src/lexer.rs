//! Splits a template into tokens exactly as Jinja2 does, with `trim_blocks` and `lstrip_blocks` on.

mod literal;
mod state;
mod tag;
mod text;
mod token;

use crate::error::CompileError;
use state::Lexer;
pub(crate) use token::{Token, TokenKind};

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
        lexer.check_count()?;
    }
    lexer.push(TokenKind::Eof);
    Ok(lexer.tokens)
}
