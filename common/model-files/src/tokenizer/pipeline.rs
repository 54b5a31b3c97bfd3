//! Builds the library's encoder, with smaller caches of words than its own default.
//!
//! The library keeps a cache of words for each encoder and for each concurrent call, for the life
//! of the encoder. By default it takes up to 6 MiB, which hundreds of models cannot have. The more
//! encoders a process has, the smaller is the cache of the next one. The size
//! is no setting of a `tokenizer.json`, so the model is built apart from the rest.

use std::collections::BTreeMap;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokenizers_fast::models::bpe::{BpeConfig, PipelineBPE};
use tokenizers_fast::pipeline::{
    PipelineModel, PipelineNormalizer, PipelinePostProcessor, PipelinePreTokenizer, PipelineTokenizer,
};
use tokenizers_fast::pre_tokenizers::sequence::PipelineSequence;
use tokenizers_fast::pre_tokenizers::split::Split;
use tokenizers_fast::vocab::bucket_added_vocabulary::AddedVocabulary;

/// The words of a cache, with up to 100 bytes each: the words of a few long documents.
const CACHED_WORDS: usize = 8_192;
/// The encoders that have caches of this size. The caches of later ones are smaller, so that those of
/// hundreds of encoders take about four times as much memory together.
const ENCODERS_WITH_ALL: usize = 16;
/// The fewest words of a cache.
const MIN_CACHED_WORDS: usize = 256;

/// The encoders of the process.
static ENCODERS: AtomicUsize = AtomicUsize::new(0);

/// An encoder, counted while it exists.
pub(super) struct Counted(PipelineTokenizer);

impl Counted {
    pub(super) fn encoder(&self) -> &PipelineTokenizer {
        &self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        ENCODERS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns the words in the cache of an encoder if there are `others` encoders: a power of two.
fn cached_words(others: usize) -> usize {
    let share = CACHED_WORDS * ENCODERS_WITH_ALL / (others + 1);
    let words = share.clamp(MIN_CACHED_WORDS, CACHED_WORDS);
    1 << words.ilog2()
}

/// Builds the encoder of a `tokenizer.json` with a BPE model and without added tokens. The library's
/// panics on some files become errors.
pub(super) fn build(spec: Value) -> Result<Counted, String> {
    let words = cached_words(ENCODERS.load(Ordering::Relaxed));
    let encoder = build_with(spec, words)?;
    ENCODERS.fetch_add(1, Ordering::Relaxed);
    Ok(Counted(encoder))
}

fn build_with(mut spec: Value, cached_words: usize) -> Result<PipelineTokenizer, String> {
    let built = catch_unwind(move || {
        tokenizers_fast::canonicalize_value(&mut spec).map_err(|error| error.to_string())?;
        let small = json!({"type": "BPE", "byte_level": false, "vocab": {"a": 0}, "merges": []});
        let model = std::mem::replace(&mut spec["model"], small);
        let rest = tokenizers_fast::from_json(&spec.to_string()).map_err(|error| error.to_string())?;
        let normalizers = rest.get_normalizers().iter().map(copied).collect::<Result<_, _>>()?;
        Ok(PipelineTokenizer::from_parts(
            AddedVocabulary::new(),
            normalizers,
            copied_cuts(rest.get_pre_tokenizer())?,
            PipelineModel::BPE(bpe(&model, cached_words)?),
            PipelinePostProcessor::default(),
            None,
            BTreeMap::new(),
            None,
            None,
        ))
    });
    built.unwrap_or_else(|_| Err("the library panicked".to_owned()))
}

fn copied(normalizer: &PipelineNormalizer) -> Result<PipelineNormalizer, String> {
    Ok(match normalizer {
        PipelineNormalizer::Metaspace(metaspace) => PipelineNormalizer::Metaspace(metaspace.clone()),
        PipelineNormalizer::Replace(replace) => PipelineNormalizer::Replace(replace.clone()),
        PipelineNormalizer::NFC(nfc) => PipelineNormalizer::NFC(*nfc),
        other => return Err(format!("{other:?} is not known to agree")),
    })
}

/// Copies pre-tokenizers. The library's own copy of a split needs a regex engine.
fn copied_cuts(cuts: &PipelinePreTokenizer) -> Result<PipelinePreTokenizer, String> {
    Ok(match cuts {
        PipelinePreTokenizer::Split(split) => {
            let copy = Split::native(split.pattern.clone(), split.behavior, split.invert);
            PipelinePreTokenizer::Split(copy.map_err(|error| error.to_string())?)
        }
        PipelinePreTokenizer::Sequence(sequence) => {
            let members = sequence.pre_tokenizers().iter().map(copied_cuts).collect::<Result<_, _>>()?;
            PipelinePreTokenizer::Sequence(PipelineSequence::new(members))
        }
        other => other.clone(),
    })
}

/// Builds the model of a canonical `tokenizer.json`.
fn bpe(model: &Value, cached_words: usize) -> Result<PipelineBPE, String> {
    let text = |name: &str| model[name].as_str().map(str::to_owned);
    let flag = |name: &str| model[name].as_bool().unwrap_or_default();
    let vocabulary = model["vocab"].as_object().ok_or("the model has no vocabulary")?;
    let id = |id: &Value| id.as_u64().and_then(|id| u32::try_from(id).ok()).ok_or("an id is no 32-bit number");
    let merges = model["merges"].as_array().ok_or("the model has no merges")?;
    let config = BpeConfig {
        vocab: vocabulary
            .iter()
            .map(|(token, value)| Ok((token.clone(), id(value)?)))
            .collect::<Result<_, String>>()?,
        merges: merges.iter().map(pair).collect::<Option<_>>().ok_or("a merge is no pair of texts")?,
        byte_level: flag("byte_level"),
        unk_token: text("unk_token"),
        continuing_subword_prefix: text("continuing_subword_prefix"),
        end_of_word_suffix: text("end_of_word_suffix"),
        fuse_unk: flag("fuse_unk"),
        byte_fallback: flag("byte_fallback"),
        ignore_merges: flag("ignore_merges"),
        dropout: None,
        cache_capacity: cached_words,
    };
    PipelineBPE::from_config(config).map_err(|error| error.to_string())
}

fn pair(merge: &Value) -> Option<(String, String)> {
    let [left, right] = merge.as_array()?.as_slice() else { return None };
    Some((left.as_str()?.to_owned(), right.as_str()?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_of_hundreds_of_encoders_take_a_bounded_number_of_words() {
        assert_eq!(cached_words(0), CACHED_WORDS);
        assert_eq!(cached_words(ENCODERS_WITH_ALL - 1), CACHED_WORDS);
        assert_eq!(cached_words(ENCODERS_WITH_ALL), CACHED_WORDS / 2);
        assert_eq!(cached_words(1_000_000), MIN_CACHED_WORDS);
        let all: usize = (0..400).map(cached_words).sum();
        assert!(all <= 4 * ENCODERS_WITH_ALL * CACHED_WORDS, "{all}");
    }
}
