//! The tokens of a template.

use crate::ast::Const;

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
