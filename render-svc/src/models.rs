//! What the server knows of models: everything but their weights, and what is made of it once, at load.

mod config;
mod library;
mod table;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use tandem_common::status::chain;
use tandem_model_files::artifacts::{Artifacts, ArtifactsError};
use tandem_model_files::digest::hex_sha256;
use tandem_model_files::tokenizer::{Tokenizer, TokenizerError};
use tandem_template::{ChatTemplate, CompileError};

pub use config::Settings;
pub use library::{Library, Rescan, Sources};
pub use table::{Entry, Models};

use crate::adapters::{Adapter, Choice, Kind, Registry};
use crate::capabilities::{self, Capabilities, LeadingSystem};
use crate::chat::Object;
use crate::control_tokens::ControlTokens;
use crate::error::Error;
use crate::output_spec::OutputSpec;

/// A model as the render service knows it.
#[derive(Debug)]
pub struct Model {
    /// What requests call it.
    pub id: String,
    /// What its files say.
    pub artifacts: Artifacts,
    /// Its chat templates, compiled.
    pub templates: Templates,
    /// Named special tokens and their text, as templates see them.
    pub special_tokens: Object,
    /// Its tokenizer, or why it has none. Rendering needs none.
    pub tokenizer: Result<Tokenizer, Arc<TokenizerError>>,
    /// What its template can take.
    pub capabilities: Capabilities,
    /// How its output is to be read, whatever renders its prompts.
    own_output_spec: OutputSpec,
    /// The same by the name of the adapter; made when it is first asked for.
    output_specs: RwLock<BTreeMap<&'static str, Arc<OutputSpec>>>,
    /// The last two parts of its path, as it was given and with links followed.
    repositories: Vec<String>,
    /// What tells control tokens from text, by the name of the adapter; made when it is first asked for.
    control_tokens: RwLock<BTreeMap<&'static str, Arc<ControlTokens>>>,
    /// The adapter that renders for it unless a request pins another.
    choice: Option<Choice>,
}

/// A model's chat templates by name; most have one, named `default`.
#[derive(Debug, Default)]
pub struct Templates(Vec<NamedTemplate>);

/// One of a model's chat templates.
#[derive(Debug)]
pub struct NamedTemplate {
    /// Such as `default` or `tool_use`.
    pub name: String,
    /// Compiled.
    pub template: ChatTemplate,
    /// Of its source; lower-case hex.
    pub sha256: Arc<str>,
}

