//! How llama.cpp's converter stores each family.

use serde_json::Value;

use super::delta_net;
use super::gguf_model::{Entry, GgufModel, Tensor};
use super::hf_folder::HfFolder;

/// A family of models with images.
pub(super) struct Family {
    /// The `model_type` in `config.json`.
    model_type: &'static str,
    /// The architecture of the language model's file.
    pub(super) architecture: &'static str,
    /// The projector of the `mmproj` file.
    pub(super) projector: &'static str,
    /// The flag of the tower's activation.
    pub(super) activation: &'static str,
    /// The prefix of the language model's tensors.
    pub(super) text: &'static str,
    /// Modules in a layer of the language model, and their names in GGUF.
    pub(super) text_layer: &'static [Names],
    /// True if the rows of queries and keys of the language model are interleaved.
    pub(super) interleaved: bool,
    /// The number that is added to the weights of the language model's norms.
    pub(super) norm_offset: f32,
    /// Converts a tensor in a layer of the language model, below `layers.N`, that gets more than another name. The value
    /// is `text_config`.
    pub(super) convert_text: fn(&Value, &str, &Tensor) -> Option<(String, Tensor)>,
    /// Adds metadata of the language model. The value is `text_config`.
    pub(super) describe_text: fn(&Value, &mut GgufModel),
    /// Adds metadata of the tower.
    pub(super) describe_tower: fn(&HfFolder, &mut GgufModel),
    /// Converts a tensor of the tower. Returns nothing for other tensors. The value is `config.json`.
    pub(super) convert: fn(&Value, &str, &Tensor) -> Vec<(String, Tensor)>,
}

const FAMILIES: &[Family] = &[GEMMA3, QWEN2_5_VL, QWEN3_VL, QWEN3_5, SMOLVLM];

/// Returns the family of a model.
///
/// # Panics
/// If no family has this model type.
pub(super) fn find(model_type: &str) -> &'static Family {
    FAMILIES.iter().find(|family| family.model_type == model_type).expect("a family with mmproj files")
}

/// Modules, and their names in GGUF.
type Names = &'static [(&'static str, &'static str)];

/// The matrices in a layer of a language model.
const MATRICES: Names = &[
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];
/// The norms before attention and before the MLP.
const NORMS: Names = &[("input_layernorm", "attn_norm"), ("post_attention_layernorm", "ffn_norm")];
/// The norms of Gemma 3, also after attention and after the MLP.
const GEMMA_NORMS: Names = &[
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "post_attention_norm"),
    ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
];
/// The norms of Qwen 3.5 before attention and before the MLP.
const QWEN3_5_NORMS: Names = &[("input_layernorm", "attn_norm"), ("post_attention_layernorm", "post_attention_norm")];
/// The norms of queries and keys.
const HEAD_NORMS: Names = &[("self_attn.q_norm", "attn_q_norm"), ("self_attn.k_norm", "attn_k_norm")];

/// Modules of SigLIP and of its projectors, and their names in GGUF. `%` is the number of a block.
const SIGLIP: &[(&str, &str)] = &[
    ("embeddings.patch_embedding", "v.patch_embd"),
    ("embeddings.position_embedding", "v.position_embd"),
    ("post_layernorm", "v.post_ln"),
    ("encoder.layers.%.layer_norm1", "v.blk.%.ln1"),
    ("encoder.layers.%.layer_norm2", "v.blk.%.ln2"),
    ("encoder.layers.%.self_attn.q_proj", "v.blk.%.attn_q"),
    ("encoder.layers.%.self_attn.k_proj", "v.blk.%.attn_k"),
    ("encoder.layers.%.self_attn.v_proj", "v.blk.%.attn_v"),
    ("encoder.layers.%.self_attn.out_proj", "v.blk.%.attn_out"),
    ("encoder.layers.%.mlp.fc1", "v.blk.%.ffn_up"),
    ("encoder.layers.%.mlp.fc2", "v.blk.%.ffn_down"),
];

