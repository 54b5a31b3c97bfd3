//! Python's operations on values: operators, attributes, calls, printing, and the methods of its
//! types.
//!
//! The engine follows Python 3.11, and so Unicode 14: transformers runs templates in Python, and
//! its results depend on the tables of that Python. A code point that Unicode assigned later is not
//! printable, neither for `repr` in a template nor for [`to_str`].
//!
//! The public functions compute the same for `serde_json` values, for prompt formats that are
//! Python code instead of a template.

pub(crate) mod arithmetic;
pub(crate) mod attribute;
pub(crate) mod call;
pub(crate) mod contains;
pub(crate) mod convert;
pub(crate) mod format;
pub(crate) mod globals;
pub(crate) mod json;
mod json_value;
mod loads;
pub(crate) mod markup;
pub(crate) mod method_names;
pub(crate) mod methods;
pub(crate) mod number;
pub(crate) mod order;
pub(crate) mod printf;
pub(crate) mod repr;
pub(crate) mod spec;
pub(crate) mod text;

pub use json_value::{dumps, is_true, push_json_string, rstrip, strip, to_str};
pub use loads::{Json, LoadsError, MAX_JSON_DEPTH, loads, loads_object, loads_with_repeats};
