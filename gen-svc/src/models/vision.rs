//! Vision towers: from an image's pixel values to the rows that replace its tokens' embeddings.
//!
//! A tower describes itself as data ([`tower`]), one file per family in [`towers`]. libtorch
//! computes the description ([`torch`]), on any device.

mod family;
mod fit;
mod geometry;
mod torch;
mod tower;
mod towers;

use family::Configs;
use tandem_images::{ImagePlan, Processor};
pub use torch::{TorchTower, TowerRun};
use tower::Tower;

use super::config::Config;
use crate::error::Error;
use crate::weights::gguf::projector::GgufProjector;
use crate::weights::{ModelFile, TorchTarget};

/// Returns true if the model of this file has a tower that is supported.
#[must_use]
pub fn has_tower(file: &ModelFile) -> bool {
    towers::find(file).is_some()
}

/// Finds how `mmproj` files with this projector store a tower.
pub(super) fn projector(name: &str) -> Option<&'static GgufProjector> {
    towers::projectors().find(|projector| projector.name == name)
}

/// Returns the names of the supported projectors of `mmproj` files.
pub fn projector_names() -> impl Iterator<Item = &'static str> {
    towers::projectors().map(|projector| projector.name)
}

/// Loads the tower of a model with images. Returns None for a model without.
///
/// # Errors
/// The tower or one of its settings is not supported, or a tensor is missing or misshapen.
pub fn load(file: &ModelFile, target: TorchTarget) -> Result<Option<TorchTower>, Error> {
    match describe(file)? {
        Some(tower) => TorchTower::load(tower, file, target).map(Some),
        None => Ok(None),
    }
}

/// Returns the bytes of the weights of a model's tower, which libtorch computes. 0 for a model without.
///
/// # Errors
/// The tower is not supported.
pub(super) fn weight_bytes(file: &ModelFile, target: TorchTarget) -> Result<u64, Error> {
    let Some(tower) = describe(file)? else { return Ok(0) };
    let numbers: u64 = tower.tensors().iter().map(|(_, shape)| shape.iter().product::<usize>() as u64).sum();
    Ok(numbers.saturating_mul(target.dtype.elt_size_in_bytes() as u64))
}

/// The facts about a tower that decide which images it takes.
#[derive(Debug)]
pub struct TowerFit(Option<Tower>);

impl TowerFit {
    /// Describes the tower of a model with images.
    ///
    /// # Errors
    /// The tower is not supported.
    pub fn of(file: &ModelFile) -> Result<Self, Error> {
        describe(file).map(Self)
    }

    /// Checks that a model's processor prepares images as the tower takes them.
    ///
    /// # Errors
    /// A setting of the processor does not suit the tower.
    pub fn check(&self, processor: &Processor) -> Result<(), Error> {
        let problem = self.0.as_ref().and_then(|tower| tower.mismatch(processor));
        problem.map_or(Ok(()), |problem| Err(Error::ProcessorOfOthers { problem }))
    }

    /// Returns why the tower cannot take an image, if it cannot.
    #[must_use]
    pub fn problem_of(&self, plan: &ImagePlan) -> Option<String> {
        self.0.as_ref()?.problem_of(plan)
    }
}

/// Describes the tower of a model with images, and checks that the file has every tensor in its
/// shape.
fn describe(file: &ModelFile) -> Result<Option<Tower>, Error> {
    let Some(family) = towers::find(file) else { return Ok(None) };
    let tower =
        (family.describe)(&Configs { vision: Config::vision(file.config()), model: Config::new(file.config()) })?;
    for (name, shape) in tower.tensors() {
        file.tensor(&name, &shape)?;
    }
    Ok(Some(tower))
}