const QWEN: &[(&str, &str)] = &[
    ("merger.ln_q", "v.post_ln"),
    ("merger.mlp.0", "mm.0"),
    ("merger.mlp.2", "mm.2"),
    ("blocks.%.norm1", "v.blk.%.ln1"),
    ("blocks.%.norm2", "v.blk.%.ln2"),
    ("blocks.%.attn.proj", "v.blk.%.attn_out"),
    ("blocks.%.mlp.gate_proj", "v.blk.%.ffn_gate"),
    ("blocks.%.mlp.up_proj", "v.blk.%.ffn_up"),
    ("blocks.%.mlp.down_proj", "v.blk.%.ffn_down"),
];

const QWEN3: &[(&str, &str)] = &[
    ("patch_embed.proj", "v.patch_embd"),
    ("pos_embed", "v.position_embd"),
    ("merger.norm", "v.post_ln"),
    ("merger.linear_fc1", "mm.0"),
    ("merger.linear_fc2", "mm.2"),
    ("blocks.%.norm1", "v.blk.%.ln1"),
    ("blocks.%.norm2", "v.blk.%.ln2"),
    ("blocks.%.attn.qkv", "v.blk.%.attn_qkv"),
    ("blocks.%.attn.proj", "v.blk.%.attn_out"),
    ("blocks.%.mlp.linear_fc1", "v.blk.%.ffn_up"),
    ("blocks.%.mlp.linear_fc2", "v.blk.%.ffn_down"),
];

/// Returns the name of a tensor in GGUF.
fn renamed(table: &[(&str, &str)], name: &str) -> Option<String> {
    let (module, kind) = name.rsplit_once('.')?;
    let number = module.split('.').find(|part| part.parse::<usize>().is_ok()).unwrap_or_default();
    let named = |pattern: &str| pattern.replace('%', number);
    let (_, stored) = table.iter().find(|(here, _)| named(here) == module)?;
    Some(format!("{}.{kind}", named(stored)))
}

/// Returns a tensor of a tower under its name in GGUF.
fn siglip(prefix: &str, name: &str, tensor: &Tensor) -> Vec<(String, Tensor)> {
    let renamed = name.strip_prefix(prefix).and_then(|rest| renamed(SIGLIP, rest));
    renamed.map(|name| (name, tensor.clone())).into_iter().collect()
}

const GEMMA3: Family = Family {
    model_type: "gemma3",
    architecture: "gemma3",
    projector: "gemma3",
    activation: "use_gelu",
    text: "language_model.model.",
    text_layer: &[MATRICES, HEAD_NORMS, GEMMA_NORMS],
    interleaved: false,
    norm_offset: 1.0,
    convert_text: |_, _, _| None,
    describe_text: |config, model| {
        let layers: Vec<String> = serde_json::from_value(config["layer_types"].clone()).expect("types of layers");
        let full = layers.iter().position(|kind| kind == "full_attention").expect("a layer without a window");
        model.set("gemma3.attention.sliding_window_pattern", Entry::U32(full as u32 + 1));
        model.set("gemma3.rope.scaling.type", Entry::Text("linear".to_owned()));
        let factor = config["rope_scaling"]["factor"].as_f64().expect("a factor");
        model.set("gemma3.rope.scaling.factor", Entry::F32(factor as f32));
    },
    describe_tower: |folder, model| {
        let tokens = folder.processor["image_seq_length"].as_u64().expect("a count");
        let size = |name: &str| folder.config["vision_config"][name].as_u64().expect("a size");
        let side = size("image_size") / size("patch_size") / tokens.isqrt();
        if side != 4 {
            model.set("clip.vision.projector.scale_factor", Entry::U32(side as u32));
        }
    },
    convert: |_, name, tensor| match name {
        "multi_modal_projector.mm_input_projection_weight" => {
            vec![("mm.input_projection.weight".to_owned(), tensor.clone())]
        }
        "multi_modal_projector.mm_soft_emb_norm.weight" => {
            let values = tensor.values.iter().map(|value| value + 1.0).collect();
            vec![("mm.soft_emb_norm.weight".to_owned(), Tensor { values, ..tensor.clone() })]
        }
        _ => siglip("vision_tower.vision_model.", name, tensor),
    },
};

