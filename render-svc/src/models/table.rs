//! The table: id or alias → model.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::library::Stamp;
use super::{LoadError, Model};
use crate::error::Error;

/// Every model that the server has. It never changes; a new look at the files makes a new one.
#[derive(Debug, Default)]
pub struct Models {
    by_id: BTreeMap<String, Entry>,
    /// Other names, each of an id.
    aliases: BTreeMap<String, String>,
}

/// A model, or why it is none.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Where it lies.
    pub path: PathBuf,
    /// Other ids that requests may use.
    pub aliases: Vec<String>,
    /// What it was read from.
    pub(super) stamp: Stamp,
    /// Why its files, as they were found last, could not be loaded.
    pub problem: Option<Arc<LoadError>>,
    /// The model, in the last state that could be loaded. The error is told to whoever asks for it.
    pub model: Result<Arc<Model>, Arc<LoadError>>,
}

impl From<Model> for Models {
    /// A table of one.
    fn from(model: Model) -> Self {
        let path = model.artifacts.path.clone();
        let id = model.id.clone();
        let entry =
            Entry { path, aliases: Vec::new(), stamp: Stamp::default(), problem: None, model: Ok(Arc::new(model)) };
        Self { by_id: BTreeMap::from([(id, entry)]), aliases: BTreeMap::new() }
    }
}

impl Models {
    /// Adds a model under its id and aliases.
    ///
    /// # Errors
    /// One of them is taken.
    pub(super) fn add(&mut self, id: String, entry: Entry) -> Result<(), LoadError> {
        for name in entry.aliases.iter().chain([&id]) {
            if let Ok((_, other)) = self.entry(name) {
                let (first, second) = (other.path.clone(), entry.path);
                return Err(LoadError::DuplicateId { id: name.clone(), first, second });
            }
        }
        self.aliases.extend(entry.aliases.iter().map(|alias| (alias.clone(), id.clone())));
        self.by_id.insert(id, entry);
        Ok(())
    }

    /// The model of that id or alias; the only one, for an empty id.
    ///
    /// # Errors
    /// There is none, it could not be loaded, or an empty id could mean several.
    pub fn get(&self, id: &str) -> Result<&Arc<Model>, Error> {
        let (_, entry) = self.entry(id)?;
        let not_loaded = |cause| Error::ModelNotLoaded { path: entry.path.clone(), cause: Arc::clone(cause) };
        entry.model.as_ref().map_err(not_loaded)
    }

    /// Every model that could be loaded.
    pub fn loaded(&self) -> impl Iterator<Item = &Arc<Model>> {
        self.by_id.values().filter_map(|entry| entry.model.as_ref().ok())
    }

    /// Every model by id, those that could not be loaded included.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.by_id.iter().map(|(id, entry)| (id.as_str(), entry))
    }

    /// The entry of an id or alias; the only one, for an empty id.
    ///
    /// # Errors
    /// There is none, or an empty id could mean several.
    pub fn entry(&self, id: &str) -> Result<(&str, &Entry), Error> {
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
