//! The golden models in GGUF, as llama.cpp's converter (`convert_hf_to_gguf.py`) writes them. The
//! converter changes names, the order of rows and the weights of norms.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use super::{Case, write};

/// The ids of metadata types in GGUF.
const U32: u32 = 4;
const I32: u32 = 5;
const F32: u32 = 6;
const STRING: u32 = 8;
const ARRAY: u32 = 9;

/// The facts about a golden model's GGUF file in which it differs from other architectures.
#[derive(Debug, Default, Deserialize)]
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

/// A tensor of f32, its dimensions outermost first.
type Tensor = (String, Vec<usize>, Vec<f32>);

/// A builder of a GGUF file.
#[derive(Default)]
struct File {
    entries: Vec<Vec<u8>>,
    tensors: Vec<Tensor>,
}

impl File {
    fn entry(&mut self, key: &str, kind: u32, value: &[u8]) {
        self.entries.push([&text(key), &kind.to_le_bytes()[..], value].concat());
    }

    fn strings(&mut self, key: &str, all: impl Iterator<Item = String>) {
        let all: Vec<_> = all.map(|each| text(&each)).collect();
        let head = [STRING.to_le_bytes().to_vec(), (all.len() as u64).to_le_bytes().to_vec()].concat();
        self.entry(key, ARRAY, &[head, all.concat()].concat());
    }

    /// Returns the file in the layout of the GGUF specification, version 3.
    fn bytes(&self) -> Vec<u8> {
        let counts = [self.tensors.len() as u64, self.entries.len() as u64].map(u64::to_le_bytes).concat();
        let mut out = [&b"GGUF"[..], &3_u32.to_le_bytes(), &counts, &self.entries.concat()].concat();
        let mut data = Vec::new();
        for (name, shape, values) in &self.tensors {
            out.extend(text(name));
            out.extend((shape.len() as u32).to_le_bytes());
            shape.iter().rev().for_each(|&dim| out.extend((dim as u64).to_le_bytes()));
            out.extend(0_u32.to_le_bytes());
            out.extend((data.len() as u64).to_le_bytes());
            values.iter().for_each(|value| data.extend(value.to_le_bytes()));
            data.resize(data.len().next_multiple_of(32), 0_u8);
        }
        out.resize(out.len().next_multiple_of(32), 0);
        [out, data].concat()
    }
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
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
        write(folder, &format!("{}.gguf", self.name), file.bytes());
        folder.join(format!("{}.gguf", self.name))
    }

    fn describe<'a>(&'a self, file: &mut File) {
        let (GgufFacts { architecture, integers, floats, .. }, config) = (self.facts(), &self.older_config);
        let key = |key: &str| format!("{architecture}.{key}");
        file.entry("general.architecture", STRING, &text(architecture));
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
        let rotary_dim = config["partial_rotary_factor"].as_f64().unwrap_or(1.0) * self.head_size() as f64;
        file.entry(&key("rope.dimension_count"), U32, &(rotary_dim as u32).to_le_bytes());
        let scaling = &config["rope_scaling"];
        if scaling["rope_type"] == "linear" || scaling["type"] == "linear" {
            file.entry(&key("rope.scaling.type"), STRING, &text("linear"));
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

    /// Adds a vocabulary of one letter per token, without merges.
    fn add_vocabulary(&self, file: &mut File) {
        let count = self.number("vocab_size") as u32;
        file.entry("tokenizer.ggml.model", STRING, &text("gpt2"));
        file.entry("tokenizer.ggml.pre", STRING, &text("smollm"));
        let letter = |id| char::from_u32(0x4e00 + id).expect("a letter").to_string();
        file.strings("tokenizer.ggml.tokens", (0..count).map(letter));
        file.strings("tokenizer.ggml.merges", std::iter::empty());
        let kinds = (0..count).flat_map(|_| 1_i32.to_le_bytes()).collect();
        let head = [I32.to_le_bytes().to_vec(), u64::from(count).to_le_bytes().to_vec()].concat();
        file.entry("tokenizer.ggml.token_type", ARRAY, &[head, kinds].concat());
    }

    /// Adds a tensor, changed as the converter changes it.
    fn add(&self, file: &mut File, name: &str) {
        let (module, kind) = name.rsplit_once('.').expect("a kind");
        let layer = module.strip_prefix("model.layers.").and_then(|rest| rest.split_once('.'));
        let (prefix, part) = layer.map_or((String::new(), module), |(layer, part)| (format!("blk.{layer}."), part));
        if let Some((_, rest)) = part.split_once("mlp.experts.") {
            return self.add_experts(file, name, &prefix, rest);
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
        file.tensors.push((format!("{prefix}{stored}.{kind}"), self.tensors[name].clone(), values));
    }

    /// Adds the matrices of all experts as one tensor when `name` is the first expert's matrix.
    fn add_experts(&self, file: &mut File, name: &str, prefix: &str, rest: &str) {
        let Some(part) = rest.strip_prefix("0.").and_then(|part| part.strip_suffix("_proj")) else { return };
        let count = self.number("num_experts") as usize;
        let each = |expert| self.weights(&name.replace(".experts.0.", &format!(".experts.{expert}.")));
        let shape = [&[count][..], &self.tensors[name]].concat();
        file.tensors.push((format!("{prefix}ffn_{part}_exps.weight"), shape, (0..count).flat_map(each).collect()));
    }

    /// Adds the factors of the rotary frequencies.
    fn add_frequencies(&self, file: &mut File) {
        let scaling = &self.older_config["rope_scaling"];
        let floats = |list: &Value| -> Vec<f32> {
            list.as_array().expect("a list").iter().map(|value| value.as_f64().expect("a number") as f32).collect()
        };
        let mut add = |name: &str, values: Vec<f32>| file.tensors.push((name.to_owned(), vec![values.len()], values));
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
