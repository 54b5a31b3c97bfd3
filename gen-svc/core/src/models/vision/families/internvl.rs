//! InternVL. The image is stretched to the grid of tiles with the nearest aspect ratio and cut. If
//! there is more than one tile, the original image, stretched to one tile, follows. The tower has a
//! class token and scaled branches, then a pixel shuffle. Reference: transformers, `models/internvl`.
//!
//! The processor class of transformers switches the cutting on. `crop_to_patches` of the model's
//! files has no effect, only an override does.

use serde_json::json;
use tandem_images::recipe::{
    Basics, CHANNELS, CLIP, Defaults, Recipe, Settings, check_area, refused, write_planes, write_tiles,
};
use tandem_images::{Expansion, ImageError, ImagePlan, Layout, ProcessorError, RgbImage, resize};

use super::super::family::{Configs, Family, Language};
use super::super::siglip::activation;
use super::super::tower::{
    Activation, Attention, Block, Head, HeadNorms, Linear, Mlp, Norm, Patches, Pool, Positions, Step, TableOrder, Tower,
};
use crate::models::architectures::{llama, qwen2, qwen3};
use crate::models::config::{Config, ConfigError, unsupported};

pub(super) const FAMILY: Family = Family {
    names: &["internvl"],
    processors: &["InternVLProcessor"],
    image_processors: &["GotOcr2ImageProcessor"],
    recipe,
    language: Language::OneOf(&[qwen2::ARCHITECTURE, qwen3::ARCHITECTURE, llama::ARCHITECTURE]),
    is_tied: true,
    patches: "vision_tower.embeddings.patch_embeddings.projection.weight",
    tower,
    gguf: &[],
};

// ---- processor ----

/// The most tiles of an image.
const MAX_TILES: usize = 256;

const PIXELS: Defaults = Defaults { resample: 3, normalize: true, normal: CLIP };

#[derive(Debug)]
struct InternVl {
    basics: Basics,
    /// Height and width of a tile.
    tile: (usize, usize),
    /// Grids of (columns, rows), by area.
    grids: Vec<(usize, usize)>,
    tokens_per_tile: usize,
    begin_token: String,
    end_token: String,
}

fn recipe(settings: &Settings) -> Result<Box<dyn Recipe>, ProcessorError> {
    let basics = Basics::read(settings, PIXELS, settings.tokens.text("context_image_token", "<IMG_CONTEXT>")?)?;
    let (tile, grids) = (settings.image.size(384)?, load_grids(settings, basics.resizes)?);
    let most = grids.iter().map(|&grid| tiles(grid)).max().unwrap_or(1);
    check_area("size", &[tile.0, tile.1, most])?;
    Ok(Box::new(InternVl {
        basics: Basics { resizes: true, ..basics },
        tile,
        grids,
        tokens_per_tile: settings.processor.side("image_seq_length", 256)?,
        begin_token: settings.tokens.text("start_image_token", "<img>")?,
        end_token: settings.tokens.text("end_image_token", "</img>")?,
    }))
}

fn load_grids(settings: &Settings, resizes: bool) -> Result<Vec<(usize, usize)>, ProcessorError> {
    if !settings.overrides.flag("crop_to_patches", true)? {
        // Tiles are resized in any case, a whole image is not.
        if !resizes {
            return Err(refused("do_resize", &false.into(), "true without crop_to_patches"));
        }
        return Ok(vec![(1, 1)]);
    }
    let (min, max) = (settings.image.side("min_patches", 1)?, settings.image.side("max_patches", 12)?);
    if max > MAX_TILES {
        return Err(refused("max_patches", &max.into(), "at most 256"));
    }
    Ok(grids(min, max))
}

/// Returns the grids with `min` to `max` tiles, by area, and then by columns.
fn grids(min: usize, max: usize) -> Vec<(usize, usize)> {
    let all = (1..=max).flat_map(|columns| (1..=max).map(move |rows| (columns, rows)));
    let mut grids: Vec<_> = all.filter(|(columns, rows)| (min..=max).contains(&(columns * rows))).collect();
    grids.sort_by_key(|(columns, rows)| columns * rows);
    grids
}

