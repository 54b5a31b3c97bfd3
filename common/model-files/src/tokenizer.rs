//! Text to token ids and back, the same for a Hugging Face `tokenizer.json` and for the vocabulary in a GGUF header.

mod added;
mod affixes;
mod bytes;
mod cache;
mod classic;
mod fast;
mod gguf;
mod literal;
mod pending;
mod pre;
mod unicode;

use std::collections::HashSet;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use crate::artifacts::gguf::{Gguf, GgufError};
use crate::digest::hex_sha256;
pub use added::AddedToken;
use affixes::Affixes;
use bytes::ByteTable;
use classic::Classic;
use literal::{Forbidden, Piece, pieces};
use pending::Pending;

/// No vocabulary comes near this; a larger id is a broken file, and a table that long would be the attack.
const MAX_IDS: usize = 1 << 22;

/// Why a tokenizer could not be built, or text or ids not converted.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// There is no `tokenizer.json`, or it cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// `tokenizer.json` is not one.
    #[error("tokenizer.json cannot be read: {reason}")]
    Json { reason: String },
    /// The encoder could not be built from a GGUF's vocabulary.
    #[error("the vocabulary in GGUF cannot be used: {reason}")]
    Vocabulary { reason: String },
    /// The GGUF header lacks a tokenizer key or holds the wrong type.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The GGUF's tokenizer is of a kind that is not built here.
    #[error("tokenizer model {found:?} in GGUF is not supported, only \"gpt2\" and \"llama\"")]
    Model { found: String },
    /// The GGUF names split rules that are not known. Guessing would change ids silently.
    #[error("pre-tokenizer {found:?} in GGUF is not supported, only {known}")]
    PreTokenizer { found: String, known: String },
    /// A merge does not join two tokens of the vocabulary into a third.
    #[error("merge {index} {merge:?} does not join two tokens of the vocabulary into a third")]
    Merge { index: usize, merge: String },
    /// Two ids have one text.
    #[error("token {token:?} is in the vocabulary twice, as {first} and {second}")]
    Duplicate { token: String, first: u32, second: u32 },
    /// Tokens and their types are lists of different lengths.
    #[error("{tokens} tokens have {types} token types")]
    TypeCount { tokens: usize, types: usize },
    /// Tokens and their scores are lists of different lengths.
    #[error("{tokens} tokens have {scores} scores in tokenizer.ggml.scores")]
    ScoreCount { tokens: usize, scores: usize },
    /// A score that is no number: nothing could be put in order by it.
    #[error("score {index} in tokenizer.ggml.scores is {found}")]
    Score { index: usize, found: f32 },
    /// Tokens that are nearly all made of others, in nearly every way.
    #[error("the ways to make two of tokenizer.ggml.tokens one of them would take more than {limit} bytes")]
    Merges { limit: usize },
    /// The GGUF asks for something that its kind of tokenizer does not do here.
    #[error("{key:?} in GGUF is not supported for tokenizer model {model:?}")]
    Unsupported { key: String, model: &'static str },
    /// The vocabulary's ids are too large to be true.
    #[error("the vocabulary reaches id {largest}, the limit is {limit}")]
    TooLarge { largest: usize, limit: usize },
    /// Tokens are turned into text in a way that is not known here.
    #[error("decoder {found:?} is not supported")]
    Decoder { found: String },
    /// The ids that belong around a text are given in a way that is not known here.
    #[error("post-processor {found:?} is not supported")]
    PostProcessor { found: String },
    /// A literal range is not one of the text, or not after the one before it.
    #[error("literal range {start}..{end} is not in order, or not one of whole characters in a text of {length} bytes")]
    Literal { start: usize, end: usize, length: usize },
    /// Only the slow encoder can do what is asked for, offsets mostly, and the text is too long for it.
    #[error("a text of {bytes} bytes is too long: with offsets, or for this model's tokenizer, {limit} is the most")]
    TooLong { bytes: usize, limit: usize },
    /// Text could not be encoded.
    #[error("text cannot be tokenized: {reason}")]
    Encode { reason: String },
    /// Ids could not be decoded.
    #[error("token ids cannot be decoded: {reason}")]
    Decode { reason: String },
    /// An id that the vocabulary does not have.
    #[error("token id {id} is not in the vocabulary of {size}")]
    UnknownId { id: u32, size: usize },
}

/// Bytes of text and ids that a tokenizer remembers unless told otherwise.
const CACHE_BYTES: u64 = 64 << 20;

/// Which of the ids that the model wants around a text, such as a leading bos, to add. A rendered chat prompt has them already.
/// Ids that the text begins with are not added before it again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Around {
    /// None.
    #[default]
    Nothing,
    /// Those before the text: the model continues it.
    Before,
    /// All.
    Both,
}

