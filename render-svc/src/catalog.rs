//! The models of a server: loaded at start and reloaded on request. Running requests keep the table
//! that they started with.

mod config;
mod encoder_arguments;
mod error;
pub mod facts;
mod prompt_format;
mod served_model;
mod sources;
mod stamp;
mod table;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tandem_common::status::chain;
use tokio::sync::watch;

use self::config::Config;
use self::stamp::Stamp;
use crate::adapters::Registry;
use crate::model::default_id;

pub use config::{Settings, config_file};
pub use error::CatalogError;
pub use prompt_format::PromptFormat;
pub use served_model::{Resolution, ResolvedAdapter, ServedModel};
pub use sources::Sources;
pub use table::{CatalogEntry, GenerationIds, ModelTable};

/// The models of a server. A reload replaces the table; requests use the table that is current when
/// they arrive.
#[derive(Debug)]
pub struct ModelCatalog {
    sources: Sources,
    registry: Registry,
    table: ArcSwap<ModelTable>,
    /// Signalled after each reload.
    changed: watch::Sender<()>,
    /// Serializes reloads.
    reloading: Mutex<()>,
}

/// The ids of models by the outcome of a reload.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReloadOutcome {
    /// Loaded for the first time, or again.
    pub loaded: Vec<String>,
    /// Unchanged.
    pub kept: Vec<String>,
    /// No longer in any source.
    pub removed: Vec<String>,
    /// Could not be loaded. A model that was loaded before stays in its earlier state.
    pub failed: Vec<String>,
}

impl ModelCatalog {
    /// Loads every model. If there are others, a model that cannot be loaded is logged, and requests for
    /// it get the reason.
    ///
    /// # Errors
    /// A source cannot be read, two models have the same id, or no model can be loaded.
    pub fn open(sources: Sources, registry: Registry) -> Result<Self, CatalogError> {
        Self::open_with(sources, registry, |entry| entry.model.is_ok())
    }

    /// Loads every model as [`Self::open`] does. A model for which only pinned adapters render is
    /// enough.
    ///
    /// # Errors
    /// A source cannot be read, two models have the same id, or no model can be used.
    pub fn open_for_pins(sources: Sources, registry: Registry) -> Result<Self, CatalogError> {
        Self::open_with(sources, registry, |entry| entry.model.is_ok() || entry.pinnable.is_some())
    }

    fn open_with(
        sources: Sources,
        registry: Registry,
        is_usable: fn(&CatalogEntry) -> bool,
    ) -> Result<Self, CatalogError> {
        let (changed, _) = watch::channel(());
        let catalog = Self { sources, registry, table: ArcSwap::default(), changed, reloading: Mutex::default() };
        catalog.load()?;
        let models = catalog.models();
        let first = models.entries().map(|(_, entry)| entry).min_by_key(|entry| !is_usable(entry));
        match first.map(|entry| entry.problem.as_ref().filter(|_| !is_usable(entry))) {
            Some(Some(problem)) => Err(CatalogError::NoneLoaded(Arc::clone(problem))),
            None if !catalog.sources.models.is_empty() => {
                Err(CatalogError::NotAModel { path: catalog.sources.models[0].clone() })
            }
            _ => Ok(catalog),
        }
    }

    /// Returns the current table of models.
    #[must_use]
    pub fn models(&self) -> Arc<ModelTable> {
        self.table.load_full()
    }

    /// Returns a receiver that is signalled after each reload.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Returns the adapters.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Searches the sources again and loads new and changed models. A model that can no longer be
    /// loaded stays in its earlier state.
    ///
    /// # Errors
    /// A source cannot be read, the configuration is not a regular file, or two models have the same id. The
    /// table then stays as it is.
    pub fn reload(&self) -> Result<ReloadOutcome, CatalogError> {
        // At the start, a pipe may have the configuration. It has it once, and later reads would wait.
        if let Some(path) = &self.sources.config {
            let kind = path.metadata();
            let regular = kind.and_then(|kind| kind.is_file().then_some(()).ok_or_else(not_regular));
            regular.map_err(|source| CatalogError::Read { path: path.clone(), source })?;
        }
        self.load()
    }

    fn load(&self) -> Result<ReloadOutcome, CatalogError> {
        let _one = self.reloading.lock();
        let (table, outcome) = self.reloaded(&self.models())?;
        self.table.store(Arc::new(table));
        self.changed.send_replace(());
        Ok(outcome)
    }

    fn reloaded(&self, before: &ModelTable) -> Result<(ModelTable, ReloadOutcome), CatalogError> {
        let config = self.sources.config.as_deref().map(Config::read).transpose()?.unwrap_or_default();
        let (mut after, mut outcome) = (ModelTable::default(), ReloadOutcome::default());
        for path in self.sources.paths(&config)? {
            let settings = config.settings(&path);
            let (change, id, entry) = self.reload_entry(path, settings, before);
            change.list_in(&mut outcome).push(id.clone());
            after.add(id, entry)?;
        }
        let gone = before.entries().filter(|(id, _)| after.entry(id).is_err());
        outcome.removed = gone.map(|(id, _)| id.to_owned()).collect();
        Ok((after, outcome))
    }

    /// Returns the model at `path` under its id: the earlier entry if nothing changed, else a new
    /// one.
    fn reload_entry(&self, path: PathBuf, settings: Settings, before: &ModelTable) -> (Change, String, CatalogEntry) {
        let stamp = Stamp::of(&path, &settings);
        let known = before.entries().find(|(_, entry)| entry.path == path);
        if let Some((id, entry)) = known.filter(|(_, entry)| entry.stamp == stamp) {
            return (Change::Kept, id.to_owned(), entry.clone());
        }
        let id = settings.ids.id.clone().unwrap_or_else(|| default_id(&path));
        let loaded = ServedModel::load_with(&path, &settings, &self.registry);
        let aliases = settings.ids.aliases;
        let entry = match loaded {
            Ok(served) => CatalogEntry::new(path, aliases, stamp, served),
            Err(error) => CatalogEntry::failed(path, aliases, stamp, error),
        };
        let Some(problem) = &entry.problem else {
            entry.model.iter().for_each(|served| log_loaded(&id, served));
            return (Change::Loaded, id, entry);
        };
        tracing::error!(path = %entry.path.display(), "model not loaded: {}", chain(problem));
        match known.filter(|(_, entry)| entry.model.is_ok()) {
            Some((id, earlier)) => {
                let problem = Some(Arc::clone(problem));
                (Change::Failed, id.to_owned(), CatalogEntry { problem, ..earlier.clone() })
            }
            None => (Change::Failed, id, entry),
        }
    }
}

fn not_regular() -> io::Error {
    io::Error::other("not a regular file")
}

fn log_loaded(id: &str, served: &ServedModel) {
    let model = &served.model;
    tracing::info!(model = id, tokenizer = model.tokenizer.is_ok(), "model loaded");
    for broken in model.templates.broken() {
        let error = chain(broken.cause.as_ref());
        tracing::warn!(model = id, template = %broken.name, %error, "chat template not usable");
    }
    if let Some(problem) = model.tokenizer_problem() {
        tracing::warn!(model = id, error = %problem, "tokenizer not usable");
    }
}

/// The outcome of a reload for one model.
#[derive(Debug, Clone, Copy)]
enum Change {
    Loaded,
    Kept,
    Failed,
}

impl Change {
    fn list_in(self, outcome: &mut ReloadOutcome) -> &mut Vec<String> {
        match self {
            Self::Loaded => &mut outcome.loaded,
            Self::Kept => &mut outcome.kept,
            Self::Failed => &mut outcome.failed,
        }
    }
}
