//! The facts of one model folder or GGUF file, apart from weights: templates, special tokens,
//! tokenizer, capabilities.

mod encoder;
mod error;
mod templates;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tandem_common::status::chain;
use tandem_model_files::artifacts::{Artifacts, locate, model_name};
use tandem_model_files::tokenizer::{Tokenizer, TokenizerError};
use tandem_template::literal::ControlTokenFinder;

pub use error::LoadError;
pub use templates::{BrokenTemplate, NamedTemplate, Templates};

use crate::capabilities::{Capabilities, Evidence, Inferred};
use crate::conversation::Object;
use crate::error::Error;
use crate::fact::FactSource;
use crate::probes::{ModelValues, TemplateFacts};

/// A model without its weights.
#[derive(Debug)]
pub struct Model {
    /// The name that requests use.
    pub id: String,
    /// The ids under which the generation service may serve it.
    pub generation_ids: Arc<[String]>,
    /// True if its id at the generation service is configured.
    pub has_generate_id: bool,
    /// The contents of its files.
    pub artifacts: Artifacts,
    /// Its chat templates, compiled; empty if the default one does not compile.
    pub templates: Templates,
    /// Named special tokens and their text, as templates see them.
    pub special_tokens: Object,
    /// Its tokenizer, or the reason why it has none. Rendering needs none.
    pub tokenizer: Result<Tokenizer, Arc<TokenizerError>>,
    /// The features that its template supports.
    pub capabilities: Capabilities,
    /// How each capability was found, by name.
    pub capability_sources: Vec<(&'static str, FactSource)>,
    /// Arguments for its template where a request sets none, by name.
    pub toggles: Object,
    /// The configured ids of the tokens that end its turn. Empty if they are not configured.
    pub configured_eos: Vec<u32>,
    /// The configured name of the rules that read its answers.
    pub configured_rules: Option<String>,
    /// True if its files have an image processor, or a template that writes images.
    pub takes_images: bool,
    /// The source of the maker's own encoder in its folder, if any.
    pub encoder_source: Option<String>,
    /// The last two parts of its path, as given and with links followed, and its aliases.
    repositories: Vec<String>,
}

/// The configured names of a model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelIds {
    /// The id of requests. Default: the name of the file or folder.
    pub id: Option<String>,
    /// Other ids of requests.
    pub aliases: Vec<String>,
    /// The id at the generation service. Default: any of the others, or the name of the file or
    /// folder.
    pub generate_id: Option<String>,
}

/// Configured facts of a model, in place of the facts that its files show.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    /// The capabilities of its template. None means the inferred capabilities.
    pub capabilities: Option<Capabilities>,
    /// The ids of the tokens that end its turn. Empty means the inferred ids.
    pub eos_token_ids: Vec<u32>,
    /// Arguments for its template where a request sets none, by name.
    pub toggles: Object,
    /// The name of the rules that read its answers. None means the rules that its files show.
    pub answer_rules: Option<String>,
}

impl ModelIds {
    fn generation_ids(&self, path: &Path) -> Arc<[String]> {
        let default = default_id(path);
        match &self.generate_id {
            Some(id) => [id.clone()].into(),
            None => self.id.iter().chain(&self.aliases).chain([&default]).cloned().collect(),
        }
    }
}

