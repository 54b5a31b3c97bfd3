//! The supported architectures: a file for each, and a row in [`ARCHITECTURES`]. Models with images are
//! families with a language model.

use super::architecture::{Architecture, PART};
use super::config::Config;
use super::decoder::Decoder;
use super::vision::Language;
use super::vision::families::{self, FAMILIES};
use crate::error::LoadError;
use crate::weights::gguf::architecture::GgufArchitecture;
use crate::weights::gguf::header::GgufHeader;

mod gemma2;
pub(super) mod gemma3;
pub(super) mod gemma4;
mod granite;
pub(super) mod llama;
pub(super) mod mistral;
mod phi3;
pub(super) mod qwen2;
pub(super) mod qwen2_5_vl;
pub(super) mod qwen3;
pub(super) mod qwen3_5;
pub(super) mod qwen3_5_moe;
mod qwen3_moe;
mod qwen3_next;
pub(super) mod qwen3_vl;
mod smollm3;

const ARCHITECTURES: &[Architecture] = &[
    llama::ARCHITECTURE,
    mistral::ARCHITECTURE,
    qwen2::ARCHITECTURE,
    qwen3::ARCHITECTURE,
    qwen3_moe::ARCHITECTURE,
    qwen3_5::TEXT,
    qwen3_5_moe::TEXT,
    qwen3_next::ARCHITECTURE,
    gemma2::ARCHITECTURE,
    gemma3::TEXT,
    phi3::ARCHITECTURE,
    granite::ARCHITECTURE,
    smollm3::ARCHITECTURE,
    gemma4::TEXT,
    qwen2_5_vl::TEXT,
    qwen3_vl::TEXT,
];

/// Returns the names of the supported architectures.
pub fn names() -> impl Iterator<Item = &'static str> {
    let with_images = FAMILIES.iter().flat_map(|family| family.names).copied();
    ARCHITECTURES.iter().map(|architecture| architecture.name).chain(with_images)
}

/// Returns the names of the supported architectures, without those of parts, in the order of the alphabet.
pub fn listed() -> String {
    let mut names: Vec<_> = names().filter(|name| !name.ends_with(PART)).collect();
    names.sort_unstable();
    names.join(", ")
}

/// Fails if an architecture is not supported.
pub(super) fn check(name: &str) -> Result<(), LoadError> {
    language(name).map(|_| ())
}

/// Describes the language model of a config, by the architecture's name in transformers.
pub(super) fn describe(name: &str, config: &Config<'_>) -> Result<Decoder, LoadError> {
    Ok(language(name)?.describe(config)?)
}

fn language(name: &str) -> Result<Language, LoadError> {
    let of_text = || ARCHITECTURES.iter().find(|architecture| architecture.name == name);
    let found = families::named(name).map(|family| family.language);
    let found = found.or_else(|| Some(Language::Own(of_text()?.describe)));
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
