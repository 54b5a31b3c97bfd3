//! Gemma 4. The image is resized, with about its aspect ratio, to as many patches as the limit of
//! soft tokens allows. A soft token is a square of pooled patches.
//!
//! The tower has positions on two axes, and norms around both branches. Reference: transformers,
//! `models/gemma4`.

use serde_json::json;
use tandem_images::recipe::{
    Basics, CHANNELS, Defaults, Normal, Recipe, Settings, check_area, grid, in_parts, refused, whole_cells,
    write_pixels,
};
use tandem_images::{Expansion, Filter, ImageError, ImagePlan, Layout, ProcessorError, RgbImage, resize};

use super::super::family::{Configs, Family, Language};
use super::super::siglip::activation;
use super::super::tower::{
    Activation, Attention, Axis, Block, Head, HeadNorms, Linear, Mlp, Norm, NormKind, Patches, Pool, Positions, Rotary,
    Step, Tower,
};
use crate::models::architectures::gemma4;
use crate::models::config::{ConfigError, unsupported};

pub(super) const FAMILY: Family = Family {
    names: &["gemma4"],
    processors: &["Gemma4Processor"],
    image_processors: &["Gemma4ImageProcessor"],
    recipe,
    language: Language::Own(gemma4::TEXT.describe),
    is_tied: true,
    patches: "model.vision_tower.patch_embedder.input_proj.weight",
    tower,
    gguf: &[],
};

// ---- processor ----

/// The numbers of soft tokens that transformers allows.
const SOFT_TOKENS: &[usize] = &[70, 140, 280, 560, 1120];

const PIXELS: Defaults =
    Defaults { resample: 3, normalize: false, normal: Normal { mean: [0.0; CHANNELS], std: [1.0; CHANNELS] } };

#[derive(Debug)]
struct Gemma4 {
    basics: Basics,
    patch: usize,
    pool: usize,
    max_soft_tokens: usize,
    begin_token: String,
    end_token: String,
}

fn recipe(settings: &Settings) -> Result<Box<dyn Recipe>, ProcessorError> {
    let mut basics = Basics::read(settings, PIXELS, settings.tokens.text("image_token", "<|image|>")?)?;
    // The class passes the number to torchvision, for which 0 is this filter.
    if basics.filter == Filter::Nearest {
        basics.filter = Filter::NearestCorner;
    }
    let (patch, pool) = (settings.image.side("patch_size", 16)?, settings.image.side("pooling_kernel_size", 3)?);
    let max_soft_tokens = settings.image.side("max_soft_tokens", 280)?;
    if !SOFT_TOKENS.contains(&max_soft_tokens) {
        return Err(refused("max_soft_tokens", &max_soft_tokens.into(), "70, 140, 280, 560 or 1120"));
    }
    check_area("patch_size", &[patch, patch, pool, pool, max_soft_tokens])?;
    Ok(Box::new(Gemma4 {
        basics,
        patch,
        pool,
        max_soft_tokens,
        begin_token: settings.tokens.text("boi_token", "<|image>")?,
        end_token: settings.tokens.text("eoi_token", "<image|>")?,
    }))
}

impl Gemma4 {
    fn max_patches(&self) -> usize {
        self.max_soft_tokens * self.pool * self.pool
    }

    /// Returns (width, height) of the resized image, multiples of a soft token's side.
    fn sides(&self, width: usize, height: usize) -> Result<(usize, usize), ImageError> {
        let side = self.patch * self.pool;
        if !self.basics.resizes {
            return whole_cells(width, height, side);
        }
        let target = (self.max_patches() * self.patch * self.patch) as f64;
        let factor = (target / (width as f64 * height as f64)).sqrt();
        let cells = |length: usize| (factor * length as f64 / side as f64).floor() as usize;
        let (columns, rows) = match (cells(width), cells(height)) {
            (0, 0) => return Err(too_thin(width, height)),
            (columns, 0) => ((width / height).min(self.max_soft_tokens), 1.min(columns)),
            (0, rows) => (1.min(rows), (height / width).min(self.max_soft_tokens)),
            cells => cells,
        };
        if columns * rows > self.max_soft_tokens {
            return Err(too_thin(width, height));
        }
        Ok((columns * side, rows * side))
    }
}