const QWEN2_5_VL: Family = Family {
    model_type: "qwen2_5_vl",
    architecture: "qwen2vl",
    projector: "qwen2.5vl_merger",
    activation: "use_silu",
    text: "model.",
    text_layer: &[MATRICES, NORMS],
    interleaved: false,
    norm_offset: 0.0,
    convert_text: |_, _, _| None,
    describe_text: |config, model| {
        let sections = config["rope_scaling"]["mrope_section"].clone();
        let mut sections: Vec<i32> = serde_json::from_value(sections).expect("sections");
        sections.resize(4, 0);
        model.set("qwen2vl.rope.dimension_sections", Entry::I32s(sections));
    },
    describe_tower: |folder, model| {
        let vision = &folder.config["vision_config"];
        let first = vision["fullatt_block_indexes"][0].as_u64().expect("a block");
        model.set("clip.vision.n_wa_pattern", Entry::U32(first as u32 + 1));
        let merge = vision["spatial_merge_size"].as_u64().expect("a size");
        model.set("clip.vision.spatial_merge_size", Entry::U32(merge as u32));
        // The converter writes these for other towers only. llama.cpp has fixed values for this one.
        for (key, value) in [
            ("window_size", &vision["window_size"]),
            ("image_min_pixels", &folder.preprocessor["min_pixels"]),
            ("image_max_pixels", &folder.preprocessor["max_pixels"]),
        ] {
            model.set(&format!("clip.vision.{key}"), Entry::U32(value.as_u64().expect("a number") as u32));
        }
    },
    convert: |_, name, tensor| {
        let Some(rest) = name.strip_prefix("visual.") else { return Vec::new() };
        if rest == "patch_embed.proj.weight" {
            let names = ["v.patch_embd.weight", "v.patch_embd.weight.1"].map(str::to_owned);
            return names.into_iter().zip(tensor.frames()).collect();
        }
        if let Some((block, kind)) = rest.strip_prefix("blocks.").and_then(|rest| rest.split_once(".attn.qkv.")) {
            let names = ["q", "k", "v"].map(|part| format!("v.blk.{block}.attn_{part}.{kind}"));
            return names.into_iter().zip(tensor.rows(3)).collect();
        }
        renamed(QWEN, rest).map(|name| (name, tensor.clone())).into_iter().collect()
    },
};

