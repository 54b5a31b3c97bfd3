//! Tokenizers: text to token ids and back, from a Hugging Face `tokenizer.json` or the vocabulary
//! in a GGUF header.

mod added;
mod affixes;
mod bytes;
mod cache;
mod cancel;
mod classic;
mod decode;
mod error;
mod fast;
mod folder;
mod gguf;
mod literal;
mod located;
mod long;
mod long_word;
mod parts;
mod pending;
mod pipeline;
mod pre;
mod turn;
mod unicode;

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

pub use crate::cancel::CancelScope;
use crate::digest::hex_sha256;
use crate::gguf::Gguf;
use crate::python_json::standard;
pub use added::AddedToken;
use affixes::Affixes;
use bytes::{ByteTable, MinTokens};
use classic::Classic;
use decode::Decoder;
pub use error::TokenizerError;
use fast::Fast;
use folder::AddedTokens;
pub use folder::{FolderToken, FolderTokens, ListedTokens, NamedToken};
use literal::{Forbidden, Piece, pieces};
use located::Locator;
use pending::Pending;

/// The maximum size of a text with offsets.
const MAX_LOCATED_BYTES: usize = 1 << 20;
/// The maximum size of a text that the classic encoder encodes while the fast one is being built. The
/// classic encoder needs up to 430 times this size in memory.
const MAX_EARLY_BYTES: usize = 64 << 10;

/// The ids that are added around a text, such as a leading bos. A rendered chat prompt
/// contains them already. Ids that the text starts with are not added again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AffixPolicy {
    /// None.
    #[default]
    None,
    /// The ids before the text, for a text that the model continues.
    Leading,
    /// The ids before and after the text.
    Both,
}

/// The options of encoding.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EncodeOptions<'a> {
    /// The ids to add around the text.
    pub affixes: AffixPolicy,
    /// Ascending, disjoint byte ranges of the text in which no added token is recognized, special
    /// or not. Each range, and each span between two ranges, is encoded separately, so no token
    /// crosses a boundary. The vocabulary itself may contain the text of an added token (of at
    /// least two characters, not white space). Then the token's first character is encoded
    /// separately, so that its id does not appear.
    pub literal: &'a [Range<usize>],
    /// Also return the byte range of each id. Then the text may have at most 1 MiB. If the model's
    /// tokenizer changes the text, encoding is 10 to 100 times slower, and the text may have at most 256 KiB,
    /// or 64 KiB if it cannot be split at spaces.
    pub offsets: bool,
}

/// An encoded text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Encoding {
    /// The token ids, in the order of the text.
    pub ids: Vec<u32>,
    /// For each id its byte range in the original text, if requested. Ranges consist of whole
    /// characters: if one character became several ids, each has the whole character. An id that
    /// was added around the text, or for a space before it, has an empty range.
    pub offsets: Option<Vec<Range<usize>>>,
}

/// A tokenizer. Clones share the vocabulary.
#[derive(Clone)]
pub struct Tokenizer {
    inner: Arc<Inner>,
}

struct Inner {
    classic: Arc<Classic>,
    decoder: Decoder,
    locator: Option<Locator>,
    fast: Pending,
    bytes: ByteTable,
    added: Vec<AddedToken>,
    forbidden: Forbidden,
    special: Special,
    affixes: Affixes,
    min_tokens: Option<MinTokens>,
    sha256: String,
}

impl Tokenizer {
    /// Builds a tokenizer from the bytes of a `tokenizer.json`.
    ///
    /// # Errors
    /// The file is invalid, or a part of it is not supported.
    pub fn from_json(json: &[u8]) -> Result<Self, TokenizerError> {
        Self::of_json(json, None)
    }

    /// Builds a tokenizer from the bytes of a `tokenizer.json` and the tokens in the files beside it.
    ///
    /// # Errors
    /// As [`from_json`](Self::from_json); or there are too many tokens.
    pub fn from_folder(json: &[u8], tokens: &FolderTokens) -> Result<Self, TokenizerError> {
        Self::of_json(json, Some(tokens))
    }