/// How to encode a text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EncodeOptions<'a> {
    /// Which ids to add around the text.
    pub around: Around,
    /// Ascending, disjoint byte ranges of the text in which no added token is recognised, special or not. Each range, and
    /// each stretch between two, is encoded by itself, so no token lies across an edge. Where the vocabulary itself spells
    /// an added token of two characters or more that is not white space, its first character is encoded apart, so that
    /// even then its id does not appear.
    pub literal: &'a [Range<usize>],
    /// Also say which bytes each id came from, of a text of at most 4 MiB. Ten to a hundred times as slow.
    pub offsets: bool,
}

/// The ids of a text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Encoding {
    /// In the order of the text.
    pub ids: Vec<u32>,
    /// For each id the bytes of the text that it came from, if asked for; of the text as it was given, whatever a
    /// normalizer makes of it. A range is one of whole characters: where one character became several ids, each has all of
    /// it. An id that was put around the text, or that stands for a space before it, has an empty range.
    pub offsets: Option<Vec<Range<usize>>>,
}

/// A tokenizer. Clones share one vocabulary.
#[derive(Clone)]
pub struct Tokenizer {
    inner: Arc<Inner>,
}

struct Inner {
    classic: Arc<Classic>,
    fast: Pending,
    bytes: ByteTable,
    added: Vec<AddedToken>,
    forbidden: Forbidden,
    special: HashSet<u32>,
    affixes: Affixes,
    sha256: String,
}

impl Tokenizer {
    /// From the bytes of a `tokenizer.json`. `named_special` are the texts of the special tokens that the model's other files
    /// name: those in the vocabulary are special too, as in transformers.
    pub fn from_json(json: &[u8], named_special: &[&str]) -> Result<Self, TokenizerError> {
        let mut encoder = parse(json)?;
        // Truncation and padding are training settings that some files carry along. Here they would corrupt prompts.
        let _ = encoder.with_truncation(None);
        encoder.with_padding(None);
        let named = named_special.iter().filter(|text| is_plain_token(&encoder, text));
        let added: Vec<_> = named.map(|text| tokenizers::AddedToken::from(*text, true)).collect();
        encoder.add_special_tokens(added).map_err(|error| TokenizerError::Json { reason: error.to_string() })?;
        let mut special = flagged_special(&encoder);
        special.extend(named_special.iter().filter_map(|text| encoder.token_to_id(text)));
        let affixes = Affixes::of(&encoder)?;
        Self::assemble(encoder, special, affixes, hex_sha256(json))
    }

