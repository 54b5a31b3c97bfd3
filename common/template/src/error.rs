//! Errors of compilation, of rendering, and of single operations.

/// Why a template cannot be used. Every variant has the line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// Jinja2 refuses the template too.
    #[error("line {line}: {message}")]
    Syntax {
        /// Counted from 1.
        line: u32,
        /// The problem.
        message: String,
    },
    /// Jinja2 accepts the template, this engine does not.
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
        /// The quantity that is too large.
        what: &'static str,
        /// The limit.
        max: usize,
    },
}

/// Why a conversation cannot be rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// The template refused the conversation through `raise_exception`.
    #[error("{message}")]
    Raised {
        /// The template's message.
        message: String,
        /// The line of the call, counted from 1.
        line: u32,
    },
    /// The template did what Jinja2 refuses at run time, such as using an undefined value.
    #[error("line {line}: {message}")]
    Runtime {
        /// The problem.
        message: String,
        /// Counted from 1.
        line: u32,
    },
    /// The render exceeded a limit.
    #[error("{}{limit} exceeded", place(*line))]
    Limit {
        limit: Limit,
        /// Counted from 1; 0 outside the template.
        line: u32,
    },
    /// The check of the thread's [`CancelScope`](crate::CancelScope) returned true.
    #[error("the render was cancelled")]
    Cancelled,
    /// `continue_final_message` is not possible for this conversation and template.
    #[error("continue_final_message: {message}")]
    ContinueFinalMessage {
        /// The reason.
        message: String,
    },
    /// The conversation is not valid input for any template.
    #[error("{message}")]
    Input {
        /// The problem.
        message: String,
    },
}

/// Returns the prefix of a message about a line of the template. Line 0 is outside of it.
fn place(line: u32) -> String {
    if line == 0 { String::new() } else { format!("line {line}: ") }
}

/// A limit of one render.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Limit {
    /// [`Limits::steps`](crate::Limits::steps).
    #[error("limit on computing steps")]
    Steps,
    /// [`Limits::bytes`](crate::Limits::bytes).
    #[error("limit on memory")]
    Bytes,
    /// [`Limits::output`](crate::Limits::output).
    #[error("limit on output size")]
    Output,
    /// The nesting of values in each other.
    #[error("limit on the nesting of values")]
    Nesting,
    /// The depth of macro calls and recursive loops.
    #[error("limit on recursion")]
    Recursion,
    /// The digits of an integer.
    #[error("limit on the size of integers")]
    Integer,
}

/// The error of a run-time operation.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{cause}")]
pub(crate) struct Error {
    cause: Box<Cause>,
    /// Counted from 1; 0 while unknown.
    line: u32,
}

/// The cause of an error.
#[derive(Debug, Clone, thiserror::Error)]
enum Cause {
    /// Python would raise TypeError, ValueError or the like.
    #[error("{0}")]
    Ordinary(String),
    /// Python would raise UndefinedError.
    #[error("{0}")]
    Undefined(String),
    /// The template called `raise_exception`.
    #[error("{0}")]
    Raised(String),
    #[error("{0}")]
    Limit(Limit),
    #[error("the render was cancelled")]
    Cancelled,
}

impl Error {
    fn new(cause: Cause) -> Self {
        Self { cause: Box::new(cause), line: 0 }
    }

    /// Returns the error at this line, unless it has one already.
    #[cold]
    pub(crate) fn at(mut self, line: u32) -> Self {
        if self.line == 0 {
            self.line = line;
        }
        self
    }

    /// Returns true for a limit, a cancellation and the template's own error, which no operation may
    /// turn into a value.
    pub(crate) fn is_fatal(&self) -> bool {
        !matches!(*self.cause, Cause::Ordinary(_) | Cause::Undefined(_))
    }

    /// Returns true if the operation used an undefined value.
    pub(crate) fn is_undefined(&self) -> bool {
        matches!(*self.cause, Cause::Undefined(_))
    }
}

/// The result of every run-time operation.
pub(crate) type Fallible<T> = Result<T, Error>;

/// Returns an ordinary run-time error.
#[cold]
pub(crate) fn fail(message: impl Into<String>) -> Error {
    Error::new(Cause::Ordinary(message.into()))
}

/// Returns the error of `raise_exception(message)`.
#[cold]
pub(crate) fn raised(message: String) -> Error {
    Error::new(Cause::Raised(message))
}

/// Returns the error of an exceeded limit.
#[cold]
pub(crate) fn limit(limit: Limit) -> Error {
    Error::new(Cause::Limit(limit))
}

/// Returns the error of a cancelled render.
#[cold]
pub(crate) fn cancelled() -> Error {
    Error::new(Cause::Cancelled)
}

/// Returns the error of using an undefined value.
pub(crate) fn undefined(message: impl Into<String>) -> Error {
    Error::new(Cause::Undefined(message.into()))
}

impl From<Error> for RenderError {
    fn from(error: Error) -> Self {
        let line = error.line;
        match *error.cause {
            Cause::Raised(message) => Self::Raised { message, line },
            Cause::Limit(limit) => Self::Limit { limit, line },
            Cause::Cancelled => Self::Cancelled,
            Cause::Ordinary(message) | Cause::Undefined(message) => Self::Runtime { message, line },
        }
    }
}