    fn of_json(json: &[u8], tokens: Option<&FolderTokens>) -> Result<Self, TokenizerError> {
        let (file, json) = (json, &*standard(json));
        let mut encoder = parse(json)?;
        let own = AddedTokens::of(&encoder);
        if let Some(tokens) = tokens {
            tokens.apply(&mut encoder, json)?;
        }
        let added = AddedTokens::of(&encoder);
        // Some files contain truncation and padding from training, which would corrupt prompts.
        let _ = encoder.with_truncation(None);
        encoder.with_padding(None);
        let sha256 = if added == own { hex_sha256(file) } else { added.sha256(file) };
        let affixes = Affixes::of(&encoder)?;
        Self::assemble(encoder, affixes, sha256)
    }

    /// Builds a tokenizer from a GGUF header: vocabulary, merges or scores, token types and
    /// pre-tokenizer name.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self, TokenizerError> {
        let built = gguf::build(gguf)?;
        Self::assemble(built.encoder, built.affixes, built.sha256)
    }

    fn assemble(encoder: tokenizers::Tokenizer, affixes: Affixes, sha256: String) -> Result<Self, TokenizerError> {
        let (bytes, special) = (ByteTable::new(&encoder)?, Special::of(&encoder));
        let added = added_tokens(&encoder, &special.all);
        let forbidden = Forbidden::new(&added);
        let min_tokens = MinTokens::new(&encoder);
        let (decoder, locator) = (Decoder::of(&encoder)?, Locator::of(&encoder));
        let classic = Arc::new(Classic::new(encoder)?);
        cache::register_metrics();
        let fast = Pending::new();
        let inner =
            Inner { classic, decoder, locator, fast, bytes, added, forbidden, special, affixes, min_tokens, sha256 };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Encodes `text`. Added tokens in it become their ids. `add_special_tokens` selects
    /// [`AffixPolicy::Both`].
    pub fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<u32>, TokenizerError> {
        let affixes = if add_special_tokens { AffixPolicy::Both } else { AffixPolicy::None };
        let options = EncodeOptions { affixes, ..EncodeOptions::default() };
        Ok(self.encode_with(text, &options)?.ids)
    }

    /// Encodes `text` with options.
    ///
    /// Fails if a literal range is outside of the text, splits a character or is out of order.
    pub fn encode_with(&self, text: &str, options: &EncodeOptions<'_>) -> Result<Encoding, TokenizerError> {
        let pieces = pieces(text, options.literal)?;
        let encoding = if options.offsets { self.inner.located(text, &pieces)? } else { self.inner.plain(&pieces)? };
        Ok(self.inner.affixes.applied_to(encoding, options.affixes))
    }

    /// Encodes `text` as [`encode_with`](Self::encode_with) does, with offsets, by the classic encoder
    /// alone: the reference for comparisons.
    ///
    /// Fails as `encode_with`.
    pub fn encode_classic(&self, text: &str, options: &EncodeOptions<'_>) -> Result<Encoding, TokenizerError> {
        let tokens = self.inner.classic.reference(&pieces(text, options.literal)?, &self.inner.forbidden)?;
        let encoding = Encoding { ids: tokens.ids, offsets: Some(tokens.offsets) };
        Ok(self.inner.affixes.applied_to(encoding, options.affixes))
    }

    /// Gives this tokenizer and its clones a separate cache of encoded texts, of this size. 0
    /// disables it. By default, all tokenizers of the process share a cache of 64 MiB.
    pub fn set_cache_bytes(&self, bytes: u64) {
        self.inner.fast.set_cache_bytes(bytes);
    }

    /// Builds the fast encoder. Without this call, the first use starts the build in the background.
    /// Until it ends, the classic encoder produces the same ids of short texts more slowly.
    pub fn prepare(&self) {
        let _ = self.inner.fast.wait(&self.inner.classic);
    }

    /// Returns all added tokens by ascending id.
    pub fn added_tokens(&self) -> &[AddedToken] {
        &self.inner.added
    }

    /// Returns the texts of the control tokens of prompts. They are the special tokens, added tokens
    /// that a prompt's format writes, and every other added token in brackets. The rest of a
    /// vocabulary is text: white space, words, and tags of HTML.
    pub fn control_tokens(&self, is_written: impl Fn(&str) -> bool) -> impl Iterator<Item = &str> {
        let control = self.added_tokens().iter().filter(move |token| token.is_control(&is_written));
        control.map(|token| token.text.as_str())
    }

    /// Decodes a whole sequence, as transformers does.
    pub fn decode(&self, ids: &[u32], skip_special_tokens: bool) -> Result<String, TokenizerError> {
        if let Some(&id) = ids.iter().find(|&&id| self.token_bytes(id).is_none()) {
            return Err(TokenizerError::UnknownId { id, size: self.vocab_size() });
        }
        let kept = ids.iter().copied().filter(|id| !(skip_special_tokens && self.inner.special.skipped.contains(id)));
        self.inner.decoder.decode(kept, &self.inner.bytes, &self.inner.classic)
    }

    /// Returns the exact bytes that `id` adds to a text. They may be part of a character. None for
    /// an unknown id.
    ///
    /// The bytes of all ids form the text, with one exception. Some decoders trim the start of a
    /// whole text, such as Llama 2's by one space. This trimming is not applied, because generated
    /// text continues a prompt.
    pub fn token_bytes(&self, id: u32) -> Option<&[u8]> {
        self.inner.bytes.get(id)
    }

    /// Returns a number of tokens that a text has at least, without encoding it. 0 if nothing is known.
    pub fn min_tokens(&self, text: &str) -> usize {
        self.inner.min_tokens.as_ref().map_or(0, |min| min.of(text))
    }

    /// Returns true if `id` is a control token, such as the end of a turn, and not text.
    pub fn is_special(&self, id: u32) -> bool {
        self.inner.special.all.contains(&id)
    }

    /// Returns the ids of all special tokens, ascending.
    pub fn special_ids(&self) -> Vec<u32> {
        let mut ids: Vec<u32> = self.inner.special.all.iter().copied().collect();
        ids.sort_unstable();
        ids
    }

    /// Returns the id of a token, given in the vocabulary's spelling.
    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        self.inner.classic.encoder.token_to_id(token)
    }

    /// Returns the vocabulary's spelling of `id`. It is not text: byte-level vocabularies spell a
    /// space `Ġ`.
    pub fn id_to_token(&self, id: u32) -> Option<String> {
        self.inner.classic.encoder.id_to_token(id)
    }

    /// Returns the largest id plus one.
    pub fn vocab_size(&self) -> usize {
        self.inner.bytes.len()
    }

    /// Returns a SHA-256 in lower-case hex: of the bytes of `tokenizer.json`, or of a GGUF's
    /// tokenizer metadata in the form that `tokenizer/gguf.rs` defines. If other files of a folder
    /// change the added tokens of `tokenizer.json`, the digest covers the changed tokens too. The same
    /// files have the same digest on every machine.
    pub fn sha256(&self) -> &str {
        &self.inner.sha256
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer")
            .field("vocab_size", &self.vocab_size())
            .field("sha256", &self.sha256())
            .finish_non_exhaustive()
    }
}

