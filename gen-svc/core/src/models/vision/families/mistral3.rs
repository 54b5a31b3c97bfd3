//! Mistral 3, with Pixtral's processor and tower. The image is reduced to the longest edge, and both
//! sides become multiples of a merged patch. The tower has rotary positions on two axes. Reference:
//! transformers, `models/mistral3` and `models/pixtral`.
//!
//! The `patch_size` of the image processor's own settings has no effect: the
//! processor passes its `patch_size * spatial_merge_size`.

use serde_json::json;
use tandem_images::recipe::{Basics, CHANNELS, CLIP, Defaults, Recipe, Settings, check_area, refused, write_planes};
use tandem_images::{Expansion, ImageError, ImagePlan, Layout, ProcessorError, RgbImage, resize};

use super::super::family::{Configs, Family, Language};
use super::super::siglip::activation;
use super::super::tower::{
    Activation, Attention, Axis, Block, Head, HeadNorms, Linear, Mlp, Norm, Patches, Pool, Positions, Rotary, Step,
    Tower,
};
use crate::models::architectures::mistral;
use crate::models::config::{ConfigError, unsupported};

pub(super) const FAMILY: Family = Family {
    names: &["mistral3"],
    processors: &["PixtralProcessor"],
    image_processors: &["PixtralImageProcessor"],
    recipe,
    language: Language::OneOf(&[mistral::ARCHITECTURE]),
    is_tied: true,
    patches: "vision_tower.patch_conv.weight",
    tower,
    gguf: &[],
};

// ---- processor ----

const PIXELS: Defaults = Defaults { resample: 3, normalize: true, normal: CLIP };

#[derive(Debug)]
struct Mistral3 {
    basics: Basics,
    /// (width, height) that the image must not exceed.
    limit: (usize, usize),
    cell: usize,
    break_token: String,
    end_token: String,
}

fn recipe(settings: &Settings) -> Result<Box<dyn Recipe>, ProcessorError> {
    let basics = Basics::read(settings, PIXELS, settings.processor.text("image_token", "[IMG]")?)?;
    if settings.image.flag("do_center_crop", false)? {
        return Err(refused("do_center_crop", &true.into(), "false"));
    }
    let processor = &settings.processor;
    let (patch, merge) = (processor.side("patch_size", 16)?, processor.side("spatial_merge_size", 1)?);
    let (limit, cell) = (limit(settings)?, patch * merge);
    check_area("size", &[limit.0.next_multiple_of(cell), limit.1.next_multiple_of(cell)])?;
    Ok(Box::new(Mistral3 {
        basics,
        limit,
        cell,
        break_token: processor.text("image_break_token", "[IMG_BREAK]")?,
        end_token: processor.text("image_end_token", "[IMG_END]")?,
    }))
}

/// Returns (width, height) of `size`, which is an edge or both sides.
fn limit(settings: &Settings) -> Result<(usize, usize), ProcessorError> {
    let has_edge = settings.image.get("size").is_none_or(|size| size.get("longest_edge").is_some());
    if has_edge {
        let edge = settings.image.side_of("size", "longest_edge", 1024)?;
        return Ok((edge, edge));
    }
    let (height, width) = settings.image.size(1024)?;
    Ok((width, height))
}

impl Mistral3 {
    /// Returns (width, height) of the resized image.
    fn sides(&self, width: usize, height: usize) -> Result<(usize, usize), ImageError> {
        if !self.basics.resizes {
            return self.unchanged(width, height);
        }
        let ratio = (height as f64 / self.limit.1 as f64).max(width as f64 / self.limit.0 as f64);
        let reduced = |side: usize| if ratio > 1.0 { (side as f64 / ratio).floor() as usize } else { side };
        let sides = (reduced(width).next_multiple_of(self.cell), reduced(height).next_multiple_of(self.cell));
        if sides.0 == 0 || sides.1 == 0 {
            return Err(ImageError::AspectRatio { width, height, reason: "a reduced side has no pixel" });
        }
        Ok(sides)
    }

    /// Returns the sides of an image that is not resized. A rest that is smaller than a cell has no token.
    fn unchanged(&self, width: usize, height: usize) -> Result<(usize, usize), ImageError> {
        if width.min(height) >= self.cell {
            return Ok((width, height));
        }
        let problem = format!("it is not resized (do_resize), and each side needs {} pixels", self.cell);
        Err(ImageError::Unfit { width, height, problem })
    }

    fn expansion(&self, rows: usize, columns: usize) -> Expansion {
        let row = self.basics.image_token.repeat(columns);
        let text = vec![row; rows].join(&self.break_token) + &self.end_token;
        Expansion { text, tokens: rows * columns }
    }
}

impl Recipe for Mistral3 {
    fn basics(&self) -> &Basics {
        &self.basics
    }

    fn plan(&self, width: usize, height: usize) -> Result<ImagePlan, ImageError> {
        let (width, height) = self.sides(width, height)?;
        Ok(ImagePlan::new(
            vec![CHANNELS, height, width],
            Layout::Whole { height, width },
            self.expansion(height / self.cell, width / self.cell),
        ))
    }

    fn bytes(&self, image: &RgbImage) -> Result<Vec<u8>, ImageError> {
        let (width, height) = self.sides(image.width(), image.height())?;
        let resized = resize(image, width, height, self.basics.filter);
        let mut out = vec![0; width * height * CHANNELS];
        write_planes(&resized, resized.area(), &mut out);
        Ok(out)
    }
}

// ---- tower ----

const PATH: &str = "vision_tower";
const PROJECTOR: &str = "multi_modal_projector";
const EPSILON: f64 = 1e-5;
const DEFAULT_THETA: f32 = 10_000.0;

