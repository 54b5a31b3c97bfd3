//! Qwen 3.5's language model: three of four layers are gated DeltaNets, the others have gated
//! attention with a partial rotation. Reference: transformers, `models/qwen3_5/modeling_qwen3_5.py`.

use serde_json::{Value, json};

use super::llama::{self, ATTENTION_BIAS, Defaults, MAX_HEADS, path};
use super::qwen2_5_vl;
use crate::error::LoadError;
use crate::models::architecture::Architecture;
use crate::models::config::{Config, ConfigError, unsupported};
use crate::models::decoder::{Convolution, Decay, Decoder, DeltaNet, Grouped, KeyHeads, Matrix, Mixer, Norm};
use crate::models::rope::{self, Axes, RopeSetting};
use crate::weights::gguf::architecture::{ConfigMap, GgufArchitecture, Name};
use crate::weights::gguf::header::GgufHeader;

/// Without sections, the frequencies have the axes of the published models, however many there are.
pub(super) const ROPE: RopeSetting = RopeSetting {
    partial: true,
    default_share: 0.25,
    axes: Some(Axes { interleaved: true, default: [11, 11, 10], is_cut: true }),
    ..rope::ONLY
};

/// Defaults of settings that are not in the config.
pub(super) const DEFAULTS: Defaults = Defaults {
    feed_forward: 12_288,
    heads: 16,
    kv_heads: Some(4),
    head_size: Some(256),
    vocabulary: 248_320,
    context: 32_768,
    biases: &[ATTENTION_BIAS],
    ropes: &[ROPE],
    ..llama::DEFAULTS
};

/// The default n: every n-th layer has attention.
const DEFAULT_INTERVAL_LAYERS: usize = 4;
const DEFAULT_TAPS: usize = 4;
const DEFAULT_KEY_HEADS: usize = 16;
const DEFAULT_VALUE_HEADS: usize = 32;
const DEFAULT_HEAD_SIZE: usize = 128;
const MAX_TAPS: usize = 1024;

/// The row of the language model.
pub(in crate::models) const TEXT: Architecture = Architecture { name: "qwen3_5_text", describe, gguf: Some(GGUF) };

pub(super) const GGUF: GgufArchitecture = GgufArchitecture {
    has_partial_rotation: true,
    has_draft_layers: true,
    layer_tensors: &[GGUF_MIXERS],
    layer_vectors: &[("linear_attn.A_log", "ssm_a"), ("linear_attn.dt_bias", "ssm_dt.bias")],
    add_implied,
    ..GgufArchitecture::named("qwen35")
};

/// The modules of both kinds of mixers, and the norm after them.
pub(super) const GGUF_MIXERS: &[Name] = &[
    ("post_attention_layernorm", "post_attention_norm"),
    ("linear_attn.in_proj_qkv", "attn_qkv"),
    ("linear_attn.in_proj_z", "attn_gate"),
    ("linear_attn.in_proj_b", "ssm_beta"),
    ("linear_attn.in_proj_a", "ssm_alpha"),
    ("linear_attn.conv1d", "ssm_conv1d"),
    ("linear_attn.norm", "ssm_norm"),
    ("linear_attn.out_proj", "ssm_out"),
];

/// Settings of a GGUF file that llama.cpp requires, in addition to the value heads.
const GGUF_SIZES: &[Name] = &[
    ("linear_conv_kernel_dim", "ssm.conv_kernel"),
    ("linear_key_head_dim", "ssm.state_size"),
    ("linear_num_key_heads", "ssm.group_count"),
];
const VALUE_HEADS: &str = "linear_num_value_heads";

