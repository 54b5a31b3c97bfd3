//! The parts that both Tandem services share: contracts, status codes and reasons, serving,
//! outgoing calls, telemetry.

pub mod address;
pub mod admission;
mod bearer;
pub mod call;
mod call_layer;
mod caller_id;
pub mod check;
mod codec;
pub mod field;
pub mod input;
pub mod log_limit;
pub mod pb;
mod pem;
pub mod process;
pub mod program;
pub mod random;
mod reload;
pub mod screen;
pub mod serve;
pub mod status;
pub mod suggestion;
pub mod telemetry;
pub mod thread_priority;
pub mod timing;
