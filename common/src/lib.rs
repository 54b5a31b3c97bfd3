//! What both Tandem services share: the contracts, model artifacts, the chat-template engine, and how a service is run.

mod around;
pub mod artifacts;
mod bearer;
pub mod call;
pub mod digest;
pub mod pb;
mod reload;
pub mod serve;
pub mod status;
pub mod telemetry;
pub mod template;
pub mod tokenizer;
