//! A model's config as typed settings with checked ranges, under the names of `config.json`. As in
//! transformers, a null setting counts as missing.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Display;

use serde_json::Value;
use tandem_model_files::excerpt;

use super::decoder::Activation;
pub(super) use crate::error::ConfigError;
use crate::weights::gguf::architecture::CONVERTED;

/// The maximum of each size in a config.
const MAX_SIZE: usize = 1 << 24;

/// transformers' names of the GELU that is approximated with tanh. They differ in the order of operations only.
pub(super) const GELU_TANH: &[&str] =
    &["gelu_pytorch_tanh", "gelu_new", "gelu_fast", "gelu_accurate", "gelu_python_tanh"];

/// The settings of a language model that transformers reads from the whole config of a model of several modalities.
const OF_WHOLE: &[&str] = &["tie_word_embeddings"];

/// A config, or a section of one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Config<'a> {
    /// The section of the language model. It takes precedence over the whole config.
    inner: &'a Value,
    outer: &'a Value,
    /// The names of settings that the outer section may add. `None`: any.
    added: Option<&'static [&'static str]>,
    /// Records the names of settings that are read.
    reads: Option<&'a Reads>,
}

/// The names of the settings that were read, in any section.
#[derive(Debug, Default)]
pub(super) struct Reads(RefCell<BTreeSet<String>>);

impl Reads {
    /// Returns true if a setting of this name was read.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.0.borrow().contains(name)
    }

    fn insert(&self, name: &str) {
        if !self.contains(name) {
            self.0.borrow_mut().insert(name.to_owned());
        }
    }
}

impl<'a> Config<'a> {
    /// Wraps a whole config. Settings of `text_config` precede it.
    pub(super) fn new(config: &'a Value) -> Self {
        Self { inner: &config["text_config"], outer: config, added: None, reads: None }
    }

    /// Wraps the settings of the language model. A model of several modalities has them in `text_config`, and
    /// others of these names have no effect there, as in transformers.
    pub(super) fn language(config: &'a Value) -> Self {
        let has_section = config["text_config"].is_object();
        Self { added: has_section.then_some(OF_WHOLE), ..Self::new(config) }
    }

    /// Wraps the settings of the vision tower alone.
    pub(super) fn vision(config: &'a Value) -> Self {
        Self { inner: &config["vision_config"], outer: &Value::Null, added: None, reads: None }
    }

    /// Returns the same config. From now on, `reads` has the names of the settings that are read.
    pub(super) fn recorded_by(self, reads: &'a Reads) -> Self {
        Self { reads: Some(reads), ..self }
    }

    /// Returns the settings of a section alone.
    fn of(&self, section: &'a Value) -> Self {
        Self { inner: &Value::Null, outer: section, added: None, ..*self }
    }

    /// Returns a setting that is an object.
    pub(super) fn section(&self, name: &'static str) -> Result<Option<Self>, ConfigError> {
        match self.find(name) {
            None => Ok(None),
            Some(section @ Value::Object(_)) => Ok(Some(self.of(section))),
            Some(value) => Err(wrong(name, "an object", value)),
        }
    }

    /// Returns an optional section for a layer: the section `name` has it under the layer's index, which may have
    /// zeros before it.
    pub(super) fn entry_of_layer(&self, name: &'static str, layer: usize) -> Result<Option<Self>, ConfigError> {
        let Some(section) = self.section(name)? else { return Ok(None) };
        let entries = section.outer.as_object().into_iter().flatten();
        if entries.clone().any(|(key, _)| key.parse::<usize>().is_err()) {
            return Err(wrong(name, "an object of layers by index", section.outer));
        }
        let mut of_layer = entries.filter(|(key, _)| key.parse() == Ok(layer)).map(|(_, entry)| entry);
        match of_layer.next().filter(|entry| !entry.is_null()) {
            None => Ok(None),
            Some(entry @ Value::Object(_)) => Ok(Some(self.of(entry))),
            Some(value) => Err(wrong(name, "an object of objects", value)),
        }
    }

