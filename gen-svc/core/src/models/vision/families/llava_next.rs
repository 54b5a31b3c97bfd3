//! LLaVA-NeXT. The image is fitted into the best of several sizes, laid on black, and cut into tiles.
//! The original image, stretched to one tile, precedes them. The tower is CLIP. Image tokens take the
//! rows of the first tile, then those of the fitted image without its black edges, row by row, with a
//! learned vector after each row. Reference: transformers, `models/llava_next`.

use serde_json::{Value, json};
use tandem_images::recipe::{
    Basics, CHANNELS, CLIP, Defaults, Recipe, Settings, check_area, refused, write_planes, write_tiles,
};
use tandem_images::{Expansion, ImageError, ImagePlan, Layout, Order, ProcessorError, RgbImage, resize};

use super::super::family::{Configs, Family, Language};
use super::super::siglip::{self, Siglip, Sizes};
use super::super::tower::{Activation, Head, Linear, Norm, Pool, Positions, Step, TableOrder, Tower};
use crate::models::architectures::{llama, mistral, qwen2};
use crate::models::config::{Config, ConfigError, unsupported};

pub(super) const FAMILY: Family = Family {
    names: &["llava_next"],
    processors: &["LlavaNextProcessor"],
    image_processors: &["LlavaNextImageProcessor"],
    recipe,
    language: Language::OneOf(&[llama::ARCHITECTURE, mistral::ARCHITECTURE, qwen2::ARCHITECTURE]),
    is_tied: false,
    patches: "vision_tower.vision_model.embeddings.patch_embedding.weight",
    tower,
    gguf: &[],
};

// ---- processor ----

const PIXELS: Defaults = Defaults { resample: 3, normalize: true, normal: CLIP };

const PINPOINTS: &str = "image_grid_pinpoints";

/// The most sizes, and the most tiles of one.
const MAX_PINPOINTS: usize = 256;

#[derive(Debug)]
struct LlavaNext {
    basics: Basics,
    /// The side of a tile in pixels, and in patches.
    tile: usize,
    patches: usize,
    /// Grids of (columns, rows) of tiles.
    grids: Vec<(usize, usize)>,
}

fn recipe(settings: &Settings) -> Result<Box<dyn Recipe>, ProcessorError> {
    let token = match settings.tokens.get("image_token") {
        Some(_) => &settings.tokens,
        None => &settings.processor,
    };
    let basics = Basics::read(settings, PIXELS, token.text("image_token", "<image>")?)?;
    let tile = tile(settings)?;
    let grids = grids(settings, tile)?;
    let most = grids.iter().map(|(columns, rows)| columns * rows + 1).max().unwrap_or(1);
    check_area(PINPOINTS, &[tile, tile, most])?;
    let patch = settings.processor.side("patch_size", 0)?;
    let Some(patches @ 1..) = tile.checked_div(patch) else {
        return Err(refused("patch_size", &patch.into(), "the side of the tower's patches"));
    };
    check_class_token(settings)?;
    // Tiles are resized in any case.
    Ok(Box::new(LlavaNext { basics: Basics { resizes: true, ..basics }, tile, patches, grids }))
}

/// Returns the side of a tile. Another `size` would resize the tiles again.
fn tile(settings: &Settings) -> Result<usize, ProcessorError> {
    let image = &settings.image;
    let [height, width] = ["height", "width"].map(|side| image.side_of("crop_size", side, 224));
    let (tile, width) = (height?, width?);
    let has_edge = image.get("size").is_none_or(|size| size.get("shortest_edge").is_some());
    let size = match has_edge {
        true => [image.side_of("size", "shortest_edge", 224)?; 2],
        false => image.size(224)?.into(),
    };
    if [width, size[0], size[1]] != [tile; 3] {
        return Err(refused("size", &json!(size), &format!("the height and the width of crop_size, {tile}")));
    }
    Ok(tile)
}

