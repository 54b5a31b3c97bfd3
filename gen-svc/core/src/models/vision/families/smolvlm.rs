//! SmolVLM and Idefics 3. The image is enlarged or reduced to the longest edge, stretched to
//! multiples of a tile, and cut. The stretched image, reduced to one tile, follows.
//!
//! The tower is SigLIP with fractional positions, then a pixel shuffle. Reference: transformers,
//! `models/smolvlm` and `models/idefics3`.

use serde_json::json;
use tandem_images::recipe::{Basics, CHANNELS, Defaults, HALF, Recipe, Settings, refused, write_planes, write_tiles};
use tandem_images::{Expansion, ImageError, ImagePlan, Layout, ProcessorError, RgbImage, resize};

use super::super::family::{Configs, Family, Language};
use super::super::siglip::{self, GgufTile, Siglip, Sizes};
use super::super::tower::{Head, Linear, Pool, Step, TableOrder, Tower};
use crate::error::LoadError;
use crate::models::architectures::llama;
use crate::models::config::ConfigError;
use crate::weights::gguf::header::GgufHeader;
use crate::weights::gguf::projector::{GgufBlocks, GgufProjector, ProjectorConfig};

pub(super) const FAMILY: Family = Family {
    names: &["smolvlm", "idefics3"],
    processors: &["SmolVLMProcessor", "Idefics3Processor"],
    image_processors: &["SmolVLMImageProcessor", "Idefics3ImageProcessor"],
    recipe,
    language: Language::OneOf(&[llama::ARCHITECTURE]),
    is_tied: false,
    patches: "model.vision_model.embeddings.patch_embedding.weight",
    tower,
    gguf: &[GGUF],
};

// ---- processor ----

/// The longest edge that transformers allows.
const MAX_EDGE: usize = 4096;

/// The smallest tile. Smaller ones would be too many.
const MIN_TILE: usize = 32;

const PIXELS: Defaults = Defaults { resample: 1, normalize: true, normal: HALF };

#[derive(Debug)]
struct SmolVlm {
    basics: Basics,
    /// False: the first resize is left out.
    is_fitted: bool,
    longest_edge: usize,
    tile: usize,
    splitting: bool,
    tokens_per_tile: usize,
    fake_token: String,
    global_token: String,
}

/// Where an image goes.
struct Geometry {
    /// (width, height) of the first resize.
    fitted: (usize, usize),
    /// (width, height) of the second resize, multiples of a tile.
    stretched: (usize, usize),
    rows: usize,
    columns: usize,
}

fn recipe(settings: &Settings) -> Result<Box<dyn Recipe>, ProcessorError> {
    let basics = Basics::read(settings, PIXELS, settings.tokens.text("image_token", "<image>")?)?;
    let tile = settings.image.side_of("max_image_size", "longest_edge", 364)?;
    if !(MIN_TILE..=MAX_EDGE).contains(&tile) {
        return Err(refused("max_image_size", &tile.into(), "an edge from 32 to 4096"));
    }
    Ok(Box::new(SmolVlm {
        is_fitted: basics.resizes,
        basics: Basics { resizes: true, ..basics },
        longest_edge: settings.image.side_of("size", "longest_edge", 4 * 364)?,
        tile,
        splitting: settings.image.flag("do_image_splitting", true)?,
        tokens_per_tile: settings.processor.side("image_seq_len", 169)?,
        fake_token: settings.tokens.text("fake_image_token", "<fake_token_around_image>")?,
        global_token: settings.tokens.text("global_image_token", "<global-img>")?,
    }))
}

impl SmolVlm {
    fn geometry(&self, width: usize, height: usize) -> Geometry {
        let fitted = if self.is_fitted { limited(fitted(width, height, self.longest_edge)) } else { (width, height) };
        if !self.splitting {
            return Geometry { fitted, stretched: (self.tile, self.tile), rows: 0, columns: 0 };
        }
        let stretched = stretched(fitted, self.tile);
        let (columns, rows) = (stretched.0 / self.tile, stretched.1 / self.tile);
        let (rows, columns) = if (rows, columns) == (1, 1) { (0, 0) } else { (rows, columns) };
        Geometry { fitted, stretched, rows, columns }
    }

    fn expansion(&self, rows: usize, columns: usize) -> Expansion {
        let Self { fake_token, global_token, .. } = self;
        let image = self.basics.image_token.repeat(self.tokens_per_tile);
        let mut text = String::new();
        for row in 1..=rows {
            for column in 1..=columns {
                text += &format!("{fake_token}<row_{row}_col_{column}>{image}");
            }
            text.push('\n');
        }
        if rows > 0 {
            text.push('\n');
        }
        text += &format!("{fake_token}{global_token}{image}{fake_token}");
        Expansion { text, tokens: (rows * columns + 1) * self.tokens_per_tile }
    }
}

/// Returns the sides with the longest edge. The other is even, or 1.
fn fitted(width: usize, height: usize, longest: usize) -> (usize, usize) {
    let even = |side: f64| (side as usize).next_multiple_of(2).max(1);
    let aspect = width as f64 / height as f64;
    if width >= height { (longest, even(longest as f64 / aspect)) } else { (even(longest as f64 * aspect), longest) }
}

