//! The fast encoder: the library's next version, about thirty times faster.
//!
//! The library's encoder gets neither added tokens nor the space prefix. Both are handled here, so
//! that literal pieces and pieces inside a text use the same vocabulary. The fast encoder is used
//! only with components for which it is known to agree with [`super::classic`], and only if it
//! agrees on a probe. It is not used for the few characters whose Unicode properties differ.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Value, json};
use tokenizers::AddedToken;
use tokenizers_fast::pipeline::{EncodeOptions, PipelineToken};

use super::added::{Part, Splitters};
use super::bytes::alphabet;
use super::cache::{Cache, Manner};
use super::cancel;
use super::classic::Classic;
use super::error::{TokenizerError, encode_error};
use super::literal::{Forbidden, Piece, Tokens};
use super::long::{self, LONG_BYTES};
use super::pipeline::{self, Counted};
use super::unicode::is_doubtful;

/// The probe, which reveals differing settings: words, spaces, digits, contractions, line breaks,
/// several scripts, composed characters, emoji and control characters.
const PROBE: &str = "The QUICK brown fox's 1234567 jumps,  over   THE lazy dog!\r\n\n\tdef f(x): return x**2 # 'll\n \
    Ünïcödé cafe\u{301} naïve ŞİŞLİ straße 漢字かな混じり文 한국어 हिन्दी العربية ไทย 👩\u{200D}💻🏳️‍🌈 ①½\u{a0}x\u{3000}y\u{7}\u{0}▁▁ ";

/// The maximum size of a text.
const MAX_BYTES: usize = 10 << 20;
/// The maximum size of a text whose doubtful characters get the classic encoder, which is slow.
const MAX_DOUBTFUL_BYTES: usize = 192 << 10;

pub(super) struct Fast {
    encoder: Counted,
    classic: Arc<Classic>,
    splitters: Splitters,
    prefix: Prefix,
    /// True if ids depend on Unicode properties of characters.
    uses_unicode: bool,
    /// Ids from here on are placeholders for bytes that are missing from the vocabulary.
    missing: u32,
    cache: Arc<Cache>,
}

/// The text that is added before text.
#[derive(Debug, Default)]
struct Prefix {
    text: String,
    place: Place,
    /// True if it is not added before text that starts with it or with the space that it encodes.
    once: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Place {
    #[default]
    Nowhere,
    /// The start of a whole text.
    Start,
    /// The start of a whole text, and after every added token.
    Everywhere,
}

impl Fast {
    /// Builds the encoder, or returns why the classic encoder must be used.
    pub(super) fn of(classic: Arc<Classic>, cache: Arc<Cache>) -> Result<Self, String> {
        let added: Vec<_> = classic.encoder.get_added_tokens_decoder().into_iter().collect();
        let (mut spec, prefix) = bare(&classic.encoder)?;
        refuse_unknown_added(&added, &spec)?;
        let uses_unicode = uses_unicode(&spec);
        if uses_unicode && prefix.place != Place::Nowhere {
            return Err("the prefix affects the pre-tokenizer".to_owned());
        }
        let missing = add_missing_bytes(&mut spec)?;
        let vocabulary = classic.encoder.get_added_vocabulary();
        let is_text = |token: &str| vocabulary.get_encode_special_tokens() && vocabulary.is_special_token(token);
        let (encoder, splitters) = (pipeline::build(spec)?, Splitters::new(&added, &is_text)?);
        let fast = Self { encoder, classic, splitters, prefix, uses_unicode, missing, cache };
        fast.check().map(|()| fast)
    }

    fn check(&self) -> Result<(), String> {
        let expected = self.classic.encoder.encode_fast(PROBE, false).map_err(|error| error.to_string())?;
        let mut found = Vec::new();
        self.with_added(PROBE, true, &mut found).map_err(|error| error.to_string())?;
        if found == expected.get_ids() { Ok(()) } else { Err("the ids of the probe differ".to_owned()) }
    }

