//! The chat templates that a model ships, compiled.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tandem_model_files::artifacts::Artifacts;
use tandem_model_files::digest::hex_sha256;
use tandem_template::ChatTemplate;

use super::error::LoadError;
use crate::error::Error;
use crate::probes::{self, ModelValues, TemplateFacts};

/// A model's chat templates by name; most models have one, named `default`.
#[derive(Debug, Default)]
pub struct Templates {
    compiled: Vec<NamedTemplate>,
    broken: Vec<BrokenTemplate>,
}

/// A chat template that does not compile, while others do.
#[derive(Debug)]
pub struct BrokenTemplate {
    /// Such as `tool_use` or `rag`; never `default`.
    pub name: String,
    /// The problem in its source.
    pub cause: Arc<LoadError>,
    /// Path of the model.
    path: PathBuf,
}

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

impl Templates {
    /// Compiles and probes every template of the model at `path`, with these values.
    ///
    /// # Errors
    /// The default template does not compile, or no template does. Another one that does not compile
    /// fails the requests that choose it.
    pub(super) fn compile(artifacts: &Artifacts, path: &Path, values: ModelValues<'_>) -> Result<Self, LoadError> {
        let (mut compiled, mut broken) = (Vec::new(), Vec::new());
        let deadline = probes::deadline();
        for name in artifacts.templates.names() {
            let source = artifacts.templates.get(name).unwrap_or_default();
            let failed = |source| LoadError::Template { path: path.to_owned(), name: name.to_owned(), source };
            let template = match ChatTemplate::compile(source).map_err(failed) {
                Ok(template) => template,
                Err(error) if name == "default" => return Err(error),
                Err(error) => {
                    broken.push((name, error));
                    continue;
                }
            };
            let sha256 = hex_sha256(source.as_bytes()).into();
            let core_sha256 = hex_sha256(core(source).as_bytes()).into();
            let facts = probes::facts_of(&template, &sha256, values, deadline);
            compiled.push(NamedTemplate { name: name.to_owned(), template, sha256, core_sha256, facts });
        }
        if compiled.is_empty() && !broken.is_empty() {
            return Err(broken.swap_remove(0).1);
        }
        let broken = broken.into_iter().map(|(name, cause)| {
            let (name, path) = (name.to_owned(), path.to_owned());
            BrokenTemplate { name, path, cause: Arc::new(cause) }
        });
        Ok(Self { compiled, broken: broken.collect() })
    }

    /// Returns true if the model ships no template.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.compiled.is_empty()
    }

    /// Returns the templates that do not compile.
    #[must_use]
    pub fn broken(&self) -> &[BrokenTemplate] {
        &self.broken
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

    /// Returns every template that compiles.
    pub fn iter(&self) -> impl Iterator<Item = &NamedTemplate> {
        self.compiled.iter()
    }

    /// Returns the template for a conversation, chosen as transformers chooses it. It is the
    /// requested one, else `tool_use` when there are tools and the model has one, else `default`.
    ///
    /// # Errors
    /// The model has no template of the requested name, or no `default`, or the chosen one does not
    /// compile.
    pub fn choose(&self, requested: Option<&str>, with_tools: bool) -> Result<&NamedTemplate, Error> {
        let named = |name: &str| {
            let compiled = self.compiled.iter().find(|template| template.name == name).map(Ok);
            compiled.or_else(|| Some(Err(self.broken.iter().find(|template| template.name == name)?.error())))
        };
        let tool_use = if with_tools { named("tool_use") } else { None };
        let found = match requested {
            Some(name) => named(name),
            None => tool_use.or_else(|| named("default")),
        };
        let names = self.compiled.iter().map(|template| &template.name);
        found.unwrap_or_else(|| {
            Err(Error::TemplateNotFound {
                template: requested.unwrap_or("default").to_owned(),
                known: names.chain(self.broken.iter().map(|template| &template.name)).cloned().collect(),
            })
        })
    }
}

impl BrokenTemplate {
    /// Returns the error of a request that chooses the template.
    fn error(&self) -> Error {
        Error::ModelNotLoaded { path: self.path.clone(), cause: Arc::clone(&self.cause) as _ }
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
