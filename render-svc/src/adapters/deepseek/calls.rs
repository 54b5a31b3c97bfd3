//! Tool calls in DSML.

use std::borrow::Cow;

use serde_json::Value;
use tandem_common::field::Path;
use tandem_template::python::{self, Json, LoadsError};

use super::arguments;
use crate::conversation::Invalid;

/// A tool call of the assistant.
pub(super) struct Call<'a> {
    path: Path,
    name: String,
    pub(super) arguments: &'a Value,
}

impl<'a> Call<'a> {
    pub(super) fn new((path, call): (Path, &'a Value)) -> Result<Self, Invalid> {
        let path = path.key("function");
        let field = |key: &'static str| {
            let value = call.get("function").and_then(|function| function.get(key));
            value.ok_or_else(|| Invalid::new(path.clone().key(key), "must be set"))
        };
        Ok(Self { name: python::to_str(field("name")?), arguments: field("arguments")?, path })
    }

    /// Returns the arguments if they are the JSON text of an object or, if `takes_objects`, an object.
    pub(super) fn parse(&self, takes_objects: bool) -> Result<Vec<(String, Json)>, LoadsError> {
        match self.arguments {
            Value::String(text) => python::loads_object(text),
            object @ Value::Object(_) if takes_objects => python::loads_object(&python::dumps(object)),
            _ => Err(LoadsError::NotJson),
        }
    }

    pub(super) fn unreadable(&self, error: LoadsError) -> Invalid {
        Invalid::new(self.path.clone().key("arguments"), arguments::problem(error))
    }

    pub(super) fn dsml(&self, arguments: &[(String, Json)]) -> String {
        let parameters: Vec<_> = arguments.iter().map(|(name, value)| parameter(name, value)).collect();
        format!("<｜DSML｜invoke name=\"{}\">\n{}\n</｜DSML｜invoke>", self.name, parameters.join("\n"))
    }
}

/// Writes one argument: a string as it is, every other value as JSON.
fn parameter(name: &str, value: &Json) -> String {
    let (is_string, value) = match value {
        Json::Text(text) => (true, Cow::Borrowed(text)),
        other => (false, Cow::Owned(other.dumps())),
    };
    format!("<｜DSML｜parameter name=\"{name}\" string=\"{is_string}\">{value}</｜DSML｜parameter>")
}

/// Returns the block with the calls of one message; empty if there are none.
pub(super) fn dsml_block(name: &str, calls: &[String]) -> String {
    match calls {
        [] => String::new(),
        calls => format!("\n\n<｜DSML｜{name}>\n{}\n</｜DSML｜{name}>", calls.join("\n")),
    }
}