/// Returns the grids of tiles. The model has the same sizes in its config.
fn grids(settings: &Settings, tile: usize) -> Result<Vec<(usize, usize)>, ProcessorError> {
    let default = json!([[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]);
    let sizes = settings.image.get(PINPOINTS).unwrap_or(&default);
    let of_model = settings.model.get(PINPOINTS).unwrap_or(&default);
    if !settings.model.0.is_empty() && of_model != sizes {
        return Err(refused(PINPOINTS, sizes, &format!("those of config.json, {of_model}")));
    }
    let tiles = |side: &Value| {
        let side = side.as_u64().and_then(|side| usize::try_from(side).ok())?;
        (side >= tile && side.is_multiple_of(tile)).then_some(side / tile)
    };
    let grid = |size: &Value| match size.as_array()?.as_slice() {
        [height, width] => Some((tiles(width)?, tiles(height)?)),
        _ => None,
    };
    let grids: Option<Vec<_>> = sizes.as_array().and_then(|sizes| sizes.iter().map(grid).collect());
    let grids = grids.filter(|grids| (1..=MAX_PINPOINTS).contains(&grids.len()));
    grids.ok_or_else(|| refused(PINPOINTS, sizes, &format!("pairs of multiples of {tile} pixels")))
}

/// Fails unless a tile has as many image tokens as patches. The tower's class token has none.
fn check_class_token(settings: &Settings) -> Result<(), ProcessorError> {
    const ADDED: &str = "num_additional_image_tokens";
    let strategy = settings.processor.text("vision_feature_select_strategy", "none")?;
    let removed = u64::from(strategy == "default");
    match settings.processor.get(ADDED) {
        Some(added) if added.as_u64() != Some(removed) => Err(refused(ADDED, added, &removed.to_string())),
        None if removed != 0 => Err(refused(ADDED, &Value::Null, "1")),
        _ => Ok(()),
    }
}

impl LlavaNext {
    /// Returns (columns, rows) of the grid in which most pixels of the image are kept. Of several, the
    /// smallest is used.
    fn grid(&self, width: usize, height: usize) -> (usize, usize) {
        let (mut best, mut most, mut least) = ((1, 1), 0, usize::MAX);
        for &(columns, rows) in &self.grids {
            let (across, down) = (columns * self.tile, rows * self.tile);
            let scale = (across as f64 / width as f64).min(down as f64 / height as f64);
            let reduced = |side: usize| (side as f64 * scale) as usize;
            let kept = (reduced(width) * reduced(height)).min(width * height);
            let wasted = across * down - kept;
            if kept > most || (kept == most && wasted < least) {
                (best, most, least) = ((columns, rows), kept, wasted);
            }
        }
        best
    }

    /// Returns (width, height) of the image in the grid.
    fn fitted(&self, width: usize, height: usize, (columns, rows): (usize, usize)) -> (usize, usize) {
        let (across, down) = (columns * self.tile, rows * self.tile);
        let (by_width, by_height) = (across as f64 / width as f64, down as f64 / height as f64);
        let scaled = |side: usize, scale: f64, most: usize| ((side as f64 * scale).ceil() as usize).min(most);
        match by_width < by_height {
            true => (across, scaled(height, by_width, down)),
            false => (scaled(width, by_height, across), down),
        }
    }

    /// Returns the rows that image tokens take.
    fn order(&self, width: usize, height: usize, (columns, rows): (usize, usize)) -> Order {
        let (side, of_tile) = (self.patches, self.patches * self.patches);
        let all = (1 + columns * rows) * of_tile;
        let (left, top) = edges(width, height, (columns * side, rows * side));
        let mut places: Vec<u32> = (0..of_tile as u32).collect();
        for y in top..rows * side - top {
            let row = (left..columns * side - left).map(|x| {
                let tile = 1 + y / side * columns + x / side;
                tile * of_tile + y % side * side + x % side
            });
            places.extend(row.chain([all]).map(|place| place as u32));
        }
        Order { rows: all, places }
    }
}

/// Returns the black patches at the left and at the top of a grid of patches. There are as many at the
/// right and at the bottom.
fn edges(width: usize, height: usize, (columns, rows): (usize, usize)) -> (usize, usize) {
    let (exact_columns, exact_rows) = (columns as f64, rows as f64);
    match width as f64 / height as f64 > exact_columns / exact_rows {
        true => (0, (rows - whole(height as f64 * (exact_columns / width as f64))) / 2),
        false => ((columns - whole(width as f64 * (exact_rows / height as f64))) / 2, 0),
    }
}

/// Returns the whole part of a number that is first rounded to seven decimals.
fn whole(number: f64) -> usize {
    format!("{number:.7}").split('.').next().and_then(|digits| digits.parse().ok()).unwrap_or_default()
}

impl Recipe for LlavaNext {
    fn basics(&self) -> &Basics {
        &self.basics
    }

    fn plan(&self, width: usize, height: usize) -> Result<ImagePlan, ImageError> {
        let grid = self.grid(width, height);
        let order = self.order(width, height, grid);
        let shape = vec![1 + grid.0 * grid.1, CHANNELS, self.tile, self.tile];
        let expansion = Expansion::new("", &self.basics.image_token, order.places.len(), "");
        Ok(ImagePlan { order: Some(order), ..ImagePlan::new(shape, Layout::Tiles, expansion) })
    }

    fn bytes(&self, image: &RgbImage) -> Result<Vec<u8>, ImageError> {
        let (columns, rows) = self.grid(image.width(), image.height());
        let fitted = self.fitted(image.width(), image.height(), (columns, rows));
        let length = CHANNELS * self.tile * self.tile;
        let mut out = vec![0; (1 + columns * rows) * length];
        let (first, tiles) = out.split_at_mut(length);
        let whole = resize(image, self.tile, self.tile, self.basics.filter);
        write_planes(&whole, whole.area(), first);
        let fitted = resize(image, fitted.0, fitted.1, self.basics.filter);
        write_tiles(&fitted.on_black(columns * self.tile, rows * self.tile), (self.tile, self.tile), tiles);
        Ok(out)
    }
}

// ---- tower ----

const PATH: &str = "vision_tower.vision_model";
const PROJECTOR: &str = "multi_modal_projector";
const DEFAULTS: Sizes = Sizes { hidden: 768, heads: 12, feed_forward: 3072, layers: 12, image: 224, patch: 32 };
const EPSILON: f32 = 1e-5;
/// The hidden size of all of its language models, by default.
const TEXT_HIDDEN: usize = 4096;

fn tower(configs: &Configs<'_>) -> Result<Tower, ConfigError> {
    let Configs { vision, model } = configs;
    vision.require("model_type", &json!("clip_vision_model"))?;
    model.require("vision_feature_select_strategy", &json!("default"))?;
    let sizes = Sizes::read(configs, DEFAULTS)?;
    let (hidden, text) = (sizes.hidden, model.size_or("hidden_size", TEXT_HIDDEN)?);
    let encoder = Siglip {
        path: PATH,
        order: TableOrder::Index,
        head: head(model, hidden, text)?,
        epsilon: EPSILON,
        activation: "quick_gelu",
    };
    let mut tower = siglip::tower(configs, sizes, encoder)?;
    tower.patches.matrix.bias = false;
    tower.class_token = Some((format!("{PATH}.embeddings.class_embedding"), vec![hidden]));
    if let Positions::Table { shape, .. } = &mut tower.positions {
        shape[0] += 1;
    }
    let epsilon = f64::from(vision.float_or("layer_norm_eps", EPSILON)?);
    tower.input_norm = Some(Norm::layer(format!("{PATH}.pre_layrnorm"), hidden, epsilon));
    tower.blocks.truncate(used_blocks(model, sizes.layers)?);
    tower.final_norm = None;
    tower.own_row = Some(("image_newline".to_owned(), vec![text]));
    Ok(tower)
}

/// Returns the number of blocks up to the one whose output is used. Negative numbers count from the
/// end, where -1 is the last block's.
fn used_blocks(model: &Config<'_>, layers: usize) -> Result<usize, ConfigError> {
    const LAYER: &str = "vision_feature_layer";
    let layer = model.find_float(LAYER)?.unwrap_or(-2.0);
    let used = if layer < 0.0 { layers as f32 + 1.0 + layer } else { layer };
    let is_block = layer.fract() == 0.0 && (0.0..=layers as f32).contains(&used);
    is_block.then_some(used as usize).ok_or_else(|| unsupported(LAYER, layer))
}

fn head(model: &Config<'_>, hidden: usize, text: usize) -> Result<Head, ConfigError> {
    model.require("projector_hidden_act", &json!("gelu"))?;
    let bias = model.flag_or("multimodal_projector_bias", true)?;
    let linear = |name: &str, columns| Linear::new(format!("{PROJECTOR}.{name}"), text, columns).with_bias(bias);
    let steps = vec![
        Step::Linear(linear("linear_1", hidden)),
        Step::Activation(Activation::Gelu),
        Step::Linear(linear("linear_2", text)),
    ];
    Ok(Head { pool: Pool::Join { count: 1, late: false }, steps })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seven_decimals_are_kept_before_the_whole_part_is_taken() {
        assert_eq!(whole(2.999_999_99), 3);
        assert_eq!(whole(2.999_999_9), 2);
    }

    #[test]
    fn a_thin_image_may_have_the_patches_of_the_first_tile_alone() {
        assert_eq!(edges(1000, 1, (8, 4)), (0, 2));
        assert_eq!(edges(4, 4, (8, 4)), (2, 0));
    }
}
