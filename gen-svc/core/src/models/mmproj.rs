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
    let name = projector_name(&header)?;
    let projector = vision::projector(name).ok_or_else(|| LoadError::UnsupportedProjector {
        file: path.clone(),
        found: name.to_owned(),
        supported: vision::projector_names().collect::<Vec<_>>().join(", "),
    })?;
    check(&path, &header, projector, text)?;
    tracing::info!(file = %shown(&path), projector = projector.name, "mmproj file opened");
    Ok(Some((header, *projector)))
}

/// Fails if the language model does not take the rows of the tower.
fn check(
    path: &Path,
    header: &GgufHeader,
    projector: &GgufProjector,
    text: LanguageModel<'_>,
) -> Result<(), LoadError> {
    if !projector.language_models.contains(&text.model_type) {
        return Err(LoadError::ProjectorOfOthers {
            file: path.to_owned(),
            projector: projector.name,
            expected: projector.language_models.join(", "),
            found: text.model_type.to_owned(),
        });
    }
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
    let projector = vision::projector(projector_name(&header)?);
    let is_of_others = projector.is_some_and(|projector| !projector.language_models.contains(&text.model_type));
    Ok(!is_of_others && row_size(&header)?.is_none_or(|size| size == text.hidden))
}
