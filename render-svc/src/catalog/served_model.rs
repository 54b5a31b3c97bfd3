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
use crate::model::{LoadError, Model};
use crate::output_spec::OutputSpec;

/// A loaded model and the adapter that renders for it unless a request pins another.
#[derive(Debug)]
pub struct ServedModel {
    pub model: Arc<Model>,
    /// The adapter for requests that pin no adapter.
    pub adapter: ResolvedAdapter,
    formats: Formats,
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
    /// Fails as [`Self::load_with`] does, or the model's adapter needs a chat template that does not
    /// compile.
    pub fn load(path: &Path) -> Result<Self, CatalogError> {
        let served = Self::load_with(path, &Settings::default(), &Registry::default())?;
        served.problem().map_or(Ok(()), Err)?;
        Ok(served)
    }

    /// Loads the model at `path` with these settings, and selects its adapter. A default chat template
    /// that does not compile is the model's [`Self::problem`].
    ///
    /// # Errors
    /// Its files cannot be read, no adapter renders for it, or the adapter of its settings cannot.
    pub fn load_with(path: &Path, settings: &Settings, registry: &Registry) -> Result<Self, CatalogError> {
        let (model, template_error) = Model::load_as(path, settings.ids.clone(), settings.overrides.clone())?;
        let model = Arc::new(model);
        let output = OutputSpec::infer(&model).with_eos_override(Some(&model.configured_eos)).within_vocabulary(&model);
        let output = Arc::new(output);
        let format = |adapter: &_| Arc::new(PromptFormat::new(*adapter, Arc::clone(&model), Arc::clone(&output)));
        let formats = Formats {
            all: registry.adapters().iter().map(format).collect(),
            template_error: template_error.map(Arc::new),
        };
        let adapter = match settings.adapter.as_deref() {
            Some(name) => formats.pin(name, &model, "the model's settings"),
            None => formats.select(&model),
        };
        let failed = |source| CatalogError::Adapter { path: path.to_owned(), source: Box::new(source) };
        let adapter = adapter.map_err(failed)?;
        if let Some(name) = &model.configured_rules {
            let failed = |source| CatalogError::Rules { path: path.to_owned(), source };
            adapter.format.named_rules(name).map_err(failed)?;
        }
        Ok(Self { adapter, model, formats })
    }

    /// Returns the error of a chat template that does not compile if the model's adapter needs one.
    /// Only requests that pin another adapter can then be rendered.
    #[must_use]
    pub fn problem(&self) -> Option<CatalogError> {
        // A family's encoder never reads a template of the model.
        let needs_template = !self.adapter.is_pinned && self.adapter.adapter().kind != Kind::Family;
        let error = self.formats.template_error.as_ref().filter(|_| needs_template)?;
        Some(CatalogError::Model(Arc::clone(error)))
    }

    /// Returns the pinned adapter, or the model's default adapter if none is pinned.
    ///
    /// # Errors
    /// There is no adapter of the pinned name, it cannot render for the model, or the adapter needs
    /// a chat template that does not compile.
    pub fn resolve(&self, pinned: Option<&str>) -> Result<ResolvedAdapter, Error> {
        match (pinned, self.problem()) {
            (Some(name), _) => self.formats.pin(name, &self.model, "the request"),
            (None, None) => Ok(self.adapter.clone()),
            (None, Some(cause)) => Err(not_loaded(&self.model, cause)),
        }
    }
}

/// Every adapter of a registry, applied to one model.
#[derive(Debug)]
struct Formats {
    /// In order of precedence.
    all: Vec<Arc<PromptFormat>>,
    /// The error of a chat template of the model that does not compile.
    template_error: Option<Arc<LoadError>>,
}

impl Formats {
    /// Returns the first adapter that matches the model.
    fn select(&self, model: &Model) -> Result<ResolvedAdapter, Error> {
        let (mut rejected, mut yielded) = (Vec::new(), Vec::new());
        for format in &self.all {
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
            let (format, difference) = (Arc::clone(format), difference.map(Arc::from));
            return Ok(ResolvedAdapter { format, resolution, is_pinned: false, is_guess, difference });
        }
        Err(self.not_found("any"))
    }

    /// Returns the adapter with this name. `by` is the source of the pin, for the reason.
    fn pin(&self, name: &str, model: &Model, by: &str) -> Result<ResolvedAdapter, Error> {
        let found = self.all.iter().find(|format| format.adapter.name == name);
        let format = found.ok_or_else(|| self.not_found(name))?;
        let adapter = &format.adapter;
        if let Some(cause) = self.template_error.as_ref().filter(|_| adapter.kind == Kind::Template) {
            return Err(not_loaded(model, CatalogError::Model(Arc::clone(cause))));
        }
        if let Match::Incompatible(reason) = (adapter.matches)(model) {
            return Err(Error::AdapterNotApplicable { adapter: adapter.name, model: model.id.clone(), reason });
        }
        let reason = format!("pinned by {by}");
        let resolution = Arc::new(Resolution { adapter: Some(adapter.name), reason, rejected: Vec::new() });
        let format = Arc::clone(format);
        Ok(ResolvedAdapter { format, resolution, is_pinned: true, is_guess: false, difference: None })
    }

    fn not_found(&self, name: &str) -> Error {
        let known = self.all.iter().map(|format| format.adapter.name).collect();
        Error::AdapterNotFound { adapter: name.to_owned(), known }
    }
}

fn not_loaded(model: &Model, cause: CatalogError) -> Error {
    Error::ModelNotLoaded { path: model.artifacts.path.clone(), cause: Arc::new(cause) }
}