impl Model {
    /// Loads the model at `path`, a GGUF file or a Hugging Face folder, with its default id and
    /// inferred capabilities.
    ///
    /// # Errors
    /// Its files cannot be read.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        Self::load_as(path, ModelIds::default(), Overrides::default()).map(|(model, _)| model)
    }

    /// Loads the model at `path` with the given id and overrides. The default id is the file's
    /// name without `.gguf`, or the folder's name. Also returns the error of a default template that
    /// does not compile, since some adapters read none.
    ///
    /// # Errors
    /// Its files cannot be read.
    pub fn load_as(path: &Path, ids: ModelIds, overrides: Overrides) -> Result<(Self, Option<LoadError>), LoadError> {
        let artifacts = Artifacts::load(path)?;
        let named = artifacts.special_tokens.named.iter();
        let special_tokens: Object = named.map(|(name, text)| (name.clone(), text.clone().into())).collect();
        let Overrides { capabilities, eos_token_ids, toggles, answer_rules } = overrides;
        let values = ModelValues { special_tokens: &special_tokens, toggles: &toggles };
        let (templates, template_error) = match Templates::compile(&artifacts, path, values) {
            Ok(templates) => (templates, None),
            Err(error) => (Templates::default(), Some(error)),
        };
        let Inferred { capabilities, sources } = match capabilities {
            Some(capabilities) => Inferred::configured(capabilities),
            None => inferred_capabilities(&artifacts, &templates),
        };
        let model = Self {
            generation_ids: ids.generation_ids(path),
            has_generate_id: ids.generate_id.is_some(),
            id: ids.id.unwrap_or_else(|| default_id(path)),
            capabilities,
            capability_sources: sources,
            toggles,
            configured_eos: eos_token_ids,
            configured_rules: answer_rules,
            tokenizer: artifacts.tokenizer().map_err(Arc::new),
            repositories: repositories(&artifacts.path).into_iter().chain(ids.aliases).collect(),
            encoder_source: encoder::source(&artifacts.path),
            takes_images: takes_images(&artifacts, &templates),
            artifacts,
            templates,
            special_tokens,
        };
        Ok((model, template_error))
    }

    /// Returns the facts about the default template. None without one.
    #[must_use]
    pub fn facts(&self) -> Option<&TemplateFacts> {
        self.templates.choose(None, false).ok().map(|named| &*named.facts)
    }

    /// Returns the facts about the template for conversations with tools.
    #[must_use]
    pub fn tool_facts(&self) -> Option<&TemplateFacts> {
        self.templates.choose(None, true).ok().map(|named| &*named.facts)
    }

    /// Returns true if the configuration states the capabilities.
    #[must_use]
    pub fn has_configured_capabilities(&self) -> bool {
        self.capability_sources.iter().any(|(_, source)| *source == FactSource::Configuration)
    }

    /// Returns the values that it gives its template in addition to a conversation.
    #[must_use]
    pub fn values(&self) -> ModelValues<'_> {
        ModelValues { special_tokens: &self.special_tokens, toggles: &self.toggles }
    }

    /// Returns the model's tokenizer.
    ///
    /// # Errors
    /// The model has no usable tokenizer.
    pub fn tokenizer(&self) -> Result<&Tokenizer, Error> {
        self.tokenizer.as_ref().map_err(|problem| Error::NoTokenizer {
            model: self.id.clone(),
            path: self.artifacts.path.clone(),
            problem: chain(problem),
        })
    }

    /// Returns the finder of control tokens in this model's prompts, for an adapter that writes `markup`.
    ///
    /// # Errors
    /// The model has no usable tokenizer, or too many control tokens to search for.
    pub fn control_tokens(&self, markup: &[&str]) -> Result<ControlTokenFinder, Error> {
        let is_written = |text: &str| markup.contains(&text) || self.templates.write(text);
        Ok(ControlTokenFinder::new(self.tokenizer()?.control_tokens(is_written))?)
    }

    /// Returns the problem of a tokenizer that exists and cannot be used.
    #[must_use]
    pub fn tokenizer_problem(&self) -> Option<String> {
        match &self.tokenizer {
            Err(error) if !is_missing(error) => Some(chain(error)),
            _ => None,
        }
    }

    /// Returns true if it is the model of this repository, such as `deepseek-ai/DeepSeek-V3.2`. The
    /// repository is its id, an alias, its name, or the last two parts of its path, in any case.
    #[must_use]
    pub fn is_repository(&self, repository: &str) -> bool {
        let names = [&self.id, &self.artifacts.name];
        names.into_iter().chain(&self.repositories).any(|name| name.eq_ignore_ascii_case(repository))
    }
}

/// Returns the capabilities of a model.
fn inferred_capabilities(artifacts: &Artifacts, compiled: &Templates) -> Inferred {
    let Artifacts { templates, name, architecture, .. } = artifacts;
    let facts = |with_tools| compiled.choose(None, with_tools).ok().map(|named| &*named.facts);
    let evidence = Evidence {
        facts: facts(false),
        tool_facts: facts(true),
        template: templates.get("default"),
        name,
        architecture: architecture.as_deref(),
    };
    evidence.capabilities()
}

/// Returns true if the model's files have an image processor, or a template that writes images.
fn takes_images(artifacts: &Artifacts, templates: &Templates) -> bool {
    const PROCESSORS: [&str; 2] = ["preprocessor_config.json", "processor_config.json"];
    templates.mention("image")
        || artifacts.config.get("vision_config").is_some()
        || PROCESSORS.iter().any(|file| artifacts.path.join(file).exists())
}

/// Returns the last two parts of a path, as given and with links followed, each joined by a slash.
fn repositories(path: &Path) -> Vec<String> {
    let paths = [std::path::absolute(path), path.canonicalize()];
    paths.into_iter().flatten().flat_map(|path| of_model_or_file(&path)).filter_map(|path| last_two(&path)).collect()
}

/// Returns a folder itself, or a GGUF file without its extension and the folder that contains it.
fn of_model_or_file(path: &Path) -> Vec<PathBuf> {
    if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf")) {
        [Some(path.with_file_name(model_name(path))), path.parent().map(Path::to_owned)].into_iter().flatten().collect()
    } else {
        vec![path.to_owned()]
    }
}

fn last_two(path: &Path) -> Option<String> {
    let mut parts = path.components().rev().map(|part| part.as_os_str().to_string_lossy());
    let (name, owner) = (parts.next()?, parts.next()?);
    Some(format!("{owner}/{name}"))
}

/// Returns true if there is no tokenizer, rather than a broken one.
fn is_missing(error: &TokenizerError) -> bool {
    matches!(error, TokenizerError::Absent { .. })
}

/// Returns the name of the model at a path, which the generation service uses too.
#[must_use]
pub fn default_id(path: &Path) -> String {
    model_name(&locate(path).unwrap_or_else(|_| path.to_owned()))
}
