//! Values that are not there, remembering what was asked for so that errors can name it.

use minijinja::{Error, Value};

use super::super::error::fail;
use super::Obj;

/// Why a value is undefined.
#[derive(Debug, Clone)]
pub(crate) enum Undefined {
    /// Nothing is known.
    Unknown,
    /// A variable of this name.
    Variable(Value),
    /// An attribute or key of a value of the named type.
    Member {
        /// What was asked: "dict object", ...
        owner: String,
        /// What for.
        name: Value,
    },
    /// Any other reason, in words.
    Because(String),
}

impl Undefined {
    pub(crate) const ANONYMOUS: Self = Self::Unknown;

    pub(crate) fn value(self) -> Value {
        Obj::Undefined(self).value()
    }

    pub(crate) fn because(reason: impl Into<String>) -> Value {
        Self::Because(reason.into()).value()
    }

    /// What an operation that needs a value fails with.
    pub(crate) fn error(&self) -> Error {
        fail(match self {
            Self::Unknown => "value is undefined".to_owned(),
            Self::Variable(name) => format!("'{name}' is undefined"),
            Self::Member { owner, name } if name.as_str().is_some() => format!("'{owner}' has no attribute '{name}'"),
            Self::Member { owner, name } => format!("{owner} has no element {name}"),
            Self::Because(reason) => reason.clone(),
        })
    }
}
