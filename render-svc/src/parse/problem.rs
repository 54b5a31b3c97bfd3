//! Why rules cannot be used.

use super::engine::{ParseError, TemplateError};
use super::rules::BUILT_IN;

/// Why the rules of a model cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RulesProblem {
    #[error("response_template in tokenizer_config.json: {0}")]
    Template(#[from] TemplateError),
    #[error("the rules of the model do not fit the prompt: {0}")]
    Prompt(#[from] ParseError),
    #[error("there are no rules of the name {name:?}; known: response_template, {}", known())]
    Unknown { name: String },
    #[error("tokenizer_config.json has no response_template")]
    Absent,
}

/// Returns the names of the built-in rules.
fn known() -> String {
    BUILT_IN.iter().map(|built_in| built_in.name).collect::<Vec<_>>().join(", ")
}