/// Why a model could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A folder or file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The folder.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// There is no model there.
    #[error("there is no model at {}: a model is a .gguf file, or a folder with a tokenizer_config.json, tokenizer.json, config.json or chat_template.jinja", path.display())]
    NotAModel {
        /// What was looked at.
        path: PathBuf,
    },
    /// The configuration of models is not what it should be.
    #[error("{}: {problem}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        problem: String,
    },
    /// Two models would have the same id or alias.
    #[error("two models are called {id:?}: {} and {}", first.display(), second.display())]
    DuplicateId {
        /// The id or alias.
        id: String,
        /// One of them.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
    /// The model's files cannot be read.
    #[error(transparent)]
    Artifacts(#[from] ArtifactsError),
    /// A chat template does not compile.
    #[error("the chat template {name:?} of {} does not compile", path.display())]
    Template {
        /// The model.
        path: PathBuf,
        /// The template's name.
        name: String,
        /// Why not.
        source: CompileError,
    },
    /// There are models, and not one of them can be loaded.
    #[error(transparent)]
    NoneLoaded(Arc<LoadError>),
    /// No adapter renders for it.
    #[error("cannot choose an adapter for {}", path.display())]
    Adapter {
        /// The model.
        path: PathBuf,
        /// Why not.
        source: Box<Error>,
    },
}

impl Model {
    /// Loads the model at `path`: a GGUF file or a Hugging Face folder. Its id is the file's name without `.gguf`, or the folder's.
    ///
    /// # Errors
    /// [`LoadError`], naming the path.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        Self::load_with(path, &Settings::default(), &Registry::default())
    }

    /// Loads the model at `path` as its settings say.
    ///
    /// # Errors
    /// [`LoadError`], naming the path.
    pub fn load_with(path: &Path, settings: &Settings, registry: &Registry) -> Result<Self, LoadError> {
        let artifacts = Artifacts::load(path)?;
        let (templates, problem) = match Templates::compile(&artifacts, path) {
            Ok(templates) => (templates, None),
            Err(problem) => (Templates::default(), Some(problem)),
        };
        let mut model = Self::assemble(artifacts, templates, settings.capabilities);
        model.id = settings.id.clone().unwrap_or_else(|| id(path));
        let choice = match &settings.adapter {
            Some(name) => registry.pinned(name, &model, "the model's settings"),
            None => registry.resolve(&model),
        };
        let failed = |source| LoadError::Adapter { path: path.to_owned(), source: Box::new(source) };
        let choice = choice.map_err(failed)?;
        // A family's own encoder never looks at the template that the model may ship.
        if let Some(problem) = problem.filter(|_| choice.adapter.kind != Kind::Family) {
            return Err(problem);
        }
        model.choice = Some(choice);
        Ok(model)
    }

    fn assemble(artifacts: Artifacts, templates: Templates, capabilities: Option<Capabilities>) -> Self {
        let tokenizer = artifacts.tokenizer().map_err(Arc::new);
        let named = artifacts.special_tokens.named.iter();
        let special_tokens = named.map(|(name, text)| (name.clone(), text.clone().into())).collect();
        let capabilities =
            capabilities.unwrap_or_else(|| inferred_capabilities(&artifacts, &templates, &special_tokens));
        let usable = tokenizer.as_ref().ok();
        Self {
            id: String::new(),
            own_output_spec: OutputSpec::infer(&artifacts, &templates, &special_tokens, usable, capabilities),
            output_specs: RwLock::default(),
            repositories: repositories(&artifacts.path),
            capabilities,
            artifacts,
            templates,
            special_tokens,
            tokenizer,
            control_tokens: RwLock::default(),
            choice: None,
        }
    }

    /// The adapter that renders for it unless a request pins another.
    ///
    /// # Errors
    /// None was chosen, which cannot be of a model that was loaded.
    pub fn choice(&self) -> Result<&Choice, Error> {
        self.choice.as_ref().ok_or_else(|| Error::AdapterNotFound { adapter: String::new(), known: Vec::new() })
    }

    /// The model's tokenizer.
    ///
    /// # Errors
    /// It has none.
    pub fn tokenizer(&self) -> Result<&Tokenizer, Error> {
        self.tokenizer.as_ref().map_err(|problem| Error::NoTokenizer {
            model: self.id.clone(),
            path: self.artifacts.path.clone(),
            problem: chain(problem),
        })
    }

    /// What is wrong with its tokenizer, where it has one that cannot be used.
    #[must_use]
    pub fn tokenizer_problem(&self) -> Option<String> {
        match &self.tokenizer {
            Err(error) if !is_missing(error) => Some(chain(error)),
            _ => None,
        }
    }

    /// How the model's answers to the prompts of `adapter` are to be read.
    #[must_use]
    pub fn output_spec(&self, adapter: &Adapter) -> Arc<OutputSpec> {
        if let Some(made) = self.output_specs.read().unwrap_or_else(PoisonError::into_inner).get(adapter.name) {
            return Arc::clone(made);
        }
        let Self { artifacts, templates, tokenizer, .. } = self;
        let made = self.own_output_spec.of_adapter(adapter, artifacts, templates, tokenizer.as_ref().ok());
        let made = Arc::new(made);
        let mut all = self.output_specs.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(adapter.name).or_insert(made))
    }

    /// Whether it is the model of this repository, such as `deepseek-ai/DeepSeek-V3.2`: by its id, its name, or the last two parts
    /// of its path, in any case.
    #[must_use]
    pub fn is_repository(&self, repository: &str) -> bool {
        let names = [&self.id, &self.artifacts.name];
        names.into_iter().chain(&self.repositories).any(|name| name.eq_ignore_ascii_case(repository))
    }

    /// The control tokens of the prompts that `adapter` renders for it.
    ///
    /// # Errors
    /// It has no tokenizer.
    pub fn control_tokens(&self, adapter: &Adapter) -> Result<Arc<ControlTokens>, Error> {
        let tokenizer = self.tokenizer()?;
        if let Some(made) = self.control_tokens.read().unwrap_or_else(PoisonError::into_inner).get(adapter.name) {
            return Ok(Arc::clone(made));
        }
        let made = Arc::new(ControlTokens::new(tokenizer, &self.templates, adapter.markup)?);
        let mut all = self.control_tokens.write().unwrap_or_else(PoisonError::into_inner);
        Ok(Arc::clone(all.entry(adapter.name).or_insert(made)))
    }
}