    /// Encodes the pieces of a text, in order.
    pub(super) fn ids(&self, pieces: &[Piece<'_>], forbidden: &Forbidden) -> Result<Vec<u32>, TokenizerError> {
        let bytes: usize = pieces.iter().map(|piece| piece.text.len()).sum();
        if bytes > MAX_BYTES {
            return Err(TokenizerError::TooLong { bytes, limit: MAX_BYTES });
        }
        let mut ids = Vec::with_capacity(bytes / 4);
        for piece in pieces {
            cancel::check()?;
            if piece.is_literal {
                ids.extend(forbidden.avoid(piece.text, &|text: &str| self.literal(text))?.ids);
            } else {
                self.with_added(piece.text, piece.is_first, &mut ids)?;
            }
        }
        Ok(ids)
    }

    fn literal(&self, text: &str) -> Result<Tokens, TokenizerError> {
        let mut ids = Vec::new();
        self.cache.extend(text, Manner::Literal, &mut ids, |ids| self.plain(text, ids))?;
        Ok(Tokens { ids, offsets: Vec::new() })
    }

    fn with_added(&self, text: &str, is_first: bool, ids: &mut Vec<u32>) -> Result<(), TokenizerError> {
        for (index, part) in self.splitters.outer.parts(text).into_iter().enumerate() {
            match part {
                Part::Token(id) => ids.push(id),
                Part::Text(text) => {
                    let manner = self.prefix.manner(index == 0, is_first);
                    self.cache.extend(text, manner, ids, |ids| self.with_inner(text, manner, ids))?;
                }
            }
        }
        Ok(())
    }

    fn with_inner(&self, text: &str, manner: Manner, ids: &mut Vec<u32>) -> Result<(), TokenizerError> {
        for (index, part) in self.splitters.inner.parts(text).into_iter().enumerate() {
            match part {
                Part::Token(id) => ids.push(id),
                Part::Text(text) => {
                    let manner = if index == 0 { manner } else { self.prefix.manner(false, false) };
                    self.plain(&self.prefix.before(text, manner), ids)?;
                }
            }
        }
        Ok(())
    }

    /// Encodes text without added tokens and prefix.
    fn plain(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), TokenizerError> {
        if self.uses_unicode && text.len() <= MAX_DOUBTFUL_BYTES && is_doubtful(text) {
            // If the classic encoder fails, as on thousands of spaces, there is no reference and
            // these ids are used.
            if let Ok(tokens) = self.classic.without_added(text) {
                ids.extend(tokens.ids);
                return Ok(());
            }
        }
        let start = ids.len();
        self.encode(text, ids)?;
        if ids[start..].iter().any(|&id| id >= self.missing) {
            ids.truncate(start);
            ids.extend(self.classic.without_added(text)?.ids);
        }
        Ok(())
    }

    fn encode(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), TokenizerError> {
        if text.len() >= LONG_BYTES {
            return long::encode(self.encoder.encoder(), &self.classic, text, ids);
        }
        let mut tokens = Vec::with_capacity(text.len() / 4);
        self.encoder.encoder().encode_into(text, &EncodeOptions::no_specials(), &mut tokens).map_err(encode_error)?;
        ids.extend_from_slice(PipelineToken::cast_slice(&tokens));
        Ok(())
    }
}

impl Prefix {
    /// Returns the mode of a text. `is_start` is true at the start of its piece, `is_first` in the
    /// first piece of the whole text.
    fn manner(&self, is_start: bool, is_first: bool) -> Manner {
        let is_place = match self.place {
            Place::Nowhere => false,
            Place::Start => is_start && is_first,
            Place::Everywhere => !is_start || is_first,
        };
        if is_place { Manner::Start } else { Manner::Inside }
    }

    fn before<'a>(&self, text: &'a str, manner: Manner) -> Cow<'a, str> {
        let is_there = self.once && (text.starts_with(' ') || text.starts_with(&self.text));
        match manner {
            Manner::Start if !is_there => Cow::Owned([&self.text, text].concat()),
            _ => Cow::Borrowed(text),
        }
    }
}