fn too_thin(width: usize, height: usize) -> ImageError {
    ImageError::AspectRatio { width, height, reason: "it does not fit into the limit of soft tokens" }
}

impl Recipe for Gemma4 {
    fn basics(&self) -> &Basics {
        &self.basics
    }

    fn plan(&self, width: usize, height: usize) -> Result<ImagePlan, ImageError> {
        let (width, height) = self.sides(width, height)?;
        let (rows, columns) = (height / self.patch, width / self.patch);
        let tokens = rows * columns / (self.pool * self.pool);
        let expansion = Expansion::new(&self.begin_token, &self.basics.image_token, tokens, &self.end_token);
        Ok(ImagePlan::new(
            vec![rows * columns, self.patch * self.patch * CHANNELS],
            Layout::Patches { rows, columns },
            expansion,
        ))
    }

    fn bytes(&self, image: &RgbImage) -> Result<Vec<u8>, ImageError> {
        let (width, height) = self.sides(image.width(), image.height())?;
        let resized = resize(image, width, height, self.basics.filter);
        let mut out = vec![0; width * height * CHANNELS];
        let length = self.patch * self.patch * CHANNELS;
        in_parts(&mut out, length, |first, patches| {
            let areas = grid(height / self.patch, width / self.patch, (self.patch, self.patch)).skip(first);
            for (area, patch) in areas.zip(patches.chunks_exact_mut(length)) {
                write_pixels(&resized, area, patch);
            }
        });
        Ok(out)
    }
}

// ---- tower ----

const PATH: &str = "model.vision_tower";
const DEFAULT_THETA: f32 = 100.0;

/// The settings of all blocks.
struct Shared {
    hidden: usize,
    heads: usize,
    kv_heads: usize,
    head_size: usize,
    feed_forward: usize,
    epsilon: f64,
    activation: Activation,
    is_clipped: bool,
}

fn tower(configs: &Configs<'_>) -> Result<Tower, ConfigError> {
    let vision = &configs.vision;
    let size = |name, default| vision.size_or(name, default);
    let heads = size("num_attention_heads", 12)?;
    let kv_heads = size("num_key_value_heads", 12)?;
    if !heads.is_multiple_of(kv_heads) {
        return Err(unsupported("num_key_value_heads", kv_heads));
    }
    vision.require("attention_bias", &json!(false))?;
    let shared = Shared {
        hidden: size("hidden_size", 768)?,
        heads,
        kv_heads,
        head_size: size("head_dim", 64)?,
        feed_forward: size("intermediate_size", 3072)?,
        epsilon: f64::from(vision.float_or("rms_norm_eps", 1e-6)?),
        activation: hidden_activation(configs)?,
        is_clipped: vision.flag_or("use_clipped_linears", false)?,
    };
    let (hidden, side) = (shared.hidden, size("patch_size", 16)?);
    let columns = 3 * side * side;
    Ok(Tower {
        hidden,
        patches: Patches {
            side,
            matrix: Linear::new(format!("{PATH}.patch_embedder.input_proj"), hidden, columns),
            shape: vec![hidden, columns],
            frames: Vec::new(),
            scale: 2.0,
            offset: -1.0,
        },
        class_token: None,
        positions: Positions::Axes {
            name: format!("{PATH}.patch_embedder.position_embedding_table"),
            size: size("position_embedding_size", 10 * 1024)?,
        },
        input_norm: None,
        rotary: Some(rotary(configs, shared.head_size)?),
        blocks: (0..vision.size_up_to("num_hidden_layers", 1024, 16)?).map(|i| block(i, &shared)).collect(),
        window: None,
        final_norm: None,
        head: head(configs, &shared)?,
        deep: Vec::new(),
        own_row: None,
    })
}

