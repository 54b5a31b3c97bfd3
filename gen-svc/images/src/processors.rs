//! The supported processors: one file per recipe, one row per family.

mod gemma3;
mod gemma4;
mod internvl;
mod mistral3;
mod qwen_vl;
mod smolvlm;

use crate::error::ProcessorError;
use crate::recipe::Recipe;
use crate::settings::Settings;

/// A family of models whose images are prepared alike.
pub(crate) struct Family {
    /// Class names of transformers for the whole processor.
    pub(crate) processors: &'static [&'static str],
    /// Class names of the image processor, without the suffix `Fast`.
    pub(crate) image_processors: &'static [&'static str],
    /// Values of `model_type`, for models whose files name no processor.
    pub(crate) model_types: &'static [&'static str],
    pub(crate) load: fn(&Settings) -> Result<Box<dyn Recipe>, ProcessorError>,
}

/// All families.
pub(crate) const FAMILIES: &[Family] = &[
    Family {
        processors: &["SmolVLMProcessor", "Idefics3Processor"],
        image_processors: &["SmolVLMImageProcessor", "Idefics3ImageProcessor"],
        model_types: &["smolvlm", "idefics3"],
        load: smolvlm::load,
    },
    Family {
        processors: &["Gemma3Processor"],
        image_processors: &["Gemma3ImageProcessor"],
        model_types: &["gemma3"],
        load: gemma3::load,
    },
    Family {
        processors: &["Gemma4Processor"],
        image_processors: &["Gemma4ImageProcessor"],
        model_types: &["gemma4"],
        load: gemma4::load,
    },
    Family {
        processors: &["Qwen2VLProcessor", "Qwen2_5_VLProcessor"],
        image_processors: &["Qwen2VLImageProcessor"],
        model_types: &["qwen2_vl", "qwen2_5_vl"],
        load: qwen_vl::load,
    },
    Family {
        processors: &["Qwen3VLProcessor"],
        image_processors: &["Qwen2VLImageProcessor"],
        model_types: &["qwen3_vl", "qwen3_vl_moe"],
        load: qwen_vl::load,
    },
    Family {
        processors: &["PixtralProcessor"],
        image_processors: &["PixtralImageProcessor"],
        model_types: &["mistral3", "pixtral"],
        load: mistral3::load,
    },
    Family {
        processors: &["InternVLProcessor"],
        image_processors: &["GotOcr2ImageProcessor"],
        model_types: &["internvl"],
        load: internvl::load,
    },
];