impl InternVl {
    /// Returns (columns, rows) of the grid with the nearest aspect ratio. Of equally near ones, a
    /// larger grid is used if the image has more than half of its pixels.
    fn grid(&self, width: usize, height: usize) -> (usize, usize) {
        let ratio = width as f64 / height as f64;
        let area = width as f64 * height as f64;
        let tile_area = (self.tile.0 * self.tile.1) as f64;
        let (mut best, mut nearest) = ((1, 1), f64::INFINITY);
        for &(columns, rows) in &self.grids {
            let distance = (ratio - columns as f64 / rows as f64).abs();
            let larger = distance == nearest && area > 0.5 * tile_area * (columns * rows) as f64;
            if distance < nearest || larger {
                (best, nearest) = ((columns, rows), distance);
            }
        }
        best
    }
}

/// Returns how many tiles a grid gives.
fn tiles((columns, rows): (usize, usize)) -> usize {
    if columns * rows == 1 { 1 } else { columns * rows + 1 }
}

impl Recipe for InternVl {
    fn basics(&self) -> &Basics {
        &self.basics
    }

    fn plan(&self, width: usize, height: usize) -> Result<ImagePlan, ImageError> {
        let grid = self.grid(width, height);
        let tokens = tiles(grid) * self.tokens_per_tile;
        let expansion = Expansion::new(&self.begin_token, &self.basics.image_token, tokens, &self.end_token);
        Ok(ImagePlan::new(vec![tiles(grid), CHANNELS, self.tile.0, self.tile.1], Layout::Tiles, expansion))
    }

    fn bytes(&self, image: &RgbImage) -> Result<Vec<u8>, ImageError> {
        let (columns, rows) = self.grid(image.width(), image.height());
        let (height, width) = self.tile;
        let length = CHANNELS * height * width;
        let mut out = vec![0; tiles((columns, rows)) * length];
        let (cut, last) = out.split_at_mut((tiles((columns, rows)) - 1) * length);
        if !cut.is_empty() {
            let stretched = resize(image, columns * width, rows * height, self.basics.filter);
            write_tiles(&stretched, self.tile, cut);
        }
        let whole = resize(image, width, height, self.basics.filter);
        write_planes(&whole, whole.area(), last);
        Ok(out)
    }
}

// ---- tower ----

const PATH: &str = "vision_tower";
const PROJECTOR: &str = "multi_modal_projector";
const PROJECTOR_EPSILON: f64 = 1e-5;
/// The epsilon of the norms of queries and keys, whatever the config says.
const HEAD_NORM_EPSILON: f64 = 1e-6;

/// The settings of all blocks.
struct Shared {
    hidden: usize,
    heads: usize,
    feed_forward: usize,
    epsilon: f64,
    activation: Activation,
    has_bias: bool,
    has_head_norms: bool,
    is_layer_norm: bool,
}

fn tower(configs: &Configs<'_>) -> Result<Tower, ConfigError> {
    let vision = &configs.vision;
    let size = |name, default| vision.size_or(name, default);
    vision.require("use_mask_token", &json!(false))?;
    configs.model.require("vision_feature_layer", &json!(-1))?;
    configs.model.require("vision_feature_select_strategy", &json!("default"))?;
    let shared = Shared {
        hidden: size("hidden_size", 1024)?,
        heads: size("num_attention_heads", 16)?,
        feed_forward: size("intermediate_size", 4096)?,
        epsilon: f64::from(vision.float_or("layer_norm_eps", 1e-6)?),
        activation: activation(configs, "gelu")?,
        has_bias: vision.flag_or("attention_bias", false)?,
        has_head_norms: vision.flag_or("use_qk_norm", false)?,
        is_layer_norm: is_layer_norm(vision)?,
    };
    if !shared.hidden.is_multiple_of(shared.heads) {
        return Err(unsupported("num_attention_heads", shared.heads));
    }
    let (hidden, patch) = (shared.hidden, side(vision, "patch_size", 14)?);
    let per_side = side(vision, "image_size", 448)? / patch;
    let layers = size("num_hidden_layers", 24)?;
    if layers > 1024 {
        return Err(unsupported("num_hidden_layers", layers));
    }
    let embeddings = |name: &str| format!("{PATH}.embeddings.{name}");
    Ok(Tower {
        hidden,
        patches: Patches {
            side: patch,
            matrix: Linear::new(embeddings("patch_embeddings.projection"), hidden, 3 * patch * patch).with_bias(true),
            shape: vec![hidden, 3, patch, patch],
            frames: Vec::new(),
            scale: 1.0,
            offset: 0.0,
        },
        class_token: Some((embeddings("cls_token"), vec![1, 1, hidden])),
        positions: match vision.flag_or("use_absolute_position_embeddings", true)? {
            false => Positions::None,
            true => Positions::Table {
                name: embeddings("position_embeddings"),
                shape: vec![1, 1 + per_side * per_side, hidden],
                order: TableOrder::Index,
            },
        },
        input_norm: None,
        rotary: None,
        blocks: (0..layers).map(|i| block(i, &shared)).collect(),
        window: None,
        // With mean pooling, the model has no norm here.
        final_norm: match vision.flag_or("use_mean_pooling", true)? {
            true => None,
            false => Some(Norm::layer(format!("{PATH}.layernorm"), hidden, shared.epsilon)),
        },
        head: head(&configs.model, hidden)?,
        deep: Vec::new(),
        own_row: None,
    })
}

