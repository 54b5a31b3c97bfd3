//! Chooses the backend that computes the configured model, and loads the model. The rest of the service uses
//! backends through their port.

mod backend;
mod memory;
mod model;
mod start;
mod step_times;

pub use memory::{KvDemand, require_all};
pub use model::{BackendChoice, load, load_with};
pub use start::{start, start_loading};
pub use step_times::{StepTimes, measure as measure_steps};