/// Returns a `tokenizer.json` with the model, normalizers and pre-tokenizers, and the prefix that
/// was removed from it.
fn bare(encoder: &tokenizers::Tokenizer) -> Result<(Value, Prefix), String> {
    let model = spec(encoder.get_model())?;
    if !is_plain_bpe(&model) {
        return Err("the model is not plain BPE".to_owned());
    }
    let mut normalizers = members(spec(encoder.get_normalizer())?, "normalizers");
    let mut cuts = members(spec(encoder.get_pre_tokenizer())?, "pretokenizers");
    let prefix = match take_prepend(&mut normalizers) {
        Some(prefix) => prefix,
        None => take_metaspace(&normalizers, &mut cuts).unwrap_or_default(),
    };
    refuse_unknown(&normalizers, &["NFC", "Replace"])?;
    refuse_unknown(&cuts, &["Split", "Digits", "ByteLevel"])?;
    let normalizer = sequence(normalizers, "normalizers");
    let pre_tokenizer = sequence(cuts, "pretokenizers");
    let spec = json!({"model": model, "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "added_tokens": []});
    Ok((spec, prefix))
}

/// Fails if the library finds added tokens by other rules than the splitter.
fn refuse_unknown_added(added: &[(u32, AddedToken)], spec: &Value) -> Result<(), String> {
    if added.iter().any(|(_, token)| token.single_word) {
        return Err("an added token matches whole words only".to_owned());
    }
    if added.iter().any(|(_, token)| token.normalized) && !spec["normalizer"].is_null() {
        return Err("an added token is normalized".to_owned());
    }
    Ok(())
}

/// Returns true if the text is normalized or split by character classes.
fn uses_unicode(spec: &Value) -> bool {
    let asks =
        |part: &Value| part["type"] == "NFC" || part["type"] == "ByteLevel" || !part["pattern"]["Regex"].is_null();
    let parts = members(spec["normalizer"].clone(), "normalizers").into_iter();
    parts.chain(members(spec["pre_tokenizer"].clone(), "pretokenizers")).any(|part| asks(&part))
}

/// Adds a placeholder id for every byte that is missing from a byte-level vocabulary, because the
/// library requires all bytes. Returns the first such id. The classic encoder drops these bytes,
/// and may merge their neighbours.
fn add_missing_bytes(spec: &mut Value) -> Result<u32, String> {
    let cuts = members(spec["pre_tokenizer"].clone(), "pretokenizers");
    let vocabulary = spec["model"]["vocab"].as_object_mut().ok_or("the model has no vocabulary")?;
    let next = vocabulary.values().filter_map(Value::as_u64).max().map_or(0, |id| id + 1);
    if cuts.iter().any(|part| part["type"] == "ByteLevel") {
        let missing = alphabet().map(String::from).filter(|char| !vocabulary.contains_key(char));
        let missing: Vec<_> = missing.zip(next..).map(|(char, id)| (char, id.into())).collect();
        vocabulary.extend(missing);
    }
    next.try_into().map_err(|_| "the ids are too large".to_owned())
}

fn spec(component: impl serde::Serialize) -> Result<Value, String> {
    serde_json::to_value(component).map_err(|error| error.to_string())
}

fn is_plain_bpe(model: &Value) -> bool {
    let is_unset = |name: &str| model[name].as_str().is_none_or(str::is_empty);
    let is_certain = model["dropout"].as_f64().is_none_or(|dropout| dropout == 0.0);
    model["type"] == "BPE" && is_certain && is_unset("continuing_subword_prefix") && is_unset("end_of_word_suffix")
}

/// Returns the members of a possibly nested sequence, or the single component.
fn members(mut spec: Value, name: &str) -> Vec<Value> {
    match spec.get_mut(name).map(Value::take) {
        Some(Value::Array(parts)) => parts.into_iter().flat_map(|part| members(part, name)).collect(),
        _ if spec.is_null() => Vec::new(),
        _ => vec![spec],
    }
}

fn sequence(mut members: Vec<Value>, name: &str) -> Value {
    match members.len() {
        0 => Value::Null,
        1 => members.remove(0),
        _ => json!({"type": "Sequence", name: members}),
    }
}

/// Removes the prefix of a leading Prepend normalizer.
fn take_prepend(normalizers: &mut Vec<Value>) -> Option<Prefix> {
    let text = normalizers.first().filter(|first| first["type"] == "Prepend")?["prepend"].as_str()?.to_owned();
    normalizers.remove(0);
    Some(Prefix { text, place: Place::Everywhere, once: false })
}

/// Removes the prefix of a Metaspace pre-tokenizer that is the only component: a normalizer could
/// change the start of the text.
fn take_metaspace(normalizers: &[Value], cuts: &mut [Value]) -> Option<Prefix> {
    let ([], [cut]) = (normalizers, cuts) else { return None };
    let text = cut["replacement"].as_str()?.to_owned();
    let place = match cut["prepend_scheme"].as_str()? {
        "always" => Place::Everywhere,
        "first" => Place::Start,
        _ => Place::Nowhere,
    };
    cut["prepend_scheme"] = "never".into();
    Some(Prefix { text, place, once: true })
}

fn refuse_unknown(members: &[Value], known: &[&str]) -> Result<(), String> {
    let is_known = |part: &&Value| known.iter().any(|name| part["type"] == *name) || part["prepend_scheme"] == "never";
    match members.iter().find(|part| !is_known(part)) {
        Some(unknown) => Err(format!("{} is not known to agree", unknown["type"])),
        None => Ok(()),
    }
}