    /// From the vocabulary, merges or scores, token types and pre-tokenizer name in a GGUF header.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self, TokenizerError> {
        let built = gguf::build(gguf)?;
        let special = flagged_special(&built.encoder);
        Self::assemble(built.encoder, special, built.affixes, built.sha256)
    }

    fn assemble(
        encoder: tokenizers::Tokenizer,
        special: HashSet<u32>,
        affixes: Affixes,
        sha256: String,
    ) -> Result<Self, TokenizerError> {
        let bytes = ByteTable::new(&encoder)?;
        let added = added_tokens(&encoder, &special);
        let forbidden = Forbidden::new(&added);
        let classic = Arc::new(Classic::new(encoder)?);
        let fast = Pending::new(CACHE_BYTES);
        let inner = Inner { classic, fast, bytes, added, forbidden, special, affixes, sha256 };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The ids of `text`. Added tokens that stand in the text become their ids. With `add_special_tokens`, [`Around::Both`].
    pub fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<u32>, TokenizerError> {
        let around = if add_special_tokens { Around::Both } else { Around::Nothing };
        let options = EncodeOptions { around, ..EncodeOptions::default() };
        Ok(self.encode_with(text, &options)?.ids)
    }

    /// The ids of `text` and, if asked for, where they came from.
    ///
    /// Fails if a literal range is not one of the text, or not after the one before it.
    pub fn encode_with(&self, text: &str, options: &EncodeOptions<'_>) -> Result<Encoding, TokenizerError> {
        let pieces = pieces(text, options.literal)?;
        let encoding = if options.offsets { self.inner.located(&pieces)? } else { self.inner.plain(&pieces)? };
        let Affixes { before, after } = &self.inner.affixes;
        Ok(match options.around {
            Around::Nothing => encoding,
            Around::Before => encoding.between(before, &[]),
            Around::Both => encoding.between(before, after),
        })
    }

    /// Text and ids are remembered up to so many bytes, shared by all clones, so that what was encoded before is only
    /// looked up. At first 64 MiB; 0 turns it off.
    pub fn set_cache_bytes(&self, bytes: u64) {
        self.inner.fast.set_cache_bytes(bytes);
    }

    /// Waits until text is encoded as fast as it can be. The first text that is encoded begins the work for that, in the
    /// background; until it is done, text is encoded more slowly, to the same ids.
    pub fn prepare(&self) {
        let _ = self.inner.fast.wait(&self.inner.classic);
    }

    /// Every token that becomes its id wherever its text stands, by ascending id.
    pub fn added_tokens(&self) -> &[AddedToken] {
        &self.inner.added
    }

    /// The text of `ids` taken together, as transformers decodes a whole sequence.
    pub fn decode(&self, ids: &[u32], skip_special_tokens: bool) -> Result<String, TokenizerError> {
        if let Some(&id) = ids.iter().find(|&&id| self.token_bytes(id).is_none()) {
            return Err(TokenizerError::UnknownId { id, size: self.vocab_size() });
        }
        let kept: Vec<u32> = ids.iter().copied().filter(|&id| !(skip_special_tokens && self.is_special(id))).collect();
        let text = self.inner.classic.encoder.decode(&kept, false);
        text.map_err(|error| TokenizerError::Decode { reason: error.to_string() })
    }

    /// The exact bytes that `id` adds to a text: part of a character, or several. `None` if there is no such id.
    ///
    /// Put together they are the text, except that a decoder which trims the start of a whole text (Llama 2's does, by one
    /// space) is not followed there: what continues a prompt starts nothing.
    pub fn token_bytes(&self, id: u32) -> Option<&[u8]> {
        self.inner.bytes.get(id)
    }

    /// Whether `id` is a control token, such as the end of a turn, and no text.
    pub fn is_special(&self, id: u32) -> bool {
        self.inner.special.contains(&id)
    }

    /// The ids of all special tokens, ascending.
    pub fn special_ids(&self) -> Vec<u32> {
        let mut ids: Vec<u32> = self.inner.special.iter().copied().collect();
        ids.sort_unstable();
        ids
    }

    /// The id of the token that is spelled exactly so in the vocabulary.
    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        self.inner.classic.encoder.token_to_id(token)
    }

    /// How the vocabulary spells `id`. Not text: byte-level vocabularies spell a space `Ġ`.
    pub fn id_to_token(&self, id: u32) -> Option<String> {
        self.inner.classic.encoder.id_to_token(id)
    }

    /// One more than the largest id.
    pub fn vocab_size(&self) -> usize {
        self.inner.bytes.len()
    }

    /// Lower-case hex SHA-256: of the bytes of `tokenizer.json`, or of the tokenizer metadata of a GGUF (see
    /// `tokenizer/gguf.rs` for its exact form). Equal wherever the same files are loaded.
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
        let classic = || self.classic.ids(pieces, &self.forbidden);
        let ids = match self.fast.get(&self.classic).map_or_else(classic, |fast| fast.ids(pieces, &self.forbidden)) {
            Err(too_long @ TokenizerError::TooLong { .. }) => {
                let fast = self.fast.wait(&self.classic).ok_or(too_long)?;
                fast.ids(pieces, &self.forbidden)?
            }
            ids => ids?,
        };
        Ok(Encoding { ids, offsets: None })
    }

    fn located(&self, pieces: &[Piece<'_>]) -> Result<Encoding, TokenizerError> {
        let tokens = self.classic.tokens(pieces, &self.forbidden)?;
        Ok(Encoding { ids: tokens.ids, offsets: Some(tokens.offsets) })
    }
}

impl Encoding {
    /// With what belongs around a text, except what it begins with anyway.
    fn between(mut self, before: &[u32], after: &[u32]) -> Self {
        let before = if self.ids.starts_with(before) { &[][..] } else { before };
        let nowhere = |ids: &[u32]| vec![0..0; ids.len()];
        self.offsets = self.offsets.map(|offsets| [nowhere(before), offsets, nowhere(after)].concat());
        self.ids = [before, &self.ids, after].concat();
        self
    }
}

/// The library panics on some malformed files (a merge longer than any token, a decoder that is a number). A broken file
/// must be an error.
fn parse(json: &[u8]) -> Result<tokenizers::Tokenizer, TokenizerError> {
    let parsed = std::panic::catch_unwind(|| tokenizers::Tokenizer::from_bytes(json));
    match parsed {
        Ok(Ok(encoder)) => Ok(encoder),
        Ok(Err(error)) => Err(TokenizerError::Json { reason: error.to_string() }),
        Err(_) => Err(TokenizerError::Json { reason: "it is malformed".to_owned() }),
    }
}

/// Whether `text` is a token that is not yet known as an added one, which text is searched for.
fn is_plain_token(encoder: &tokenizers::Tokenizer, text: &str) -> bool {
    let added = encoder.get_added_vocabulary().get_vocab();
    !added.contains_key(text) && encoder.token_to_id(text).is_some()
}

fn flagged_special(encoder: &tokenizers::Tokenizer) -> HashSet<u32> {
    let added = encoder.get_added_tokens_decoder();
    added.iter().filter(|(_, token)| token.special).map(|(&id, _)| id).collect()
}

fn added_tokens(encoder: &tokenizers::Tokenizer, special: &HashSet<u32>) -> Vec<AddedToken> {
    let added = encoder.get_added_tokens_decoder().into_iter();
    let added = added.map(|(id, token)| AddedToken { id, text: token.content, is_special: special.contains(&id) });
    let mut added: Vec<_> = added.collect();
    added.sort_unstable_by_key(|token| token.id);
    added
}

fn encode_error(error: impl Into<tokenizers::Error>) -> TokenizerError {
    TokenizerError::Encode { reason: error.into().to_string() }
}