/// Returns a side that is given as a number or as a pair of equal numbers.
fn side(vision: &Config<'_>, name: &'static str, default: usize) -> Result<usize, ConfigError> {
    let Ok(Some(pair)) = vision.find_list(name) else { return vision.size_or(name, default) };
    match pair {
        [height, width] if height == width => {
            let side = height.as_u64().filter(|side| (1..=1 << 16).contains(side));
            side.map(|side| side as usize).ok_or_else(|| unsupported(name, height))
        }
        _ => Err(unsupported(name, serde_json::Value::from(pair.to_vec()))),
    }
}

fn is_layer_norm(vision: &Config<'_>) -> Result<bool, ConfigError> {
    match vision.find_text("norm_type")?.unwrap_or("layer_norm") {
        "layer_norm" => Ok(true),
        "rms_norm" => Ok(false),
        other => Err(unsupported("norm_type", other)),
    }
}

fn head(model: &Config<'_>, hidden: usize) -> Result<Head, ConfigError> {
    const RATIO: &str = "downsample_ratio";
    let ratio = model.float_or(RATIO, 0.5)?;
    let side = (1.0 / ratio).round() as usize;
    if side == 0 || 1.0 / side as f32 != ratio {
        return Err(unsupported(RATIO, ratio));
    }
    model.require("projector_hidden_act", &json!("gelu"))?;
    let (text, joined) = (model.size("hidden_size")?, hidden * side * side);
    let linear = |name: &str, columns| Linear::new(format!("{PROJECTOR}.{name}"), text, columns).with_bias(true);
    let steps = vec![
        Step::Norm(Norm::layer(format!("{PROJECTOR}.layer_norm"), joined, PROJECTOR_EPSILON)),
        Step::Linear(linear("linear_1", joined)),
        Step::Activation(Activation::Gelu),
        Step::Linear(linear("linear_2", text)),
    ];
    Ok(Head { pool: Pool::Shuffle { side }, steps })
}

fn block(index: usize, shared: &Shared) -> Block {
    let Shared { hidden, heads, feed_forward, epsilon, activation, has_bias, .. } = *shared;
    let path = format!("{PATH}.encoder.layer.{index}");
    let linear = |name: &str, rows, columns, bias| Linear::new(format!("{path}.{name}"), rows, columns).with_bias(bias);
    let rms = |name: &str, epsilon| Norm::rms(format!("{path}.{name}"), hidden, epsilon);
    let norm = |name: &str| match shared.is_layer_norm {
        true => Norm::layer(format!("{path}.{name}"), hidden, epsilon),
        false => rms(name, epsilon),
    };
    let head_size = hidden / heads;
    Block {
        before_attention: norm("layernorm_before"),
        attention: Attention {
            heads,
            kv_heads: heads,
            head_size,
            scale: (head_size as f64).powf(-0.5),
            qkv: ["q", "k", "v"].map(|part| linear(&format!("attention.{part}_proj"), hidden, hidden, has_bias)).into(),
            norms: match shared.has_head_norms {
                true => {
                    HeadNorms::Whole(["q", "k"].map(|part| rms(&format!("attention.{part}_norm"), HEAD_NORM_EPSILON)))
                }
                false => HeadNorms::None,
            },
            output: linear("attention.projection_layer", hidden, hidden, true),
            in_window: false,
        },
        after_attention: None,
        before_mlp: norm("layernorm_after"),
        mlp: Mlp {
            first: linear("mlp.fc1", feed_forward, hidden, true),
            up: None,
            activation,
            last: linear("mlp.fc2", hidden, feed_forward, true),
        },
        after_mlp: None,
        scales: Some(["lambda_1", "lambda_2"].map(|name| format!("{path}.{name}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_are_ordered_by_area_and_columns() {
        assert_eq!(grids(1, 4), [(1, 1), (1, 2), (2, 1), (1, 3), (3, 1), (1, 4), (2, 2), (4, 1)]);
        assert_eq!(grids(3, 3), [(1, 3), (3, 1)]);
    }
}
