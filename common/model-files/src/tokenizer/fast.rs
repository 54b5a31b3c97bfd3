//! The encoder for nearly all text: the library's next version, some thirty times as fast.
//!
//! It is given neither added tokens nor what puts a space before a text. Both are done here, so that a literal piece and
//! one from the middle of a text need no vocabulary of their own. It is used only with components for which it is known
//! to agree with [`super::classic`], if it agrees on a probe, and not for the few characters that only one of them knows.

use std::borrow::Cow;
use std::panic::catch_unwind;
use std::sync::Arc;

use serde_json::{Value, json};
use tokenizers::AddedToken;
use tokenizers_fast::pipeline::{EncodeOptions, PipelineToken, PipelineTokenizer};

use super::added::{Part, Splitters};
use super::bytes::alphabet;
use super::cache::{Cache, Manner};
use super::classic::Classic;
use super::literal::{Forbidden, Piece, Tokens};
use super::unicode::is_doubtful;
use super::{TokenizerError, encode_error};

/// Text on which a wrong setting would show: words, spaces, digits, contractions, line breaks, several scripts, composed
/// characters, emoji and controls.
const PROBE: &str = "The QUICK brown fox's 1234567 jumps,  over   THE lazy dog!\r\n\n\tdef f(x): return x**2 # 'll\n \
    Ünïcödé cafe\u{301} naïve ŞİŞLİ straße 漢字かな混じり文 한국어 हिन्दी العربية ไทย 👩\u{200D}💻🏳️‍🌈 ①½\u{a0}x\u{3000}y\u{7}\u{0}▁▁ ";

pub(super) struct Fast {
    encoder: PipelineTokenizer,
    classic: Arc<Classic>,
    splitters: Splitters,
    prefix: Prefix,
    /// Whether the properties of characters decide anything.
    asks_unicode: bool,
    /// The ids from here on stand for bytes that the vocabulary does not have.
    missing: u32,
    cache: Cache,
}

/// What is put before text.
#[derive(Debug, Default)]
struct Prefix {
    text: String,
    place: Place,
    /// Not before text that begins with it, or with the space that it stands for.
    once: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Place {
    #[default]
    Nowhere,
    /// The start of a whole text.
    Start,
    /// There, and after every added token.
    Everywhere,
}

impl Fast {
    /// The same encoder, or why it cannot be had.
    pub(super) fn of(classic: Arc<Classic>, cache_bytes: u64) -> Result<Self, String> {
        let added: Vec<_> = classic.encoder.get_added_tokens_decoder().into_iter().collect();
        let (mut spec, prefix) = bare(&classic.encoder)?;
        refuse_unknown_added(&added, &spec)?;
        let asks_unicode = asks_unicode(&spec);
        if asks_unicode && prefix.place != Place::Nowhere {
            return Err("what is put before a text takes part in how it is cut".to_owned());
        }
        let missing = add_missing_bytes(&mut spec)?;
        let (encoder, splitters, cache) = (build(spec)?, Splitters::new(&added)?, Cache::new(cache_bytes));
        let fast = Self { encoder, classic, splitters, prefix, asks_unicode, missing, cache };
        fast.check().map(|()| fast)
    }

    fn check(&self) -> Result<(), String> {
        let expected = self.classic.encoder.encode_fast(PROBE, false).map_err(|error| error.to_string())?;
        let mut found = Vec::new();
        self.with_added(PROBE, true, &mut found).map_err(|error| error.to_string())?;
        if found == expected.get_ids() { Ok(()) } else { Err("it differs on the probe".to_owned()) }
    }

    pub(super) fn set_cache_bytes(&self, bytes: u64) {
        self.cache.set_bytes(bytes);
    }

