//! The names that GGUF has for the tensors of transformers. Source: `gguf/tensor_mapping.py` of
//! llama.cpp.

use super::architecture::{GgufArchitecture, Name};

/// The place of a tensor in a GGUF file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The tensor's name in the file.
    pub(super) name: String,
    /// The index in the first dimension, if the tensor stacks the matrices of all experts.
    pub(super) expert: Option<usize>,
}

/// Modules outside the layers.
const TENSORS: &[Name] = &[("model.embed_tokens", "token_embd"), ("model.norm", "output_norm"), ("lm_head", "output")];

/// Modules in a layer: below `model.layers.N`, and below `blk.N`.
const LAYER_TENSORS: &[Name] = &[
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("self_attn.o_proj", "attn_output"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];

/// Returns the place of the tensor `name`. A tensor without a name in GGUF keeps its own, so that
/// the error for a missing tensor contains it.
pub(super) fn place(architecture: &GgufArchitecture, name: &str) -> Place {
    let place = |name, expert| Place { name, expert };
    let of_vector = |(layer, part)| Some((layer, renamed(architecture.layer_vectors, part)?));
    if let Some((layer, stored)) = of_layer(name).and_then(of_vector) {
        return place(format!("blk.{layer}.{stored}"), None);
    }
    let (module, kind) = name.rsplit_once('.').unwrap_or((name, "weight"));
    let Some((layer, part)) = of_layer(module) else {
        let stored = renamed(TENSORS, module).map(|stored| format!("{stored}.{kind}"));
        return place(stored.unwrap_or_else(|| name.to_owned()), None);
    };
    let expert = part.strip_prefix("mlp.experts.").and_then(|rest| rest.split_once('.'));
    let expert =
        expert.and_then(|(index, part)| Some((index.parse().ok()?, renamed(architecture.expert_tensors, part)?)));
    if let Some((index, stored)) = expert {
        return place(format!("blk.{layer}.{stored}.{kind}"), Some(index));
    }
    let lists = architecture.layer_tensors.iter().copied().chain([LAYER_TENSORS]);
    match lists.flat_map(|names| renamed(names, part)).next() {
        Some(stored) => place(format!("blk.{layer}.{stored}.{kind}"), None),
        None => place(name.to_owned(), None),
    }
}

/// Returns the index of a layer, and the part of a name after it.
fn of_layer(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix("model.layers.")?.split_once('.')
}

fn renamed(names: &[Name], module: &str) -> Option<&'static str> {
    names.iter().find(|(here, _)| *here == module).map(|(_, there)| *there)
}
