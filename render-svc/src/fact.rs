//! Facts about a model, each with the way in which it was found.

use std::borrow::Cow;

/// How a fact was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FactSource {
    /// By rendering a small conversation with the model's chat template.
    Probe,
    /// By words in the template, where no probe says anything.
    TemplateText,
    /// By the model's name, where its template says nothing.
    Name,
    /// By the architecture of a model without a template.
    Architecture,
    /// In the model's files, such as `generation_config.json`.
    Files,
    /// By the tokens that the tokenizer's family has.
    Tokenizer,
    /// By the adapter that renders for the model.
    Adapter,
    /// In the configuration of models.
    Configuration,
    /// In no way: the value is the one of an unknown model.
    Default,
}

/// A fact about a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// The name, such as `message.system.first`.
    pub name: Cow<'static, str>,
    /// The value, such as `shown`.
    pub value: String,
    /// How it was found.
    pub source: FactSource,
}

impl Fact {
    /// Creates a fact.
    #[must_use]
    pub fn new(name: impl Into<Cow<'static, str>>, value: impl Into<String>, source: FactSource) -> Self {
        Self { name: name.into(), value: value.into(), source }
    }
}
