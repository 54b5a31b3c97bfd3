//! Chooses the backend that computes the configured model, and loads the model. The rest of the service uses
//! backends through their port.

mod choice;
mod start;
mod step_times;
mod without_library;

pub use start::{start, start_loading};
pub use step_times::{StepTimes, measure as measure_steps};
pub use without_library::WithoutLibrary;