fn tower(configs: &Configs<'_>) -> Result<Tower, ConfigError> {
    let vision = &configs.vision;
    let size = |name, default| vision.size_or(name, default);
    let (hidden, heads) = (size("hidden_size", 1024)?, size("num_attention_heads", 16)?);
    let (feed_forward, side) = (size("intermediate_size", 4096)?, size("patch_size", 16)?);
    if !hidden.is_multiple_of(4 * heads) {
        return Err(unsupported("num_attention_heads", heads));
    }
    vision.require("head_dim", &json!(hidden / heads))?;
    configs.model.require("vision_feature_layer", &json!(-1))?;
    let active = activation(configs, "gelu")?;
    let layers = size("num_hidden_layers", 24)?;
    if layers > 1024 {
        return Err(unsupported("num_hidden_layers", layers));
    }
    let theta = configs.theta(DEFAULT_THETA)?;
    Ok(Tower {
        hidden,
        patches: Patches {
            side,
            matrix: Linear::new(format!("{PATH}.patch_conv"), hidden, 3 * side * side),
            shape: vec![hidden, 3, side, side],
            frames: Vec::new(),
            scale: 1.0,
            offset: 0.0,
        },
        class_token: None,
        positions: Positions::None,
        input_norm: Some(Norm::rms(format!("{PATH}.ln_pre"), hidden, EPSILON)),
        rotary: Some(rotary(hidden / heads, theta)),
        blocks: (0..layers).map(|i| block(i, [hidden, heads, feed_forward], active)).collect(),
        window: None,
        final_norm: None,
        head: head(configs, hidden)?,
        deep: Vec::new(),
        own_row: None,
    })
}

/// Rows take the even frequencies, columns the odd ones.
fn rotary(head_size: usize, theta: f32) -> Rotary {
    let frequency = |j: usize| 1.0 / theta.powf((2 * j) as f32 / head_size as f32);
    let of_axis = |axis, first: usize| (first..head_size / 2).step_by(2).map(move |j| (axis, frequency(j)));
    Rotary { parts: 1, pairs: of_axis(Axis::Row, 0).chain(of_axis(Axis::Column, 1)).collect() }
}

fn head(configs: &Configs<'_>, hidden: usize) -> Result<Head, ConfigError> {
    let model = &configs.model;
    let (side, text) = (model.size_or("spatial_merge_size", 2)?, model.size("hidden_size")?);
    let bias = model.flag_or("multimodal_projector_bias", false)?;
    let epsilon = f64::from(model.float_or("rms_norm_eps", 1e-6)?);
    let active = match model.find_text("projector_hidden_act")?.unwrap_or("gelu") {
        "gelu" => Activation::Gelu,
        other => return Err(unsupported("projector_hidden_act", other)),
    };
    let linear = |name: &str, rows, columns| Linear::new(format!("{PROJECTOR}.{name}"), rows, columns);
    let steps = vec![
        Step::Norm(Norm::rms(format!("{PROJECTOR}.norm"), hidden, epsilon)),
        Step::Linear(linear("patch_merger.merging_layer", hidden, hidden * side * side)),
        Step::Linear(linear("linear_1", text, hidden).with_bias(bias)),
        Step::Activation(active),
        Step::Linear(linear("linear_2", text, text).with_bias(bias)),
    ];
    Ok(Head { pool: Pool::Unfold { side }, steps })
}

fn block(index: usize, [hidden, heads, feed_forward]: [usize; 3], activation: Activation) -> Block {
    let path = format!("{PATH}.transformer.layers.{index}");
    let linear = |name: &str, rows, columns| Linear::new(format!("{path}.{name}"), rows, columns);
    let head_size = hidden / heads;
    Block {
        before_attention: Norm::rms(format!("{path}.attention_norm"), hidden, EPSILON),
        attention: Attention {
            heads,
            kv_heads: heads,
            head_size,
            scale: (head_size as f64).powf(-0.5),
            qkv: ["q", "k", "v"].map(|part| linear(&format!("attention.{part}_proj"), hidden, hidden)).into(),
            norms: HeadNorms::None,
            output: linear("attention.o_proj", hidden, hidden),
            in_window: false,
        },
        after_attention: None,
        before_mlp: Norm::rms(format!("{path}.ffn_norm"), hidden, EPSILON),
        mlp: Mlp {
            first: linear("feed_forward.gate_proj", feed_forward, hidden),
            up: Some(linear("feed_forward.up_proj", feed_forward, hidden)),
            activation,
            last: linear("feed_forward.down_proj", hidden, feed_forward),
        },
        after_mlp: None,
        scales: None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tandem_images::Filter;
    use tandem_images::recipe::ValueTable;

    use super::*;

    fn recipe() -> Mistral3 {
        let text = str::to_owned;
        Mistral3 {
            basics: Basics {
                resizes: true,
                filter: Filter::Bicubic,
                values: Arc::new(ValueTable::new(1.0, None)),
                placeholder: text("i"),
                image_token: text("i"),
            },
            limit: (280, 280),
            cell: 28,
            break_token: text("b"),
            end_token: text("e"),
        }
    }

    #[test]
    fn rows_are_separated_and_ended() {
        assert_eq!(recipe().expansion(2, 3).text, "iiibiiie");
    }

    #[test]
    fn sides_are_reduced_and_then_enlarged_to_whole_cells() {
        assert_eq!(recipe().sides(560, 100), Ok((280, 56)));
        assert_eq!(recipe().sides(1, 1), Ok((28, 28)));
        assert!(matches!(recipe().sides(100_000, 1), Err(ImageError::AspectRatio { .. })));
    }
}
