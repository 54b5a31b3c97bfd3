//! The inside of `{{ }}` and `{% %}`.

use super::literal::string;
use super::token::TokenKind;
use crate::error::CompileError;
use crate::lexer::literal::number;
use crate::lexer::state::{Lexer, leading_space};

/// Longest first.
const OPERATORS: [&str; 26] = [
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<", "=", ".",
    ":", "|", ",", ";",
];

impl Lexer<'_> {
    pub(super) fn block(&mut self, opening: usize) -> Result<(), CompileError> {
        self.push(TokenKind::BlockBegin);
        self.advance(opening);
        let Some(sign) = self.tag("%}")? else { return Ok(()) };
        self.push(TokenKind::BlockEnd);
        self.advance(2 + usize::from(sign.is_some()));
        self.after_tag(sign);
        Ok(())
    }

    pub(super) fn variable(&mut self, opening: usize) -> Result<(), CompileError> {
        self.push(TokenKind::VariableBegin);
        self.advance(opening);
        let Some(sign) = self.tag("}}")? else { return Ok(()) };
        self.push(TokenKind::VariableEnd);
        self.advance(2 + usize::from(sign.is_some()));
        if sign.is_some() {
            self.after_tag(sign);
        }
        Ok(())
    }

    /// Reads tokens up to the end of the tag. Returns the sign before the end, or nothing at the
    /// end of the template.
    #[expect(clippy::option_option, reason = "no end at all differs from an end without a sign")]
    fn tag(&mut self, end: &str) -> Result<Option<Option<u8>>, CompileError> {
        let mut open = Vec::new();
        loop {
            self.check_count()?;
            let rest = self.rest();
            if rest.is_empty() {
                return Ok(None);
            }
            if open.is_empty()
                && let Some(sign) = end_of_tag(rest, end)
            {
                return Ok(Some(sign));
            }
            self.token(&mut open)?;
        }
    }

    fn token(&mut self, open: &mut Vec<&'static str>) -> Result<(), CompileError> {
        let rest = self.rest();
        let space = leading_space(rest);
        if space > 0 {
            self.advance(space);
            return Ok(());
        }
        let after_dot = self.source[..self.at].ends_with('.');
        if let Some((value, len)) = number(rest, after_dot) {
            self.push(TokenKind::Number(value));
            self.advance(len);
            return Ok(());
        }
        match rest.chars().next() {
            Some(c) if is_name_part(c) => self.name(rest),
            Some('"' | '\'') => self.string(rest),
            _ => self.operator(rest, open),
        }
    }

    fn name(&mut self, rest: &str) -> Result<(), CompileError> {
        let len = rest.find(|c| !is_name_part(c)).unwrap_or(rest.len());
        if rest.starts_with(char::is_numeric) {
            return self.error("Invalid character in identifier");
        }
        self.push(TokenKind::Name(rest[..len].to_owned()));
        self.advance(len);
        Ok(())
    }

    fn string(&mut self, rest: &str) -> Result<(), CompileError> {
        match string(rest) {
            Some((len, Ok(value))) => {
                self.push(TokenKind::Str(value));
                self.advance(len);
                Ok(())
            }
            Some((_, Err(problem))) => Err(problem.at(self.line)),
            None => self.unexpected(rest),
        }
    }

    fn operator(&mut self, rest: &str, open: &mut Vec<&'static str>) -> Result<(), CompileError> {
        let Some(op) = OPERATORS.into_iter().find(|op| rest.starts_with(op)) else {
            return self.unexpected(rest);
        };
        match op {
            "{" => open.push("}"),
            "(" => open.push(")"),
            "[" => open.push("]"),
            "}" | ")" | "]" => self.close(op, open.pop())?,
            _ => {}
        }
        self.push(TokenKind::Op(op));
        self.advance(op.len());
        Ok(())
    }

    fn close(&self, op: &str, expected: Option<&str>) -> Result<(), CompileError> {
        match expected {
            None => self.error(format!("unexpected '{op}'")),
            Some(expected) if expected != op => self.error(format!("unexpected '{op}', expected '{expected}'")),
            Some(_) => Ok(()),
        }
    }

    fn unexpected(&self, rest: &str) -> Result<(), CompileError> {
        let c = rest.chars().next().unwrap_or_default();
        self.error(format!("unexpected char {c:?}"))
    }
}

/// Returns the sign of a tag end at the start of a text.
#[expect(clippy::option_option, reason = "no end at all differs from an end without a sign")]
fn end_of_tag(rest: &str, end: &str) -> Option<Option<u8>> {
    if rest.starts_with(end) {
        return Some(None);
    }
    let sign = *rest.as_bytes().first()?;
    let signed = sign == b'-' || (sign == b'+' && end == "%}");
    (signed && rest[1..].starts_with(end)).then_some(Some(sign))
}

fn is_name_part(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}
