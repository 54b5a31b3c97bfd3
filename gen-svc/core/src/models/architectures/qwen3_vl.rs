//! Qwen 3 VL: Qwen 3 with positions of three axes, and image features after the first layers.
//! Reference: transformers, `models/qwen3_vl/modeling_qwen3_vl.py`.

use super::llama::{self, Defaults};
use super::qwen2_5_vl;
use super::qwen3;
use crate::models::architecture::Architecture;
use crate::models::config::{Config, ConfigError};
use crate::models::decoder::Decoder;
use crate::models::rope::{self, Axes, RopeSetting};
use crate::weights::gguf::architecture::GgufArchitecture;

const ROPE: RopeSetting = RopeSetting {
    default_theta: 500_000.0,
    axes: Some(Axes { interleaved: true, default: [24, 20, 20], is_cut: false }),
    ..rope::ONLY
};

/// Defaults of settings that are not in the config.
const DEFAULTS: Defaults = Defaults { ropes: &[ROPE], context: 128_000, ..qwen3::DEFAULTS };

/// The row of the language model.
pub(in crate::models) const TEXT: Architecture = Architecture { name: "qwen3_vl_text", describe, gguf: Some(GGUF) };

/// The tower's file has the number of layers that take features of images.
const GGUF: GgufArchitecture = GgufArchitecture {
    ignored: &["attention.sliding_window", "n_deepstack_layers"],
    add_implied: qwen2_5_vl::add_sections,
    ..GgufArchitecture::named("qwen3vl")
};

fn describe(config: &Config<'_>) -> Result<Decoder, ConfigError> {
    let mut decoder = llama::decoder(config, &DEFAULTS)?;
    llama::add_qk_norms(&mut decoder);
    Ok(decoder)
}
