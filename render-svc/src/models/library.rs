//! The models of a server: found at start, and again whenever it is asked for, while requests go on with what they have.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::SystemTime;

use tandem_common::status::chain;
use tandem_model_files::artifacts::is_model;

use super::config::Config;
use super::{Entry, LoadError, Model, Models, Settings, id};
use crate::adapters::Registry;

/// Where models are looked for.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// Each a model, or a folder of models.
    pub models: Vec<PathBuf>,
    /// A TOML file with a list of `[[models]]`: path, id, aliases, adapter.
    pub config: Option<PathBuf>,
}

/// The models of a server. Requests take the table as it is when they come; a rescan puts another in its place.
#[derive(Debug)]
pub struct Library {
    sources: Sources,
    registry: Registry,
    table: RwLock<Arc<Models>>,
    /// One rescan at a time.
    scanning: Mutex<()>,
}

/// What a rescan found, in ids.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rescan {
    /// Read for the first time, or again.
    pub loaded: Vec<String>,
    /// As they were.
    pub kept: Vec<String>,
    /// No longer there.
    pub removed: Vec<String>,
    /// Could not be read. Those that could be before are kept as they were.
    pub failed: Vec<String>,
}

impl Library {
    /// Loads every model.
    ///
    /// # Errors
    /// A source cannot be read, two models have one id, or not a single model loads. A model that does not load beside others that do
    /// is logged, and whoever asks for it is told why.
    pub fn open(sources: Sources, registry: Registry) -> Result<Self, LoadError> {
        let library = Self { sources, registry, table: RwLock::default(), scanning: Mutex::default() };
        library.rescan()?;
        match library.models().entries().map(|(_, entry)| &entry.model).min_by_key(|model| model.is_err()) {
            Some(Err(problem)) => Err(LoadError::NoneLoaded(Arc::clone(problem))),
            None if !library.sources.models.is_empty() => {
                Err(LoadError::NotAModel { path: library.sources.models[0].clone() })
            }
            _ => Ok(library),
        }
    }

    /// The models as they are now.
    #[must_use]
    pub fn models(&self) -> Arc<Models> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The adapters.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Looks for models again. Those whose files have not changed are kept; one that was good and no longer loads stays as it was.
    ///
    /// # Errors
    /// A source cannot be read, or two models have one id: then everything stays as it is.
    pub fn rescan(&self) -> Result<Rescan, LoadError> {
        let _one = self.scanning.lock().unwrap_or_else(PoisonError::into_inner);
        let (models, report) = scan(&self.sources, &self.registry, &self.models())?;
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(models);
        Ok(report)
    }
}

fn scan(sources: &Sources, registry: &Registry, before: &Models) -> Result<(Models, Rescan), LoadError> {
    let config = sources.config.as_deref().map(Config::read).transpose()?.unwrap_or_default();
    let (mut after, mut report) = (Models::default(), Rescan::default());
    for path in paths(sources, &config)? {
        let settings = config.settings(&path);
        let (outcome, id, entry) = visit(path, settings, registry, before);
        outcome.of(&mut report).push(id.clone());
        after.add(id, entry)?;
    }
    let gone = before.entries().filter(|(id, _)| after.entry(id).is_err());
    report.removed = gone.map(|(id, _)| id.to_owned()).collect();
    Ok((after, report))
}

/// What became of a model.
#[derive(Debug, Clone, Copy)]
enum Outcome {
    Loaded,
    Kept,
    Failed,
}

impl Outcome {
    fn of(self, report: &mut Rescan) -> &mut Vec<String> {
        match self {
            Self::Loaded => &mut report.loaded,
            Self::Kept => &mut report.kept,
            Self::Failed => &mut report.failed,
        }
    }
}

/// The model at `path` under its id: as it was, if nothing has changed or it no longer loads, else read anew.
fn visit(path: PathBuf, settings: Settings, registry: &Registry, before: &Models) -> (Outcome, String, Entry) {
    let stamp = Stamp::of(&path, &settings);
    let known = before.entries().find(|(_, entry)| entry.path == path);
    if let Some((id, entry)) = known.filter(|(_, entry)| entry.stamp == stamp) {
        return (Outcome::Kept, id.to_owned(), entry.clone());
    }
    let id = settings.id.clone().unwrap_or_else(|| id(&path));
    match Model::load_with(&path, &settings, registry) {
        Ok(model) => {
            tracing::info!(model = id, tokenizer = model.tokenizer.is_ok(), "model loaded");
            if let Some(problem) = model.tokenizer_problem() {
                tracing::warn!(model = id, "the tokenizer cannot be used: {problem}");
            }
            let model = Ok(Arc::new(model));
            (Outcome::Loaded, id, Entry { path, aliases: settings.aliases, stamp, model, problem: None })
        }
        Err(error) => {
            tracing::error!(path = %path.display(), "model not loaded: {}", chain(&error));
            let problem = Arc::new(error);
            match known.filter(|(_, entry)| entry.model.is_ok()) {
                Some((id, entry)) => {
                    (Outcome::Failed, id.to_owned(), Entry { problem: Some(problem), ..entry.clone() })
                }
                None => {
                    let model = Err(Arc::clone(&problem));
                    let entry = Entry { path, aliases: settings.aliases, stamp, model, problem: Some(problem) };
                    (Outcome::Failed, id, entry)
                }
            }
        }
    }
}

/// The path of every model, once; those of the configuration first.
fn paths(sources: &Sources, config: &Config) -> Result<Vec<PathBuf>, LoadError> {
    let mut paths: Vec<PathBuf> = config.paths().map(Path::to_owned).collect();
    for source in &sources.models {
        paths.extend(models_at(source)?);
    }
    let mut seen = HashSet::new();
    paths.retain(|path| seen.insert(path.canonicalize().unwrap_or_else(|_| path.clone())));
    Ok(paths)
}

/// The models at `path`: itself, or those in it, if any.
fn models_at(path: &Path) -> Result<Vec<PathBuf>, LoadError> {
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
    Ok(found)
}

/// Tells whether a model has changed: the names, sizes and times of its files, and what the configuration says of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Stamp {
    files: Vec<(PathBuf, u64, Option<SystemTime>)>,
    settings: Settings,
}

impl Stamp {
    fn of(path: &Path, settings: &Settings) -> Self {
        let mut files = Vec::new();
        add_files(path, &mut files);
        files.sort();
        Self { files, settings: settings.clone() }
    }
}

/// The file at `path`, or those in the folder, and in its folder of further templates.
fn add_files(path: &Path, files: &mut Vec<(PathBuf, u64, Option<SystemTime>)>) {
    let file = |path: PathBuf| {
        let metadata = fs::metadata(&path).ok().filter(fs::Metadata::is_file)?;
        Some((path, metadata.len(), metadata.modified().ok()))
    };
    files.extend(file(path.to_owned()));
    for folder in [path.to_owned(), path.join("additional_chat_templates")] {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        files.extend(entries.filter_map(|entry| file(entry.path())));
    }
}
