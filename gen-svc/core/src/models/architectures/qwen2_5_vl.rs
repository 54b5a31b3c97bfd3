//! Qwen 2.5 VL: Qwen 2 with positions of three axes. Reference: transformers,
//! `models/qwen2_5_vl/modeling_qwen2_5_vl.py`.

use serde_json::json;

use super::llama::Defaults;
use super::qwen2;
use crate::error::LoadError;
use crate::models::architecture::Architecture;
use crate::models::config::{Config, ConfigError};
use crate::models::decoder::Decoder;
use crate::models::rope::{self, Axes, RopeSetting};
use crate::weights::gguf::architecture::{ConfigMap, GgufArchitecture};
use crate::weights::gguf::header::GgufHeader;

const ROPE: RopeSetting = RopeSetting {
    default_theta: 1_000_000.0,
    axes: Some(Axes { interleaved: false, default: [16, 24, 24], is_cut: false }),
    ..rope::ONLY
};

/// Defaults of settings that are not in the config.
const DEFAULTS: Defaults = Defaults {
    epsilon: 1e-5,
    hidden: 8192,
    feed_forward: 29_568,
    layers: 80,
    heads: 64,
    kv_heads: Some(8),
    vocabulary: 152_064,
    ropes: &[ROPE],
    ..qwen2::DEFAULTS
};

/// The default first layer with a window.
const FIRST_WITH_WINDOW: usize = 80;

/// The row of the language model.
pub(in crate::models) const TEXT: Architecture = Architecture { name: "qwen2_5_vl_text", describe, gguf: Some(GGUF) };

/// The language model of Qwen 2 VL has the same name.
const GGUF: GgufArchitecture =
    GgufArchitecture { ignored: qwen2::GGUF_WINDOW, add_implied: add_sections, ..GgufArchitecture::named("qwen2vl") };

/// Adds the frequencies of the three axes. The file has a fourth axis without frequencies.
pub(super) fn add_sections(header: &GgufHeader, config: &mut ConfigMap) -> Result<(), LoadError> {
    const KEY: &str = "rope.dimension_sections";
    if let Some(sections) = header.find::<&[i32]>(KEY)? {
        let rotated = header.find::<u32>("rope.dimension_count")?.map_or_else(|| header.head_size(), Ok)?;
        let all: i64 = sections.iter().map(|size| i64::from(*size)).sum();
        if all != i64::from(rotated / 2) {
            return Err(header.refused(KEY, format_args!("{sections:?} beside rope.dimension_count = {rotated}")));
        }
        let used = sections.iter().rposition(|size| *size != 0).map_or(0, |last| last + 1);
        let sections = json!(sections[..used.max(3).min(sections.len())]);
        match config.get_mut("rope_scaling") {
            Some(scaling) => scaling["mrope_section"] = sections,
            None => drop(config.insert("mrope_section".into(), sections)),
        }
    }
    Ok(())
}

fn describe(config: &Config<'_>) -> Result<Decoder, ConfigError> {
    qwen2::decoder(config, &DEFAULTS, FIRST_WITH_WINDOW)
}
