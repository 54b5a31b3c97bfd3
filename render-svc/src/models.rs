//! What the server knows of models: everything but their weights, and what is made of it once, at load.

mod config;
mod library;
mod table;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use tandem_common::artifacts::{Artifacts, ArtifactsError};
use tandem_common::digest::hex_sha256;
use tandem_common::template::{ChatTemplate, CompileError};
use tandem_common::tokenizer::{Tokenizer, TokenizerError};

pub use config::Settings;
pub use library::{Library, Rescan, Sources};
pub use table::{Entry, Models};

use crate::adapters::{Adapter, Choice, Registry};
use crate::capabilities::{self, Capabilities};
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
    /// None where the files hold no tokenizer.
    pub tokenizer: Option<Tokenizer>,
    /// What its template can take.
    pub capabilities: Capabilities,
    /// How its output is to be read.
    pub output_spec: OutputSpec,
    /// What tells control tokens from text, made when it is first asked for.
    control_tokens: OnceLock<Arc<ControlTokens>>,
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
    #[error("{} is no model: a model is a .gguf file, or a folder with a config.json, tokenizer_config.json or tokenizer.json", path.display())]
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
    #[error("cannot load {}", path.display())]
    Artifacts {
        /// The model.
        path: PathBuf,
        /// Why not.
        source: ArtifactsError,
    },
    /// The tokenizer cannot be built.
    #[error("cannot load the tokenizer of {}", path.display())]
    Tokenizer {
        /// The model.
        path: PathBuf,
        /// Why not.
        source: TokenizerError,
    },
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
        let artifacts =
            Artifacts::load(path).map_err(|source| LoadError::Artifacts { path: path.to_owned(), source })?;
        let mut model = Self::assemble(artifacts, path)?;
        model.id = settings.id.clone().unwrap_or_else(|| id(path));
        let choice = match &settings.adapter {
            Some(name) => registry.pinned(name, &model, "the model's settings"),
            None => registry.resolve(&model),
        };
        let failed = |source| LoadError::Adapter { path: path.to_owned(), source: Box::new(source) };
        model.choice = Some(choice.map_err(failed)?);
        Ok(model)
    }

    fn assemble(artifacts: Artifacts, path: &Path) -> Result<Self, LoadError> {
        let tokenizer =
            tokenizer(&artifacts).map_err(|source| LoadError::Tokenizer { path: path.to_owned(), source })?;
        let templates = Templates::compile(&artifacts, path)?;
        let named = artifacts.special_tokens.named.iter();
        let special_tokens = named.map(|(name, text)| (name.clone(), text.clone().into())).collect();
        Ok(Self {
            id: String::new(),
            output_spec: OutputSpec::infer(&artifacts, &templates, &special_tokens, tokenizer.as_ref()),
            capabilities: capabilities(&artifacts),
            artifacts,
            templates,
            special_tokens,
            tokenizer,
            control_tokens: OnceLock::new(),
            choice: None,
        })
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
        self.tokenizer.as_ref().ok_or_else(|| Error::NoTokenizer { model: self.id.clone() })
    }

    /// The control tokens of the prompts that `adapter` renders for it.
    ///
    /// # Errors
    /// It has no tokenizer.
    pub fn control_tokens(&self, adapter: &Adapter) -> Result<Arc<ControlTokens>, Error> {
        let tokenizer = self.tokenizer()?;
        let make = || ControlTokens::new(tokenizer, &self.templates, adapter.markup).map(Arc::new);
        match (self.choice()?.adapter.name == adapter.name, self.control_tokens.get()) {
            (true, Some(made)) => Ok(Arc::clone(made)),
            (true, None) => make().map(|made| Arc::clone(self.control_tokens.get_or_init(|| made))),
            (false, _) => make(),
        }
    }
}

/// What the model's template can take. The built-in formats, which serve models without one, take system messages.
fn capabilities(artifacts: &Artifacts) -> Capabilities {
    let template = artifacts.templates.get("default");
    let mut inferred = capabilities::infer(template, &artifacts.name, artifacts.architecture.as_deref());
    inferred.supports_system_role |= artifacts.templates.is_empty() && !inferred.is_empty();
    inferred
}

/// The model's tokenizer. A folder without a tokenizer.json has none, which is no error: rendering needs none.
fn tokenizer(artifacts: &Artifacts) -> Result<Option<Tokenizer>, TokenizerError> {
    match artifacts.tokenizer() {
        Ok(tokenizer) => Ok(Some(tokenizer)),
        Err(TokenizerError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
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

/// Whether there is a model at `path`.
#[must_use]
pub fn is_model(path: &Path) -> bool {
    let files = ["config.json", "tokenizer_config.json", "tokenizer.json"];
    match path.is_dir() {
        true => files.iter().any(|file| path.join(file).is_file()),
        false => path.is_file() && path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf")),
    }
}
