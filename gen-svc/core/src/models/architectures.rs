//! The supported architectures: a file for each, and a row in [`ARCHITECTURES`].

use super::architecture::Architecture;
use crate::error::LoadError;
use crate::weights::gguf::architecture::GgufArchitecture;
use crate::weights::gguf::header::GgufHeader;

mod gemma2;
mod gemma3;
mod gemma4;
mod granite;
mod internvl;
mod llama;
mod mistral;
mod mistral3;
mod phi3;
mod qwen2;
mod qwen2_5_vl;
mod qwen3;
mod qwen3_moe;
mod qwen3_vl;
mod smollm3;
mod smolvlm;

const ARCHITECTURES: &[Architecture] = &[
    llama::ARCHITECTURE,
    mistral::ARCHITECTURE,
    qwen2::ARCHITECTURE,
    qwen3::ARCHITECTURE,
    qwen3_moe::ARCHITECTURE,
    gemma2::ARCHITECTURE,
    gemma3::MULTIMODAL,
    gemma3::TEXT,
    phi3::ARCHITECTURE,
    granite::ARCHITECTURE,
    smollm3::ARCHITECTURE,
    gemma4::MULTIMODAL,
    gemma4::TEXT,
    qwen2_5_vl::MULTIMODAL,
    qwen2_5_vl::TEXT,
    qwen3_vl::MULTIMODAL,
    qwen3_vl::TEXT,
    smolvlm::SMOLVLM,
    smolvlm::IDEFICS3,
    mistral3::ARCHITECTURE,
    internvl::ARCHITECTURE,
];

/// Returns the names of the supported architectures.
pub fn names() -> impl Iterator<Item = &'static str> {
    ARCHITECTURES.iter().map(|architecture| architecture.name)
}

/// The end of the name of a language model that is a part of another architecture.
const PART: &str = "_text";

/// Returns the names of the supported architectures, without those of parts, in the order of the alphabet.
pub fn listed() -> String {
    let mut names: Vec<_> = names().filter(|name| !name.ends_with(PART)).collect();
    names.sort_unstable();
    names.join(", ")
}

/// Finds an architecture by its name in transformers.
pub(super) fn find(name: &str) -> Result<&'static Architecture, LoadError> {
    let found = ARCHITECTURES.iter().find(|architecture| architecture.name == name);
    found.ok_or_else(|| LoadError::UnsupportedArchitecture { found: name.to_owned(), supported: listed() })
}

/// Returns the architecture of a GGUF file: its name in transformers, and its description for GGUF.
/// A row with a condition precedes a row without one.
///
/// An unknown architecture keeps its name, so that the error for it contains the name.
pub(super) fn of_gguf(header: &GgufHeader) -> Result<(&str, GgufArchitecture), LoadError> {
    let mut found = None;
    for Architecture { name, gguf, .. } in ARCHITECTURES {
        let Some(gguf) = gguf else { continue };
        let is_better = found.is_none() || gguf.condition.is_some();
        if is_better && gguf.is_of(header)? {
            found = Some((*name, *gguf));
        }
    }
    Ok(found.unwrap_or_else(|| (header.architecture(), GgufArchitecture::named(""))))
}
