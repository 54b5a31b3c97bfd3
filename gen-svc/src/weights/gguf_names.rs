//! What GGUF calls the tensors that transformers has names for. Source: `gguf/tensor_mapping.py` of llama.cpp.

/// Where a tensor is in a GGUF file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Of the tensor there.
    pub(super) name: String,
    /// Which of its first dimension, where all experts' matrices are one tensor.
    pub(super) expert: Option<usize>,
}

/// A name here, and a name there.
type Name = (&'static str, &'static str);

/// Outside the layers.
const TENSORS: &[Name] = &[("model.embed_tokens", "token_embd"), ("model.norm", "output_norm"), ("lm_head", "output")];

/// In a layer: `model.layers.N.` here, `blk.N.` there.
const LAYER_TENSORS: &[Name] = &[
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.qkv_proj", "attn_qkv"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("self_attn.o_proj", "attn_output"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.gate_up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
    ("mlp.gate", "ffn_gate_inp"),
];

/// Where Gemma's four norms make a difference.
const GEMMA_TENSORS: &[Name] = &[
    ("post_attention_layernorm", "post_attention_norm"),
    ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
];

/// Of an expert: `mlp.experts.E.` here.
const EXPERT_TENSORS: &[Name] =
    &[("gate_proj", "ffn_gate_exps"), ("up_proj", "ffn_up_exps"), ("down_proj", "ffn_down_exps")];

/// Where `name` is. One that GGUF has no name for keeps its own, so that it is missed by that.
pub(super) fn place(architecture: &str, name: &str) -> Place {
    let place = |name, expert| Place { name, expert };
    let (module, kind) = name.rsplit_once('.').unwrap_or((name, "weight"));
    let Some((layer, part)) = module.strip_prefix("model.layers.").and_then(|rest| rest.split_once('.')) else {
        let stored = renamed(TENSORS, module).map(|stored| format!("{stored}.{kind}"));
        return place(stored.unwrap_or_else(|| name.to_owned()), None);
    };
    let expert = part.strip_prefix("mlp.experts.").and_then(|rest| rest.split_once('.'));
    let expert = expert.and_then(|(index, part)| Some((index.parse().ok()?, renamed(EXPERT_TENSORS, part)?)));
    if let Some((index, stored)) = expert {
        return place(format!("blk.{layer}.{stored}.{kind}"), Some(index));
    }
    let own = if architecture.starts_with("gemma") { renamed(GEMMA_TENSORS, part) } else { None };
    match own.or_else(|| renamed(LAYER_TENSORS, part)) {
        Some(stored) => place(format!("blk.{layer}.{stored}.{kind}"), None),
        None => place(name.to_owned(), None),
    }
}

fn renamed(names: &[Name], module: &str) -> Option<&'static str> {
    names.iter().find(|(here, _)| *here == module).map(|(_, there)| *there)
}
