//! The errors of this crate: of requests, for their callers; of loads, for operators; and of the
//! computations in both.

mod config;
mod device;
mod fetch;
mod load;
mod memory;
mod request;
mod step;

pub use config::ConfigError;
pub use device::{DeviceFault, DeviceNeed, KvNeed};
pub use fetch::FetchError;
pub use load::LoadError;
pub use memory::MemoryError;
pub use request::RequestError;
pub use step::StepError;
