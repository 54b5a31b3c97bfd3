//! Qwen2.5-VL. Both sides of the image become multiples of a merged block, with the area between two
//! limits. Patches are ordered by merged block. The tower has windows, rotary positions and gated
//! MLPs. Reference: transformers, `models/qwen2_vl` and `models/qwen2_5_vl`.

use serde_json::json;
use tandem_images::recipe::{
    Area, Basics, CHANNELS, CLIP, Defaults, Recipe, Section, Settings, check_area, grid, in_parts, refused,
    whole_cells, write_patch,
};
use tandem_images::{Expansion, ImageError, ImagePlan, Layout, ProcessorError, RgbImage, resize};

use super::super::family::{Configs, Family, Language};
use super::super::siglip::activation;
use super::super::tower::{
    Activation, Attention, Axis, Block, Head, HeadNorms, Linear, Mlp, Norm, Patches, Pool, Positions, Rotary, Step,
    Tower,
};
use crate::error::LoadError;
use crate::models::architectures::qwen2_5_vl;
use crate::models::config::{Config, ConfigError, unsupported};
use crate::weights::gguf;
use crate::weights::gguf::architecture::Name;
use crate::weights::gguf::header::GgufHeader;
use crate::weights::gguf::projector::{GgufBlocks, GgufProjector, ProjectorConfig};

pub(super) const FAMILY: Family = Family {
    names: &["qwen2_5_vl"],
    processors: &["Qwen2VLProcessor", "Qwen2_5_VLProcessor"],
    image_processors: &["Qwen2VLImageProcessor"],
    recipe,
    language: Language::Own(qwen2_5_vl::TEXT.describe),
    is_tied: false,
    patches: "visual.patch_embed.proj.weight",
    tower,
    gguf: &[GGUF],
};

// ---- processor ----

/// The most equal copies of a patch.
const MAX_TIMES: usize = 4;

/// The largest ratio of the sides.
const MAX_RATIO: usize = 200;

const PIXELS: Defaults = Defaults { resample: 3, normalize: true, normal: CLIP };

#[derive(Debug)]
struct QwenVl {
    basics: Basics,
    patch: usize,
    merge: usize,
    times: usize,
    min_area: usize,
    max_area: usize,
}

pub(super) fn recipe(settings: &Settings) -> Result<Box<dyn Recipe>, ProcessorError> {
    let basics = Basics::read(settings, PIXELS, settings.tokens.text("image_token", "<|image_pad|>")?)?;
    let (patch, merge) = (settings.image.side("patch_size", 14)?, settings.image.side("merge_size", 2)?);
    let (min_area, max_area) = areas(&settings.image)?;
    let times = settings.image.side("temporal_patch_size", 2)?;
    if times > MAX_TIMES {
        return Err(refused("temporal_patch_size", &times.into(), "at most 4"));
    }
    // A side may be as long as a block is, though the area is smaller.
    check_area("patch_size", &[patch, merge, patch, merge, MAX_RATIO])?;
    Ok(Box::new(QwenVl { basics, patch, merge, times, min_area, max_area }))
}

/// Returns the limits of the area. `size` contains areas, though its keys name edges.
fn areas(image: &Section) -> Result<(usize, usize), ProcessorError> {
    let size = image.object("size")?;
    let edge = |name: &'static str, key: &'static str, default: usize| match (image.area(name)?, &size) {
        (Some(area), _) => Ok(area),
        (None, None) => Ok(default),
        (None, Some(size)) => {
            size.area(key)?.ok_or_else(|| refused("size", &size.0.clone().into(), "shortest_edge and longest_edge"))
        }
    };
    Ok((edge("min_pixels", "shortest_edge", 56 * 56)?, edge("max_pixels", "longest_edge", 28 * 28 * 1280)?))
}

impl QwenVl {
    /// Returns (width, height) of the resized image.
    fn sides(&self, width: usize, height: usize) -> Result<(usize, usize), ImageError> {
        if !self.basics.resizes {
            return whole_cells(width, height, self.patch * self.merge);
        }
        if width.max(height) > width.min(height) * MAX_RATIO {
            return Err(ImageError::AspectRatio { width, height, reason: "the sides' ratio is above 200" });
        }
        let factor = (self.patch * self.merge) as f64;
        let (exact_width, exact_height) = (width as f64, height as f64);
        let area = exact_width * exact_height;
        let round = |side: f64| (side / factor).round_ties_even() * factor;
        let rounded = round(exact_width) * round(exact_height);
        let (width, height) = if rounded > self.max_area as f64 {
            let beta = (area / self.max_area as f64).sqrt();
            let down = |side: f64| ((side / beta / factor).floor() * factor).max(factor);
            (down(exact_width), down(exact_height))
        } else if rounded < self.min_area as f64 {
            let beta = (self.min_area as f64 / area).sqrt();
            let up = |side: f64| (side * beta / factor).ceil() * factor;
            (up(exact_width), up(exact_height))
        } else {
            (round(exact_width), round(exact_height))
        };
        Ok((width as usize, height as usize))
    }

