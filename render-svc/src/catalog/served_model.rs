//! A loaded model with the adapters that can render for it, and the choice of exactly one of them
//! per request.

use std::path::Path;
use std::sync::Arc;

use super::config::Settings;
use super::error::CatalogError;
use super::prompt_format::PromptFormat;
use crate::adapter::{Adapter, Kind, Match};
use crate::adapters::Registry;
use crate::error::Error;
use crate::model::Model;
use crate::output_spec::OutputSpec;

/// A loaded model and the adapter that renders for it unless a request pins another.
#[derive(Debug)]
pub struct ServedModel {
    /// The model.
    pub model: Arc<Model>,
    /// The adapter for requests that pin no adapter.
    pub adapter: ResolvedAdapter,
    /// Every adapter of the registry, in order of precedence.
    formats: Vec<Arc<PromptFormat>>,
}

/// The selected adapter, and the reason.
#[derive(Debug, Clone)]
pub struct ResolvedAdapter {
    /// The adapter, applied to the model.
    pub format: Arc<PromptFormat>,
    /// The reason.
    pub resolution: Arc<Resolution>,
    /// True if the request or the model's settings name the adapter. A pinned adapter always
    /// renders, also with images.
    pub is_pinned: bool,
    /// True if no adapter is known to match the model's format. The best guess was then selected.
    pub is_guess: bool,
    /// How the model's chat template differs from the adapter's prompts, if it does and the adapter
    /// is not pinned.
    pub difference: Option<Arc<str>>,
}

/// The outcome of an adapter choice, with reasons as text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resolution {
    /// The adapter's name. None if no adapter renders the request. The response then has HF
    /// messages.
    pub adapter: Option<&'static str>,
    /// The reason for the choice.
    pub reason: String,
    /// The adapters before the selected one, each with the reason why it was not selected.
    pub rejected: Vec<(&'static str, String)>,
}

impl ResolvedAdapter {
    /// Returns the adapter.
    #[must_use]
    pub fn adapter(&self) -> &Adapter {
        &self.format.adapter
    }
}

impl ServedModel {
    /// Loads the model at `path` with default settings and every adapter.
    ///
    /// # Errors
    /// Fails as [`Self::load_with`] does.
    pub fn load(path: &Path) -> Result<Self, CatalogError> {
        Self::load_with(path, &Settings::default(), &Registry::default())
    }

    /// Loads the model at `path` with these settings, and selects its adapter.
    ///
    /// # Errors
    /// Its files cannot be read, no adapter renders for it, or its adapter needs a chat template
    /// that does not compile.
    pub fn load_with(path: &Path, settings: &Settings, registry: &Registry) -> Result<Self, CatalogError> {
        let (model, template_error) = Model::load_as(path, settings.ids.clone(), settings.overrides.clone())?;
        let failed = |source| CatalogError::Adapter { path: path.to_owned(), source: Box::new(source) };
        let served = Self::new(model, settings.adapter.as_deref(), registry).map_err(failed)?;
        match template_error {
            // A family's encoder never reads a template of the model.
            Some(error) if served.adapter.adapter().kind != Kind::Family => Err(error.into()),
            _ => Ok(served),
        }
    }

    fn new(model: Model, pinned: Option<&str>, registry: &Registry) -> Result<Self, Error> {
        let model = Arc::new(model);
        let output = Arc::new(OutputSpec::infer(&model));
        let format = |adapter: &_| Arc::new(PromptFormat::new(*adapter, Arc::clone(&model), Arc::clone(&output)));
        let formats: Vec<_> = registry.adapters().iter().map(format).collect();
        let adapter = match pinned {
            Some(name) => pin(&formats, name, &model, "the model's settings")?,
            None => select(&formats, &model)?,
        };
        Ok(Self { model, adapter, formats })
    }

    /// Returns the pinned adapter, or the model's default adapter if none is pinned.
    ///
    /// # Errors
    /// There is no adapter of the pinned name, or it cannot render for the model.
    pub fn resolve(&self, pinned: Option<&str>) -> Result<ResolvedAdapter, Error> {
        match pinned {
            Some(name) => pin(&self.formats, name, &self.model, "the request"),
            None => Ok(self.adapter.clone()),
        }
    }
}

/// Returns the first adapter that matches the model.
fn select(formats: &[Arc<PromptFormat>], model: &Model) -> Result<ResolvedAdapter, Error> {
    let (mut rejected, mut yielded) = (Vec::new(), Vec::new());
    for format in formats {
        let name = format.adapter.name;
        let (reason, is_guess) = match (format.adapter.matches)(model) {
            Match::Selected(reason) => (reason, false),
            Match::Guessed(reason) => (reason, true),
            Match::Yields(reason) => {
                yielded.push(format!("adapter {name} is its maker's encoder: {reason}"));
                rejected.push((name, reason));
                continue;
            }
            Match::NotSelected(reason) | Match::Incompatible(reason) => {
                rejected.push((name, reason));
                continue;
            }
        };
        let difference = (format.adapter.differs)(model);
        let reasons: Vec<_> = [reason].into_iter().chain(difference.clone()).chain(yielded).collect();
        let resolution = Arc::new(Resolution { adapter: Some(name), reason: reasons.join("; "), rejected });
        let difference = difference.map(Arc::from);
        return Ok(ResolvedAdapter { format: Arc::clone(format), resolution, is_pinned: false, is_guess, difference });
    }
    Err(not_found("any", formats))
}

/// Returns the adapter with this name. `by` is the source of the pin, for the reason.
fn pin(formats: &[Arc<PromptFormat>], name: &str, model: &Model, by: &str) -> Result<ResolvedAdapter, Error> {
    let found = formats.iter().find(|format| format.adapter.name == name);
    let format = found.ok_or_else(|| not_found(name, formats))?;
    let adapter = &format.adapter;
    if let Match::Incompatible(reason) = (adapter.matches)(model) {
        return Err(Error::AdapterNotApplicable { adapter: adapter.name, model: model.id.clone(), reason });
    }
    let reason = format!("pinned by {by}");
    let resolution = Arc::new(Resolution { adapter: Some(adapter.name), reason, rejected: Vec::new() });
    let format = Arc::clone(format);
    Ok(ResolvedAdapter { format, resolution, is_pinned: true, is_guess: false, difference: None })
}

fn not_found(name: &str, formats: &[Arc<PromptFormat>]) -> Error {
    let known = formats.iter().map(|format| format.adapter.name).collect();
    Error::AdapterNotFound { adapter: name.to_owned(), known }
}
