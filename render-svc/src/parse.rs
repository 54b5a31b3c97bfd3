//! Reads the output of a model: reasoning, content and calls of tools.
//!
//! [`Template`] and [`Parser`] equal transformers' `ResponseParser`. [`AnswerReader`] reads with the rules of a model and
//! loses no text: what the rules cannot read is content, with a warning. Adapters take no part in it.

mod answer;
mod call_id;
mod choose;
mod engine;
mod output;
mod rules;
mod running;
mod sample;
mod track;

pub use self::answer::{Answer, AnswerReader, Call, Delta, ParseWarning, ParseWarningCode};
pub use self::choose::{Chooser, ChosenRules, RulesProblem};
pub use self::engine::{
    CoerceError, Construct, ContentError, Dict, Event, Fault, FieldError, Note, ParseError, Parser, PatternError,
    ShapeError, Template, TemplateError, TransformError, Value,
};
pub use self::output::{Output, ParseJob, parse, rules_of};
pub use self::rules::{BUILT_IN, BuiltIn, Rules};
pub use self::running::RunningAnswer;
