//! Text to token ids and back, with a model's tokenizer.

use std::slice;

use tandem_model_files::tokenizer::{AffixPolicy, EncodeOptions, Encoding, Tokenizer};

use crate::error::Error;
use crate::job::ControlTokenPolicy;
use crate::model::Model;

/// Maximum number of ids in a call of Detokenize: some megabytes of text.
const MAX_DETOKENIZED_IDS: usize = 1 << 20;

/// A text to tokenize, and how.
#[derive(Debug, Clone)]
pub struct TokenizeJob {
    /// The model's id; empty for the only model.
    pub model: String,
    pub text: String,
    /// Add the tokens that the tokenizer puts around a text.
    pub add_special_tokens: bool,
    /// Return the position of each token in the text.
    pub return_offsets: bool,
    /// The meaning of control tokens in the text.
    pub control_tokens: ControlTokenPolicy,
}

/// Returns the token ids of a text.
///
/// # Errors
/// The model has no tokenizer, or the text is too long.
pub fn tokenize(model: &Model, job: &TokenizeJob) -> Result<Encoding, Error> {
    let whole = 0..job.text.len();
    let literal = match job.control_tokens {
        ControlTokenPolicy::Literal => slice::from_ref(&whole),
        ControlTokenPolicy::Tokens => &[],
    };
    let affixes = if job.add_special_tokens { AffixPolicy::Both } else { AffixPolicy::None };
    let options = EncodeOptions { affixes, literal, offsets: job.return_offsets };
    Ok(model.tokenizer()?.encode_with(&job.text, &options)?)
}

/// Returns the text of token ids.
///
/// # Errors
/// The model has no tokenizer, or an id is not in its vocabulary.
pub fn detokenize(model: &Model, token_ids: &[u32], skip_special_tokens: bool) -> Result<String, Error> {
    let tokenizer = model.tokenizer()?;
    check_ids(tokenizer, token_ids)?;
    Ok(tokenizer.decode(token_ids, skip_special_tokens)?)
}

/// Fails if there are too many ids.
pub(crate) fn check_count(found: usize) -> Result<(), Error> {
    if found > MAX_DETOKENIZED_IDS {
        return Err(Error::TooManyTokenIds { limit: MAX_DETOKENIZED_IDS, found });
    }
    Ok(())
}

/// Fails if an id is not in the vocabulary.
pub(crate) fn check_ids(tokenizer: &Tokenizer, token_ids: &[u32]) -> Result<(), Error> {
    let mut ids = token_ids.iter().enumerate();
    let unknown = ids.find(|&(_, &id)| tokenizer.token_bytes(id).is_none());
    unknown.map_or(Ok(()), |(index, &id)| Err(Error::UnknownTokenId { index, id }))
}
