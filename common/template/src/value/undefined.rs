//! Undefined values, which keep their cause so that errors can name it.

use minijinja::Value;

use crate::error::{Error, undefined};

/// Why a value is undefined.
#[derive(Debug, Clone)]
pub(crate) enum Undefined {
    /// Unknown.
    Unknown,
    /// A variable of this name.
    Variable(Value),
    /// An attribute or key of a value of this type.
    Member {
        /// The type of the value that was asked.
        owner: &'static str,
        /// The attribute or key.
        name: Value,
    },
    /// Any other reason.
    Because(String),
}

impl Undefined {
    pub(crate) const ANONYMOUS: Self = Self::Unknown;

    /// Returns the error of an operation that needs a value.
    pub(crate) fn error(&self) -> Error {
        undefined(match self {
            Self::Unknown => "value is undefined".to_owned(),
            Self::Variable(name) => format!("'{name}' is undefined"),
            Self::Member { owner, name } => missing_member(owner, name),
            Self::Because(reason) => reason.clone(),
        })
    }
}

/// Named as in jinja2: `None`, or the type followed by "object".
fn missing_member(owner: &str, name: &Value) -> String {
    let owner = if owner == "NoneType" { "None".to_owned() } else { format!("{owner} object") };
    match name.as_str() {
        Some(name) => format!("'{owner}' has no attribute '{name}'"),
        None => format!("{owner} has no element {name}"),
    }
}