    /// The ids of the pieces of a text, one piece after the other.
    pub(super) fn ids(&self, pieces: &[Piece<'_>], forbidden: &Forbidden) -> Result<Vec<u32>, TokenizerError> {
        let bytes: usize = pieces.iter().map(|piece| piece.text.len()).sum();
        let mut ids = Vec::with_capacity(bytes / 4);
        for piece in pieces {
            match piece.is_literal {
                true => ids.extend(forbidden.avoid(piece.text, &|text: &str| self.literal(text))?.ids),
                false => self.with_added(piece.text, piece.is_first, &mut ids)?,
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

    /// Text in which nothing is searched for and before which nothing is put.
    fn plain(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), TokenizerError> {
        if self.asks_unicode && is_doubtful(text) {
            // Where the classic encoder gives up, as it does on millions of spaces, this one's ids are as good as any.
            if let Ok(tokens) = self.classic.without_added(text) {
                ids.extend(tokens.ids);
                return Ok(());
            }
        }
        let tokens = self.encode(text)?;
        match tokens.iter().any(|token| token.id() >= self.missing) {
            true => ids.extend(self.classic.without_added(text)?.ids),
            false => ids.extend_from_slice(PipelineToken::cast_slice(&tokens)),
        }
        Ok(())
    }

    fn encode(&self, text: &str) -> Result<Vec<PipelineToken>, TokenizerError> {
        let mut tokens = Vec::with_capacity(text.len() / 4);
        self.encoder.encode_into(text, &EncodeOptions::no_specials(), &mut tokens).map_err(encode_error)?;
        Ok(tokens)
    }
}

impl Prefix {
    /// `opens` tells whether the text opens its piece, `is_first` whether that piece opens the whole text.
    fn manner(&self, opens: bool, is_first: bool) -> Manner {
        let is_place = match self.place {
            Place::Nowhere => false,
            Place::Start => opens && is_first,
            Place::Everywhere => !opens || is_first,
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

/// The library panics on some files.
fn build(mut spec: Value) -> Result<PipelineTokenizer, String> {
    let built = catch_unwind(move || {
        tokenizers_fast::canonicalize_value(&mut spec).map_err(|error| error.to_string())?;
        tokenizers_fast::from_json(&spec.to_string()).map_err(|error| error.to_string())
    });
    built.unwrap_or_else(|_| Err("the library fails on it".to_owned()))
}

/// A `tokenizer.json` of the model and of what happens to the text between two added tokens, and the prefix that is
/// taken out of it.
fn bare(encoder: &tokenizers::Tokenizer) -> Result<(Value, Prefix), String> {
    let model = spec(encoder.get_model())?;
    if !is_plain_bpe(&model) {
        return Err("the model is not plain byte-pair encoding".to_owned());
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

/// Where the splitter would not find added tokens as the library does.
fn refuse_unknown_added(added: &[(u32, AddedToken)], spec: &Value) -> Result<(), String> {
    if added.iter().any(|(_, token)| token.single_word) {
        return Err("an added token is for whole words only".to_owned());
    }
    if added.iter().any(|(_, token)| token.normalized) && !spec["normalizer"].is_null() {
        return Err("an added token is normalized".to_owned());
    }
    Ok(())
}

/// Whether text is composed, or cut by classes of characters.
fn asks_unicode(spec: &Value) -> bool {
    let asks =
        |part: &Value| part["type"] == "NFC" || part["type"] == "ByteLevel" || !part["pattern"]["Regex"].is_null();
    let parts = members(spec["normalizer"].clone(), "normalizers").into_iter();
    parts.chain(members(spec["pre_tokenizer"].clone(), "pretokenizers")).any(|part| asks(&part))
}

/// Gives every byte that a byte-level vocabulary lacks an id beyond its own, without which the library refuses it. Says from
/// which id on. The classic encoder leaves such bytes out, and what stood beside them may then be one token.
fn add_missing_bytes(spec: &mut Value) -> Result<u32, String> {
    let cuts = members(spec["pre_tokenizer"].clone(), "pretokenizers");
    let vocabulary = spec["model"]["vocab"].as_object_mut().ok_or("the model has no vocabulary")?;
    let next = vocabulary.values().filter_map(Value::as_u64).max().map_or(0, |id| id + 1);
    if cuts.iter().any(|part| part["type"] == "ByteLevel") {
        let missing = alphabet().map(String::from).filter(|char| !vocabulary.contains_key(char));
        let missing: Vec<_> = missing.zip(next..).map(|(char, id)| (char, id.into())).collect();
        vocabulary.extend(missing);
    }
    next.try_into().map_err(|_| "its ids are too large".to_owned())
}

fn spec(component: impl serde::Serialize) -> Result<Value, String> {
    serde_json::to_value(component).map_err(|error| error.to_string())
}

fn is_plain_bpe(model: &Value) -> bool {
    let is_unset = |name: &str| model[name].as_str().is_none_or(str::is_empty);
    let is_certain = model["dropout"].as_f64().is_none_or(|dropout| dropout == 0.0);
    model["type"] == "BPE" && is_certain && is_unset("continuing_subword_prefix") && is_unset("end_of_word_suffix")
}

/// The members of a possibly nested sequence, or the one that stands alone.
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

/// A text that the first normalizer puts before every other.
fn take_prepend(normalizers: &mut Vec<Value>) -> Option<Prefix> {
    let text = normalizers.first().filter(|first| first["type"] == "Prepend")?["prepend"].as_str()?.to_owned();
    normalizers.remove(0);
    Some(Prefix { text, place: Place::Everywhere, once: false })
}

/// A mark that the only cut puts before text which begins with none. Normalizers could add or take the beginning.
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
        Some(unknown) => Err(format!("{} is not known to be the same", unknown["type"])),
        None => Ok(()),
    }
}
