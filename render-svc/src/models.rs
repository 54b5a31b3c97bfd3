//! The model table: id → what is known of the model, and what is made of it once, at load.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use tandem_common::artifacts::{Artifacts, ArtifactsError};
use tandem_common::template::{ChatTemplate, CompileError};
use tandem_common::tokenizer::{Tokenizer, TokenizerError};

use crate::capabilities::{self, Capabilities};
use crate::chat::Object;
use crate::error::Error;
use crate::output_spec::OutputSpec;

/// A model as the render service knows it: everything but its weights.
#[derive(Debug)]
pub struct Model {
    /// What requests call it.
    pub id: String,
    /// What its files say.
    pub artifacts: Artifacts,
    /// Its chat templates, compiled.
    pub templates: Templates,
    /// Of the template that conversations without tools get; lower-case hex.
    pub template_sha256: Option<String>,
    /// Named special tokens and their text, as templates see them.
    pub special_tokens: Object,
    /// None where the files hold no tokenizer.
    pub tokenizer: Option<Tokenizer>,
    /// What its template can take.
    pub capabilities: Capabilities,
    /// How its output is to be read.
    pub output_spec: OutputSpec,
}

/// A model's chat templates by name; most have one, named `default`.
#[derive(Debug, Default)]
pub struct Templates(Vec<(String, ChatTemplate)>);

/// Why a model could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A folder cannot be listed.
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
    /// Two models would have the same id.
    #[error("two models are called {id:?}: {} and another", path.display())]
    DuplicateId {
        /// The id.
        id: String,
        /// The second one.
        path: PathBuf,
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
}

impl Model {
    /// Loads the model at `path`: a GGUF file or a Hugging Face folder. Its id is the file's name without `.gguf`, or the folder's.
    ///
    /// # Errors
    /// [`LoadError`], naming the path.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        let artifacts =
            Artifacts::load(path).map_err(|source| LoadError::Artifacts { path: path.to_owned(), source })?;
        let tokenizer =
            tokenizer(&artifacts).map_err(|source| LoadError::Tokenizer { path: path.to_owned(), source })?;
        let templates = Templates::compile(&artifacts, path)?;
        let named = artifacts.special_tokens.named.iter();
        let special_tokens = named.map(|(name, text)| (name.clone(), text.clone().into())).collect();
        let output_spec = OutputSpec::infer(&artifacts, &templates, &special_tokens, tokenizer.as_ref());
        let default = artifacts.templates.get("default");
        let capabilities = capabilities::infer(default, &artifacts.name, artifacts.architecture.as_deref());
        let template_sha256 = artifacts.templates.sha256("default");
        Ok(Self {
            id: id(path),
            artifacts,
            templates,
            template_sha256,
            special_tokens,
            tokenizer,
            capabilities,
            output_spec,
        })
    }

    /// The model's tokenizer.
    ///
    /// # Errors
    /// It has none.
    pub fn tokenizer(&self) -> Result<&Tokenizer, Error> {
        self.tokenizer.as_ref().ok_or_else(|| Error::NoTokenizer { model: self.id.clone() })
    }
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
            compiled.push((name.to_owned(), ChatTemplate::compile(source).map_err(failed)?));
        }
        Ok(Self(compiled))
    }

    /// Whether the model ships no template.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The template for a conversation, as transformers chooses it: `tool_use` when there are tools and there is one, else `default`.
    ///
    /// # Errors
    /// There is no `default`.
    pub fn choose(&self, with_tools: bool) -> Result<&ChatTemplate, Error> {
        let named = |name: &str| self.0.iter().find(|(n, _)| n == name).map(|(_, template)| template);
        let tool_use = if with_tools { named("tool_use") } else { None };
        tool_use
            .or_else(|| named("default"))
            .ok_or_else(|| Error::TemplateNotFound { names: self.0.iter().map(|(name, _)| name.clone()).collect() })
    }
}

/// Every model that the server has, by id.
#[derive(Debug, Default)]
pub struct Models(BTreeMap<String, Arc<Model>>);

impl From<Model> for Models {
    /// A table of one.
    fn from(model: Model) -> Self {
        Self(BTreeMap::from([(model.id.clone(), Arc::new(model))]))
    }
}

impl Models {
    /// Loads every model at `paths`, each a model or a folder of models.
    ///
    /// # Errors
    /// [`LoadError`] of the first model that does not load.
    pub fn load(paths: &[PathBuf]) -> Result<Self, LoadError> {
        let mut models = Self::default();
        for path in paths {
            for path in model_paths(path)? {
                models.add(&path)?;
            }
        }
        Ok(models)
    }

    fn add(&mut self, path: &Path) -> Result<(), LoadError> {
        let model = Model::load(path)?;
        tracing::info!(model = model.id, tokenizer = model.tokenizer.is_some(), "model loaded");
        let id = model.id.clone();
        match self.0.insert(id.clone(), Arc::new(model)) {
            None => Ok(()),
            Some(_) => Err(LoadError::DuplicateId { id, path: path.to_owned() }),
        }
    }

    /// The model of that id; the only one, for an empty id.
    ///
    /// # Errors
    /// There is none, or an empty id could mean several.
    pub fn get(&self, id: &str) -> Result<&Arc<Model>, Error> {
        match (id, self.0.len()) {
            ("", 1) => self.0.values().next().ok_or_else(|| Error::ModelNotNamed { known: Vec::new() }),
            ("", _) => Err(Error::ModelNotNamed { known: self.ids() }),
            _ => self.0.get(id).ok_or_else(|| Error::ModelNotFound { model: id.to_owned(), known: self.ids() }),
        }
    }

    /// Every model, by id.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Model>> {
        self.0.values()
    }

    fn ids(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }
}

fn id(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    match name.rsplit_once('.') {
        Some((stem, extension)) if extension.eq_ignore_ascii_case("gguf") => stem.to_owned(),
        _ => name.into_owned(),
    }
}

/// The models at `path`: itself, or those in it.
fn model_paths(path: &Path) -> Result<Vec<PathBuf>, LoadError> {
    if is_model(path) {
        return Ok(vec![path.to_owned()]);
    }
    let failed = |source| LoadError::Read { path: path.to_owned(), source };
    let mut found = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        found.push(entry.map_err(failed)?.path());
    }
    found.retain(|path| is_model(path));
    found.sort();
    match found.is_empty() {
        true => Err(LoadError::NotAModel { path: path.to_owned() }),
        false => Ok(found),
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
