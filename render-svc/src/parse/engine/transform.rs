//! Gives a parsed value the shape that a template asks for.

use super::arena::{Arena, Id, Node};
use super::pattern::{Pattern, PatternError, find_all};
use super::value::Value;

/// A template of a value, with placeholders of parsed values.
#[derive(Debug)]
pub(super) enum Transform {
    Literal(Value),
    Placeholder { root: String, keys: Vec<String> },
    List(Vec<Transform>),
    Dict(Vec<(String, Transform)>),
}

/// Why a template of a value cannot be loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    #[error("the text {0:?} mixes a placeholder with other text")]
    Mixed(String),
    #[error(transparent)]
    Pattern(#[from] PatternError),
}

/// Why a placeholder has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransformError {
    #[error("nothing has the name `{0}`")]
    Undefined(String),
    #[error("`{key}` is sought in a {got}, not an object")]
    NotAnObject { key: String, got: &'static str },
    #[error("an object lacks the key `{0}`")]
    NoKey(String),
}

impl Transform {
    pub(super) fn new(value: &Value) -> Result<Self, ShapeError> {
        let placeholder = Pattern::new(r"\{(?P<path>\w+(?:\.\w+)*)\}")?;
        Self::of(value, &placeholder)
    }

    fn of(value: &Value, placeholder: &Pattern) -> Result<Self, ShapeError> {
        Ok(match value {
            Value::Text(text) => Self::of_text(text, placeholder)?,
            Value::List(items) => {
                Self::List(items.iter().map(|item| Self::of(item, placeholder)).collect::<Result<_, _>>()?)
            }
            Value::Dict(entries) => {
                let entries = entries.iter().map(|(key, value)| Ok((key.clone(), Self::of(value, placeholder)?)));
                Self::Dict(entries.collect::<Result<_, ShapeError>>()?)
            }
            other => Self::Literal(other.clone()),
        })
    }

    fn of_text(text: &str, placeholder: &Pattern) -> Result<Self, ShapeError> {
        let Some(found) = find_all(placeholder, text).next() else {
            return Ok(Self::Literal(Value::Text(text.to_owned())));
        };
        let path = found.group(0).and_then(|(start, end)| text.get(start..end)).unwrap_or_default();
        if (found.start, found.end) != (0, text.len()) {
            return Err(ShapeError::Mixed(text.to_owned()));
        }
        let mut keys = path.split('.').map(str::to_owned);
        Ok(Self::Placeholder { root: keys.next().unwrap_or_default(), keys: keys.collect() })
    }

    /// Returns the value for a scope of named values.
    pub(super) fn apply(&self, arena: &mut Arena, scope: &[(String, Id)]) -> Result<Id, TransformError> {
        match self {
            Self::Literal(value) => Ok(arena.insert(value.clone())),
            Self::Placeholder { root, keys } => {
                let found = scope.iter().rev().find(|(name, _)| name == root);
                let mut id = found.map(|(_, id)| *id).ok_or_else(|| TransformError::Undefined(root.clone()))?;
                for key in keys {
                    id = child(arena, id, key)?;
                }
                Ok(id)
            }
            Self::List(items) => {
                let items = items.iter().map(|item| item.apply(arena, scope)).collect::<Result<_, _>>()?;
                Ok(arena.push(Node::List(items)))
            }
            Self::Dict(entries) => {
                let apply = |(key, value): &(String, Self)| Ok((key.clone(), value.apply(arena, scope)?));
                let entries = entries.iter().map(apply).collect::<Result<_, TransformError>>()?;
                Ok(arena.push(Node::Dict(entries)))
            }
        }
    }
}

fn child(arena: &mut Arena, id: Id, key: &str) -> Result<Id, TransformError> {
    match arena.open(id) {
        Node::Dict(entries) => entries.get(key).copied().ok_or_else(|| TransformError::NoKey(key.to_owned())),
        other => Err(TransformError::NotAnObject { key: key.to_owned(), got: other.type_name() }),
    }
}