    /// Returns the `model_type` of the language model in a model of several modalities.
    pub(super) fn language_model(&self) -> Option<&'a str> {
        self.inner["model_type"].as_str()
    }

    /// Returns the `model_type` of the whole model.
    pub(super) fn whole_model(&self) -> &'a str {
        self.outer["model_type"].as_str().unwrap_or_default()
    }

    /// Returns the settings of this section, which precede those of `base`.
    pub(super) fn before(&self, base: &Self) -> Self {
        Self { inner: self.outer, outer: base.outer, added: None, ..*self }
    }

    /// Returns true if a section has no settings.
    pub(super) fn is_empty(&self) -> bool {
        self.outer.as_object().is_none_or(serde_json::Map::is_empty)
    }

    /// Returns true if a setting is written as null.
    pub(super) fn is_null(&self, name: &str) -> bool {
        !self.has(name) && self.sections(name).iter().any(|section| section.get(name).is_some())
    }

    /// Returns true if a setting is present.
    pub(super) fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// Returns a size: a whole number, at least 1.
    pub(super) fn size(&self, name: &'static str) -> Result<usize, ConfigError> {
        self.find_size(name)?.ok_or(ConfigError::Missing { name })
    }

    /// Returns an optional size.
    pub(super) fn find_size(&self, name: &'static str) -> Result<Option<usize>, ConfigError> {
        match self.find_whole(name)? {
            Some(0) => Err(unsupported(name, 0)),
            size => Ok(size),
        }
    }

    /// Returns a size, or its default if it is absent. None if it is null.
    pub(super) fn size_unless_null(&self, name: &'static str, default: usize) -> Result<Option<usize>, ConfigError> {
        if self.is_null(name) { Ok(None) } else { self.size_or(name, default).map(Some) }
    }

    /// Returns an optional whole number, at least 0.
    pub(super) fn find_whole(&self, name: &'static str) -> Result<Option<usize>, ConfigError> {
        let Some(value) = self.find(name) else { return Ok(None) };
        let number = whole(value).ok_or_else(|| wrong(name, "a whole number", value))?;
        match usize::try_from(number) {
            Ok(number @ ..=MAX_SIZE) => Ok(Some(number)),
            _ => Err(unsupported(name, value)),
        }
    }

    /// Returns a size, or its default.
    pub(super) fn size_or(&self, name: &'static str, default: usize) -> Result<usize, ConfigError> {
        Ok(self.find_size(name)?.unwrap_or(default))
    }

    /// Returns a size that is at most `most`, or its default.
    pub(super) fn size_up_to(&self, name: &'static str, most: usize, default: usize) -> Result<usize, ConfigError> {
        match self.size_or(name, default)? {
            size if size <= most => Ok(size),
            size => Err(unsupported(name, size)),
        }
    }

    /// Returns an optional number.
    pub(super) fn find_float(&self, name: &'static str) -> Result<Option<f32>, ConfigError> {
        let Some(value) = self.find(name) else { return Ok(None) };
        let float = value.as_f64().ok_or_else(|| wrong(name, "a finite number", number(value)))?;
        match float as f32 {
            float if float.is_finite() => Ok(Some(float)),
            _ => Err(unsupported(name, value)),
        }
    }

    /// Returns a number above zero.
    pub(super) fn float(&self, name: &'static str) -> Result<f32, ConfigError> {
        match self.find_float(name)? {
            None => Err(ConfigError::Missing { name }),
            Some(float) if float > 0.0 => Ok(float),
            Some(float) => Err(unsupported(name, float)),
        }
    }

    /// Returns an optional number above zero.
    pub(super) fn find_positive(&self, name: &'static str) -> Result<Option<f32>, ConfigError> {
        if self.has(name) { self.float(name).map(Some) } else { Ok(None) }
    }

    /// Returns a number above zero, or its default.
    pub(super) fn float_or(&self, name: &'static str, default: f32) -> Result<f32, ConfigError> {
        Ok(self.find_positive(name)?.unwrap_or(default))
    }

    /// Returns a number above zero, or its default if it is absent. None if it is null.
    pub(super) fn float_unless_null(&self, name: &'static str, default: f32) -> Result<Option<f32>, ConfigError> {
        if self.is_null(name) { Ok(None) } else { self.float_or(name, default).map(Some) }
    }

    /// Returns a flag, or its default.
    pub(super) fn flag_or(&self, name: &'static str, default: bool) -> Result<bool, ConfigError> {
        match self.find(name) {
            None => Ok(default),
            Some(value) => value.as_bool().ok_or_else(|| wrong(name, "true or false", value)),
        }
    }

    /// Fails if this section, which is called `name`, has other keys than `supported`.
    pub(super) fn allow(&self, name: &'static str, supported: &[&str]) -> Result<(), ConfigError> {
        let mut keys = self.outer.as_object().into_iter().flat_map(|section| section.keys());
        keys.find(|key| !supported.contains(&key.as_str())).map_or(Ok(()), |key| Err(unsupported(name, key)))
    }

    /// Returns true if a flag is set in the section of the language model or in the whole config.
    pub(super) fn any_flag_or(&self, name: &'static str, default: bool) -> Result<bool, ConfigError> {
        let sections = [self.inner, self.outer].map(|outer| Self { inner: &Value::Null, outer, ..*self });
        let present = sections.iter().filter(|section| section.has(name));
        let flags: Vec<bool> = present.map(|section| section.flag_or(name, default)).collect::<Result<_, _>>()?;
        Ok(if flags.is_empty() { default } else { flags.contains(&true) })
    }

    /// Returns true if llama.cpp's converter changed the tensors: the model is in a GGUF file.
    pub(super) fn is_converted(&self) -> Result<bool, ConfigError> {
        self.flag_or(CONVERTED, false)
    }

    /// Returns an optional string.
    pub(super) fn find_text(&self, name: &'static str) -> Result<Option<&'a str>, ConfigError> {
        match self.find(name) {
            None => Ok(None),
            Some(value) => value.as_str().map(Some).ok_or_else(|| wrong(name, "a string", value)),
        }
    }

    /// Returns an optional list.
    pub(super) fn find_list(&self, name: &'static str) -> Result<Option<&'a [Value]>, ConfigError> {
        match self.find(name) {
            None => Ok(None),
            Some(Value::Array(list)) => Ok(Some(list)),
            Some(value) => Err(wrong(name, "a list", value)),
        }
    }

    /// Returns a list of exactly `count` numbers above zero.
    pub(super) fn floats(&self, name: &'static str, count: usize) -> Result<Vec<f32>, ConfigError> {
        let list = self.find_list(name)?.ok_or(ConfigError::Missing { name })?;
        let float =
            |value: &Value| value.as_f64().map(|float| float as f32).filter(|float| float.is_normal() && *float > 0.0);
        let floats: Option<Vec<f32>> = list.iter().map(float).collect();
        let floats = floats.filter(|floats| floats.len() == count);
        floats.ok_or_else(|| wrong(name, format!("{count} positive numbers"), format!("a list of {}", list.len())))
    }

    /// Returns the activation function of the feed-forward gate.
    pub(super) fn activation(&self, name: &'static str, default: &'static str) -> Result<Activation, ConfigError> {
        match self.find_text(name)?.unwrap_or(default) {
            "silu" | "swish" => Ok(Activation::Silu),
            name if GELU_TANH.contains(&name) => Ok(Activation::GeluTanh),
            other => Err(unsupported(name, Value::from(other))),
        }
    }

    /// Fails if a setting is present and is not `supported`.
    pub(super) fn require(&self, name: &'static str, supported: &Value) -> Result<(), ConfigError> {
        match self.find(name) {
            Some(value) if value != supported => Err(unsupported(name, value)),
            _ => Ok(()),
        }
    }

    fn find(&self, name: &str) -> Option<&'a Value> {
        self.reads.iter().for_each(|reads| reads.insert(name));
        self.sections(name).into_iter().map(|section| &section[name]).find(|value| !value.is_null())
    }

    /// Returns the sections that may have a setting.
    fn sections(&self, name: &str) -> [&'a Value; 2] {
        let is_added = self.added.is_none_or(|names| names.contains(&name));
        [self.inner, if is_added { self.outer } else { &Value::Null }]
    }
}

/// Returns a whole number, which may be written as 8.0.
fn whole(value: &Value) -> Option<i64> {
    value
        .as_i64()
        .or_else(|| value.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 1e15).map(|float| float as i64))
}

/// Returns a value for an error. A number of the file without a value is infinite or NaN.
fn number(value: &Value) -> String {
    if value.is_number() { "infinite or NaN".to_owned() } else { value.to_string() }
}

fn wrong(name: &'static str, expected: impl Display, found: impl Display) -> ConfigError {
    ConfigError::Wrong { name, expected: expected.to_string(), found: excerpt(found).to_string() }
}

/// Returns the error for a value that is not supported.
pub(super) fn unsupported(name: &'static str, value: impl Display) -> ConfigError {
    ConfigError::Unsupported { name, value: excerpt(value).to_string() }
}