/// Adds the settings that a GGUF file implies, where a whole head is rotated by default.
pub(super) fn add_implied(header: &GgufHeader, config: &mut ConfigMap) -> Result<(), LoadError> {
    const ALL_VALUES: &str = "ssm.inner_size";
    for (setting, key) in GGUF_SIZES {
        config.insert((*setting).into(), json!(header.require::<u32>(key)?));
    }
    let all = header.require::<u32>(ALL_VALUES)?;
    let heads = header.require::<u32>("ssm.time_step_rank")?;
    let size = all.checked_div(heads).filter(|size| size * heads == all);
    let wrong = || header.refused(ALL_VALUES, format_args!("{all} for {heads} heads"));
    config.insert(VALUE_HEADS.into(), json!(heads));
    config.insert("linear_value_head_dim".into(), json!(size.ok_or_else(wrong)?));
    config.entry("partial_rotary_factor").or_insert(json!(1.0));
    if let Some(interval) = header.find::<u32>(INTERVAL)? {
        config.insert(INTERVAL.into(), json!(interval));
    }
    add_layer_types(header, config)?;
    qwen2_5_vl::add_sections(header, config)
}

/// Adds the types of the layers, if the file has a flag for each.
fn add_layer_types(header: &GgufHeader, config: &mut ConfigMap) -> Result<(), LoadError> {
    const KEY: &str = "attention.recurrent_layers";
    let Some(flags) = header.find::<&[bool]>(KEY)? else { return Ok(()) };
    if flags.len() != header.layers(false)? as usize {
        return Err(header.refused(KEY, format_args!("{} flags", flags.len())));
    }
    let name = |linear: &bool| if *linear { LINEAR } else { FULL };
    let types: Vec<&str> = flags[..header.layers(true)? as usize].iter().map(name).collect();
    config.insert("layer_types".into(), json!(types));
    Ok(())
}

fn describe(config: &Config<'_>) -> Result<Decoder, ConfigError> {
    let mut decoder = llama::decoder(config, &DEFAULTS)?;
    add_mixers(&mut decoder, config, Order::of(config)?)?;
    Ok(decoder)
}

/// The order in which a file has the inputs and the value heads of DeltaNets.
#[derive(Debug, Clone, Copy)]
pub(super) struct Order {
    /// Returns the matrices of the inputs below a path.
    pub(super) inputs: fn(&str, &Sizes) -> Vec<Grouped>,
    pub(super) pairing: KeyHeads,
}

impl Order {
    /// Returns the order of Qwen 3.5, of which the converter reorders the value heads.
    pub(super) fn of(config: &Config<'_>) -> Result<Self, ConfigError> {
        let pairing = if config.is_converted()? { KeyHeads::Strided } else { KeyHeads::Adjacent };
        Ok(Self { inputs, pairing })
    }
}

/// The sizes of the DeltaNets of a model.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) hidden: usize,
    pub(super) key_heads: usize,
    pub(super) value_heads: usize,
    pub(super) key_size: usize,
    pub(super) value_size: usize,
    taps: usize,
}

/// Returns the matrices of the inputs below a path: one for queries, keys and values, and one for each of the others.
pub(super) fn inputs(path: &str, sizes: &Sizes) -> Vec<Grouped> {
    let Sizes { hidden, key_heads, value_heads, key_size, value_size, .. } = *sizes;
    let (keys, values) = (key_heads * key_size, value_heads * value_size);
    let input = |name: &str, sizes: Vec<usize>| {
        let matrix = Matrix::new(format!("{path}.{name}"), sizes.iter().sum(), hidden);
        Grouped { matrix, groups: 1, sizes }
    };
    vec![
        input("in_proj_qkv", vec![keys, keys, values]),
        input("in_proj_z", vec![values]),
        input("in_proj_b", vec![value_heads]),
        input("in_proj_a", vec![value_heads]),
    ]
}

