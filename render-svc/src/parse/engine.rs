//! Reads text by a `response_template`.
//!
//! The definition is transformers' `ResponseParser`: the same events for the same pieces of text, the same message, and
//! errors at the same places. Each step takes time linear in the new text.

mod arena;
mod buffer;
mod coerce;
mod content;
mod elements;
mod fault;
mod free_json;
mod parser;
mod pattern;
mod python;
mod python_calls;
mod template;
mod transform;
mod value;
mod watch;
mod written;
mod written_calls;

pub use self::coerce::CoerceError;
pub use self::fault::{ContentError, Fault};
pub use self::parser::{Event, FieldError, Note, ParseError, Parser};
pub use self::pattern::{Construct, PatternError};
pub use self::template::{Template, TemplateError};
pub use self::transform::{ShapeError, TransformError};
pub(super) use self::value::Keys;
pub use self::value::{Dict, Value};
pub(super) use self::written::{CALLS, MAX_CALLS};

pub(super) use self::python::{is_space, strip};
