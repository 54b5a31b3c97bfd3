//! What can go wrong: at compile time, at render time, and inside of a render.

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
    /// [`Limits::steps`](crate::Limits::steps).
    #[error("the limit on computing steps")]
    Steps,
    /// [`Limits::bytes`](crate::Limits::bytes).
    #[error("the limit on memory")]
    Bytes,
    /// [`Limits::output`](crate::Limits::output).
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

/// What a run-time operation failed with.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{cause}")]
pub(crate) struct Error {
    cause: Box<Cause>,
    /// Counted from 1; 0 while it is not known.
    line: u32,
}

/// Why it failed.
#[derive(Debug, Clone, thiserror::Error)]
enum Cause {
    /// What Python would raise as TypeError, ValueError, ...
    #[error("{0}")]
    Ordinary(String),
    /// What Python would raise as UndefinedError.
    #[error("{0}")]
    Undefined(String),
    /// The template called `raise_exception`.
    #[error("{0}")]
    Raised(String),
    #[error("{0}")]
    Limit(Limit),
}

impl Error {
    fn new(cause: Cause) -> Self {
        Self { cause: Box::new(cause), line: 0 }
    }

    /// The same error at this line, unless it has one already.
    #[cold]
    pub(crate) fn at(mut self, line: u32) -> Self {
        if self.line == 0 {
            self.line = line;
        }
        self
    }

    /// Whether it is a limit or the template's own error, which no operation may swallow and turn into a value.
    pub(crate) fn is_fatal(&self) -> bool {
        !matches!(*self.cause, Cause::Ordinary(_) | Cause::Undefined(_))
    }

    /// Whether a value was used that is undefined.
    pub(crate) fn is_undefined(&self) -> bool {
        matches!(*self.cause, Cause::Undefined(_))
    }
}

/// The result of every run-time operation.
pub(crate) type Fallible<T> = Result<T, Error>;

/// An ordinary run-time error.
#[cold]
pub(crate) fn fail(message: impl Into<String>) -> Error {
    Error::new(Cause::Ordinary(message.into()))
}

/// The error that `raise_exception(message)` makes.
#[cold]
pub(crate) fn raised(message: String) -> Error {
    Error::new(Cause::Raised(message))
}

/// The error for a limit that was hit.
#[cold]
pub(crate) fn limit(limit: Limit) -> Error {
    Error::new(Cause::Limit(limit))
}

/// The error of using a value that is undefined.
pub(crate) fn undefined(message: impl Into<String>) -> Error {
    Error::new(Cause::Undefined(message.into()))
}

impl From<Error> for RenderError {
    fn from(error: Error) -> Self {
        let line = error.line;
        match *error.cause {
            Cause::Raised(message) => Self::Raised { message, line },
            Cause::Limit(limit) => Self::Limit { limit, line },
            Cause::Ordinary(message) | Cause::Undefined(message) => Self::Runtime { message, line },
        }
    }
}
