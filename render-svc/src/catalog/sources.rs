//! The places where a server's models are, and the search for models in them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs;
use std::path::{Path, PathBuf};

use tandem_model_files::artifacts::{absent, is_cached_repository, is_later_part, is_mmproj, is_model, locate};

use super::config::Config;
use super::error::CatalogError;
use crate::model::{LoadError, default_id};

/// The places where models are searched.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Sources {
    /// A model, or a folder of models; a model is a .gguf file, a Hugging Face folder or a repository
    /// in Hugging Face's cache. Weights are not needed. May be repeated, or hold several with commas.
    #[arg(long, env = "TANDEM_MODELS", value_name = "PATH", value_delimiter = ',')]
    pub models: Vec<PathBuf>,

    /// A TOML file of models and their settings. Each model is a table `[[models]]` with path
    /// (relative to the file). Optional keys are id, aliases (a list), generate_id, adapter (pinned
    /// for every request), capabilities, eos_token_ids and toggles. The key generate_id is the id at
    /// the generation service, if that is none of the others and not the file's name. The list
    /// capabilities, such as ["SUPPORTS_SYSTEM_ROLE", "REQUIRES_STRICT_TURNS"], replaces the inferred
    /// ones; an empty list means unknown. The list eos_token_ids replaces every token that ends a
    /// turn. The table toggles has template_args for requests that do not set them.
    #[arg(long, env = "TANDEM_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
}

impl Sources {
    /// Returns the path of every model once; those of the configuration come first.
    pub(super) fn paths(&self, config: &Config) -> Result<Vec<PathBuf>, CatalogError> {
        let mut paths: Vec<PathBuf> = config.paths().map(Path::to_owned).collect();
        let listed = paths.len();
        for source in &self.models {
            paths.extend(models_at(source)?);
        }
        let (mut kept, mut places) = (Vec::<PathBuf>::new(), HashMap::new());
        for path in paths {
            match places.entry(path.canonicalize().unwrap_or_else(|_| path.clone())) {
                Entry::Vacant(place) => {
                    place.insert(kept.len());
                    kept.push(path);
                }
                // A model of the configuration has the configured names.
                Entry::Occupied(place) if *place.get() >= listed => log_unused_name(&kept[*place.get()], &path),
                Entry::Occupied(_) => {}
            }
        }
        Ok(kept)
    }
}

/// Warns that `other` leads to the model at `path`, if its name is another id.
fn log_unused_name(path: &Path, other: &Path) {
    let (id, unused) = (default_id(path), default_id(other));
    if id != unused {
        let (path, other) = (path.display(), other.display());
        tracing::warn!(model = id, %path, %other, unused, "two paths of one model; the second name is not served");
    }
}

/// Returns `path` itself if it is a model, else the models in that folder. A repository in Hugging
/// Face's cache is replaced by its snapshot. A file with a tower is a part of a model.
fn models_at(path: &Path) -> Result<Vec<PathBuf>, CatalogError> {
    // A file that is no model fails when it is loaded, with the reason.
    if is_model(path) || path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    if is_cached_repository(path) {
        return Ok(vec![locate(path).map_err(LoadError::from)?]);
    }
    if !path.exists() {
        return Err(LoadError::from(absent(path)).into());
    }
    let failed = |source| CatalogError::Read { path: path.to_owned(), source };
    let mut found = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let snapshot = is_cached_repository(&path).then(|| locate(&path).ok()).flatten();
        found.push(snapshot.unwrap_or(path));
    }
    found.retain(|path| is_model(path) && !is_mmproj(path) && !is_later_part(path));
    found.sort();
    Ok(found)
}
