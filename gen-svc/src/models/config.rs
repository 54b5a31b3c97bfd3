//! A model's config as typed, bounded settings, under the names of `config.json`. A setting that is null is missing, as transformers
//! has it.

use serde::de::Error as _;
use serde_json::Value;

use super::decoder::Activation;
use crate::error::Error;

/// No model's size is larger.
const LARGEST: usize = 1 << 24;

/// A config, or a part of one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Config<'a> {
    /// Looked at first: the part for text of a model of several modalities.
    inner: &'a Value,
    outer: &'a Value,
}

impl<'a> Config<'a> {
    /// A whole config. A model of several modalities keeps the settings of its language model in `text_config`; what is not there is
    /// outside.
    pub(super) fn new(config: &'a Value) -> Self {
        Self { inner: &config["text_config"], outer: config }
    }

    /// A setting that is an object.
    pub(super) fn section(&self, name: &'static str) -> Result<Option<Self>, Error> {
        match self.find(name) {
            None => Ok(None),
            Some(section @ Value::Object(_)) => Ok(Some(Self { inner: &Value::Null, outer: section })),
            Some(value) => Err(wrong(name, "an object", value)),
        }
    }

    /// Whether a setting is there.
    pub(super) fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// A size: a whole number from 1.
    pub(super) fn size(&self, name: &'static str) -> Result<usize, Error> {
        self.find_size(name)?.ok_or_else(|| Error::Config(serde_json::Error::missing_field(name)))
    }

    /// A size that may be missing.
    pub(super) fn find_size(&self, name: &'static str) -> Result<Option<usize>, Error> {
        match self.find_whole(name)? {
            Some(0) => Err(unsupported(name, 0)),
            size => Ok(size),
        }
    }

    /// A whole number from 0 that may be missing.
    pub(super) fn find_whole(&self, name: &'static str) -> Result<Option<usize>, Error> {
        let Some(value) = self.find(name) else { return Ok(None) };
        let number = whole(value).ok_or_else(|| wrong(name, "a whole number", value))?;
        match usize::try_from(number) {
            Ok(number @ ..=LARGEST) => Ok(Some(number)),
            _ => Err(unsupported(name, value)),
        }
    }

    /// A size, with a default where there is one.
    pub(super) fn size_or(&self, name: &'static str, default: Option<usize>) -> Result<usize, Error> {
        match (self.find_size(name)?, default) {
            (None, Some(default)) => Ok(default),
            _ => self.size(name),
        }
    }

    /// A size no larger than `most`.
    pub(super) fn size_up_to(&self, name: &'static str, most: usize) -> Result<usize, Error> {
        match self.size(name)? {
            size if size <= most => Ok(size),
            size => Err(unsupported(name, size)),
        }
    }

    /// A number that may be missing.
    pub(super) fn find_float(&self, name: &'static str) -> Result<Option<f32>, Error> {
        let Some(value) = self.find(name) else { return Ok(None) };
        let float = value.as_f64().ok_or_else(|| wrong(name, "a number", value))?;
        match float as f32 {
            float if float.is_finite() => Ok(Some(float)),
            _ => Err(unsupported(name, value)),
        }
    }

    /// A number above zero.
    pub(super) fn float(&self, name: &'static str) -> Result<f32, Error> {
        match self.find_float(name)? {
            None => Err(Error::Config(serde_json::Error::missing_field(name))),
            Some(float) if float > 0.0 => Ok(float),
            Some(float) => Err(unsupported(name, float)),
        }
    }

    /// A number above zero that may be missing.
    pub(super) fn find_positive(&self, name: &'static str) -> Result<Option<f32>, Error> {
        if self.has(name) { self.float(name).map(Some) } else { Ok(None) }
    }

    /// A number above zero, with a default.
    pub(super) fn float_or(&self, name: &'static str, default: f32) -> Result<f32, Error> {
        Ok(self.find_positive(name)?.unwrap_or(default))
    }

    /// True or false, with a default.
    pub(super) fn flag_or(&self, name: &'static str, default: bool) -> Result<bool, Error> {
        match self.find(name) {
            None => Ok(default),
            Some(value) => value.as_bool().ok_or_else(|| wrong(name, "true or false", value)),
        }
    }

    /// A text that may be missing.
    pub(super) fn find_text(&self, name: &'static str) -> Result<Option<&'a str>, Error> {
        match self.find(name) {
            None => Ok(None),
            Some(value) => value.as_str().map(Some).ok_or_else(|| wrong(name, "a string", value)),
        }
    }

    /// A list that may be missing.
    pub(super) fn find_list(&self, name: &'static str) -> Result<Option<&'a [Value]>, Error> {
        match self.find(name) {
            None => Ok(None),
            Some(Value::Array(list)) => Ok(Some(list)),
            Some(value) => Err(wrong(name, "a list", value)),
        }
    }

    /// A list of exactly `count` numbers above zero.
    pub(super) fn floats(&self, name: &'static str, count: usize) -> Result<Vec<f32>, Error> {
        let list = self.find_list(name)?.ok_or_else(|| Error::Config(serde_json::Error::missing_field(name)))?;
        let float =
            |value: &Value| value.as_f64().map(|float| float as f32).filter(|float| float.is_normal() && *float > 0.0);
        let floats: Option<Vec<f32>> = list.iter().map(float).collect();
        floats.filter(|floats| floats.len() == count).ok_or_else(|| {
            let found = format!("a list of {}", list.len());
            Error::Config(serde_json::Error::custom(format_args!(
                "{name} should be {count} positive numbers, but is {found}"
            )))
        })
    }

    /// The activation of gates.
    pub(super) fn activation(&self, name: &'static str, default: &'static str) -> Result<Activation, Error> {
        match self.find_text(name)?.unwrap_or(default) {
            "silu" | "swish" => Ok(Activation::Silu),
            "gelu_pytorch_tanh" => Ok(Activation::GeluTanh),
            other => Err(unsupported(name, Value::from(other))),
        }
    }

    /// Refuses a setting that is there and is not `supported`.
    pub(super) fn require(&self, name: &'static str, supported: &Value) -> Result<(), Error> {
        match self.find(name) {
            Some(value) if value != supported => Err(unsupported(name, value)),
            _ => Ok(()),
        }
    }

    fn find(&self, name: &str) -> Option<&'a Value> {
        [&self.inner[name], &self.outer[name]].into_iter().find(|value| !value.is_null())
    }
}

/// A whole number, also when it is written as 8.0.
fn whole(value: &Value) -> Option<i64> {
    value
        .as_i64()
        .or_else(|| value.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 1e15).map(|float| float as i64))
}

fn wrong(name: &str, expected: &str, found: &Value) -> Error {
    Error::Config(serde_json::Error::custom(format_args!("{name} should be {expected}, but is {found}")))
}

/// A value that cannot be served.
pub(super) fn unsupported(setting: &'static str, value: impl std::fmt::Display) -> Error {
    Error::UnsupportedSetting { setting, value: value.to_string() }
}
