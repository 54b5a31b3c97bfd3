//! The values that a parsed answer consists of: JSON with Python's numbers.

use indexmap::IndexMap;
use serde_json::Value as Json;
use tandem_template::python;

use super::fault::ContentError;

/// An object, with its keys in the order of their first insertion.
pub type Dict = IndexMap<String, Value>;

/// The meaning of a key that an object has twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Keys {
    /// Its last value replaces the others, as in Python.
    LastWins,
    /// The text has no value: it would lack the others.
    Distinct,
}

impl Keys {
    /// Inserts an entry.
    ///
    /// # Errors
    /// The object has the key, although keys are distinct.
    pub(super) fn insert(self, dict: &mut Dict, key: String, value: Value) -> Result<(), ContentError> {
        match dict.insert(key, value) {
            Some(_) if self == Self::Distinct => Err(ContentError::Repeated),
            _ => Ok(()),
        }
    }
}

/// A value of a parsed answer, or of a response template.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    /// The decimal digits of an integer of any size, after a minus sign if it is negative.
    Int(String),
    /// A floating-point number, which may be NaN or infinite.
    Float(f64),
    Text(String),
    List(Vec<Value>),
    Dict(Box<Dict>),
}

impl Value {
    /// Loads a JSON text as Python does.
    ///
    /// # Errors
    /// Python fails, or an object has a key twice although keys are distinct.
    pub(in super::super) fn loads(text: &str, keys: Keys) -> Result<Self, ContentError> {
        match python::loads_with_repeats(text).map_err(ContentError::Json)? {
            (_, true) if keys == Keys::Distinct => Err(ContentError::Repeated),
            (json, _) => Ok(Self::from(json)),
        }
    }

    /// Returns the JSON text of a value, as Python writes it. None if it has a number that JSON lacks.
    #[must_use]
    pub fn to_json(&self) -> Option<String> {
        let mut out = String::new();
        self.write(&mut out)?;
        Some(out)
    }

    fn write(&self, out: &mut String) -> Option<()> {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(truth) => out.push_str(if *truth { "true" } else { "false" }),
            Self::Int(digits) => out.push_str(digits),
            Self::Float(number) => out.push_str(&serde_json::Number::from_f64(*number)?.to_string()),
            Self::Text(text) => python::push_json_string(out, text),
            Self::List(items) => {
                out.push('[');
                for (at, item) in items.iter().enumerate() {
                    out.push_str(if at == 0 { "" } else { ", " });
                    item.write(out)?;
                }
                out.push(']');
            }
            Self::Dict(entries) => {
                out.push('{');
                for (at, (key, value)) in entries.iter().enumerate() {
                    out.push_str(if at == 0 { "" } else { ", " });
                    python::push_json_string(out, key);
                    out.push_str(": ");
                    value.write(out)?;
                }
                out.push('}');
            }
        }
        Some(())
    }

    /// Returns Python's name of the value's type, for errors.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Float(_) => "float",
            Self::Text(_) => "string",
            Self::List(_) => "list",
            Self::Dict(_) => "object",
        }
    }

    /// Returns the truth of the value in Python: null, zero and empty values are false.
    pub(in super::super) fn is_true(&self) -> bool {
        match self {
            Self::Null => false,
            Self::Bool(truth) => *truth,
            Self::Int(digits) => digits != "0",
            Self::Float(number) => *number != 0.0,
            Self::Text(text) => !text.is_empty(),
            Self::List(items) => !items.is_empty(),
            Self::Dict(entries) => !entries.is_empty(),
        }
    }

    /// Returns true unless the value is null or empty.
    #[must_use]
    pub fn is_filled(&self) -> bool {
        !self.is_omitted()
    }

    /// Returns true if the final message omits the value: null, and empty texts, lists and objects.
    pub(super) fn is_omitted(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Text(text) => text.is_empty(),
            Self::List(items) => items.is_empty(),
            Self::Dict(entries) => entries.is_empty(),
            Self::Bool(_) | Self::Int(_) | Self::Float(_) => false,
        }
    }

    /// Returns true if Python considers the value equal to 1.
    pub(super) fn is_one(&self) -> bool {
        match self {
            Self::Bool(truth) => *truth,
            Self::Int(digits) => digits == "1",
            Self::Float(number) => *number == 1.0,
            _ => false,
        }
    }

    /// Returns the text of a text.
    pub(in super::super) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the entries of an object.
    pub(in super::super) fn as_dict(&self) -> Option<&Dict> {
        match self {
            Self::Dict(entries) => Some(entries),
            _ => None,
        }
    }
}

impl From<Dict> for Value {
    fn from(entries: Dict) -> Self {
        Self::Dict(Box::new(entries))
    }
}

impl From<&Json> for Value {
    fn from(json: &Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(truth) => Self::Bool(*truth),
            Json::Number(number) => number_of(number.to_string()),
            Json::String(text) => Self::Text(text.clone()),
            Json::Array(items) => Self::List(items.iter().map(Self::from).collect()),
            Json::Object(entries) => {
                entries.iter().map(|(key, value)| (key.clone(), Self::from(value))).collect::<Dict>().into()
            }
        }
    }
}

impl From<python::Json> for Value {
    fn from(json: python::Json) -> Self {
        match json {
            python::Json::Text(text) => Self::Text(text),
            python::Json::Scalar(text) => match text.as_str() {
                "null" => Self::Null,
                "true" => Self::Bool(true),
                "false" => Self::Bool(false),
                "NaN" => Self::Float(f64::NAN),
                "Infinity" => Self::Float(f64::INFINITY),
                "-Infinity" => Self::Float(f64::NEG_INFINITY),
                _ => number_of(text),
            },
            python::Json::List(items) => Self::List(items.into_iter().map(Self::from).collect()),
            python::Json::Dict(entries) => {
                entries.into_iter().map(|(key, value)| (key, Self::from(value))).collect::<Dict>().into()
            }
        }
    }
}

/// Returns a valid JSON number as Python reads it: a float if it has a fraction or an exponent.
fn number_of(number: String) -> Value {
    if number.contains(['.', 'e', 'E']) {
        return Value::Float(number.parse().unwrap_or(f64::NAN));
    }
    Value::Int(if number == "-0" { "0".to_owned() } else { number })
}
