//! Values that can share parts, as Python's do: a part that is changed is changed wherever it is shown.

use indexmap::IndexMap;

use super::value::Value;

/// The place of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Id(usize);

/// A value, of which the parts are other nodes.
#[derive(Debug)]
pub(super) enum Node {
    Scalar(Value),
    List(Vec<Id>),
    Dict(IndexMap<String, Id>),
}

impl Node {
    /// Returns the name of the value's type, for errors.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Scalar(value) => value.type_name(),
            Self::List(_) => "list",
            Self::Dict(_) => "object",
        }
    }
}

/// The nodes of values.
#[derive(Debug, Default)]
pub(super) struct Arena(Vec<Node>);

impl Arena {
    pub(super) fn push(&mut self, node: Node) -> Id {
        self.0.push(node);
        Id(self.0.len() - 1)
    }

    /// Moves a value into nodes.
    pub(super) fn insert(&mut self, value: Value) -> Id {
        let node = match value {
            Value::List(items) => Node::List(items.into_iter().map(|item| self.insert(item)).collect()),
            Value::Dict(entries) => {
                Node::Dict(entries.into_iter().map(|(key, value)| (key, self.insert(value))).collect())
            }
            scalar => Node::Scalar(scalar),
        };
        self.push(node)
    }

    pub(super) fn get(&self, id: Id) -> &Node {
        const NULL: &Node = &Node::Scalar(Value::Null);
        self.0.get(id.0).unwrap_or(NULL)
    }

    /// Returns the text of a node that is a text.
    pub(super) fn text(&self, id: Id) -> Option<&str> {
        match self.get(id) {
            Node::Scalar(value) => value.as_text(),
            _ => None,
        }
    }

    /// Makes another node the value of a key.
    pub(super) fn set(&mut self, dict: Id, key: &str, value: Id) {
        if let Some(Node::Dict(entries)) = self.0.get_mut(dict.0)
            && let Some(place) = entries.get_mut(key)
        {
            *place = value;
        }
    }

    /// Returns the value of a node.
    pub(super) fn value(&self, id: Id) -> Value {
        match self.get(id) {
            Node::Scalar(value) => value.clone(),
            Node::List(items) => Value::List(items.iter().map(|item| self.value(*item)).collect()),
            Node::Dict(entries) => {
                Value::Dict(entries.iter().map(|(key, id)| (key.clone(), self.value(*id))).collect())
            }
        }
    }
}