    /// Returns the patches of a merged block, row by row.
    fn patches(&self, block: Area) -> impl Iterator<Item = Area> {
        let moved = move |area: Area| Area { left: area.left + block.left, top: area.top + block.top, ..area };
        grid(self.merge, self.merge, (self.patch, self.patch)).map(moved)
    }
}

impl Recipe for QwenVl {
    fn basics(&self) -> &Basics {
        &self.basics
    }

    fn plan(&self, width: usize, height: usize) -> Result<ImagePlan, ImageError> {
        let (width, height) = self.sides(width, height)?;
        let (rows, columns) = (height / self.patch, width / self.patch);
        let tokens = rows * columns / (self.merge * self.merge);
        Ok(ImagePlan::new(
            vec![rows * columns, CHANNELS * self.times * self.patch * self.patch],
            Layout::Grid { time: 1, rows, columns },
            Expansion::new("", &self.basics.image_token, tokens, ""),
        ))
    }

    fn bytes(&self, image: &RgbImage) -> Result<Vec<u8>, ImageError> {
        let (width, height) = self.sides(image.width(), image.height())?;
        let resized = resize(image, width, height, self.basics.filter);
        let block = self.patch * self.merge;
        let mut out = vec![0; width * height * CHANNELS * self.times];
        let length = self.patch * self.patch * CHANNELS * self.times;
        in_parts(&mut out, self.merge * self.merge * length, |first, out| {
            let blocks = grid(height / block, width / block, (block, block)).skip(first);
            let areas = blocks.flat_map(|block| self.patches(block));
            for (area, patch) in areas.zip(out.chunks_exact_mut(length)) {
                write_patch(&resized, area, self.times, patch);
            }
        });
        Ok(out)
    }
}

// ---- tower ----

const GGUF: GgufProjector = GgufProjector {
    name: "qwen2.5vl_merger",
    model_type: "qwen2_5_vl",
    language_models: &["qwen2_5_vl_text"],
    keys: &[PATTERN, MIN_PIXELS.1, MAX_PIXELS.1],
    integers: &[DEPTH, HEADS, OUT, MERGE, ("window_size", "vision.window_size")],
    tensors: &[
        ("visual.patch_embed.proj", "v.patch_embd"),
        ("visual.patch_embed.proj.weight.1", "v.patch_embd.weight.1"),
        ("visual.merger.ln_q", "v.post_ln"),
        ("visual.merger.mlp.0", "mm.0"),
        ("visual.merger.mlp.2", "mm.2"),
    ],
    blocks: &[GgufBlocks {
        path: ("visual.blocks", "v.blk"),
        tensors: &[
            ("norm1", "ln1"),
            ("norm2", "ln2"),
            ("attn.qkv", "attn_qkv"),
            ("attn.q", "attn_q"),
            ("attn.k", "attn_k"),
            ("attn.v", "attn_v"),
            ("attn.proj", "attn_out"),
            ("mlp.gate_proj", "ffn_gate"),
            ("mlp.up_proj", "ffn_up"),
            ("mlp.down_proj", "ffn_down"),
        ],
    }],
    add_implied,
};

/// Settings of Qwen's towers and their keys.
pub(super) const DEPTH: Name = ("depth", "vision.block_count");
pub(super) const HEADS: Name = ("num_heads", "vision.attention.head_count");
pub(super) const OUT: Name = ("out_hidden_size", "vision.projection_dim");
pub(super) const MERGE: Name = ("spatial_merge_size", "vision.spatial_merge_size");
/// N: the last of each N blocks has no windows.
const PATTERN: &str = "vision.n_wa_pattern";
/// Settings of Qwen's processor and their keys.
const PATCH_SIZE: Name = ("patch_size", "vision.patch_size");
const MERGE_SIZE: Name = ("merge_size", MERGE.1);
pub(super) const MIN_PIXELS: Name = ("min_pixels", "vision.image_min_pixels");
pub(super) const MAX_PIXELS: Name = ("max_pixels", "vision.image_max_pixels");
/// The epsilon of all norms. transformers has no setting for it.
const NORM_EPSILON: &str = "vision.attention.layer_norm_epsilon";

