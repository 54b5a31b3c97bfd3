//! The exact bytes of every id, computed once.
//!
//! The decoder of a `tokenizer.json` is a list of steps on the spelling of tokens. Steps on single
//! tokens are applied here, in their order. Steps that join tokens or trim the start of the whole text
//! do not change a token's bytes. A step whose result depends on the neighbours of a token is refused.

use std::collections::{HashMap, HashSet};

use serde_json::Value;
use tokenizers::ModelWrapper;
use tokenizers::models::bpe::BPE;

use super::error::TokenizerError;

/// The limit of ids, larger than every known vocabulary. It bounds the memory that an untrusted
/// file can cause.
pub(super) const MAX_IDS: usize = 1 << 22;

/// How many times as many bytes a text can have before NFC. Unicode allows for 3; this is on the safe
/// side.
const NFC_SHRINKAGE: usize = 4;

/// The bytes by id; None for ids without a token.
pub(super) struct ByteTable {
    bytes: Vec<Option<Box<[u8]>>>,
    /// The ids that encode a single byte, spelled `<0xNN>`.
    single: HashSet<u32>,
}

/// The steps of a decoder on one token.
#[derive(Debug, Default)]
struct Steps {
    /// On the spelling of the token.
    spelling: Vec<Step>,
    /// Replacements of single characters in its text.
    text: Vec<(String, String)>,
    /// True if a token that encodes a byte is already the byte.
    is_text: bool,
    /// True if the tokens are already joined.
    is_joined: bool,
}

/// A step on the spelling of a token.
#[derive(Debug)]
enum Step {
    /// Every character encodes a byte.
    ByteLevel,
    /// `<0xNN>` encodes a byte.
    ByteFallback,
    Replace {
        from: String,
        to: String,
    },
    /// Removes a character at both ends, up to these numbers of times.
    Strip {
        char: char,
        start: usize,
        stop: usize,
    },
}

impl ByteTable {
    pub(super) fn new(encoder: &tokenizers::Tokenizer) -> Result<Self, TokenizerError> {
        let steps = Steps::of(encoder)?;
        let vocab = encoder.get_vocab(false);
        let added = encoder.get_added_tokens_decoder();
        let largest = vocab.values().chain(added.keys()).max().map(|&id| id as usize);
        if let Some(largest) = largest.filter(|&id| id >= MAX_IDS) {
            return Err(TokenizerError::TooLarge { largest, limit: MAX_IDS - 1 });
        }
        let mut bytes = vec![None; largest.map_or(0, |id| id + 1)];
        // Added tokens come second, because their spelling takes precedence. That of a normalized token
        // is its normal form.
        let spelling = |id: u32| encoder.get_added_vocabulary().simple_id_to_token(id).map(|token| (token, id));
        let added = added.into_keys().filter_map(spelling);
        let mut single = HashSet::new();
        for (token, id) in vocab.into_iter().chain(added) {
            let is_single = byte_fallback(&token).is_some();
            if is_single {
                single.insert(id)
            } else {
                single.remove(&id)
            };
            bytes[id as usize] = Some(steps.apply(token).into_boxed_slice());
        }
        Ok(Self { bytes, single })
    }

    pub(super) fn get(&self, id: u32) -> Option<&[u8]> {
        self.bytes.get(id as usize)?.as_deref()
    }

    /// Returns true if a decoder with byte fallback decodes `id` to a byte.
    pub(super) fn is_byte(&self, id: u32) -> bool {
        self.single.contains(&id)
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }
}

/// The least number of a text's tokens, by its bytes.
pub(super) struct MinTokens {
    /// The largest number of bytes that one token can take.
    bytes_per_token: usize,
    /// For each byte whether it always becomes a part of a token. Other bytes may be dropped.
    is_kept: [bool; 256],
    /// How many times as many bytes a text can have before it is normalized.
    shrinkage: usize,
}

impl MinTokens {
    /// Returns None unless the model is BPE with a token for each byte, and the normalizer and the pre-tokenizer
    /// are known to keep the text. Others can drop any part of a text.
    pub(super) fn new(encoder: &tokenizers::Tokenizer) -> Option<Self> {
        let ModelWrapper::BPE(bpe) = encoder.get_model() else { return None };
        let pre_tokenizer = serde_json::to_value(encoder.get_pre_tokenizer()).ok()?;
        let normalizer = serde_json::to_value(encoder.get_normalizer()).ok()?;
        if !splits_only(&pre_tokenizer) {
            return None;
        }
        let vocabulary = bpe.get_vocab();
        let found = match pre_tokenizer.to_string().contains(r#""type":"ByteLevel""#) {
            true => Self::byte_level(&vocabulary, &normalizer)?,
            false => Self::with_fallback(bpe, &vocabulary, &normalizer)?,
        };
        let added = encoder.get_added_tokens_decoder();
        // A token that is normalized may also match its normalized form.
        let longest = added.values().map(|token| token.content.replace(' ', "▁").len() * found.shrinkage).max();
        let found = Self { bytes_per_token: found.bytes_per_token.max(longest.unwrap_or(1)).max(1), ..found };
        let takes_space = added.values().any(|token| token.lstrip || token.rstrip);
        Some(if takes_space { found.without_space() } else { found })
    }

