//! The table of a server's models, by id and alias.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use super::error::CatalogError;
use super::served_model::ServedModel;
use super::stamp::Stamp;
use crate::error::Error;

/// Every model of the server at one point in time. It never changes; a reload makes a new table.
#[derive(Debug, Default)]
pub struct ModelTable {
    by_id: BTreeMap<String, CatalogEntry>,
    /// Ids by alias.
    aliases: BTreeMap<String, String>,
    generation_ids: Arc<GenerationIds>,
}

/// The ids of all models at the generation service, and their tokenizers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GenerationIds {
    ids: HashSet<String>,
    /// Number of models by the digest of their tokenizer.
    models: HashMap<String, usize>,
    /// True if a model could not be loaded, so that its tokenizer is unknown.
    is_incomplete: bool,
}

impl GenerationIds {
    /// Adds an entry's model.
    fn add(&mut self, entry: &CatalogEntry) {
        let Ok(ServedModel { model, .. }) = entry.model.as_deref() else {
            self.is_incomplete = true;
            return;
        };
        self.ids.extend(model.generation_ids.iter().cloned());
        if let Ok(tokenizer) = &model.tokenizer {
            *self.models.entry(tokenizer.sha256().to_owned()).or_default() += 1;
        }
    }

    /// Returns true if it is the id of a model.
    #[must_use]
    pub fn contains(&self, id: &str) -> bool {
        self.ids.contains(id)
    }

    /// Returns true if no other model can have this tokenizer.
    #[must_use]
    pub fn is_only_with(&self, tokenizer_sha256: &str) -> bool {
        !self.is_incomplete && self.models.get(tokenizer_sha256).is_none_or(|&models| models == 1)
    }
}

/// A model, or the reason why it could not be loaded.
#[derive(Debug, Clone)]
pub struct CatalogEntry {
    /// Path of its files.
    pub path: PathBuf,
    /// Other ids that requests may use.
    pub aliases: Vec<String>,
    /// The state of the files that it was loaded from.
    pub(super) stamp: Stamp,
    /// The reason why the newest state of its files could not be loaded.
    pub problem: Option<Arc<CatalogError>>,
    /// The model, from the newest state of its files that could be loaded. Requests for the model
    /// get the error.
    pub model: Result<Arc<ServedModel>, Arc<CatalogError>>,
    /// The model for requests that pin an adapter, if only its chat template could not be loaded.
    pub pinnable: Option<Arc<ServedModel>>,
}

impl CatalogEntry {
    /// Creates the entry of a model whose files were read.
    pub(super) fn new(path: PathBuf, aliases: Vec<String>, stamp: Stamp, served: ServedModel) -> Self {
        let problem = served.problem().map(Arc::new);
        let served = Arc::new(served);
        let pinnable = problem.is_some().then(|| Arc::clone(&served));
        let model = problem.clone().map_or(Ok(served), Err);
        Self { path, aliases, stamp, problem, model, pinnable }
    }

    /// Creates the entry of a model that cannot be loaded.
    pub(super) fn failed(path: PathBuf, aliases: Vec<String>, stamp: Stamp, error: CatalogError) -> Self {
        let problem = Arc::new(error);
        Self { path, aliases, stamp, problem: Some(Arc::clone(&problem)), model: Err(problem), pinnable: None }
    }
}

impl From<ServedModel> for ModelTable {
    /// Creates a table of one model.
    fn from(served: ServedModel) -> Self {
        let (path, id) = (served.model.artifacts.path.clone(), served.model.id.clone());
        let entry = CatalogEntry::new(path, Vec::new(), Stamp::default(), served);
        let mut generation_ids = GenerationIds::default();
        generation_ids.add(&entry);
        Self {
            by_id: BTreeMap::from([(id, entry)]),
            aliases: BTreeMap::new(),
            generation_ids: Arc::new(generation_ids),
        }
    }
}

impl ModelTable {
    /// Adds a model under its id and aliases.
    ///
    /// # Errors
    /// Another model has one of them.
    pub(super) fn add(&mut self, id: String, entry: CatalogEntry) -> Result<(), CatalogError> {
        for name in entry.aliases.iter().chain([&id]) {
            if let Ok((_, other)) = self.entry(name) {
                let (first, second) = (other.path.clone(), entry.path);
                return Err(CatalogError::DuplicateId { id: name.clone(), first, second });
            }
        }
        Arc::make_mut(&mut self.generation_ids).add(&entry);
        self.aliases.extend(entry.aliases.iter().map(|alias| (alias.clone(), id.clone())));
        self.by_id.insert(id, entry);
        Ok(())
    }

    /// Returns the model of that id or alias. An empty id selects the only model.
    ///
    /// # Errors
    /// There is none, it could not be loaded, or the id is empty and there are several.
    pub fn get(&self, id: &str) -> Result<&Arc<ServedModel>, Error> {
        let (_, entry) = self.entry(id)?;
        let not_loaded = |cause: &Arc<CatalogError>| {
            let (path, cause) = (entry.path.clone(), Arc::clone(cause));
            Error::ModelNotLoaded { path, cause }
        };
        entry.model.as_ref().map_err(not_loaded)
    }

    /// Returns the model for a request that pins this adapter, if any. A pinned adapter also renders
    /// for a model whose chat template does not compile.
    ///
    /// # Errors
    /// Fails as [`Self::get`] does.
    pub fn get_for(&self, id: &str, pinned: Option<&str>) -> Result<&Arc<ServedModel>, Error> {
        let pinnable = if pinned.is_some() { self.entry(id)?.1.pinnable.as_ref() } else { None };
        pinnable.map_or_else(|| self.get(id), Ok)
    }

    /// Returns the ids of all models at the generation service.
    #[must_use]
    pub fn generation_ids(&self) -> Arc<GenerationIds> {
        Arc::clone(&self.generation_ids)
    }

    /// Returns every loaded model.
    pub fn loaded(&self) -> impl Iterator<Item = &Arc<ServedModel>> {
        self.by_id.values().filter_map(|entry| entry.model.as_ref().ok())
    }

    /// Returns every model by id, including models that could not be loaded.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &CatalogEntry)> {
        self.by_id.iter().map(|(id, entry)| (id.as_str(), entry))
    }

    /// Returns the id and entry for an id or alias. An empty id selects the only entry.
    ///
    /// # Errors
    /// There is none, or the id is empty and there are several.
    pub fn entry(&self, id: &str) -> Result<(&str, &CatalogEntry), Error> {
        if id.is_empty() {
            let mut entries = self.entries();
            return match (entries.next(), entries.next()) {
                (Some(only), None) => Ok(only),
                _ => Err(Error::ModelNotNamed { known: self.ids() }),
            };
        }
        let id_of = |alias: &str| self.aliases.get(alias).map(String::as_str);
        let found = self.by_id.get_key_value(id).or_else(|| self.by_id.get_key_value(id_of(id)?));
        let found = found.map(|(id, entry)| (id.as_str(), entry));
        found.ok_or_else(|| Error::ModelNotFound { model: id.to_owned(), known: self.ids() })
    }

    fn ids(&self) -> Vec<String> {
        self.by_id.keys().cloned().collect()
    }
}
