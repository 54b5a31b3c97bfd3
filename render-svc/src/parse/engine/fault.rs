//! Why a text of a field has no value.

use tandem_template::python::LoadsError;

use super::pattern::PatternError;

/// Why a text has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    #[error("{0}")]
    Fault(Fault),
    #[error("not {0}")]
    NotA(&'static str),
    #[error("json: {0}")]
    Json(LoadsError),
    #[error("json: the text has a control character that `string_delims` needs (1 or 2, at byte {0})")]
    Reserved(usize),
    #[error("more than {0} calls")]
    TooMany(usize),
    #[error("an object has a key twice")]
    Repeated,
    #[error("xml-inline: the match at byte {0} has no group `key`")]
    NoKey(usize),
    #[error("xml-inline: the group `value` of the match at byte {0} has no text")]
    NoValue(usize),
    #[error("xml-inline: the end of the tag at byte {0} is missing")]
    Within(usize),
    #[error("xml-inline: the text at byte {0} is in no tag")]
    Outside(usize),
}

/// A fault of the template that is an error when its argument is needed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("{place} is {got}, not {wanted}")]
    Type { place: String, got: &'static str, wanted: &'static str },
    #[error("{place} names no content parser: {name}")]
    Parser { place: String, name: String },
    #[error("{place} is missing")]
    Missing { place: String },
    #[error("{place} is empty")]
    Empty { place: String },
    #[error("{place}: {source}")]
    Pattern { place: String, source: PatternError },
}