    fn byte_level(vocabulary: &HashMap<String, u32>, normalizer: &Value) -> Option<Self> {
        let mut is_kept = [false; 256];
        for (byte, char) in alphabet().filter_map(|char| Some((byte_of(char)?, char))) {
            is_kept[usize::from(byte)] = vocabulary.contains_key(char.encode_utf8(&mut [0; 4]) as &str);
        }
        let shrinkage = shrinkage(normalizer)?;
        if shrinkage > 1 && is_kept.contains(&false) {
            return None;
        }
        // A byte is a character.
        let longest = vocabulary.keys().map(|token| token.chars().count()).max()?;
        Some(Self { bytes_per_token: longest * shrinkage, is_kept, shrinkage })
    }

    /// SentencePiece's BPE: a character without a token becomes tokens of its bytes. The spelling of a token is
    /// at least as long as its text.
    fn with_fallback(bpe: &BPE, vocabulary: &HashMap<String, u32>, normalizer: &Value) -> Option<Self> {
        let has_byte = |byte: u8| vocabulary.contains_key(&format!("<0x{byte:02X}>"));
        let is_whole = bpe.byte_fallback && (0..=255).all(has_byte) && bpe.continuing_subword_prefix.is_none();
        if !is_whole || !keeps_text(normalizer) {
            return None;
        }
        let longest = vocabulary.keys().map(String::len).max()?;
        Some(Self { bytes_per_token: longest, is_kept: [true; 256], shrinkage: 1 })
    }

    /// Counts no white space, and no byte that a character of white space has.
    fn without_space(mut self) -> Self {
        for byte in 0..=u8::MAX {
            self.is_kept[usize::from(byte)] &= byte.is_ascii_graphic();
        }
        self
    }

    pub(super) fn of(&self, text: &str) -> usize {
        text.bytes().filter(|byte| self.is_kept[usize::from(*byte)]).count() / self.bytes_per_token
    }
}

/// Returns true if a pre-tokenizer splits a text and drops nothing.
fn splits_only(pre_tokenizer: &Value) -> bool {
    match pre_tokenizer["type"].as_str() {
        None => pre_tokenizer.is_null(),
        Some("Sequence") => pre_tokenizer["pretokenizers"].as_array().is_some_and(|all| all.iter().all(splits_only)),
        Some("Split" | "Punctuation") => pre_tokenizer["behavior"] != "Removed",
        Some("ByteLevel" | "Digits" | "Metaspace") => true,
        Some(_) => false,
    }
}

/// Returns how many times as many bytes a text can have before it is normalized. None for a normalizer that can
/// drop text.
fn shrinkage(normalizer: &Value) -> Option<usize> {
    match normalizer["type"].as_str() {
        None => normalizer.is_null().then_some(1),
        Some("Sequence") => normalizer["normalizers"].as_array()?.iter().map(shrinkage).product(),
        Some("NFC") => Some(NFC_SHRINKAGE),
        Some(_) => None,
    }
}

/// Returns true if a normalizer only marks spaces.
fn keeps_text(normalizer: &Value) -> bool {
    match normalizer["type"].as_str() {
        None => normalizer.is_null(),
        Some("Sequence") => normalizer["normalizers"].as_array().is_some_and(|all| all.iter().all(keeps_text)),
        Some("Prepend") => true,
        Some("Replace") => normalizer["pattern"]["String"] == " " && normalizer["content"] == "▁",
        Some(_) => false,
    }
}

impl Steps {
    fn of(encoder: &tokenizers::Tokenizer) -> Result<Self, TokenizerError> {
        let mut steps = Self::default();
        if let Some(decoder) = encoder.get_decoder() {
            let spec =
                serde_json::to_value(decoder).map_err(|error| TokenizerError::Json { reason: error.to_string() })?;
            steps.add(&spec)?;
        }
        Ok(steps)
    }