impl Inner {
    fn plain(&self, pieces: &[Piece<'_>]) -> Result<Encoding, TokenizerError> {
        let ids = match self.fast_for(pieces) {
            Some(fast) => fast.ids(pieces, &self.forbidden)?,
            None => self.classic.ids(pieces, &self.forbidden)?,
        };
        Ok(Encoding { ids, offsets: None })
    }

    /// Returns the fast encoder if it is built. Waits for it if the text is long.
    fn fast_for(&self, pieces: &[Piece<'_>]) -> Option<&Fast> {
        let bytes: usize = pieces.iter().map(|piece| piece.text.len()).sum();
        if bytes > MAX_EARLY_BYTES { self.fast.wait(&self.classic) } else { self.fast.get(&self.classic) }
    }

    fn located(&self, text: &str, pieces: &[Piece<'_>]) -> Result<Encoding, TokenizerError> {
        if text.len() > MAX_LOCATED_BYTES {
            return Err(TokenizerError::TooLong { bytes: text.len(), limit: MAX_LOCATED_BYTES });
        }
        if let Some(encoding) = self.located_by_bytes(text, pieces) {
            return Ok(encoding);
        }
        self.by_classic(pieces)
    }

    fn by_classic(&self, pieces: &[Piece<'_>]) -> Result<Encoding, TokenizerError> {
        let tokens = self.classic.tokens(pieces, &self.forbidden)?;
        Ok(Encoding { ids: tokens.ids, offsets: Some(tokens.offsets) })
    }

    /// Returns None if there is no fast encoder, or if it cannot give offsets.
    fn located_by_bytes(&self, text: &str, pieces: &[Piece<'_>]) -> Option<Encoding> {
        let (locator, fast) = (self.locator?, self.fast_for(pieces)?);
        let ids = fast.ids(pieces, &self.forbidden).ok()?;
        let offsets = locator.locate(text, &ids, &self.bytes, &self.classic)?;
        Some(Encoding { ids, offsets: Some(offsets) })
    }
}

impl Affixes {
    fn applied_to(&self, encoding: Encoding, policy: AffixPolicy) -> Encoding {
        let Self { before, after } = self;
        match policy {
            AffixPolicy::None => encoding,
            AffixPolicy::Leading => encoding.between(before, &[]),
            AffixPolicy::Both => encoding.between(before, after),
        }
    }
}

impl Encoding {
    /// Adds the ids before and after the text. If the text starts with the ids before it, they are
    /// not added again.
    fn between(mut self, before: &[u32], after: &[u32]) -> Self {
        let before = if self.ids.starts_with(before) { &[][..] } else { before };
        let nowhere = |ids: &[u32]| vec![0..0; ids.len()];
        self.offsets = self.offsets.map(|offsets| [nowhere(before), offsets, nowhere(after)].concat());
        self.ids = [before, &self.ids, after].concat();
        self
    }
}

/// Parses a `tokenizer.json`. The library panics on some invalid files, such as a file with a merge
/// longer than any token. A panic becomes an error.
fn parse(json: &[u8]) -> Result<tokenizers::Tokenizer, TokenizerError> {
    // The library panics on wrong syntax within a decoder.
    let syntax = serde_json::from_slice::<serde::de::IgnoredAny>(json);
    syntax.map_err(|error| TokenizerError::Json { reason: error.to_string() })?;
    let parsed = std::panic::catch_unwind(|| tokenizers::Tokenizer::from_bytes(json));
    match parsed {
        Ok(Ok(encoder)) => Ok(encoder),
        Ok(Err(error)) => Err(TokenizerError::Json { reason: error.to_string() }),
        Err(_) => Err(TokenizerError::Json {
            reason: "its vocabulary, merges and other parts contradict each other".to_owned(),
        }),
    }
}

/// The ids of special tokens.
struct Special {
    all: HashSet<u32>,
    /// The special tokens that decoding skips. The library decodes a normalized token whose normal form
    /// differs, although it is special.
    skipped: HashSet<u32>,
}

impl Special {
    /// A token is special if its flag says so, or if decoding skips it.
    fn of(encoder: &tokenizers::Tokenizer) -> Self {
        let added = encoder.get_added_vocabulary();
        let tokens = added.get_added_tokens_decoder();
        let is_skipped = |id: &u32| added.simple_id_to_token(*id).is_some_and(|token| added.is_special_token(&token));
        let skipped: HashSet<u32> = tokens.keys().copied().filter(is_skipped).collect();
        let flagged = tokens.iter().filter(|(_, token)| token.special).map(|(&id, _)| id);
        Self { all: flagged.chain(skipped.iter().copied()).collect(), skipped }
    }
}

fn added_tokens(encoder: &tokenizers::Tokenizer, special: &HashSet<u32>) -> Vec<AddedToken> {
    let added = encoder.get_added_tokens_decoder().into_iter();
    let added = added.map(|(id, token)| AddedToken { id, text: token.content, is_special: special.contains(&id) });
    let mut added: Vec<_> = added.collect();
    added.sort_unstable_by_key(|token| token.id);
    added
}
