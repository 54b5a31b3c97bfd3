//! Gemma 3. The image is stretched to a square. With pan and scan, crops along the long side follow.
//! The tower is SigLIP, then the mean of squares of patches. Reference: transformers, `models/gemma3`.
//!
//! The processor class of transformers passes its own settings of pan and scan. Those of the
//! model's files have no effect, only overrides do.

use serde_json::json;
use tandem_images::recipe::{
    Area, Basics, CHANNELS, Defaults, HALF, Recipe, Section, Settings, check_area, grid, write_planes,
};
use tandem_images::{Expansion, ImageError, ImagePlan, Layout, ProcessorError, RgbImage, resize};

use super::super::family::{Configs, Family, Language};
use super::super::siglip::{self, GgufTile, Siglip, Sizes};
use super::super::tower::{Head, Linear, Norm, NormKind, Pool, Step, TableOrder, Tower};
use crate::error::LoadError;
use crate::models::architectures::gemma3;
use crate::models::config::{ConfigError, unsupported};
use crate::weights::gguf::header::GgufHeader;
use crate::weights::gguf::projector::{GgufBlocks, GgufProjector, ProjectorConfig};

pub(super) const FAMILY: Family = Family {
    names: &["gemma3"],
    processors: &["Gemma3Processor"],
    image_processors: &["Gemma3ImageProcessor"],
    recipe,
    language: Language::Own(gemma3::describe_with_images),
    is_tied: true,
    patches: "vision_tower.vision_model.embeddings.patch_embedding.weight",
    tower,
    gguf: &[GGUF],
};

// ---- processor ----

const PIXELS: Defaults = Defaults { resample: 2, normalize: true, normal: HALF };

#[derive(Debug)]
struct Gemma3 {
    basics: Basics,
    height: usize,
    width: usize,
    pan_and_scan: Option<PanAndScan>,
    tokens_per_image: usize,
    begin_token: String,
    end_token: String,
}

/// When an image is cut, and into how many crops.
#[derive(Debug)]
struct PanAndScan {
    min_crop_size: usize,
    max_crops: usize,
    min_ratio: f64,
}

fn recipe(settings: &Settings) -> Result<Box<dyn Recipe>, ProcessorError> {
    let basics = Basics::read(settings, PIXELS, settings.tokens.text("image_token", "<image_soft_token>")?)?;
    let (height, width) = settings.image.size(224)?;
    let pan_and_scan = PanAndScan::load(&settings.overrides)?;
    let begin_token = settings.tokens.text("boi_token", "<start_of_image>")?;
    let crops = pan_and_scan.as_ref().map_or(0, |settings| settings.max_crops);
    check_area("size", &[height, width, 1 + crops])?;
    Ok(Box::new(Gemma3 {
        // Pan and scan resizes in any case.
        basics: Basics {
            resizes: basics.resizes || pan_and_scan.is_some(),
            placeholder: begin_token.clone(),
            ..basics
        },
        height,
        width,
        pan_and_scan,
        tokens_per_image: settings.processor.side("image_seq_length", 256)?,
        begin_token,
        end_token: settings.tokens.text("eoi_token", "<end_of_image>")?,
    }))
}

impl PanAndScan {
    fn load(overrides: &Section) -> Result<Option<Self>, ProcessorError> {
        let on = overrides.flag("do_pan_and_scan", false)?;
        Ok(on.then_some(Self {
            min_crop_size: overrides.side("pan_and_scan_min_crop_size", 256)?,
            max_crops: overrides.side("pan_and_scan_max_num_crops", 4)?,
            min_ratio: overrides.number("pan_and_scan_min_ratio_to_activate", 1.2)?,
        }))
    }

    /// Returns the crops. The last may reach over the edge.
    fn crops(&self, width: usize, height: usize) -> Vec<Area> {
        let (long, short) = (width.max(height), width.min(height));
        let ratio = long as f64 / short as f64;
        if ratio < self.min_ratio {
            return Vec::new();
        }
        let count = ((ratio + 0.5) as usize).min(long / self.min_crop_size).max(2).min(self.max_crops);
        let piece = long.div_ceil(count);
        if piece.min(short) < self.min_crop_size {
            return Vec::new();
        }
        let wide = width >= height;
        let areas = if wide { grid(1, count, (height, piece)) } else { grid(count, 1, (piece, width)) };
        areas.map(|area| area.inside(width, height)).filter(|area| area.width > 0 && area.height > 0).collect()
    }
}

impl Gemma3 {
    fn crops(&self, width: usize, height: usize) -> Vec<Area> {
        self.pan_and_scan.as_ref().map_or_else(Vec::new, |settings| settings.crops(width, height))
    }

    /// Returns (width, height) of the prepared image and of its crops.
    fn sides(&self, width: usize, height: usize) -> (usize, usize) {
        if self.basics.resizes { (self.width, self.height) } else { (width, height) }
    }

    fn expansion(&self, crops: usize) -> Expansion {
        let Self { begin_token, end_token, .. } = self;
        let image = self.basics.image_token.repeat(self.tokens_per_image);
        let whole = format!("\n\n{begin_token}{image}{end_token}\n\n");
        let tokens = (1 + crops) * self.tokens_per_image;
        if crops == 0 {
            return Expansion { text: whole, tokens };
        }
        let pieces = vec![whole.as_str(); crops].join(" ");
        let text =
            format!("Here is the original image {whole} and here are some crops to help you see better {pieces}");
        Expansion { text, tokens }
    }
}