fn add_implied(header: &GgufHeader, config: &mut ProjectorConfig) -> Result<(), LoadError> {
    if let Some(pattern) = header.find::<u32>(PATTERN)? {
        let blocks = header.find::<u32>(DEPTH.1)?.unwrap_or(0).min(MAX_DEPTH as u32);
        let has_windows = |block: &u32| pattern != 0 && !(block + 1).is_multiple_of(pattern);
        let full: Vec<u32> = (0..blocks).filter(|block| !has_windows(block)).collect();
        config.vision.insert(FULL.into(), json!(full));
    }
    add_shared(header, config)
}

/// Adds the settings that all of Qwen's towers imply. The converter divides the frames of a patch,
/// and for some towers the matrix of queries, keys and values.
pub(super) fn add_shared(header: &GgufHeader, config: &mut ProjectorConfig) -> Result<(), LoadError> {
    if let Some(found) = header.find::<f32>(NORM_EPSILON)?
        && found != EPSILON as f32
    {
        return Err(gguf::refused(header, NORM_EPSILON, found));
    }
    let is_split = header.file().tensor("v.blk.0.attn_qkv.weight").is_none();
    config.vision.insert(SPLIT_QKV.into(), json!(is_split));
    config.vision.insert(SPLIT_FRAMES.into(), json!(true));
    for (setting, key) in [PATCH_SIZE, MERGE_SIZE, MIN_PIXELS, MAX_PIXELS] {
        if let Some(value) = header.find::<u32>(key)? {
            config.image.insert(setting.into(), json!(value));
        }
    }
    Ok(())
}

/// The blocks without windows.
const FULL: &str = "fullatt_block_indexes";
/// True if queries, keys and values have a matrix each.
const SPLIT_QKV: &str = "split_qkv";
/// True if each frame of a patch has a matrix.
const SPLIT_FRAMES: &str = "split_frames";
/// The largest number of blocks.
const MAX_DEPTH: usize = 1024;

const PATH: &str = "visual";
const EPSILON: f64 = 1e-6;
const THETA: f32 = 10_000.0;

/// The settings that Qwen's towers share.
pub(super) struct Sizes {
    pub(super) hidden: usize,
    pub(super) heads: usize,
    pub(super) feed_forward: usize,
    pub(super) depth: usize,
    pub(super) patch: usize,
    pub(super) time: usize,
    pub(super) merge: usize,
    pub(super) out: usize,
    pub(super) split_qkv: bool,
    pub(super) split_frames: bool,
    /// The base of the rotary positions.
    pub(super) theta: f32,
}

impl Sizes {
    pub(super) fn read(configs: &Configs<'_>, defaults: Self) -> Result<Self, ConfigError> {
        let vision = &configs.vision;
        let size = |name, default| vision.size_or(name, default);
        let sizes = Self {
            hidden: size("hidden_size", defaults.hidden)?,
            heads: size("num_heads", defaults.heads)?,
            feed_forward: size("intermediate_size", defaults.feed_forward)?,
            depth: size("depth", defaults.depth)?,
            patch: size("patch_size", defaults.patch)?,
            time: size("temporal_patch_size", defaults.time)?,
            merge: size("spatial_merge_size", defaults.merge)?,
            out: size("out_hidden_size", defaults.out)?,
            split_qkv: vision.flag_or(SPLIT_QKV, defaults.split_qkv)?,
            split_frames: vision.flag_or(SPLIT_FRAMES, defaults.split_frames)?,
            theta: configs.theta(defaults.theta)?,
        };
        if sizes.depth > MAX_DEPTH {
            return Err(unsupported("depth", sizes.depth));
        }
        if !sizes.hidden.is_multiple_of(4 * sizes.heads) {
            return Err(unsupported("num_heads", sizes.heads));
        }
        Ok(sizes)
    }

    pub(super) fn head_size(&self) -> usize {
        self.hidden / self.heads
    }

    pub(super) fn patches(&self, path: &str, bias: bool) -> Patches {
        let Self { hidden, patch, time, .. } = *self;
        let matrix = Linear::new(format!("{path}.patch_embed.proj"), hidden, 3 * time * patch * patch).with_bias(bias);
        let (shape, frames) = match self.split_frames {
            false => (vec![hidden, 3, time, patch, patch], Vec::new()),
            true => {
                let frame = |i: usize| format!("{path}.patch_embed.proj.weight.{i}");
                (vec![hidden, 3, patch, patch], (1..time).map(frame).collect())
            }
        };
        Patches { side: patch, matrix, shape, frames, scale: 1.0, offset: 0.0 }
    }

    /// The first half of a head's pairs rotates by the row, the second by the column.
    pub(super) fn rotary(&self) -> Rotary {
        let half = self.head_size() / 2;
        let frequency = |j: usize| 1.0 / self.theta.powf((2 * j) as f32 / half as f32);
        let of_axis = |axis| (0..half / 2).map(move |j| (axis, frequency(j)));
        Rotary { parts: 1, pairs: of_axis(Axis::Row).chain(of_axis(Axis::Column)).collect() }
    }

