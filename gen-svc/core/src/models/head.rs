//! The output matrix of a file whose config says that it is the embedding matrix.

use super::decoder::{Decoder, Matrix};
use crate::error::LoadError;
use crate::weights::{ModelFile, Stored};

/// The module of the output matrix.
pub(super) const NAME: &str = "lm_head";

/// The bytes of a part that is compared at once.
const PART_BYTES: usize = 1 << 20;

/// Gives the decoder the file's output matrix, if it differs from the embeddings. As in transformers,
/// the config is then ignored. A file that has only the output matrix has the embeddings under its name: of two
/// names for one tensor, `safetensors.torch.save_model` writes the first in the order of the alphabet.
pub(super) fn untie(decoder: &mut Decoder, file: &ModelFile) -> Result<(), LoadError> {
    let [name, embeddings] = [NAME, &decoder.embeddings.name].map(|matrix| format!("{matrix}.weight"));
    if decoder.head.is_some() || !file.has(&name) {
        return Ok(());
    }
    if !file.has(&embeddings) {
        decoder.embeddings.name = NAME.to_owned();
        return Ok(());
    }
    let shape = [decoder.vocabulary, decoder.hidden];
    let embeddings = file.tensor(&embeddings, &shape)?;
    if !are_equal(&file.tensor(&name, &shape)?, &embeddings)? {
        tracing::warn!(tensor = name, "output matrix is not tied: it differs from the embeddings");
        decoder.head = Some(Matrix::new(NAME.to_owned(), decoder.vocabulary, decoder.hidden));
    }
    Ok(())
}

fn are_equal(one: &Stored<'_>, other: &Stored<'_>) -> Result<bool, LoadError> {
    if one.dtype != other.dtype || one.bytes.len() != other.bytes.len() {
        return Ok(false);
    }
    let rows = one.shape.first().copied().unwrap_or(1).max(1);
    let step = (PART_BYTES / (one.bytes.len() / rows).max(1)).max(1);
    for start in (0..rows).step_by(step) {
        let part = start..rows.min(start + step);
        if one.rows(part.clone())? != other.rows(part)? {
            return Ok(false);
        }
    }
    Ok(true)
}
