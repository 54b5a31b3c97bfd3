//! The changes that the rewriting makes to messages.

use std::fmt;

use tandem_common::field::Path;

/// A change to messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewrite {
    pub change: Change,
    /// Indices of the messages in the request, in ascending order.
    pub messages: Vec<usize>,
}

/// The change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Consecutive system messages became one.
    SystemMerged,
    /// Consecutive messages of one role became one, since the template needs it.
    Merged,
    /// Consecutive messages of one role became one, since the template fails for this conversation or
    /// leaves one of them out otherwise.
    MergedToShow,
    /// A system message became a user message.
    SystemToUser,
}

/// Maximum number of messages that a warning names.
const MAX_NAMED_MESSAGES: usize = 8;

impl Rewrite {
    /// Returns the path of the first message.
    #[must_use]
    pub fn path(&self) -> Path {
        Path::item("messages", self.messages.first().copied().unwrap_or_default())
    }

    /// Returns the numbers of the first messages, and the count of further messages.
    fn names(&self) -> String {
        let named: Vec<_> = self.messages.iter().take(MAX_NAMED_MESSAGES).map(usize::to_string).collect();
        let named = named.join(", ");
        match self.messages.len().saturating_sub(MAX_NAMED_MESSAGES) {
            0 if self.messages.len() == 1 => format!("message {named}"),
            0 => format!("messages {named}"),
            more => format!("messages {named} and {more} more"),
        }
    }
}

impl fmt::Display for Rewrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.names();
        match self.change {
            Change::SystemMerged => {
                write!(f, "{names} were merged: consecutive system messages become one; normalization NONE keeps them")
            }
            Change::Merged => {
                write!(f, "{names} were merged: turns of this role must alternate; normalization NONE keeps them")
            }
            Change::MergedToShow => {
                let why = "the template refuses one of them here, or leaves it out; normalization NONE keeps them";
                write!(f, "{names} were merged: {why}")
            }
            Change::SystemToUser => {
                write!(f, "{names}: written as the user's, since the model's template takes no system message here")
            }
        }
    }
}
