//! The chat templates that a model ships, compiled.

use std::sync::Arc;

use tandem_model_files::artifacts::Artifacts;
use tandem_model_files::digest::hex_sha256;
use tandem_template::{ChatTemplate, CompileError};

use crate::conversation::Object;
use crate::error::Error;
use crate::probes::{self, TemplateFacts};

/// A model's chat templates by name; most models have one, named `default`.
#[derive(Debug, Default)]
pub struct Templates(Vec<NamedTemplate>);

/// One of a model's chat templates.
#[derive(Debug)]
pub struct NamedTemplate {
    /// Such as `default` or `tool_use`.
    pub name: String,
    /// The compiled template.
    pub template: ChatTemplate,
    /// SHA-256 of the source, in lower-case hex.
    pub sha256: Arc<str>,
    /// The behaviour of the template, learned by rendering.
    pub facts: Arc<TemplateFacts>,
    /// SHA-256 of the source without parts that most templates ignore: leading comments, white space
    /// around the rest, and carriage returns.
    pub core_sha256: Arc<str>,
}

/// The name and problem of a template that does not compile.
pub(super) type TemplateError = (String, CompileError);

impl Templates {
    /// Compiles and probes every template of the model, with these special tokens.
    ///
    /// # Errors
    /// The first template that does not compile.
    pub(super) fn compile(artifacts: &Artifacts, special_tokens: &Object) -> Result<Self, TemplateError> {
        let mut compiled = Vec::new();
        let deadline = probes::deadline();
        for name in artifacts.templates.names() {
            let source = artifacts.templates.get(name).unwrap_or_default();
            let template = ChatTemplate::compile(source).map_err(|error| (name.to_owned(), error))?;
            let sha256 = hex_sha256(source.as_bytes()).into();
            let core_sha256 = hex_sha256(core(source).as_bytes()).into();
            let facts = probes::facts_of(&template, &sha256, special_tokens, deadline);
            compiled.push(NamedTemplate { name: name.to_owned(), template, sha256, core_sha256, facts });
        }
        Ok(Self(compiled))
    }

    /// Returns true if the model ships no template.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if a template contains this text as data or in a string.
    #[must_use]
    pub fn write(&self, text: &str) -> bool {
        self.iter().any(|named| named.template.literal_text().contains(text))
    }

    /// Returns true if the source of a template contains this text.
    #[must_use]
    pub fn mention(&self, text: &str) -> bool {
        self.iter().any(|named| named.template.source().contains(text))
    }

    /// Returns every template.
    pub fn iter(&self) -> impl Iterator<Item = &NamedTemplate> {
        self.0.iter()
    }

    /// Returns the template for a conversation, chosen as transformers chooses it. It is the
    /// requested one, else `tool_use` when there are tools and the model has one, else `default`.
    ///
    /// # Errors
    /// The model has no template of the requested name, or no `default`.
    pub fn choose(&self, requested: Option<&str>, with_tools: bool) -> Result<&NamedTemplate, Error> {
        let named = |name: &str| self.iter().find(|template| template.name == name);
        let tool_use = if with_tools { named("tool_use") } else { None };
        let found = match requested {
            Some(name) => named(name),
            None => tool_use.or_else(|| named("default")),
        };
        found.ok_or_else(|| Error::TemplateNotFound {
            template: requested.unwrap_or("default").to_owned(),
            known: self.iter().map(|template| template.name.clone()).collect(),
        })
    }
}

/// Returns a source without leading comments, white space around the rest, and carriage returns. A
/// source whose rest begins and ends with a tag that removes white space renders like its core: such
/// a tag, a comment and the reader of line ends remove these parts.
fn core(source: &str) -> String {
    let source = source.replace("\r\n", "\n");
    let mut rest = source.trim();
    while let Some((_, after)) = rest.strip_prefix("{#").and_then(|comment| comment.split_once("#}")) {
        rest = after.trim_start();
    }
    rest.to_owned()
}
