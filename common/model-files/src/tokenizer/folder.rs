//! The added tokens of a folder: those of `tokenizer.json`, and what its other files add to them or
//! change in them, by the rules of transformers.

mod file;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use sha2::{Digest as _, Sha256};
use tokenizers::{AddedToken, Tokenizer};

use super::bytes::MAX_IDS;
use super::error::TokenizerError;
use crate::digest::{hex, hex_sha256};
use file::{FileToken, added_tokens};

/// The most tokens that other files add or change, four times as many as in the largest known folder.
const MAX_TOKENS: usize = 1 << 18;
/// The most bytes of the texts of these tokens.
const MAX_TEXT_BYTES: usize = 4 << 20;

/// The names after which transformers has `pad_token`.
const BEFORE_PADDING: [&str; 4] = ["bos_token", "eos_token", "unk_token", "sep_token"];

/// The tokens in the files beside a `tokenizer.json`.
#[derive(Debug, Clone, Default)]
pub struct FolderTokens {
    /// The tokens that a file lists with ids.
    pub listed: ListedTokens,
    /// Tokens with names, in transformers' order. Several names may have one token.
    pub named: Vec<NamedToken>,
    /// Special tokens without names.
    pub extra: Vec<FolderToken>,
    /// True if no file says anything about `pad_token`, so that the padding of `tokenizer.json`
    /// names it.
    pub pads_by_default: bool,
    /// True if the text of a special token is text (`split_special_tokens`).
    pub splits_special: bool,
}

/// The tokens that a file lists with ids.
#[derive(Debug, Clone)]
pub enum ListedTokens {
    /// `added_tokens_decoder` of `tokenizer_config.json`.
    Config(BTreeMap<i64, AddedToken>),
    /// `added_tokens.json`, of older folders, in the file's order. A token of `tokenizer.json`
    /// replaces a token with its id. `special` are the texts of special tokens.
    File { tokens: Vec<(String, i64)>, special: HashSet<String> },
}

/// A token with a name, such as `eos_token`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedToken {
    pub name: String,
    pub token: FolderToken,
    /// True if the token has the flags of the listed token with its text.
    pub is_standard: bool,
}

/// A token in one of the files.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum FolderToken {
    /// Only the text.
    Text(String),
    /// Text and flags.
    Flagged(AddedToken),
}

impl Default for ListedTokens {
    fn default() -> Self {
        Self::File { tokens: Vec::new(), special: HashSet::new() }
    }
}

impl FolderToken {
    /// Returns the text.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Flagged(token) => &token.content,
        }
    }

    /// Returns the token to add. A token without flags is special.
    fn to_added(&self) -> AddedToken {
        match self {
            Self::Text(text) => AddedToken::from(text, true),
            Self::Flagged(token) => token.clone(),
        }
    }
}

impl FolderTokens {
    /// Adds the tokens to an encoder of the file `json`, or changes their flags. An unknown token gets
    /// the next free id, whatever id a file lists; the ids in the files decide about the order.
    ///
    /// # Errors
    /// There are too many tokens, or the encoder refuses them.
    pub(super) fn apply(&self, encoder: &mut Tokenizer, json: &[u8]) -> Result<(), TokenizerError> {
        let file = match &self.listed {
            ListedTokens::Config(_) => Vec::new(),
            // Without another list, only the flags of the file's tokens matter.
            ListedTokens::File { tokens, .. } if tokens.is_empty() => known_tokens(encoder),
            ListedTokens::File { .. } => added_tokens(json)?,
        };
        let tokens = self.tokens(encoder, file);
        encoder.set_encode_special_tokens(self.splits_special);
        let changed: Vec<&AddedToken> = tokens.iter().filter(|token| !has(encoder, token)).collect();
        if changed.is_empty() {
            return Ok(());
        }
        check_size(encoder, &changed)?;
        // The library's normalizers and automata panic on some texts.
        match catch_unwind(AssertUnwindSafe(|| encoder.add_tokens(tokens))) {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(TokenizerError::Json { reason: error.to_string() }),
            Err(_) => Err(TokenizerError::Json { reason: "its added tokens cannot be found".to_owned() }),
        }
    }

    /// Returns the tokens to add, in order.
    fn tokens(&self, encoder: &Tokenizer, file: Vec<FileToken>) -> Vec<AddedToken> {
        let padding = encoder.get_padding().filter(|_| self.pads_by_default);
        let (listed, by_text) = self.listed.with(file);
        let named = self.named_with(padding.map(|padding| padding.pad_token.clone()));
        let names: HashSet<&str> = named.iter().map(|named| named.token.text()).collect();
        let added = encoder.get_added_vocabulary().get_vocab();
        let texts: HashSet<&str> = listed.values().map(|token| token.content.as_str()).collect();
        let is_unknown = |text: &str| !added.contains_key(text) && !texts.contains(text);
        let named_tokens = named.iter().map(|named| {
            let flagged = by_text.get(named.token.text()).filter(|_| named.is_standard);
            flagged.map_or_else(|| named.token.clone(), |token| FolderToken::Flagged(token.clone()))
        });
        // A later token with the same text and other flags replaces an earlier one.
        let mut seen = HashSet::new();
        let mut unknown = Vec::new();
        for token in named_tokens.chain(self.extra.iter().cloned()).filter(|token| is_unknown(token.text())) {
            let added = token.to_added();
            unknown.extend(seen.insert(token).then_some(added));
        }
        let special = |token: AddedToken| {
            let is_special = token.special || (!token.content.is_empty() && names.contains(token.content.as_str()));
            token.special(is_special)
        };
        listed.values().cloned().chain(unknown).map(special).collect()
    }

