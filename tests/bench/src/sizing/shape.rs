//! The shapes of models with random weights: sizes of llama's architecture.

use clap::ValueEnum;
use serde_json::{Value, json};

/// Tokens of the vocabulary.
pub(super) const VOCABULARY: usize = 32_000;

/// A size, in parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Shape {
    #[value(name = "0.4b")]
    Small,
    #[value(name = "1b")]
    Middle,
    #[value(name = "3b")]
    Large,
}

/// The numbers of a shape.
#[derive(Debug, Clone, Copy)]
struct Numbers {
    layers: usize,
    width: usize,
    hidden: usize,
    heads: usize,
}

/// Heads of keys and values.
const KV_HEADS: usize = 8;

/// A tensor: its name, its rows, and its columns. A vector has one row.
pub(super) type Tensor = (String, usize, usize);

impl Shape {
    fn numbers(self) -> Numbers {
        match self {
            Self::Small => Numbers { layers: 28, width: 1024, hidden: 3072, heads: 16 },
            Self::Middle => Numbers { layers: 16, width: 2048, hidden: 8192, heads: 32 },
            Self::Large => Numbers { layers: 28, width: 3072, hidden: 8192, heads: 24 },
        }
    }

    /// Returns the number of parameters.
    pub(super) fn parameters(self) -> usize {
        self.tensors().iter().map(|(_, rows, columns)| rows * columns).sum()
    }

    /// Returns the model's `config.json`.
    pub(super) fn config(self) -> Value {
        let Numbers { layers, width, hidden, heads } = self.numbers();
        json!({
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
            "hidden_size": width, "intermediate_size": hidden, "num_hidden_layers": layers,
            "num_attention_heads": heads, "num_key_value_heads": KV_HEADS, "vocab_size": VOCABULARY,
            "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10_000.0,
            "tie_word_embeddings": true, "torch_dtype": "bfloat16", "eos_token_id": 1,
        })
    }

    pub(super) fn tensors(self) -> Vec<Tensor> {
        let Numbers { layers, width, hidden, heads } = self.numbers();
        let kv = width / heads * KV_HEADS;
        let mut tensors = vec![("model.embed_tokens.weight".to_owned(), VOCABULARY, width)];
        for layer in 0..layers {
            let mut add = |name: &str, rows, columns| {
                tensors.push((format!("model.layers.{layer}.{name}.weight"), rows, columns));
            };
            add("input_layernorm", 1, width);
            add("self_attn.q_proj", width, width);
            add("self_attn.k_proj", kv, width);
            add("self_attn.v_proj", kv, width);
            add("self_attn.o_proj", width, width);
            add("post_attention_layernorm", 1, width);
            add("mlp.gate_proj", hidden, width);
            add("mlp.up_proj", hidden, width);
            add("mlp.down_proj", width, hidden);
        }
        tensors.push(("model.norm.weight".to_owned(), 1, width));
        tensors
    }
}
