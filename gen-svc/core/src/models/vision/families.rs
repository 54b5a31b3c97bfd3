//! The supported families of models with images: a file for each, and a row in [`FAMILIES`].

use tandem_images::{Files, Processor, ProcessorError};

use super::family::Family;
use crate::weights::ModelFile;

mod gemma3;
mod gemma4;
mod internvl;
mod llava_next;
mod mistral3;
mod qwen2_5_vl;
mod qwen3_5;
mod qwen3_vl;
mod smolvlm;

/// All of them.
pub const FAMILIES: &[Family] = &[
    smolvlm::FAMILY,
    gemma3::FAMILY,
    gemma4::FAMILY,
    qwen2_5_vl::FAMILY,
    qwen3_vl::FAMILY,
    qwen3_5::FAMILY,
    mistral3::FAMILY,
    internvl::FAMILY,
    llava_next::FAMILY,
];

/// Finds the family of a `model_type`.
pub(in crate::models) fn named(name: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| family.names.contains(&name))
}

/// Finds the family of a model. Returns None for a model of text only, and for a file without
/// the tower.
pub(super) fn find(file: &ModelFile) -> Option<&'static Family> {
    file.config().get("vision_config").filter(|vision| vision.is_object())?;
    named(file.architecture()).filter(|family| file.has(family.patches))
}

/// Returns the processor that the files name.
///
/// # Errors
/// It or one of its settings is not supported.
pub fn processor(files: &Files) -> Result<Processor, ProcessorError> {
    let family = of_processor(files)?;
    match files.image_processor_type() {
        Some(name) if !family.image_processors.contains(&name.trim_end_matches("Fast")) => {
            let supported = family.image_processors.join(", ");
            Err(ProcessorError::Unknown { key: "image_processor_type", name: name.to_owned(), supported })
        }
        _ => Ok(Processor::new((family.recipe)(&files.settings())?)),
    }
}

fn of_processor(files: &Files) -> Result<&'static Family, ProcessorError> {
    type Names = fn(&Family) -> &'static [&'static str];
    let (key, name, names): (_, _, Names) = match (files.processor_class(), files.model_type()) {
        (Some(class), _) => ("processor_class", class, |family| family.processors),
        (None, Some(model_type)) => ("model_type", model_type, |family| family.names),
        (None, None) => return Err(ProcessorError::Unnamed),
    };
    FAMILIES.iter().find(|family| names(family).contains(&name)).ok_or_else(|| {
        let supported = FAMILIES.iter().flat_map(names).copied().collect::<Vec<_>>().join(", ");
        ProcessorError::Unknown { key, name: name.to_owned(), supported }
    })
}
