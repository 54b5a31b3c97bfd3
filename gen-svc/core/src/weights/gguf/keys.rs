//! The keys of a GGUF header that need not be read. Every other key of the architecture is read, or
//! refused: it may change the model's output.

use tandem_model_files::gguf::Value;

use super::architecture::GgufArchitecture;
use super::header::GgufHeader;
use crate::error::LoadError;

/// Keys without an effect on the output of any supported architecture.
const HARMLESS: &[&str] = &[
    // The embedding table has these rows.
    "vocab_size",
    // A remark of the converter.
    "tensor_data_layout",
    // Of embeddings, which are not generated.
    "pooling_type",
    // Of norms that subtract the mean, which no supported architecture has.
    "attention.layer_norm_epsilon",
    // The context length before a scaling that has no use for it.
    "rope.scaling.original_context_length",
    // How the model was trained.
    "rope.scaling.finetuned",
];

/// Keys of functions that a supported architecture lacks, and the value that states so.
const NEUTRAL: &[(&str, Neutral)] = &[
    ("attention.causal", Neutral::True),
    ("attention.clamp_kqv", Neutral::Zero),
    ("attention.max_alibi_bias", Neutral::Zero),
    ("attention.sliding_window", Neutral::Zero),
    ("expert_count", Neutral::Zero),
    ("expert_group_count", Neutral::Zero),
    ("expert_group_used_count", Neutral::Zero),
    ("expert_shared_count", Neutral::Zero),
    ("expert_shared_feed_forward_length", Neutral::Zero),
    ("expert_used_count", Neutral::Zero),
    ("final_logit_softcapping", Neutral::Zero),
    ("leading_dense_block_count", Neutral::Zero),
    ("nextn_predict_layers", Neutral::Zero),
];

/// A value that states that a function is not used.
#[derive(Debug, Clone, Copy)]
enum Neutral {
    Zero,
    True,
}

impl Neutral {
    fn is(self, value: &Value) -> bool {
        match self {
            Self::True => *value == Value::Bool(true),
            Self::Zero => match value {
                Value::U8(0) | Value::I8(0) | Value::U16(0) | Value::I16(0) | Value::U32(0) | Value::I32(0) => true,
                Value::U64(0) | Value::I64(0) => true,
                Value::F32(number) => *number == 0.0,
                Value::F64(number) => *number == 0.0,
                _ => false,
            },
        }
    }
}

/// Fails if the header has a key of the architecture that was not read and is not known to be
/// harmless.
///
/// # Errors
/// The header has such a key.
pub(super) fn check(header: &GgufHeader, architecture: &GgufArchitecture) -> Result<(), LoadError> {
    for key in header.unread_keys() {
        let Some(value) = header.value(key) else { continue };
        let is_neutral = NEUTRAL.iter().any(|(known, neutral)| *known == key && neutral.is(value));
        let is_harmless = !architecture.decisive.contains(&key) && HARMLESS.contains(&key);
        if !is_neutral && !is_harmless && !architecture.ignored.contains(&key) {
            return Err(header.refused(key, value.describe()));
        }
    }
    Ok(())
}