    /// Adds a step. Fails if it is unknown, or its result depends on the neighbours of a token.
    fn add(&mut self, spec: &Value) -> Result<(), TokenizerError> {
        let unsupported = || TokenizerError::Decoder { found: spec.to_string() };
        let text = |value: &Value| value.as_str().map(str::to_owned).ok_or_else(unsupported);
        let times = |value: &Value| value.as_u64().and_then(|times| times.try_into().ok()).ok_or_else(unsupported);
        match spec["type"].as_str().unwrap_or_default() {
            "Sequence" => {
                let parts = spec["decoders"].as_array().ok_or_else(unsupported)?;
                parts.iter().try_for_each(|part| self.add(part))?;
            }
            "Fuse" => (self.is_text, self.is_joined) = (true, true),
            "Replace" => {
                let (from, to) = (text(&spec["pattern"]["String"])?, text(&spec["content"])?);
                if !self.is_text {
                    self.spelling.push(Step::Replace { from, to });
                } else if from.chars().count() == 1 {
                    self.text.push((from, to)); // a longer text may begin in one token and end in another
                } else {
                    return Err(unsupported());
                }
            }
            "Strip" if !self.is_text => {
                let char = text(&spec["content"])?.chars().next().ok_or_else(unsupported)?;
                self.spelling.push(Step::Strip { char, start: times(&spec["start"])?, stop: times(&spec["stop"])? });
            }
            "Strip" if self.is_joined && spec["stop"] == 0 => {}
            "ByteLevel" if !self.is_text => {
                self.spelling.push(Step::ByteLevel);
                (self.is_text, self.is_joined) = (true, true);
            }
            "ByteFallback" if !self.is_text => {
                self.spelling.push(Step::ByteFallback);
                self.is_text = true;
            }
            "Metaspace" if !self.is_text => {
                self.spelling.push(Step::Replace { from: text(&spec["replacement"])?, to: " ".to_owned() });
            }
            _ => return Err(unsupported()),
        }
        Ok(())
    }

    fn apply(&self, token: String) -> Vec<u8> {
        let bytes = self.spelled(token);
        self.text.iter().fold(bytes, |bytes, (from, to)| replaced(&bytes, from.as_bytes(), to.as_bytes()))
    }

    fn spelled(&self, mut token: String) -> Vec<u8> {
        for step in &self.spelling {
            match step {
                Step::Replace { from, to } => token = token.replace(from, to),
                Step::Strip { char, start, stop } => token = stripped(&token, *char, *start, *stop).to_owned(),
                Step::ByteLevel => return byte_level(&token).unwrap_or_else(|| token.into_bytes()),
                Step::ByteFallback => {
                    if let Some(byte) = byte_fallback(&token) {
                        return vec![byte];
                    }
                }
            }
        }
        token.into_bytes()
    }
}

/// Removes a character up to `start` times from the start, and up to `stop` times from the end.
fn stripped(token: &str, char: char, start: usize, stop: usize) -> &str {
    let token = (0..start).try_fold(token, |token, _| token.strip_prefix(char).ok_or(token));
    let token = token.unwrap_or_else(|token| token);
    (0..stop).try_fold(token, |token, _| token.strip_suffix(char).ok_or(token)).unwrap_or_else(|token| token)
}

/// Replaces the bytes `from`, which are not empty.
fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let (mut left, mut done) = (bytes, Vec::with_capacity(bytes.len()));
    while let Some(byte) = left.first() {
        let (taken, put) = if left.starts_with(from) { (from.len(), to) } else { (1, std::slice::from_ref(byte)) };
        done.extend_from_slice(put);
        left = &left[taken..];
    }
    done
}

/// Decodes a byte-level token. Returns None if a character is outside of the alphabet. The token is
/// then plain text.
pub(super) fn byte_level(token: &str) -> Option<Vec<u8>> {
    token.chars().map(byte_of).collect()
}

/// Returns all characters of the byte-level alphabet.
pub(super) fn alphabet() -> impl Iterator<Item = char> {
    ('\0'..='\u{143}').filter(|&char| byte_of(char).is_some())
}

/// The byte-level alphabet: printable Latin-1 bytes map to themselves, the other 68 bytes, in
/// order, to U+0100 onwards.
fn byte_of(char: char) -> Option<u8> {
    match u32::from(char) {
        code @ (0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF) => Some(code as u8),
        code @ 0x100..=0x120 => Some((code - 0x100) as u8), // 00 to 20
        code @ 0x121..=0x142 => Some((code - 0x121 + 0x7F) as u8), // 7F to A0
        0x143 => Some(0xAD),
        _ => None,
    }
}

/// Decodes a token `<0xNN>`.
pub(super) fn byte_fallback(token: &str) -> Option<u8> {
    let hex = token.strip_prefix("<0x")?.strip_suffix('>')?;
    if hex.len() == 2 { u8::from_str_radix(hex, 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::{alphabet, byte_fallback, byte_level};

    #[test]
    fn the_byte_level_alphabet_has_a_character_for_every_byte() {
        let mut bytes: Vec<_> = alphabet().filter_map(|char| byte_level(&char.to_string())).flatten().collect();
        bytes.sort_unstable();
        assert_eq!(bytes, (0..=255).collect::<Vec<u8>>());
        assert_eq!(byte_level("\u{120}a\u{10a}").as_deref(), Some(&b" a\n"[..]));
        assert_eq!(byte_level("a b"), None);
    }

    #[test]
    fn only_two_hexadecimal_digits_are_a_byte() {
        assert_eq!(["<0x0A>", "<0xf0>"].map(byte_fallback), [Some(b'\n'), Some(0xF0)]);
        assert_eq!(["<0x9g>", "<0xA>", "<0x00A>", "0x0A", "<0x0A>a"].map(byte_fallback), [None; 5]);
    }
}