const QWEN3_VL: Family = Family {
    model_type: "qwen3_vl",
    architecture: "qwen3vl",
    projector: "qwen3vl_merger",
    activation: "use_gelu",
    text: "model.language_model.",
    text_layer: &[MATRICES, HEAD_NORMS, NORMS],
    interleaved: false,
    norm_offset: 0.0,
    convert_text: |_, _, _| None,
    describe_text: |config, model| {
        let sections = config["rope_scaling"]["mrope_section"].clone();
        let mut sections: Vec<i32> = serde_json::from_value(sections).expect("sections");
        sections.resize(4, 0);
        model.set("qwen3vl.rope.dimension_sections", Entry::I32s(sections));
        model.set("qwen3vl.n_deepstack_layers", Entry::U32(1));
    },
    describe_tower: |folder, model| {
        let vision = &folder.config["vision_config"];
        let size = |name: &str| vision[name].as_u64().expect("a size");
        let image = size("num_position_embeddings").isqrt() * size("patch_size");
        model.set("clip.vision.image_size", Entry::U32(image as u32));
        model.set("clip.vision.spatial_merge_size", Entry::U32(size("spatial_merge_size") as u32));
        let deep = deep_blocks(&folder.config);
        let flags = (0..size("depth")).map(|block| deep.contains(&block)).collect();
        model.set("clip.vision.is_deepstack_layers", Entry::Bools(flags));
        for (key, edge) in [("image_min_pixels", "shortest_edge"), ("image_max_pixels", "longest_edge")] {
            let area = folder.preprocessor["size"][edge].as_u64().expect("an area");
            model.set(&format!("clip.vision.{key}"), Entry::U32(area as u32));
        }
    },
    convert: |config, name, tensor| {
        let Some(rest) = name.strip_prefix("model.visual.") else { return Vec::new() };
        if rest == "patch_embed.proj.weight" {
            let names = ["v.patch_embd.weight", "v.patch_embd.weight.1"].map(str::to_owned);
            return names.into_iter().zip(tensor.frames()).collect();
        }
        if let Some((index, part)) = rest.strip_prefix("deepstack_merger_list.").and_then(|rest| rest.split_once('.')) {
            let block = deep_blocks(config)[index.parse::<usize>().expect("a number")];
            return vec![(format!("v.deepstack.{block}.{}", part.replace("linear_", "")), tensor.clone())];
        }
        renamed(QWEN3, rest).map(|name| (name, tensor.clone())).into_iter().collect()
    },
};

/// A dense model.
const QWEN3_5: Family = Family {
    model_type: "qwen3_5",
    architecture: "qwen35",
    text_layer: &[MATRICES, HEAD_NORMS, QWEN3_5_NORMS],
    norm_offset: 1.0,
    convert_text: delta_net::convert,
    describe_text: |config, model| {
        let rope = &config["rope_parameters"];
        let mut sections: Vec<i32> = serde_json::from_value(rope["mrope_section"].clone()).expect("sections");
        sections.resize(4, 0);
        model.set("qwen35.rope.dimension_sections", Entry::I32s(sections));
        let size = |setting: &str| config[setting].as_u64().expect("a size");
        let share = rope["partial_rotary_factor"].as_f64().expect("a share");
        for (key, value) in [
            ("rope.dimension_count", (share * size("head_dim") as f64) as u64),
            ("ssm.conv_kernel", config["linear_conv_kernel_dim"].as_u64().unwrap_or(4)),
            ("ssm.state_size", size("linear_key_head_dim")),
            ("ssm.group_count", size("linear_num_key_heads")),
            ("ssm.time_step_rank", size("linear_num_value_heads")),
            ("ssm.inner_size", size("linear_num_value_heads") * size("linear_value_head_dim")),
        ] {
            model.set(&format!("qwen35.{key}"), Entry::U32(value as u32));
        }
    },
    ..QWEN3_VL
};

/// Returns the blocks of Qwen 3 VL that a merger follows.
fn deep_blocks(config: &Value) -> Vec<u64> {
    serde_json::from_value(config["vision_config"]["deepstack_visual_indexes"].clone()).expect("blocks")
}

const SMOLVLM: Family = Family {
    model_type: "smolvlm",
    architecture: "llama",
    projector: "idefics3",
    activation: "use_gelu",
    text: "model.text_model.",
    text_layer: &[MATRICES, NORMS],
    interleaved: true,
    norm_offset: 0.0,
    convert_text: |_, _, _| None,
    describe_text: |_, _| {},
    describe_tower: |folder, model| {
        let scale = folder.config["scale_factor"].as_u64().expect("a factor");
        model.set("clip.vision.projector.scale_factor", Entry::U32(scale as u32));
        let longest = folder.preprocessor["size"]["longest_edge"].as_u64().expect("an edge");
        model.set("clip.vision.preproc_image_size", Entry::U32(longest as u32));
    },
    convert: |_, name, tensor| match name {
        "model.connector.modality_projection.proj.weight" => vec![("mm.model.fc.weight".to_owned(), tensor.clone())],
        _ => siglip("model.vision_model.", name, tensor),
    },
};
