//! Why the arguments of a tool call are refused.

use tandem_template::python::{LoadsError, MAX_JSON_DEPTH};

/// Returns the problem with arguments that cannot be loaded, worded for the field.
pub(super) fn problem(error: LoadsError) -> String {
    match error {
        LoadsError::NotJson | LoadsError::LongInteger => "must be the JSON text of an object".to_owned(),
        LoadsError::NotAnObject => "must be the JSON text of an object, not of another value".to_owned(),
        LoadsError::LoneSurrogate => "holds half of a surrogate pair, which no text can hold".to_owned(),
        LoadsError::TooDeep => format!("is nested more than {MAX_JSON_DEPTH} levels deep"),
    }
}
