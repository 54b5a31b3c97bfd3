//! The protocols of engines, one file each, and the list of them.

mod llama_cpp;
mod sglang;
mod vllm;
mod vllm_engine;
mod vllm_grpc;

use crate::kind::EngineKind;

/// Every kind, in the order of the help.
pub static ENGINES: &[&EngineKind] =
    &[&llama_cpp::KIND, &vllm::KIND, &vllm_grpc::KIND, &vllm_engine::KIND, &sglang::KIND];

/// Returns the kind with this value of `--engine`.
#[must_use]
pub fn of_flag(flag: &str) -> Option<&'static EngineKind> {
    ENGINES.iter().copied().find(|kind| kind.flag == flag)
}