    pub(super) fn attention(&self, path: &str, in_window: bool) -> Attention {
        let Self { hidden, heads, .. } = *self;
        let linear = |name: &str, rows| Linear::new(format!("{path}.attn.{name}"), rows, hidden).with_bias(true);
        Attention {
            heads,
            kv_heads: heads,
            head_size: self.head_size(),
            scale: (self.head_size() as f64).powf(-0.5),
            qkv: match self.split_qkv {
                false => vec![linear("qkv", 3 * hidden)],
                true => ["q", "k", "v"].map(|part| linear(part, hidden)).into(),
            },
            norms: HeadNorms::None,
            output: linear("proj", hidden),
            in_window,
        }
    }
}

pub(super) const DEFAULTS: Sizes = Sizes {
    hidden: 3584,
    heads: 16,
    feed_forward: 3420,
    depth: 32,
    patch: 14,
    time: 2,
    merge: 2,
    out: 3584,
    split_qkv: false,
    split_frames: false,
    theta: THETA,
};

fn tower(configs: &Configs<'_>) -> Result<Tower, ConfigError> {
    let vision = &configs.vision;
    let sizes = Sizes::read(configs, DEFAULTS)?;
    let window = vision.size_or("window_size", 112)? / sizes.merge / sizes.patch;
    if window == 0 {
        return Err(unsupported("window_size", 0));
    }
    let full = whole_numbers(vision, FULL, &[7, 15, 23, 31])?;
    let active = activation(configs, "silu")?;
    let (hidden, joined) = (sizes.hidden, sizes.hidden * sizes.merge * sizes.merge);
    let merger = |name: &str, rows| Linear::new(format!("{PATH}.merger.{name}"), rows, joined).with_bias(true);
    let steps = vec![
        Step::Norm(Norm::rms(format!("{PATH}.merger.ln_q"), hidden, EPSILON)),
        Step::Linear(merger("mlp.0", joined)),
        Step::Activation(Activation::Gelu),
        Step::Linear(merger("mlp.2", sizes.out)),
    ];
    Ok(Tower {
        hidden,
        patches: sizes.patches(PATH, false),
        class_token: None,
        positions: Positions::None,
        input_norm: None,
        rotary: Some(sizes.rotary()),
        blocks: (0..sizes.depth).map(|i| block(i, &sizes, active, !full.contains(&i))).collect(),
        window: Some(window),
        final_norm: None,
        head: Head { pool: Pool::Join { count: sizes.merge * sizes.merge, late: true }, steps },
        deep: Vec::new(),
        own_row: None,
    })
}

/// Returns a list of whole numbers, or its default.
pub(super) fn whole_numbers(
    config: &Config<'_>,
    name: &'static str,
    default: &[usize],
) -> Result<Vec<usize>, ConfigError> {
    let Some(list) = config.find_list(name)? else { return Ok(default.to_vec()) };
    let number = |value: &serde_json::Value| value.as_u64().and_then(|number| usize::try_from(number).ok());
    list.iter().map(|value| number(value).ok_or_else(|| unsupported(name, value))).collect()
}

fn block(index: usize, sizes: &Sizes, activation: Activation, in_window: bool) -> Block {
    let path = format!("{PATH}.blocks.{index}");
    let Sizes { hidden, feed_forward, .. } = *sizes;
    let linear = |name: &str, rows, columns| Linear::new(format!("{path}.mlp.{name}"), rows, columns).with_bias(true);
    Block {
        before_attention: Norm::rms(format!("{path}.norm1"), hidden, EPSILON),
        attention: sizes.attention(&path, in_window),
        after_attention: None,
        before_mlp: Norm::rms(format!("{path}.norm2"), hidden, EPSILON),
        mlp: Mlp {
            first: linear("gate_proj", feed_forward, hidden),
            up: Some(linear("up_proj", feed_forward, hidden)),
            activation,
            last: linear("down_proj", hidden, feed_forward),
        },
        after_mlp: None,
        scales: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn areas_of(text: &str) -> Result<(usize, usize), ProcessorError> {
        areas(&Section(serde_json::from_str(text).expect("an object")))
    }

    #[test]
    fn pixels_replace_the_edges_of_size() {
        assert_eq!(areas_of("{}").expect("defaults"), (3136, 1_003_520));
        let both = r#"{"size": {"shortest_edge": 1, "longest_edge": 2}, "max_pixels": 9}"#;
        assert_eq!(areas_of(both).expect("both"), (1, 9));
        assert!(areas_of(r#"{"size": {"height": 5, "width": 5}}"#).is_err());
    }
}
