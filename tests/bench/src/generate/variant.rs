//! The modes of the other systems.

use super::args::Family;
use super::weights::Storage;

const LLAMA: &str = include_str!("llama.py");
const TORCH: &str = include_str!("torch.py");
const VLLM: &str = include_str!("vllm.py");
const OPENVINO: &str = include_str!("openvino.py");

/// The number type of weights. Tandem is compared with the other systems of the same type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    F32,
    Bf16,
    Int8,
    /// The format of the file, or four bits.
    File,
}

/// A mode of another system.
#[derive(Debug, Clone, Copy)]
pub(super) struct Variant {
    pub(super) family: Family,
    /// Loads the model, and measures itself.
    pub(super) script: &'static str,
    /// The argument of the script.
    pub(super) argument: &'static str,
    /// The end of the name.
    pub(super) suffix: &'static str,
    pub(super) weights: Type,
    pub(super) storage: Storage,
}

pub(super) const TRANSFORMERS_F32: Variant = Variant {
    family: Family::Transformers,
    script: TORCH,
    argument: "float32",
    suffix: " f32",
    weights: Type::F32,
    storage: Storage::Bits(32.0),
};

const TRANSFORMERS_BF16: Variant = Variant {
    argument: "bfloat16",
    suffix: " bf16",
    weights: Type::Bf16,
    storage: Storage::Bits(16.0),
    ..TRANSFORMERS_F32
};

const LLAMA_CPP: Variant = Variant {
    family: Family::LlamaCpp,
    script: LLAMA,
    argument: "default",
    suffix: "",
    weights: Type::File,
    storage: Storage::File,
};

/// 4 bits with a scale of 16 bits and a zero point of 4 bits per 32; embeddings and head of 8 bits with a scale.
const OPENVINO_F32: Variant = Variant {
    family: Family::OpenVino,
    script: OPENVINO,
    argument: "f32",
    suffix: " f32",
    weights: Type::File,
    storage: Storage::BitsAndHead(4.625, 8.5),
};

pub(super) const PEERS: [Variant; 9] = [
    LLAMA_CPP,
    Variant { argument: "plain", suffix: " plain", ..LLAMA_CPP },
    Variant { family: Family::IkLlamaCpp, argument: "ik", ..LLAMA_CPP },
    OPENVINO_F32,
    Variant { argument: "bf16", suffix: " bf16", ..OPENVINO_F32 },
    TRANSFORMERS_F32,
    TRANSFORMERS_BF16,
    Variant { family: Family::Vllm, script: VLLM, ..TRANSFORMERS_F32 },
    Variant { family: Family::Vllm, script: VLLM, ..TRANSFORMERS_BF16 },
];