/// What the model's templates can take: the default one, and what the others add in tools and reasoning. The built-in formats, which
/// serve models without one, take system messages.
fn inferred_capabilities(artifacts: &Artifacts, compiled: &Templates, special_tokens: &Object) -> Capabilities {
    let Artifacts { templates, name, architecture, .. } = artifacts;
    let mut inferred = capabilities::infer(templates.get("default"), name, architecture.as_deref());
    for source in templates.names().filter_map(|name| templates.get(name)) {
        let of_this = capabilities::infer(Some(source), "", None);
        inferred.supports_tool_calls |= of_this.supports_tool_calls;
        inferred.supports_reasoning |= of_this.supports_reasoning;
    }
    inferred.supports_system_role |= templates.is_empty() && !inferred.is_empty();
    let default = compiled.choose(None, false).ok().map(|named| &named.template);
    let undecided = default.filter(|template| !capabilities::says_it_takes_system(template.source()));
    match undecided.map(|template| capabilities::leading_system(template, special_tokens)) {
        Some(LeadingSystem::Shown) => inferred.supports_system_role = true,
        Some(LeadingSystem::Rejected) => {
            (inferred.supports_system_role, inferred.rejects_system_role) = (false, true);
        }
        Some(LeadingSystem::Unknown) | None => {}
    }
    inferred
}

/// The last two parts of a path, as it was given and with links followed, each joined by a slash.
fn repositories(path: &Path) -> Vec<String> {
    let paths = [std::path::absolute(path), path.canonicalize()];
    paths.into_iter().flatten().flat_map(|path| of_model_or_file(&path)).filter_map(|path| last_two(&path)).collect()
}

/// A folder, or a GGUF file without its extension and the folder that it lies in.
fn of_model_or_file(path: &Path) -> Vec<PathBuf> {
    match path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf")) {
        true => [Some(path.with_extension("")), path.parent().map(Path::to_owned)].into_iter().flatten().collect(),
        false => vec![path.to_owned()],
    }
}

fn last_two(path: &Path) -> Option<String> {
    let mut parts = path.components().rev().map(|part| part.as_os_str().to_string_lossy());
    let (name, owner) = (parts.next()?, parts.next()?);
    Some(format!("{owner}/{name}"))
}

/// Whether there is no tokenizer rather than a broken one.
fn is_missing(error: &TokenizerError) -> bool {
    matches!(error, TokenizerError::Read { source, .. } if source.kind() == io::ErrorKind::NotFound)
}

impl Templates {
    fn compile(artifacts: &Artifacts, path: &Path) -> Result<Self, LoadError> {
        let mut compiled = Vec::new();
        for name in artifacts.templates.names() {
            let failed = |source| LoadError::Template { path: path.to_owned(), name: name.to_owned(), source };
            let source = artifacts.templates.get(name).unwrap_or_default();
            let template = ChatTemplate::compile(source).map_err(failed)?;
            compiled.push(NamedTemplate {
                name: name.to_owned(),
                template,
                sha256: hex_sha256(source.as_bytes()).into(),
            });
        }
        Ok(Self(compiled))
    }

    /// Whether the model ships no template.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one of them holds this text as data or in a string.
    #[must_use]
    pub fn write(&self, text: &str) -> bool {
        self.iter().any(|named| named.template.literal_text().contains(text))
    }

    /// Whether the source of one of them holds this text.
    #[must_use]
    pub fn mention(&self, text: &str) -> bool {
        self.iter().any(|named| named.template.source().contains(text))
    }

    /// Every template.
    pub fn iter(&self) -> impl Iterator<Item = &NamedTemplate> {
        self.0.iter()
    }

    /// The template for a conversation, as transformers chooses it: the one that is asked for by name, else `tool_use` when there are
    /// tools and there is one, else `default`.
    ///
    /// # Errors
    /// There is none of that name, or no `default`.
    pub fn choose(&self, asked_for: Option<&str>, with_tools: bool) -> Result<&NamedTemplate, Error> {
        let named = |name: &str| self.iter().find(|template| template.name == name);
        let tool_use = if with_tools { named("tool_use") } else { None };
        let found = match asked_for {
            Some(name) => named(name),
            None => tool_use.or_else(|| named("default")),
        };
        found.ok_or_else(|| Error::TemplateNotFound {
            template: asked_for.unwrap_or("default").to_owned(),
            known: self.iter().map(|template| template.name.clone()).collect(),
        })
    }
}

fn id(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    match name.rsplit_once('.') {
        Some((stem, extension)) if extension.eq_ignore_ascii_case("gguf") => stem.to_owned(),
        _ => name.into_owned(),
    }
}