fn limited((width, height): (usize, usize)) -> (usize, usize) {
    let aspect = width as f64 / height as f64;
    match (width, height) {
        (width, height) if width.max(height) <= MAX_EDGE => (width, height),
        (width, height) if width >= height => (MAX_EDGE, ((MAX_EDGE as f64 / aspect) as usize).max(1)),
        _ => (((MAX_EDGE as f64 * aspect) as usize).max(1), MAX_EDGE),
    }
}

fn stretched((width, height): (usize, usize), tile: usize) -> (usize, usize) {
    let up = |side: usize| side.next_multiple_of(tile).max(tile);
    let aspect = width as f64 / height as f64;
    if width >= height {
        let width = up(width);
        (width, up((width as f64 / aspect) as usize))
    } else {
        let height = up(height);
        (up((height as f64 * aspect) as usize), height)
    }
}

impl Recipe for SmolVlm {
    fn basics(&self) -> &Basics {
        &self.basics
    }

    fn plan(&self, width: usize, height: usize) -> Result<ImagePlan, ImageError> {
        let Geometry { rows, columns, .. } = self.geometry(width, height);
        Ok(ImagePlan::new(
            vec![rows * columns + 1, CHANNELS, self.tile, self.tile],
            Layout::Tiles,
            self.expansion(rows, columns),
        ))
    }

    fn bytes(&self, image: &RgbImage) -> Result<Vec<u8>, ImageError> {
        let Geometry { fitted, stretched, rows, columns } = self.geometry(image.width(), image.height());
        let first = resize(image, fitted.0, fitted.1, self.basics.filter);
        let canvas = resize(&first, stretched.0, stretched.1, self.basics.filter);
        let length = CHANNELS * self.tile * self.tile;
        let mut out = vec![0; (rows * columns + 1) * length];
        let (tiles, last) = out.split_at_mut(rows * columns * length);
        write_tiles(&canvas, (self.tile, self.tile), tiles);
        let whole = resize(&canvas, self.tile, self.tile, self.basics.filter);
        write_planes(&whole, whole.area(), last);
        Ok(out)
    }
}

// ---- tower ----

const GGUF: GgufProjector = GgufProjector {
    name: "idefics3",
    model_type: "smolvlm",
    language_models: &["llama"],
    keys: &[siglip::SCALE_FACTOR, LONGEST_EDGE],
    integers: &[],
    tensors: &[
        ("model.vision_model.embeddings.patch_embedding", "v.patch_embd"),
        ("model.vision_model.embeddings.position_embedding", "v.position_embd"),
        ("model.vision_model.post_layernorm", "v.post_ln"),
        ("model.connector.modality_projection.proj", "mm.model.fc"),
    ],
    blocks: &[GgufBlocks { path: ("model.vision_model.encoder.layers", "v.blk"), tensors: siglip::GGUF_BLOCK }],
    add_implied,
};

/// The longest edge of an image before it is cut into tiles.
const LONGEST_EDGE: &str = "vision.preproc_image_size";

/// Tiles along the longest edge, in transformers' defaults and in all published models.
const DEFAULT_TILES: u32 = 4;

fn add_implied(header: &GgufHeader, config: &mut ProjectorConfig) -> Result<(), LoadError> {
    let GgufTile { side, scale, rows } = GgufTile::read(header, DEFAULT_SHUFFLE as u32)?;
    let longest = header.find::<u32>(LONGEST_EDGE)?.unwrap_or(side.saturating_mul(DEFAULT_TILES));
    config.model.insert("scale_factor".into(), json!(scale));
    config.image.insert("max_image_size".into(), json!({"longest_edge": side}));
    config.image.insert("size".into(), json!({"longest_edge": longest}));
    config.processor.insert("image_seq_len".into(), json!(rows));
    Ok(())
}

const DEFAULTS: Sizes = Sizes { hidden: 1152, heads: 16, feed_forward: 3072, layers: 12, image: 224, patch: 32 };
const DEFAULT_SHUFFLE: usize = 2;

fn tower(configs: &Configs<'_>) -> Result<Tower, ConfigError> {
    let sizes = Sizes::read(configs, DEFAULTS)?;
    let side = configs.model.size_or("scale_factor", DEFAULT_SHUFFLE)?;
    let text = configs.model.size("hidden_size")?;
    let projection = Linear::new("model.connector.modality_projection.proj", text, sizes.hidden * side * side);
    let head = Head { pool: Pool::Shuffle { side }, steps: vec![Step::Linear(projection)] };
    let encoder = Siglip {
        path: "model.vision_model",
        order: TableOrder::Fraction,
        head,
        epsilon: siglip::EPSILON,
        activation: siglip::ACTIVATION,
    };
    siglip::tower(configs, sizes, encoder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tiny_image_is_enlarged() {
        assert_eq!(fitted(1, 1, 256), (256, 256));
        assert_eq!(fitted(1000, 40, 256), (256, 10));
        assert_eq!(fitted(7, 7000, 256), (1, 256));
    }

    #[test]
    fn both_sides_become_multiples_of_a_tile() {
        assert_eq!(stretched((256, 10), 64), (256, 64));
        assert_eq!(stretched((100, 130), 64), (192, 192));
    }

    #[test]
    fn a_long_edge_is_limited() {
        assert_eq!(limited((8192, 100)), (4096, 50));
        assert_eq!(limited((1, 8192)), (1, 4096));
    }
}