impl Recipe for Gemma3 {
    fn basics(&self) -> &Basics {
        &self.basics
    }

    fn plan(&self, width: usize, height: usize) -> Result<ImagePlan, ImageError> {
        let crops = self.crops(width, height).len();
        let (width, height) = self.sides(width, height);
        Ok(ImagePlan::new(vec![1 + crops, CHANNELS, height, width], Layout::Crops, self.expansion(crops)))
    }

    fn bytes(&self, image: &RgbImage) -> Result<Vec<u8>, ImageError> {
        let crops = self.crops(image.width(), image.height());
        let (width, height) = self.sides(image.width(), image.height());
        let length = CHANNELS * height * width;
        let mut out = vec![0; (1 + crops.len()) * length];
        let write = |part: &RgbImage, out: &mut [u8]| {
            let resized = resize(part, width, height, self.basics.filter);
            write_planes(&resized, resized.area(), out);
        };
        let (whole, rest) = out.split_at_mut(length);
        write(image, whole);
        for (&area, out) in crops.iter().zip(rest.chunks_exact_mut(length)) {
            write(&image.crop(area), out);
        }
        Ok(out)
    }
}

// ---- tower ----

const GGUF: GgufProjector = GgufProjector {
    name: "gemma3",
    model_type: "gemma3",
    language_models: &["gemma3_text"],
    keys: &[siglip::SCALE_FACTOR],
    integers: &[],
    tensors: &[
        ("vision_tower.vision_model.embeddings.patch_embedding", "v.patch_embd"),
        ("vision_tower.vision_model.embeddings.position_embedding", "v.position_embd"),
        ("vision_tower.vision_model.post_layernorm", "v.post_ln"),
        ("multi_modal_projector.mm_soft_emb_norm", "mm.soft_emb_norm"),
        ("multi_modal_projector.mm_input_projection_weight", "mm.input_projection.weight"),
    ],
    blocks: &[GgufBlocks { path: ("vision_tower.vision_model.encoder.layers", "v.blk"), tensors: siglip::GGUF_BLOCK }],
    add_implied,
};

/// The default side of the squares of patches that become one row.
const DEFAULT_SCALE: u32 = 4;

/// The converter has added 1 to the weight of the projector's norm.
fn add_implied(header: &GgufHeader, config: &mut ProjectorConfig) -> Result<(), LoadError> {
    let GgufTile { side, rows, .. } = GgufTile::read(header, DEFAULT_SCALE)?;
    config.model.insert(TOKENS.into(), json!(rows));
    config.vision.insert(NORM_OFFSET.into(), json!(0));
    config.image.insert("size".into(), json!({"height": side, "width": side}));
    config.processor.insert("image_seq_length".into(), json!(rows));
    Ok(())
}

const TOKENS: &str = "mm_tokens_per_image";
/// The number that is added to the weight of the projector's norm.
const NORM_OFFSET: &str = "norm_offset";

const DEFAULTS: Sizes = Sizes { hidden: 768, heads: 12, feed_forward: 3072, layers: 12, image: 224, patch: 16 };
const DEFAULT_TOKENS: usize = 256;

fn tower(configs: &Configs<'_>) -> Result<Tower, ConfigError> {
    let sizes = Sizes::read(configs, DEFAULTS)?;
    let tokens = configs.model.size_or(TOKENS, DEFAULT_TOKENS)?;
    let side = sizes.side() / tokens.isqrt();
    if side * tokens.isqrt() != sizes.side() || tokens.isqrt().pow(2) != tokens {
        return Err(unsupported(TOKENS, tokens));
    }
    let epsilon = f64::from(configs.vision.float_or("layer_norm_eps", 1e-6)?);
    let offset = f64::from(configs.vision.find_float(NORM_OFFSET)?.unwrap_or(1.0));
    let norm = Norm {
        kind: NormKind::Rms { offset },
        ..Norm::rms("multi_modal_projector.mm_soft_emb_norm".to_owned(), sizes.hidden, epsilon)
    };
    let name = "multi_modal_projector.mm_input_projection_weight";
    let projection = Linear::new(name, configs.model.size("hidden_size")?, sizes.hidden);
    let projection = Linear { is_transposed: true, ..projection };
    let steps = vec![Step::Norm(norm), Step::Linear(projection)];
    let head = Head { pool: Pool::Mean { side, scale: 1.0 }, steps };
    let encoder = Siglip {
        path: "vision_tower.vision_model",
        order: TableOrder::Index,
        head,
        epsilon: siglip::EPSILON,
        activation: siglip::ACTIVATION,
    };
    siglip::tower(configs, sizes, encoder)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: PanAndScan = PanAndScan { min_crop_size: 24, max_crops: 4, min_ratio: 1.2 };

    #[test]
    fn the_long_side_is_cut_and_the_last_crop_may_be_shorter() {
        let crops = SETTINGS.crops(100, 30);
        let columns: Vec<_> = crops.iter().map(|area| (area.left, area.width)).collect();
        assert_eq!(columns, [(0, 34), (34, 34), (68, 32)]);
        assert_eq!(SETTINGS.crops(30, 100).len(), 3);
    }

    #[test]
    fn square_and_small_images_are_not_cut() {
        assert!(SETTINGS.crops(100, 100).is_empty());
        assert!(SETTINGS.crops(40, 10).is_empty());
    }
}
