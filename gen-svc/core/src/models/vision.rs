//! Vision towers: from an image's pixel values to the rows that replace its tokens' embeddings.
//!
//! A family of models is a file and a row in [`families`]: the preparation of its images, its language
//! model, and its tower as data ([`tower`]). A backend computes the description.

pub mod families;
mod family;
mod fit;
pub mod geometry;
mod siglip;
pub mod tower;

use family::Configs;
pub use family::Family;
pub(super) use family::Language;
use serde_json::json;
use tandem_images::recipe::CHANNELS;
use tandem_images::{ImagePlan, Processor};
use tower::Tower;

use super::config::Config;
use super::unused;
use crate::error::LoadError;
use crate::weights::ModelFile;
use crate::weights::gguf::projector::GgufProjector;

/// Returns true if the model of this file has a tower that is supported.
#[must_use]
pub fn has_tower(file: &ModelFile) -> bool {
    families::find(file).is_some()
}

/// Returns how `mmproj` files with this projector store towers. Families with different language models share some.
pub(super) fn projectors(name: &str) -> impl Iterator<Item = &'static GgufProjector> {
    all_projectors().filter(move |projector| projector.name == name)
}

/// Returns the names of the supported projectors of `mmproj` files.
pub(super) fn projector_names() -> Vec<&'static str> {
    let mut names = Vec::new();
    for projector in all_projectors() {
        if !names.contains(&projector.name) {
            names.push(projector.name);
        }
    }
    names
}

fn all_projectors() -> impl Iterator<Item = &'static GgufProjector> {
    families::FAMILIES.iter().flat_map(|family| family.gguf)
}

/// The facts about a tower that decide which images it takes.
#[derive(Debug)]
pub struct TowerFit(Option<Tower>);

impl TowerFit {
    /// Describes the tower of a model with images.
    ///
    /// # Errors
    /// The tower is not supported.
    pub fn of(file: &ModelFile) -> Result<Self, LoadError> {
        let tower = describe(file)?;
        unused::log_towers(file);
        Ok(Self(tower))
    }

    /// Checks that a model's processor prepares images as the tower takes them.
    ///
    /// # Errors
    /// A setting of the processor does not suit the tower.
    pub fn check(&self, processor: &Processor) -> Result<(), LoadError> {
        let problem = self.0.as_ref().and_then(|tower| tower.mismatch(processor));
        problem.map_or(Ok(()), |problem| Err(LoadError::ProcessorOfOthers { problem }))
    }

    /// Returns why the tower cannot take an image, if it cannot.
    #[must_use]
    pub fn problem_of(&self, plan: &ImagePlan) -> Option<String> {
        self.0.as_ref()?.problem_of(plan)
    }
}

/// Describes the tower of a model with images, and checks that the file has every tensor in its
/// shape, and an `mmproj` file no others.
pub fn describe(file: &ModelFile) -> Result<Option<Tower>, LoadError> {
    let Some(family) = families::find(file) else { return Ok(None) };
    let configs = Configs { vision: Config::vision(file.config()), model: Config::new(file.config()) };
    for name in ["num_channels", "in_channels"] {
        configs.vision.require(name, &json!(CHANNELS))?;
    }
    let tower = (family.tower)(&configs)?;
    for (name, shape) in tower.tensors() {
        file.tensor(&name, &shape)?;
    }
    match file.unread_of_tower().into_iter().min() {
        None => Ok(Some(tower)),
        Some(name) => Err(LoadError::TensorUnused { name }),
    }
}
