//! What can go wrong: at compile time, at render time, and the typed causes that travel inside minijinja's error type.

use minijinja::{Error, ErrorKind};

/// Why a template cannot be used. Every variant names the line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// Jinja2 refuses the template too.
    #[error("line {line}: {message}")]
    Syntax {
        /// Counted from 1.
        line: u32,
        /// What is wrong there.
        message: String,
    },
    /// Jinja2 takes the template, this engine does not.
    #[error("line {line}: {construct} is not supported")]
    Unsupported {
        /// Counted from 1.
        line: u32,
        /// The construct, by name.
        construct: String,
    },
    /// The template is larger or more deeply nested than any real one.
    #[error("line {line}: {what} exceeds {max}")]
    TooComplex {
        /// Counted from 1.
        line: u32,
        /// What is too large.
        what: &'static str,
        /// The most that is allowed.
        max: usize,
    },
}

/// Why a conversation could not be rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// The template itself refused the conversation, by `raise_exception`. The message is the template's own.
    #[error("{message}")]
    Raised {
        /// What the template said.
        message: String,
        /// Where it said it, counted from 1.
        line: u32,
    },
    /// The template did something that Jinja2 refuses at run time: used an undefined value, added text to a number, ...
    #[error("line {line}: {message}")]
    Runtime {
        /// What it did.
        message: String,
        /// Counted from 1.
        line: u32,
    },
    /// The template asked for more than it may have.
    #[error("line {line}: {limit} exceeded")]
    Limit {
        /// Which limit was hit.
        limit: Limit,
        /// Counted from 1; 0 if the limit was hit outside the template.
        line: u32,
    },
    /// `continue_final_message` cannot be done for this conversation and template.
    #[error("continue_final_message: {message}")]
    ContinueFinalMessage {
        /// Why not.
        message: String,
    },
    /// The conversation is not one that any template may see.
    #[error("{message}")]
    Input {
        /// What is wrong with it.
        message: String,
    },
}

/// A bound on what one render may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Limit {
    /// [`Limits::steps`](super::Limits::steps).
    #[error("the limit on computing steps")]
    Steps,
    /// [`Limits::bytes`](super::Limits::bytes).
    #[error("the limit on memory")]
    Bytes,
    /// [`Limits::output`](super::Limits::output).
    #[error("the limit on output size")]
    Output,
    /// Lists in lists in lists: deeper than any JSON text.
    #[error("the limit on the nesting of values")]
    Nesting,
    /// Macros that call macros, or recursive loops.
    #[error("the limit on recursion")]
    Recursion,
    /// Integers of many thousand digits.
    #[error("the limit on the size of integers")]
    Integer,
}

/// What an error says if nothing is known of the value that is missing.
const UNKNOWN_VALUE: &str = "value is undefined";

/// The error of using a value that is undefined for a reason that is not known.
pub(crate) fn undefined() -> Error {
    fail(UNKNOWN_VALUE)
}

/// Whether code that explains more could say what is undefined.
pub(crate) fn is_vague(error: &Error) -> bool {
    error.kind() == ErrorKind::UndefinedError || error.detail() == Some(UNKNOWN_VALUE)
}

/// The typed cause of a run-time error; it is the `source` of the minijinja error that carries it.
#[derive(Debug, thiserror::Error)]
enum Cause {
    #[error("raised by the template")]
    Raised(String),
    #[error("{0}")]
    Limit(Limit),
}

/// The result of every run-time operation.
pub(crate) type Fallible<T> = Result<T, Error>;

/// An ordinary run-time error: what Python would raise as TypeError, ValueError, UndefinedError, ...
pub(crate) fn fail(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

/// The error that `raise_exception(message)` makes.
pub(crate) fn raised(message: String) -> Error {
    fail("raised by the template").with_source(Cause::Raised(message))
}

/// The error for a limit that was hit.
pub(crate) fn limit(limit: Limit) -> Error {
    fail(limit.to_string()).with_source(Cause::Limit(limit))
}

impl From<Error> for RenderError {
    fn from(error: Error) -> Self {
        let line = error.line().and_then(|line| u32::try_from(line).ok()).unwrap_or(0);
        match cause(&error) {
            Some(Cause::Raised(message)) => Self::Raised { message: message.clone(), line },
            Some(Cause::Limit(limit)) => Self::Limit { limit: *limit, line },
            None => Self::Runtime { message: describe(&error), line },
        }
    }
}

fn cause(error: &Error) -> Option<&Cause> {
    let mut next = std::error::Error::source(error);
    while let Some(source) = next {
        if let Some(cause) = source.downcast_ref::<Cause>() {
            return Some(cause);
        }
        next = source.source();
    }
    None
}

fn describe(error: &Error) -> String {
    error.detail().map_or_else(|| error.kind().to_string(), str::to_owned)
}

/// Whether an error is a limit or the template's own, which no operation may swallow and turn into a value.
pub(crate) fn is_fatal(error: &Error) -> bool {
    cause(error).is_some()
}
