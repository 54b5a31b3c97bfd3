//! Reads the output of a model: reasoning, content and calls of tools.
//!
//! [`Template`] and [`Parser`] equal transformers' `ResponseParser`. [`AnswerReader`] reads with the rules of a model and
//! loses no text: a part that the rules cannot read is content, with a warning. Adapters take no part in it.

mod answer;
mod call_id;
mod engine;
mod problem;
mod rules;
mod running;
mod schema;
mod text_of_ids;
mod tokens;
mod track;

pub use self::answer::{Answer, AnswerReader, Call, Delta, ParseWarning, ParseWarningCode};
pub(crate) use self::call_id::IdForm;
pub use self::engine::{
    CoerceError, Construct, ContentError, Dict, Event, Fault, FieldError, Note, ParseError, Parser, PatternError,
    ShapeError, Template, TemplateError, TransformError, Value,
};
pub use self::problem::RulesProblem;
pub(crate) use self::rules::Context;
pub use self::rules::{BUILT_IN, BuiltIn, Rules};
pub use self::running::RunningAnswer;
pub(crate) use self::schema::{Budget, listed, name, plain, schema};
pub(crate) use self::text_of_ids::TextOfIds;
pub(crate) use self::tokens::{is_read, tools, values};