fn hidden_activation(configs: &Configs<'_>) -> Result<Activation, ConfigError> {
    match configs.vision.find_text("hidden_activation")? {
        None => activation(configs, "gelu_pytorch_tanh"),
        Some("gelu_pytorch_tanh") => Ok(Activation::GeluTanh),
        Some(other) => Err(unsupported("hidden_activation", other)),
    }
}

/// The first half of a head rotates by the column, the second by the row.
fn rotary(configs: &Configs<'_>, head_size: usize) -> Result<Rotary, ConfigError> {
    if !head_size.is_multiple_of(4) {
        return Err(unsupported("head_dim", head_size));
    }
    let theta = configs.theta(DEFAULT_THETA)?;
    let half = head_size / 2;
    let frequency = |j: usize| 1.0 / theta.powf((2 * j) as f32 / half as f32);
    let of_axis = |axis| (0..half / 2).map(move |j| (axis, frequency(j)));
    Ok(Rotary { parts: 2, pairs: of_axis(Axis::Column).chain(of_axis(Axis::Row)).collect() })
}

fn head(configs: &Configs<'_>, shared: &Shared) -> Result<Head, ConfigError> {
    let (vision, hidden) = (&configs.vision, shared.hidden);
    let name = |part| format!("{PATH}.{part}");
    let standardize = Step::Standardize { bias: name("std_bias"), scale: name("std_scale"), size: hidden };
    let norm = Norm { kind: NormKind::Rms { offset: 0.0 }, name: None, size: hidden, epsilon: shared.epsilon };
    let projection = Linear::new("model.embed_vision.embedding_projection", configs.model.size("hidden_size")?, hidden);
    let standardize = vision.flag_or("standardize", false)?.then_some(standardize);
    let steps = standardize.into_iter().chain([Step::Norm(norm), Step::Linear(projection)]).collect();
    let side = vision.size_or("pooling_kernel_size", 3)?;
    Ok(Head { pool: Pool::Mean { side, scale: (hidden as f64).sqrt() }, steps })
}

fn block(index: usize, shared: &Shared) -> Block {
    let Shared { hidden, heads, kv_heads, head_size, feed_forward, epsilon, activation, is_clipped } = *shared;
    let path = format!("{PATH}.encoder.layers.{index}");
    let linear = |name: &str, rows, columns| {
        let module = format!("{path}.{name}");
        let limits = is_clipped.then(|| module.clone());
        Linear { limits, ..Linear::new(format!("{module}.linear"), rows, columns) }
    };
    let norm = |name: &str| Norm::rms(format!("{path}.{name}"), hidden, epsilon);
    let of_head = |name: &str| Norm::rms(format!("{path}.self_attn.{name}"), head_size, epsilon);
    let width = heads * head_size;
    let projection = |part: &str, heads| linear(&format!("self_attn.{part}_proj"), heads * head_size, hidden);
    Block {
        before_attention: norm("input_layernorm"),
        attention: Attention {
            heads,
            kv_heads,
            head_size,
            scale: 1.0,
            qkv: vec![projection("q", heads), projection("k", kv_heads), projection("v", kv_heads)],
            norms: HeadNorms::PerHead([of_head("q_norm"), of_head("k_norm"), Norm { name: None, ..of_head("") }]),
            output: linear("self_attn.o_proj", hidden, width),
            in_window: false,
        },
        after_attention: Some(norm("post_attention_layernorm")),
        before_mlp: norm("pre_feedforward_layernorm"),
        mlp: Mlp {
            first: linear("mlp.gate_proj", feed_forward, hidden),
            up: Some(linear("mlp.up_proj", feed_forward, hidden)),
            activation,
            last: linear("mlp.down_proj", hidden, feed_forward),
        },
        after_mlp: Some(norm("post_feedforward_layernorm")),
        scales: None,
    }
}
