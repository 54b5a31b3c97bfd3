//! The golden models in GGUF, as llama.cpp's converter (`convert_hf_to_gguf.py`) writes them. The
//! converter changes names, the order of rows and the weights of norms.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;
use tandem_tests::gguf_file::{self, F32, STRING, U32, string};

use super::converted::Heads;
use super::{Case, write};

/// The facts about a golden model's GGUF file in which it differs from other architectures.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct GgufFacts {
    /// The value of `general.architecture`.
    architecture: String,
    /// True if the rows of queries and keys are interleaved.
    interleaved: bool,
    /// Names of modules in a layer.
    modules: BTreeMap<String, String>,
    /// GGUF keys of integer settings, by the setting's name.
    integers: BTreeMap<String, String>,
    /// GGUF keys of float settings, by the setting's name.
    floats: BTreeMap<String, String>,
    /// The number that is added to the weights of norms.
    norm_offset: f32,
}

/// Names outside the layers, and in them.
const NAMES: &[(&str, &str)] = &[
    ("model.embed_tokens", "token_embd"),
    ("model.norm", "output_norm"),
    ("lm_head", "output"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "ffn_norm"),
];

/// Integer settings: the GGUF key, and the name in `config.json`.
const SIZES: &[(&str, &str)] = &[
    ("embedding_length", "hidden_size"),
    ("feed_forward_length", "intermediate_size"),
    ("block_count", "num_hidden_layers"),
    ("attention.head_count", "num_attention_heads"),
    ("attention.head_count_kv", "num_key_value_heads"),
    ("context_length", "max_position_embeddings"),
    ("attention.key_length", "head_dim"),
    ("attention.value_length", "head_dim"),
    ("attention.sliding_window", "sliding_window"),
    ("rope.scaling.original_context_length", "original_max_position_embeddings"),
];

/// Float settings: the GGUF key, and the name in `config.json`.
const NUMBERS: &[(&str, &str)] =
    &[("attention.layer_norm_rms_epsilon", "rms_norm_eps"), ("rope.freq_base", "rope_theta")];

/// A GGUF file under construction.
#[derive(Default)]
struct File(gguf_file::File);

impl File {
    fn change(&mut self, change: impl FnOnce(gguf_file::File) -> gguf_file::File) {
        self.0 = change(std::mem::take(&mut self.0));
    }

    fn entry(&mut self, key: &str, kind: u32, value: &[u8]) {
        self.change(|file| file.entry(key, kind, value));
    }

    /// Adds a tensor of f32, its dimensions outermost first.
    fn tensor(&mut self, name: &str, shape: &[usize], values: &[f32]) {
        let dims: Vec<u64> = shape.iter().rev().map(|&dim| dim as u64).collect();
        self.change(|file| file.weights(name, &dims, |place| values[place as usize]));
    }
}

impl Case {
    /// Returns the facts about the case's GGUF file. Panics if the case has no GGUF file.
    fn facts(&self) -> &GgufFacts {
        self.gguf.as_ref().expect("a case with a GGUF file")
    }

    /// Writes the model as a GGUF file.
    pub(super) fn write_gguf(&self, folder: &Path) -> PathBuf {
        let mut file = File::default();
        self.describe(&mut file);
        self.add_vocabulary(&mut file);
        self.tensors.keys().for_each(|name| self.add(&mut file, name));
        self.add_frequencies(&mut file);
        write(folder, &format!("{}.gguf", self.name), file.0.bytes());
        folder.join(format!("{}.gguf", self.name))
    }