/// Adds gates and norms to the attention of every layer, and replaces it by a DeltaNet in layers of linear
/// attention. Adds 1 to the weights of all other norms, unless a converter has already added it.
pub(super) fn add_mixers(decoder: &mut Decoder, config: &Config<'_>, order: Order) -> Result<(), ConfigError> {
    config.require("attn_output_gate", &json!(true))?;
    if let Some(other) = config.find_text("output_gate_type")?.filter(|name| !["swish", "silu"].contains(name)) {
        return Err(unsupported("output_gate_type", Value::from(other)));
    }
    for attention in decoder.attentions_mut() {
        attention.is_gated = true;
        attention.qkv.iter_mut().take(1).for_each(|queries| queries.rows *= 2);
    }
    llama::add_qk_norms(decoder);
    let is_converted = config.is_converted()?;
    decoder.norms_mut().for_each(|norm| norm.offset = if is_converted { 0.0 } else { 1.0 });
    let sizes = Sizes::read(config, decoder.hidden)?;
    let activation = config.activation("hidden_act", "silu")?;
    let linear = linear_layers(config, decoder.layers.len())?;
    for (i, layer) in decoder.layers.iter_mut().enumerate().filter(|(i, _)| linear[*i]) {
        let path = format!("{}.linear_attn", path(i));
        let Sizes { hidden, key_heads, value_heads, key_size, value_size, taps } = sizes;
        let values = value_heads * value_size;
        layer.mixer = Mixer::DeltaNet(DeltaNet {
            key_heads,
            value_heads,
            key_size,
            value_size,
            pairing: order.pairing,
            inputs: (order.inputs)(&path, &sizes),
            convolution: Convolution {
                name: format!("{path}.conv1d"),
                channels: 2 * key_heads * key_size + values,
                taps,
                activation,
                is_flat: is_converted,
            },
            decay: Decay {
                heads: value_heads,
                rate: format!("{path}.A_log"),
                is_negated: is_converted,
                bias: format!("{path}.dt_bias"),
            },
            norm: Norm {
                name: format!("{path}.norm"),
                size: value_size,
                offset: 0.0,
                ..layer.norms.before_attention.clone()
            },
            output: Matrix::new(format!("{path}.out_proj"), hidden, values),
        });
    }
    Ok(())
}

impl Sizes {
    fn read(config: &Config<'_>, hidden: usize) -> Result<Self, ConfigError> {
        let heads = |name, default| config.size_up_to(name, MAX_HEADS, default);
        let (key_heads, value_heads) =
            (heads("linear_num_key_heads", DEFAULT_KEY_HEADS)?, heads(VALUE_HEADS, DEFAULT_VALUE_HEADS)?);
        if !value_heads.is_multiple_of(key_heads) {
            return Err(unsupported(VALUE_HEADS, format!("{value_heads} for {key_heads} key heads")));
        }
        Ok(Self {
            hidden,
            key_heads,
            value_heads,
            key_size: heads("linear_key_head_dim", DEFAULT_HEAD_SIZE)?,
            value_size: heads("linear_value_head_dim", DEFAULT_HEAD_SIZE)?,
            taps: config.size_up_to("linear_conv_kernel_dim", MAX_TAPS, DEFAULT_TAPS)?,
        })
    }
}

/// The setting n: every n-th layer has attention.
const INTERVAL: &str = "full_attention_interval";
/// The types of layers.
const LINEAR: &str = "linear_attention";
const FULL: &str = "full_attention";

/// Returns for each layer whether it has linear attention.
fn linear_layers(config: &Config<'_>, count: usize) -> Result<Vec<bool>, ConfigError> {
    const NAME: &str = "layer_types";
    let Some(types) = config.find_list(NAME)? else {
        if config.is_null(INTERVAL) {
            return Err(unsupported(INTERVAL, "null")); // transformers computes with it
        }
        let interval = config.find_size(INTERVAL)?.unwrap_or(DEFAULT_INTERVAL_LAYERS);
        return Ok((1..=count).map(|i| !i.is_multiple_of(interval)).collect());
    };
    if types.len() != count {
        return Err(unsupported(NAME, format!("a list of {} for {count} layers", types.len())));
    }
    let is_linear = |kind: &Value| match kind.as_str() {
        Some(LINEAR) => Ok(true),
        Some(FULL) => Ok(false),
        _ => Err(unsupported(NAME, kind)),
    };
    types.iter().map(is_linear).collect()
}
