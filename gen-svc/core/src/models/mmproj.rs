//! The choice of the `mmproj` file of a GGUF model.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tandem_model_files::artifacts::{mmproj_beside, open_mmproj};
use tandem_model_files::gguf::Gguf;
use tandem_model_files::shown;

use super::vision;
use crate::error::LoadError;
use crate::weights::gguf::header::GgufHeader;
use crate::weights::gguf::projector::GgufProjector;
use crate::weights::gguf::{projector_name, row_size};

/// An `mmproj` file and the family of its tower.
pub(super) type Mmproj = (GgufHeader, GgufProjector);

/// The facts about a language model that decide whether it takes the rows of a tower.
#[derive(Debug, Clone, Copy)]
pub(super) struct LanguageModel<'a> {
    /// The name of its architecture in transformers.
    pub(super) model_type: &'a str,
    /// The hidden size.
    pub(super) hidden: u32,
}

/// Opens the given file, or else the file beside the model at `path` that fits it. Returns None if
/// there is none: the model is served for text.
///
/// # Errors
/// Several files fit the model. The chosen file has a projector that is not supported, or one for
/// other language models. A header is not readable.
pub(super) fn find(path: &Path, given: Option<&Path>, text: LanguageModel<'_>) -> Result<Option<Mmproj>, LoadError> {
    let (path, gguf) = match given {
        Some(given) => (given.to_owned(), open_mmproj(given)?),
        None => match beside(path, text)? {
            Some(found) => found,
            None => return Ok(None),
        },
    };
    let header = GgufHeader::new(gguf)?;
    let projector = chosen(&path, projector_name(&header)?, text)?;
    check_rows(&path, &header, text)?;
    tracing::info!(file = %shown(&path), projector = projector.name, "mmproj file opened");
    Ok(Some((header, *projector)))
}

/// Returns the projector of this name whose rows the language model takes.
fn chosen(path: &Path, name: &str, text: LanguageModel<'_>) -> Result<&'static GgufProjector, LoadError> {
    let mut others = Vec::new();
    for projector in vision::projectors(name) {
        if projector.language_models.contains(&text.model_type) {
            return Ok(projector);
        }
        others.push(projector);
    }
    let file = path.to_owned();
    Err(match others.first() {
        None => LoadError::UnsupportedProjector {
            file,
            found: name.to_owned(),
            supported: vision::projector_names().join(", "),
        },
        Some(first) => LoadError::ProjectorOfOthers {
            file,
            projector: first.name,
            expected: others.iter().flat_map(|other| other.language_models).copied().collect::<Vec<_>>().join(", "),
            found: text.model_type.to_owned(),
        },
    })
}

/// Fails if the rows of the tower have another size than those of the language model.
fn check_rows(path: &Path, header: &GgufHeader, text: LanguageModel<'_>) -> Result<(), LoadError> {
    match row_size(header)? {
        Some(found) if found != text.hidden => {
            Err(LoadError::ProjectorRows { file: path.to_owned(), found, expected: text.hidden })
        }
        _ => Ok(()),
    }
}

/// Returns the file beside the model that fits it. Logs the others.
fn beside(model: &Path, text: LanguageModel<'_>) -> Result<Option<(PathBuf, Arc<Gguf>)>, LoadError> {
    let mut found = Vec::new();
    for (path, gguf) in mmproj_beside(model)? {
        if fits(&gguf, text)? {
            found.push((path, gguf));
        } else {
            tracing::warn!(file = %shown(&path), "mmproj file is of another model, and is not used");
        }
    }
    if found.len() > 1 {
        let names = found.iter().filter_map(|(path, _)| path.file_name()).map(|name| name.to_string_lossy());
        return Err(LoadError::SeveralMmproj { names: names.collect::<Vec<_>>().join(", ") });
    }
    Ok(found.pop())
}

/// Returns true if a file may be for a language model. A projector that is not supported may be.
fn fits(gguf: &Arc<Gguf>, text: LanguageModel<'_>) -> Result<bool, LoadError> {
    let header = GgufHeader::new(Arc::clone(gguf))?;
    let mut known = vision::projectors(projector_name(&header)?).peekable();
    let is_supported = known.peek().is_some();
    let takes = known.any(|projector| projector.language_models.contains(&text.model_type));
    Ok((takes || !is_supported) && row_size(&header)?.is_none_or(|size| size == text.hidden))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen_for(model_type: &str) -> Result<&'static GgufProjector, LoadError> {
        chosen(Path::new("tower.gguf"), "qwen3vl_merger", LanguageModel { model_type, hidden: 8 })
    }

    #[test]
    fn a_projector_that_families_share_is_chosen_by_the_language_model() {
        for whole in ["qwen3_vl", "qwen3_5", "qwen3_5_moe"] {
            assert_eq!(chosen_for(&format!("{whole}_text")).expect("known").model_type, whole);
        }
        let Err(LoadError::ProjectorOfOthers { expected, .. }) = chosen_for("qwen3") else { panic!("it is refused") };
        assert_eq!(expected, "qwen3_vl_text, qwen3_5_text, qwen3_5_moe_text");
    }

    #[test]
    fn a_name_of_a_projector_is_listed_once() {
        let names = vision::projector_names();
        assert_eq!(names.iter().filter(|name| **name == "qwen3vl_merger").count(), 1, "{names:?}");
    }
}
