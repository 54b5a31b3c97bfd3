//! Values that can share parts, as Python's do: a part that is changed is changed wherever it is shown.

use indexmap::IndexMap;

use super::value::{Dict, Value};

/// The place of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Id(usize);

/// A value.
#[derive(Debug)]
pub(super) enum Node {
    /// A value that is not divided into nodes.
    Whole(Value),
    List(Vec<Id>),
    Dict(IndexMap<String, Id>),
}

impl Node {
    /// Returns the name of the value's type, for errors.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Whole(value) => value.type_name(),
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

    /// Adds a value as one node.
    pub(super) fn insert(&mut self, value: Value) -> Id {
        self.push(Node::Whole(value))
    }

    /// Returns a node. The parts of a list or an object are nodes from now on.
    pub(super) fn open(&mut self, id: Id) -> &Node {
        const NULL: &Node = &Node::Whole(Value::Null);
        let whole = match self.0.get_mut(id.0) {
            Some(Node::Whole(value @ (Value::List(_) | Value::Dict(_)))) => std::mem::replace(value, Value::Null),
            _ => Value::Null,
        };
        let opened = match whole {
            Value::List(items) => Some(Node::List(items.into_iter().map(|item| self.insert(item)).collect())),
            Value::Dict(entries) => {
                Some(Node::Dict(entries.into_iter().map(|(key, value)| (key, self.insert(value))).collect()))
            }
            _ => None,
        };
        if let (Some(opened), Some(node)) = (opened, self.0.get_mut(id.0)) {
            *node = opened;
        }
        self.0.get(id.0).unwrap_or(NULL)
    }

    /// Returns the text of a node that is a text.
    pub(super) fn text(&self, id: Id) -> Option<&str> {
        match self.0.get(id.0)? {
            Node::Whole(value) => value.as_text(),
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
    pub(super) fn into_value(mut self, id: Id) -> Value {
        let mut uses = vec![0; self.0.len()];
        self.count(id, &mut uses);
        self.value(id, &mut uses)
    }

    /// Counts the places in which each node is shown.
    fn count(&self, id: Id, uses: &mut [usize]) {
        if let Some(uses) = uses.get_mut(id.0) {
            *uses += 1;
        }
        match self.0.get(id.0) {
            Some(Node::List(items)) => items.iter().for_each(|item| self.count(*item, uses)),
            Some(Node::Dict(entries)) => entries.values().for_each(|value| self.count(*value, uses)),
            Some(Node::Whole(_)) | None => {}
        }
    }

    /// Returns the value of a node, and moves it in the last place that shows it.
    fn value(&mut self, id: Id, uses: &mut [usize]) -> Value {
        let rest = uses.get_mut(id.0).map_or(0, |uses| {
            *uses = uses.saturating_sub(1);
            *uses
        });
        match self.0.get_mut(id.0) {
            Some(Node::Whole(value)) if rest == 0 => std::mem::replace(value, Value::Null),
            Some(Node::Whole(value)) => value.clone(),
            Some(Node::List(items)) => {
                let items = if rest == 0 { std::mem::take(items) } else { items.clone() };
                Value::List(items.into_iter().map(|item| self.value(item, uses)).collect())
            }
            Some(Node::Dict(entries)) => {
                let entries = if rest == 0 { std::mem::take(entries) } else { entries.clone() };
                entries.into_iter().map(|(key, id)| (key, self.value(id, uses))).collect::<Dict>().into()
            }
            None => Value::Null,
        }
    }
}
