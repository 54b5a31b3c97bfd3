//! Long texts. They get new buffers, are split in groups of words, and cancellation is checked
//! between groups. The library keeps its buffers for the next text.
//!
//! A word is a piece of the pre-tokenizer: without a pre-tokenizer, the whole text.

use tokenizers_fast::pipeline::{
    Model, PipelineModel, PipelinePreTokenizer, PipelineToken, PipelineTokenizer, PreTokenizer, PreTokenizerScratch,
    Span, normalize_all,
};

use super::cancel;
use super::classic::Classic;
use super::error::{TokenizerError, encode_error};
use super::long_word::{LongWord, WINDOW_BYTES};

/// The size from which a text is long.
pub(super) const LONG_BYTES: usize = 128 << 10;
/// The words between two checks of cancellation.
const GROUP_WORDS: usize = 8 << 10;

/// Encodes a text without added tokens, and appends the ids.
pub(super) fn encode(
    encoder: &PipelineTokenizer,
    classic: &Classic,
    text: &str,
    ids: &mut Vec<u32>,
) -> Result<(), TokenizerError> {
    let text = normalize_all(encoder.get_normalizers(), text, 0).map_err(encode_error)?;
    let model = encoder.get_model();
    let is_byte_level = matches!(model, PipelineModel::BPE(bpe) if bpe.is_byte_level());
    let mut long = LongText { text: &text, model, classic, is_byte_level, scratch: model.init_scratch(), ids };
    let end = u32::try_from(text.len()).map_err(|_| encode_error("the text has over 4 GiB"))?;
    long.encode(&[Span { start: 0, end }], &steps(encoder.get_pre_tokenizer()))
}

/// Returns the steps of a pre-tokenizer. Each splits the words of the previous one.
fn steps(pre_tokenizer: &PipelinePreTokenizer) -> Vec<&PipelinePreTokenizer> {
    match pre_tokenizer {
        PipelinePreTokenizer::Sequence(sequence) if !sequence.is_deepseek() => {
            sequence.pre_tokenizers().iter().flat_map(steps).collect()
        }
        PipelinePreTokenizer::None => Vec::new(),
        step => vec![step],
    }
}

struct LongText<'a> {
    text: &'a str,
    model: &'a PipelineModel,
    classic: &'a Classic,
    is_byte_level: bool,
    scratch: <PipelineModel as Model>::Scratch,
    ids: &'a mut Vec<u32>,
}

impl LongText<'_> {
    /// Encodes words after these steps. Only a group of words is split at a time, because a list of
    /// all words needs up to eight times the memory of the text.
    fn encode(&mut self, words: &[Span], steps: &[&PipelinePreTokenizer]) -> Result<(), TokenizerError> {
        let Some((step, rest)) = steps.split_first() else { return self.encode_words(words) };
        for group in words.chunks(GROUP_WORDS) {
            cancel::check()?;
            let finer = self.split(group, step)?;
            // Growth in steps would hold two copies.
            self.ids.reserve(finer.len());
            self.encode(&finer, rest)?;
        }
        Ok(())
    }

    fn split(&self, words: &[Span], step: &PipelinePreTokenizer) -> Result<Vec<Span>, TokenizerError> {
        // The most words that there can be. Memory that is not written costs nothing.
        let most = words.iter().map(|word| word.range().len() + 1).sum();
        let (mut finer, mut scratch) = (Vec::with_capacity(most), PreTokenizerScratch::default());
        for word in words {
            let from = finer.len();
            step.pre_tokenize(&self.text[word.range()], &mut scratch, &mut finer).map_err(encode_error)?;
            for span in &mut finer[from..] {
                span.start += word.start;
                span.end += word.start;
            }
        }
        Ok(finer)
    }

    fn encode_words(&mut self, words: &[Span]) -> Result<(), TokenizerError> {
        let mut tokens = Vec::new();
        let is_short = |word: &Span| !is_long(word);
        let groups =
            words.chunk_by(|one, next| is_short(one) && is_short(next)).flat_map(|group| group.chunks(GROUP_WORDS));
        for group in groups {
            cancel::check()?;
            match group {
                [word] if is_long(word) => tokens.extend(self.encode_word(word)?),
                _ => {
                    self.model.tokenize_spans(self.text, group, &mut self.scratch, &mut tokens).map_err(encode_error)?
                }
            }
            self.ids.extend_from_slice(PipelineToken::cast_slice(&tokens));
            tokens.clear();
        }
        Ok(())
    }

    fn encode_word(&mut self, word: &Span) -> Result<Vec<PipelineToken>, TokenizerError> {
        let (model, scratch) = (self.model, &mut self.scratch);
        let encode = |part: &str| {
            cancel::check()?;
            let mut tokens = Vec::new();
            model.tokenize_pipeline(part, scratch, &mut tokens).map_err(encode_error)?;
            Ok(tokens)
        };
        let text = &self.text[word.range()];
        LongWord { text, classic: self.classic, is_byte_level: self.is_byte_level }.encode(encode)
    }
}

fn is_long(word: &Span) -> bool {
    word.range().len() > WINDOW_BYTES
}
