//! What both Tandem services share: the contracts, status codes and reasons, serving, outgoing calls, telemetry.

mod around;
mod bearer;
pub mod call;
pub mod pb;
mod reload;
pub mod serve;
pub mod status;
pub mod telemetry;
