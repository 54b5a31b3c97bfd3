//! The grammars that a request can have.

use crate::error::Error;

/// The most bytes of a JSON schema, of a Lark grammar, and of all choices together.
const MAX_TEXT_BYTES: usize = 256 * 1024;
/// The most bytes of a regular expression, and of one choice.
const MAX_LINE_BYTES: usize = 16 * 1024;
const MAX_CHOICES: usize = 1024;
/// The most rules and terminals of a Lark grammar. The library wraps an error once for each rule on
/// the way to it, in a time that grows with the square of their number: half a second for these.
const MAX_DEFINITIONS: usize = 512;

/// The grammar of an output, as a request states it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Grammar {
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

impl Grammar {
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

    /// Checks the lengths of the texts.
    ///
    /// # Errors
    /// A text is empty or too long, or there are too many choices.
    pub fn check(&self) -> Result<(), Error> {
        match self {
            Self::JsonSchema(text) => self.check_length(text.len(), MAX_TEXT_BYTES),
            Self::Lark(text) => {
                self.check_length(text.len(), MAX_TEXT_BYTES)?;
                let count = text.lines().filter(|line| is_definition(line)).count();
                if count <= MAX_DEFINITIONS {
                    return Ok(());
                }
                let problem = format!("must have at most {MAX_DEFINITIONS} rules and terminals, has {count}");
                Err(Error::invalid(self.field(), problem))
            }
            Self::Regex(text) => self.check_length(text.len(), MAX_LINE_BYTES),
            Self::Choice(choices) if choices.is_empty() || choices.len() > MAX_CHOICES => {
                let problem = format!("must be 1 to {MAX_CHOICES} texts, are {}", choices.len());
                Err(Error::invalid(self.field(), problem))
            }
            Self::Choice(choices) => {
                choices.iter().try_for_each(|choice| self.check_length(choice.len(), MAX_LINE_BYTES))?;
                self.check_length(choices.iter().map(String::len).sum(), MAX_TEXT_BYTES)
            }
        }
    }

    fn check_length(&self, bytes: usize, most: usize) -> Result<(), Error> {
        if (1..=most).contains(&bytes) {
            return Ok(());
        }
        Err(Error::invalid(self.field(), format!("must have 1 to {most} bytes, has {bytes}")))
    }
}

/// Returns true if a line of a Lark grammar can start the definition of a rule or a terminal.
fn is_definition(line: &str) -> bool {
    line.contains(':') && line.trim_start().starts_with(|first: char| first.is_alphabetic() || "_?!".contains(first))
}
