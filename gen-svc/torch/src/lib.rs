//! The backend of libtorch: models whose rows of logits stay on a device, towers of images, and the sampler
//! of such rows. Nothing else in gen-svc names libtorch.

mod backend;
pub(crate) mod decoder;
pub mod device;
mod error;
mod library;
pub mod load;
mod model;
mod openmp;
mod placement;
mod sampler;
mod target;
mod tower;

pub use backend::TorchBackend;
pub use decoder::{AttentionCase, AttentionDifference, FLASH_BLOCK, FlashCall, FlashOperation, Workspace};
pub use error::Error;
pub use library::Libtorch;
pub use model::{DeviceRows, TorchModel};
pub use placement::{Costs, LayerCosts, PlacedLayers, Placement};
pub use sampler::{DeviceSampler, SamplerCall};
pub use target::{TorchTarget, WeightBits};
pub use tower::{TorchTower, TowerRun};
