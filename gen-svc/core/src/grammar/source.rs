//! The grammars that a request can have.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::RequestError;

/// The most bytes of a JSON schema, of a Lark grammar, and of all choices together.
const MAX_TEXT_BYTES: usize = 256 * 1024;
/// The most bytes of a regular expression, and of one choice.
const MAX_LINE_BYTES: usize = 16 * 1024;
const MAX_CHOICES: usize = 1024;
/// The most rules and terminals of a Lark grammar. The library wraps an error once for each rule on
/// the way to it, in a time that grows with the square of their number: five seconds for these.
const MAX_DEFINITIONS: usize = 2048;
/// The most bytes of a JSON schema that takes a short time to compile.
const MAX_SHORT_TEXT_BYTES: usize = 16 * 1024;
/// The most values of such a schema.
const MAX_SHORT_VALUES: usize = 500;
/// Keywords of JSON schemas whose values are combined: the library's time can grow with the third
/// power of their number, or exponentially.
const COMBINING_KEYWORDS: [&str; 6] = ["allOf", "oneOf", "not", "patternProperties", "multipleOf", "x-guidance"];

/// The grammar of an output, as a request states it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Grammar {
    /// The texts that it allows.
    pub kind: GrammarKind,
    /// The white space between the tokens of JSON: in a JSON schema, and in each `%json` of a Lark grammar.
    pub whitespace: Whitespace,
}

/// Which white space may be between two tokens of JSON.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Whitespace {
    /// One space, or one or two line ends and then at most 40 spaces or tabs.
    #[default]
    Bounded,
    /// One space after each comma and colon.
    Spaced,
    /// None.
    Nothing,
    /// Any.
    Free,
}

/// The texts that a grammar allows.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum GrammarKind {
    /// A JSON value that this JSON schema allows.
    JsonSchema(String),
    /// A text that this regular expression matches as a whole. The syntax is that of the regex
    /// crate, without anchors and look-around.
    Regex(String),
    /// A text of this Lark grammar, from its rule `start`.
    Lark(String),
    /// One of these texts.
    Choice(Vec<String>),
}

impl From<GrammarKind> for Grammar {
    fn from(kind: GrammarKind) -> Self {
        Self { kind, whitespace: Whitespace::default() }
    }
}

impl GrammarKind {
    /// Returns the path of the grammar in a request.
    #[must_use]
    pub fn field(&self) -> &'static str {
        match self {
            Self::JsonSchema(_) => "grammar.json_schema",
            Self::Regex(_) => "grammar.regex",
            Self::Lark(_) => "grammar.lark",
            Self::Choice(_) => "grammar.choice",
        }
    }

    /// Returns the number of bytes of its texts.
    pub(super) fn bytes(&self) -> u64 {
        let bytes = match self {
            Self::JsonSchema(text) | Self::Regex(text) | Self::Lark(text) => text.len(),
            Self::Choice(choices) => choices.iter().map(String::len).sum(),
        };
        bytes as u64
    }

    /// Returns true if the time to compile it is not bounded by the length of its text.
    pub(crate) fn may_be_costly(&self) -> bool {
        match self {
            Self::JsonSchema(text) if text.len() > MAX_SHORT_TEXT_BYTES => true,
            Self::JsonSchema(text) => {
                let schema = serde_json::from_str(text).unwrap_or_default();
                count_values(&schema).is_none_or(|count| count > MAX_SHORT_VALUES)
            }
            // The library bounds the time of a single expression: about two seconds.
            Self::Regex(_) | Self::Choice(_) => false,
            Self::Lark(_) => true,
        }
    }

    /// Checks the lengths of the texts.
    ///
    /// # Errors
    /// A text is empty or too long, or there are too many choices.
    pub fn check(&self) -> Result<(), RequestError> {
        match self {
            Self::JsonSchema(text) => self.check_length(text.len(), MAX_TEXT_BYTES),
            Self::Lark(text) => {
                self.check_length(text.len(), MAX_TEXT_BYTES)?;
                let count = text.lines().filter(|line| is_definition(line)).count();
                if count <= MAX_DEFINITIONS {
                    return Ok(());
                }
                let problem = format!("must have at most {MAX_DEFINITIONS} rules and terminals, has {count}");
                Err(RequestError::invalid(self.field(), problem))
            }
            Self::Regex(text) => self.check_length(text.len(), MAX_LINE_BYTES),
            Self::Choice(choices) if choices.is_empty() || choices.len() > MAX_CHOICES => {
                let problem = format!("must be 1 to {MAX_CHOICES} texts, are {}", choices.len());
                Err(RequestError::invalid(self.field(), problem))
            }
            Self::Choice(choices) => {
                choices.iter().try_for_each(|choice| self.check_length(choice.len(), MAX_LINE_BYTES))?;
                self.check_length(choices.iter().map(String::len).sum(), MAX_TEXT_BYTES)
            }
        }
    }

    fn check_length(&self, bytes: usize, most: usize) -> Result<(), RequestError> {
        if (1..=most).contains(&bytes) {
            return Ok(());
        }
        Err(RequestError::invalid(self.field(), format!("must have 1 to {most} bytes, has {bytes}")))
    }
}

/// Returns true if a line of a Lark grammar can start the definition of a rule or a terminal.
fn is_definition(line: &str) -> bool {
    line.contains(':') && line.trim_start().starts_with(|first: char| first.is_alphabetic() || "_?!".contains(first))
}

/// Returns the number of values of a JSON schema. None if it has a keyword that combines them.
fn count_values(schema: &Value) -> Option<usize> {
    match schema {
        Value::Array(items) => items.iter().try_fold(1, |count, item| Some(count + count_values(item)?)),
        Value::Object(fields) => fields.iter().try_fold(1, |count, (key, value)| {
            let is_short = !COMBINING_KEYWORDS.contains(&key.as_str());
            Some(count + count_values(value).filter(|_| is_short)?)
        }),
        _ => Some(1),
    }
}