    /// Returns the named tokens, with the padding token of `tokenizer.json` in its place.
    fn named_with(&self, padding: Option<String>) -> Vec<NamedToken> {
        let mut named = self.named.clone();
        if let Some(text) = padding {
            let is_after = |named: &NamedToken| !BEFORE_PADDING.contains(&named.name.as_str());
            let place = named.iter().position(is_after).unwrap_or(named.len());
            let (name, token) = ("pad_token".to_owned(), FolderToken::Text(text));
            named.insert(place, NamedToken { name, token, is_standard: false });
        }
        named
    }
}

impl ListedTokens {
    /// Returns the listed tokens by id and by text, those of `tokenizer.json` among them if they
    /// count as listed.
    fn with(&self, file: Vec<FileToken>) -> (BTreeMap<i64, AddedToken>, HashMap<String, AddedToken>) {
        let listed: Vec<(i64, AddedToken)> = match self {
            Self::Config(tokens) => tokens.iter().map(|(id, token)| (*id, token.clone())).collect(),
            Self::File { tokens, special } => {
                let own = tokens.iter().map(|(text, id)| (*id, AddedToken::from(text, special.contains(text))));
                own.chain(file.into_iter().map(|FileToken { id, token }| (id, token))).collect()
            }
        };
        let by_text = listed.iter().map(|(_, token)| (token.content.clone(), token.clone())).collect();
        (listed.into_iter().collect(), by_text)
    }
}

/// Returns the added tokens of an encoder.
fn known_tokens(encoder: &Tokenizer) -> Vec<FileToken> {
    let added = encoder.get_added_vocabulary().get_added_tokens_decoder().iter();
    added.map(|(&id, token)| FileToken { id: id.into(), token: token.clone() }).collect()
}

/// Returns true if an encoder has an added token with these flags.
fn has(encoder: &Tokenizer, token: &AddedToken) -> bool {
    let added = encoder.get_added_vocabulary();
    let id = added.get_vocab().get(&token.content);
    id.and_then(|id| added.get_added_tokens_decoder().get(id)) == Some(token)
}

/// Fails if there are too many tokens, or if the ids after the largest one are too large.
fn check_size(encoder: &Tokenizer, tokens: &[&AddedToken]) -> Result<(), TokenizerError> {
    let bytes = tokens.iter().map(|token| token.content.len()).sum();
    if tokens.len() > MAX_TOKENS || bytes > MAX_TEXT_BYTES {
        let (count, max_count, max_bytes) = (tokens.len(), MAX_TOKENS, MAX_TEXT_BYTES);
        return Err(TokenizerError::AddedTokens { count, max_count, bytes, max_bytes });
    }
    // The library counts on from the largest id of an added token without a check.
    let ids = encoder.get_added_vocabulary().get_added_tokens_decoder().keys();
    let largest = ids.max().map_or(0, |&id| id as usize) + tokens.len();
    if largest >= MAX_IDS { Err(TokenizerError::TooLarge { largest, limit: MAX_IDS - 1 }) } else { Ok(()) }
}

/// The added tokens of an encoder, and how it finds them.
#[derive(PartialEq, Eq)]
pub(super) struct AddedTokens {
    /// By ascending id; true if decoding skips the token.
    tokens: BTreeMap<u32, (AddedToken, bool)>,
    splits_special: bool,
}

impl AddedTokens {
    pub(super) fn of(encoder: &Tokenizer) -> Self {
        let added = encoder.get_added_vocabulary();
        let token = |token: &AddedToken| (token.clone(), added.is_special_token(&token.content));
        let tokens = added.get_added_tokens_decoder().iter().map(|(&id, found)| (id, token(found)));
        Self { tokens: tokens.collect(), splits_special: added.get_encode_special_tokens() }
    }

    /// Returns the digest of a tokenizer that has these tokens instead of those of its file `json`.
    pub(super) fn sha256(&self, json: &[u8]) -> String {
        let mut digest = Sha256::new();
        digest.update(hex_sha256(json));
        digest.update([u8::from(self.splits_special)]);
        for (id, (token, is_special)) in &self.tokens {
            let AddedToken { content, single_word, lstrip, rstrip, normalized, special } = token;
            digest.update(id.to_le_bytes());
            digest.update((content.len() as u64).to_le_bytes());
            digest.update(content);
            digest.update([single_word, lstrip, rstrip, normalized, special, is_special].map(|flag| u8::from(*flag)));
        }
        hex(&digest.finalize())
    }
}
