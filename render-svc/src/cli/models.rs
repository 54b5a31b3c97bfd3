//! The models that requests of the command line name.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use tandem_model_files::artifacts::{ArtifactsError, absent, is_model, locate};

use crate::adapters::Registry;
use crate::catalog::{CatalogError, ModelCatalog, ModelTable, ServedModel, Settings, Sources};
use crate::error::Error;
use crate::model::LoadError;

/// Finds models by id, by alias or by path.
pub(super) struct RequestModels {
    catalog: ModelCatalog,
    /// One table for each model that was named by its path.
    by_path: HashMap<PathBuf, Arc<ModelTable>>,
}

impl RequestModels {
    pub(super) fn open(sources: Sources) -> Result<Self, CatalogError> {
        Ok(Self { catalog: ModelCatalog::open_for_pins(sources, Registry::default())?, by_path: HashMap::new() })
    }
    /// Returns the table with a model. A path is loaded once, and has a table of one model, which is
    /// then named by an empty id.
    pub(super) fn find(&mut self, model: &mut String) -> Result<Arc<ModelTable>, Error> {
        let path = PathBuf::from(&*model);
        let models = self.catalog.models();
        if models.entry(model).is_ok() {
            return Ok(models);
        }
        let not_loaded = |cause| Error::ModelNotLoaded { path: path.clone(), cause: Arc::new(cause) };
        let located = locate(&path).map_err(|error| not_loaded(LoadError::from(error).into()))?;
        if !is_model(&located) {
            let is_only_name = models.entries().next().is_none() && !path.exists();
            return match absent(&path) {
                error @ ArtifactsError::Repository { .. } if is_only_name => {
                    Err(not_loaded(LoadError::from(error).into()))
                }
                _ => Ok(models),
            };
        }
        model.clear();
        if let Some(models) = self.by_path.get(&path) {
            return Ok(Arc::clone(models));
        }
        let served = ServedModel::load_with(&path, &Settings::default(), &Registry::default()).map_err(not_loaded)?;
        Ok(Arc::clone(self.by_path.entry(path).or_insert(Arc::new(served.into()))))
    }
}