    fn describe<'a>(&'a self, file: &mut File) {
        let (GgufFacts { architecture, integers, floats, .. }, config) = (self.facts(), &self.older_config);
        let key = |key: &str| format!("{architecture}.{key}");
        file.entry("general.architecture", STRING, &string(architecture));
        let own =
            |names: &'a BTreeMap<String, String>| names.iter().map(|(setting, key)| (key.as_str(), setting.as_str()));
        for (name, setting) in SIZES.iter().copied().chain(own(integers)) {
            if let Some(value) = config[setting].as_u64() {
                file.entry(&key(name), U32, &(value as u32).to_le_bytes());
            }
        }
        for (name, setting) in NUMBERS.iter().copied().chain(own(floats)) {
            if let Some(value) = config[setting].as_f64() {
                file.entry(&key(name), F32, &(value as f32).to_le_bytes());
            }
        }
        let default = if self.has_states() { 0.25 } else { 1.0 };
        let rotary_dim = config["partial_rotary_factor"].as_f64().unwrap_or(default) * self.head_size() as f64;
        file.entry(&key("rope.dimension_count"), U32, &(rotary_dim as u32).to_le_bytes());
        if let Some(heads) = self.heads() {
            let inner = (heads.value_heads * heads.value_size) as u32;
            file.entry(&key("ssm.inner_size"), U32, &inner.to_le_bytes());
            if heads.is_tiled {
                let third = rotary_dim as i32 / 6;
                let sections = [rotary_dim as i32 / 2 - 2 * third, third, third, 0];
                file.change(|file| file.i32s(&key("rope.dimension_sections"), &sections));
            }
        }
        let scaling = &config["rope_scaling"];
        if scaling["rope_type"] == "linear" || scaling["type"] == "linear" {
            file.entry(&key("rope.scaling.type"), STRING, &string("linear"));
            let factor = scaling["factor"].as_f64().expect("a factor") as f32;
            file.entry(&key("rope.scaling.factor"), F32, &factor.to_le_bytes());
        }
        if scaling["type"] == "longrope" {
            let (longest, original) =
                (self.number("max_position_embeddings"), self.number("original_max_position_embeddings"));
            let factor = (1.0 + (longest / original).ln() / original.ln()).sqrt() as f32;
            file.entry(&key("rope.scaling.attn_factor"), F32, &factor.to_le_bytes());
        }
    }

    fn number(&self, setting: &str) -> f64 {
        self.older_config[setting].as_f64().expect("a number")
    }

    fn head_size(&self) -> usize {
        let size = self.number("hidden_size") / self.number("num_attention_heads");
        self.older_config["head_dim"].as_f64().unwrap_or(size) as usize
    }

    /// Adds a vocabulary of one character per token, without merges.
    fn add_vocabulary(&self, file: &mut File) {
        let count = self.number("vocab_size") as u32;
        file.entry("tokenizer.ggml.model", STRING, &string("gpt2"));
        file.entry("tokenizer.ggml.pre", STRING, &string("smollm"));
        let character = |id| char::from_u32(0x4e00 + id).expect("a character").to_string();
        let tokens: Vec<String> = (0..count).map(character).collect();
        let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
        file.change(|file| file.strings("tokenizer.ggml.tokens", &tokens).strings("tokenizer.ggml.merges", &[]));
        file.change(|file| file.i32s("tokenizer.ggml.token_type", &vec![1; count as usize]));
    }

    /// Adds a tensor, changed as the converter changes it.
    fn add(&self, file: &mut File, name: &str) {
        let (module, kind) = name.rsplit_once('.').expect("a kind");
        let layer = module.strip_prefix("model.layers.").and_then(|rest| rest.split_once('.'));
        let (prefix, part) = layer.map_or((String::new(), module), |(layer, part)| (format!("blk.{layer}."), part));
        if let Some((_, rest)) = part.split_once("mlp.experts.") {
            return self.add_experts(file, name, &prefix, rest);
        }
        if part.starts_with("linear_attn") {
            return self.add_of_delta_net(file, name, &prefix);
        }
        let GgufFacts { interleaved, modules, norm_offset, .. } = self.facts();
        let shared = || NAMES.iter().find(|(known, _)| *known == part).expect("a name").1;
        let stored = modules.get(part).map_or_else(shared, String::as_str);
        let mut values = self.weights(name);
        if kind == "weight" && self.tensors[name].len() == 1 {
            values.iter_mut().for_each(|value| *value += norm_offset);
        }
        if *interleaved && ["attn_q", "attn_k"].contains(&stored) {
            values = interleaved_rows(&values, self.tensors[name][0], self.head_size());
        }
        file.tensor(&format!("{prefix}{stored}.{kind}"), &self.tensors[name], &values);
    }

    /// Returns the sizes of the model's DeltaNets.
    fn heads(&self) -> Option<Heads> {
        let size = |name: &str| self.number(name) as usize;
        self.has_states().then(|| Heads {
            key_heads: size("linear_num_key_heads"),
            value_heads: size("linear_num_value_heads"),
            key_size: size("linear_key_head_dim"),
            value_size: size("linear_value_head_dim"),
            is_tiled: self.facts().architecture != "qwen3next",
        })
    }

    fn add_of_delta_net(&self, file: &mut File, name: &str, prefix: &str) {
        let (_, part) = name.split_once(".linear_attn.").expect("a part");
        let heads = self.heads().expect("a model with DeltaNets");
        for (stored, shape, values) in heads.converted(part, &self.tensors[name], self.weights(name)) {
            file.tensor(&format!("{prefix}{stored}"), &shape, &values);
        }
    }

    /// Adds the matrices of all experts as one tensor when `name` is the first expert's matrix.
    fn add_experts(&self, file: &mut File, name: &str, prefix: &str, rest: &str) {
        let Some(part) = rest.strip_prefix("0.").and_then(|part| part.strip_suffix("_proj")) else { return };
        let count = self.number("num_experts") as usize;
        let each = |expert| self.weights(&name.replace(".experts.0.", &format!(".experts.{expert}.")));
        let shape = [&[count][..], &self.tensors[name]].concat();
        let values: Vec<f32> = (0..count).flat_map(each).collect();
        file.tensor(&format!("{prefix}ffn_{part}_exps.weight"), &shape, &values);
    }

    /// Adds the factors of the rotary frequencies.
    fn add_frequencies(&self, file: &mut File) {
        let scaling = &self.older_config["rope_scaling"];
        let floats = |list: &Value| -> Vec<f32> {
            list.as_array().expect("a list").iter().map(|value| value.as_f64().expect("a number") as f32).collect()
        };
        let mut add = |name: &str, values: Vec<f32>| file.tensor(name, &[values.len()], &values);
        if scaling["type"] == "longrope" {
            add("rope_factors_long.weight", floats(&scaling["long_factor"]));
            add("rope_factors_short.weight", floats(&scaling["short_factor"]));
        }
        if scaling["rope_type"] == "llama3" {
            add("rope_freqs.weight", self.llama3_divisors(scaling));
        }
    }

    fn llama3_divisors(&self, scaling: &Value) -> Vec<f32> {
        let setting = |name: &str| scaling[name].as_f64().expect("a number");
        let (factor, low, high) = (setting("factor"), setting("low_freq_factor"), setting("high_freq_factor"));
        let (original, size) = (setting("original_max_position_embeddings"), self.head_size());
        let divisor = |i: usize| {
            let wave = 2.0 * std::f64::consts::PI * self.number("rope_theta").powf(2.0 * i as f64 / size as f64);
            let share = (original / wave - low) / (high - low);
            (1.0 / ((1.0 - share.clamp(0.0, 1.0)) / factor + share.clamp(0.0, 1.0))) as f32
        };
        (0..size / 2).map(divisor).collect()
    }
}

/// Reorders rows so that row i + D/2 of each head follows row i.
fn interleaved_rows(values: &[f32], rows: usize, head: usize) -> Vec<f32> {
    let columns = values.len() / rows;
    let source = |row: usize| row / head * head + row % head / 2 + row % 2 * (head / 2);
    (0..rows).flat_map(|row| &values[source(row) * columns..][..columns]).copied().collect()
}
