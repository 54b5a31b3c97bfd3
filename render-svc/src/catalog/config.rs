//! The configuration of models: a TOML file. It lists models with settings that the models' files
//! do not contain.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::error::CatalogError;
use crate::adapters::is_reserved_argument;
use crate::capabilities::Capabilities;
use crate::conversation::Object;
use crate::model::{ModelIds, Overrides};

/// The settings of a model that its files do not contain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// The names of requests, and of the generation service.
    pub ids: ModelIds,
    /// The adapter that renders for the model, instead of the first adapter that matches.
    pub adapter: Option<String>,
    /// Facts in place of the facts that the model's files show.
    pub overrides: Overrides,
}

/// The file: a list of `[[models]]`. Each entry has a path and settings.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    models: Vec<ConfigRow>,
}

/// A model: its path and [`Settings`].
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigRow {
    path: PathBuf,
    id: Option<String>,
    #[serde(default)]
    aliases: Vec<String>,
    generate_id: Option<String>,
    adapter: Option<String>,
    capabilities: Option<CapabilityNames>,
    #[serde(default)]
    eos_token_ids: Vec<u32>,
    #[serde(default)]
    toggles: Object,
    answer_rules: Option<String>,
}

/// The names of capabilities, such as `["SUPPORTS_SYSTEM_ROLE", "REQUIRES_STRICT_TURNS"]`.
#[derive(Debug, Deserialize)]
#[serde(try_from = "Vec<String>")]
struct CapabilityNames(Capabilities);

impl TryFrom<Vec<String>> for CapabilityNames {
    type Error = String;

    fn try_from(names: Vec<String>) -> Result<Self, String> {
        Capabilities::from_names(names.iter().map(String::as_str)).map(Self)
    }
}

impl ConfigRow {
    fn settings(self, folder: &Path) -> (PathBuf, Settings) {
        let Self { path, id, aliases, generate_id, adapter, capabilities, eos_token_ids, toggles, answer_rules } = self;
        let capabilities = capabilities.map(|CapabilityNames(capabilities)| capabilities);
        let overrides = Overrides { capabilities, eos_token_ids, toggles, answer_rules };
        (folder.join(path), Settings { ids: ModelIds { id, aliases, generate_id }, adapter, overrides })
    }
}

/// Returns the content of the file at `path`, which is valid.
///
/// # Errors
/// The file cannot be read, or its content is invalid.
pub fn config_file(path: &Path) -> Result<serde_json::Value, CatalogError> {
    let text = read_text(path)?;
    Config::parse(path, &text)?;
    parsed(path, &text)
}

/// The most bytes of the file. Thousands of models have fewer.
const MAX_BYTES: u64 = 1 << 20;

fn read_text(path: &Path) -> Result<String, CatalogError> {
    let read = || {
        let mut bytes = Vec::new();
        fs::File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(io::Error::other(format!("the file has more than {MAX_BYTES} bytes")));
        }
        String::from_utf8(bytes).map_err(io::Error::other)
    };
    read().map_err(|source| CatalogError::Read { path: path.to_owned(), source })
}

fn parsed<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, CatalogError> {
    toml::from_str(text).map_err(|error| CatalogError::Config { path: path.to_owned(), problem: error.to_string() })
}

/// Settings by the model's path, in the order of the file.
#[derive(Debug, Default)]
pub(super) struct Config {
    listed: Vec<(PathBuf, Settings)>,
}

impl Config {
    /// Reads the file at `path`. Paths in it are relative to its folder.
    ///
    /// # Errors
    /// The file cannot be read, is not TOML, has an unknown key, lists a path twice, contains an
    /// empty id, or has a toggle that no template gets.
    pub(super) fn read(path: &Path) -> Result<Self, CatalogError> {
        Self::parse(path, &read_text(path)?)
    }

    /// Reads the text of the file at `path`.
    fn parse(path: &Path, text: &str) -> Result<Self, CatalogError> {
        let file: File = parsed(path, text)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let listed = file.models.into_iter().map(|model| model.settings(folder)).collect();
        let config = Self { listed };
        if let Some((model, name)) = config.reserved_toggle() {
            return Err(CatalogError::ReservedToggle { path: path.to_owned(), model, name });
        }
        match config.problem() {
            Some(problem) => Err(CatalogError::Config { path: path.to_owned(), problem }),
            None => Ok(config),
        }
    }

    fn problem(&self) -> Option<String> {
        let mut seen = HashSet::new();
        for (path, settings) in &self.listed {
            if !seen.insert(key(path)) {
                return Some(format!("{} is listed twice", path.display()));
            }
            let ModelIds { id, aliases, generate_id } = &settings.ids;
            if id.iter().chain(aliases).chain(generate_id).any(String::is_empty) {
                return Some(format!("{}: an id or alias must not be empty", path.display()));
            }
        }
        None
    }

    /// Returns the path of a model and the name of its toggle that no template gets.
    fn reserved_toggle(&self) -> Option<(PathBuf, String)> {
        let toggles = self
            .listed
            .iter()
            .flat_map(|(path, settings)| settings.overrides.toggles.keys().map(move |name| (path, name)));
        let (path, name) = toggles.into_iter().find(|(_, name)| is_reserved_argument(name))?;
        Some((path.clone(), name.clone()))
    }

    /// Returns the listed paths.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.listed.iter().map(|(path, _)| path.as_path())
    }

    /// Returns the settings of the model at `path`, or the default settings if the model is not
    /// listed.
    pub(super) fn settings(&self, path: &Path) -> Settings {
        let path = key(path);
        let found = self.listed.iter().find(|(listed, _)| key(listed) == path);
        found.map(|(_, settings)| settings.clone()).unwrap_or_default()
    }
}

/// Returns the same key for two spellings of one path.
fn key(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}
