//! The tokens in the files beside a `tokenizer.json`, read as transformers reads them:
//! `tokenizer_config.json`, and without its list of added tokens, `special_tokens_map.json` and
//! `added_tokens.json`.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use serde_json::Value;
use tokenizers::AddedToken;

use super::contents::SpecialTokens;
use super::error::ArtifactsError;
use super::json::{Object, read_object};
use super::names::TOKENIZER_CONFIG;
use crate::tokenizer::{FolderToken, FolderTokens, ListedTokens, NamedToken};

const SPECIAL_TOKENS_MAP: &str = "special_tokens_map.json";
const ADDED_TOKENS: &str = "added_tokens.json";

/// The key of the list of added tokens.
const LISTED: &str = "added_tokens_decoder";
/// The keys of special tokens without standard names: a list, or an object of tokens by name.
const EXTRA: &str = "extra_special_tokens";
/// The older name of [`EXTRA`].
const ADDITIONAL: &str = "additional_special_tokens";
/// The key of an object of tokens by name. Tokens by name elsewhere in the config replace all of it.
const MODEL_SPECIFIC: &str = "model_specific_special_tokens";

/// The special tokens that transformers names, in its order. Tokens that only the model names, such
/// as `image_token`, come after them.
const NAMED: &[&str] = &["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// Reads the tokens of a folder.
///
/// # Errors
/// A file cannot be read, or its list of added tokens is invalid.
pub(super) fn read(folder: &Path, config: &Object) -> Result<FolderTokens, ArtifactsError> {
    let mut settings = Settings::of(config);
    let listed = match config.get(LISTED) {
        Some(Value::Null) => ListedTokens::Config(BTreeMap::new()),
        Some(tokens) => ListedTokens::Config(config_tokens(tokens, &folder.join(TOKENIZER_CONFIG))?),
        None => {
            settings.add_map(read_object(&folder.join(SPECIAL_TOKENS_MAP))?.unwrap_or_default());
            let path = folder.join(ADDED_TOKENS);
            let tokens = file_tokens(&read_object(&path)?.unwrap_or_default(), &path)?;
            ListedTokens::File { tokens, special: settings.special_texts() }
        }
    };
    Ok(settings.tokens(listed))
}

impl SpecialTokens {
    /// Returns the texts of special tokens for chat templates.
    pub(super) fn of(tokens: &FolderTokens) -> Self {
        let named = tokens.named.iter().map(|named| (named.name.clone(), named.token.text().to_owned()));
        let additional = tokens.extra.iter().map(|token| token.text().to_owned());
        Self { named: named.collect(), additional: additional.collect() }
    }
}

/// The settings of `tokenizer_config.json` and `special_tokens_map.json` that name tokens.
struct Settings {
    /// The values by key, without the others of this type. The map's values replace the config's.
    values: Object,
    /// [`EXTRA`] as a list. None if no file has it.
    extra: Option<Vec<Value>>,
    /// The texts of the config under keys of the model's own, and [`EXTRA`] as an object, or else
    /// [`MODEL_SPECIFIC`]. They precede the map's values.
    by_name: Object,
    /// The texts of the map's tokens with flags.
    flagged: Vec<String>,
}

impl Settings {
    fn of(config: &Object) -> Self {
        let mut values = config.clone();
        let (extra, specific) = (values.shift_remove(EXTRA), values.shift_remove(MODEL_SPECIFIC));
        let extra = match extra.as_ref().is_none_or(is_empty) {
            true => values.shift_remove(ADDITIONAL).or(extra),
            false => extra,
        };
        let (own, values) = values.into_iter().partition(|(key, value)| is_own(key) && value.is_string());
        let mut settings = Self { values, extra: None, by_name: own, flagged: Vec::new() };
        settings.set_extra(extra);
        if let Some(Value::Object(tokens)) = specific.filter(|_| settings.by_name.is_empty()) {
            settings.by_name = tokens;
        }
        settings
    }

    fn set_extra(&mut self, extra: Option<Value>) {
        match extra {
            Some(Value::Object(tokens)) => {
                self.by_name.extend(tokens);
                self.extra = None;
            }
            Some(Value::Array(tokens)) => self.extra = Some(tokens),
            Some(_) => self.extra = Some(Vec::new()),
            None => {}
        }
    }

    /// Adds the values of `special_tokens_map.json`. A token with flags is special there.
    fn add_map(&mut self, map: Object) {
        for (key, mut value) in map {
            if key != EXTRA {
                if let Value::Object(token) = &mut value {
                    let text = token.get("content").and_then(Value::as_str).filter(|_| NAMED.contains(&key.as_str()));
                    self.flagged.extend(text.map(str::to_owned));
                    token.insert("__type".to_owned(), "AddedToken".into());
                    token.insert("special".to_owned(), true.into());
                }
                self.values.insert(key, value);
            } else if let Value::Array(tokens) = value {
                let contents = tokens.iter().filter_map(|token| token.get("content")?.as_str());
                self.flagged.extend(contents.map(str::to_owned));
                let known = self.extra.get_or_insert_default();
                let new: Vec<_> = tokens.into_iter().filter(|token| !known.contains(token)).collect();
                known.extend(new);
            } else {
                self.set_extra(Some(value));
            }
        }
    }

    /// Returns the texts that make a token of `added_tokens.json` special. A token of the config that
    /// has flags makes none special: transformers has not read its text at this time.
    fn special_texts(&self) -> HashSet<String> {
        let named = NAMED.iter().filter_map(|name| self.values.get(*name));
        let texts = named.chain(self.extra.iter().flatten()).filter_map(Value::as_str).map(str::to_owned);
        texts.chain(self.flagged.iter().cloned()).collect()
    }

    fn tokens(mut self, listed: ListedTokens) -> FolderTokens {
        let late = self.values.get(ADDITIONAL).cloned().filter(|_| self.extra.is_none());
        self.set_extra(late);
        FolderTokens {
            listed,
            extra: self.extra.iter().flatten().filter_map(|value| token(value, !is_token(value))).collect(),
            pads_by_default: !self.values.contains_key("pad_token") && !self.by_name.contains_key("pad_token"),
            splits_special: self.values.get("split_special_tokens") == Some(&Value::Bool(true)),
            named: self.named(),
        }
    }

    /// Returns the named tokens. A name in an object of tokens precedes the same name elsewhere.
    fn named(&self) -> Vec<NamedToken> {
        let own = self.values.iter().filter(|(key, value)| is_own(key) && is_token(value));
        let own = own.map(|(key, _)| key.as_str());
        let names = NAMED.iter().copied().chain(own).chain(self.by_name.keys().map(String::as_str));
        let mut seen = HashSet::new();
        let named = names.filter(|name| seen.insert(*name)).filter_map(|name| {
            let value = self.by_name.get(name).or_else(|| self.values.get(name))?;
            let is_standard = NAMED.contains(&name) && !self.by_name.contains_key(name);
            Some(NamedToken { name: name.to_owned(), token: token(value, false)?, is_standard })
        });
        named.collect()
    }
}

/// Reads the tokens of [`LISTED`], by id.
fn config_tokens(tokens: &Value, path: &Path) -> Result<BTreeMap<i64, AddedToken>, ArtifactsError> {
    let wrong = |field: String, expected| ArtifactsError::Field { path: path.to_owned(), field, expected };
    let tokens = tokens.as_object().ok_or_else(|| wrong(LISTED.to_owned(), "an object"))?;
    let token = |(id, value): (&String, &Value)| {
        let field = || format!("{LISTED}.{id}");
        let number = id.trim().parse().map_err(|_| wrong(field(), "the name of an integer"))?;
        let token = value.as_object().and_then(|token| flagged(token, false));
        Ok((number, token.ok_or_else(|| wrong(field(), "an object with a content"))?))
    };
    tokens.iter().map(token).collect()
}

/// Reads the tokens of `added_tokens.json`: texts and ids.
fn file_tokens(tokens: &Object, path: &Path) -> Result<Vec<(String, i64)>, ArtifactsError> {
    let token = |(text, id): (&String, &Value)| {
        let wrong = || ArtifactsError::Field { path: path.to_owned(), field: text.clone(), expected: "an integer" };
        Ok((text.clone(), id.as_i64().ok_or_else(wrong)?))
    };
    tokens.iter().map(token).collect()
}

/// Returns a token, which is a text or an object with text and flags.
fn token(value: &Value, is_special: bool) -> Option<FolderToken> {
    match value {
        Value::String(text) => Some(FolderToken::Text(text.clone())),
        Value::Object(token) => flagged(token, is_special).map(FolderToken::Flagged),
        _ => None,
    }
}

/// Returns a token from its object. `is_special` is the default of its flag.
fn flagged(token: &Object, is_special: bool) -> Option<AddedToken> {
    let flag = |name: &str| token.get(name).and_then(Value::as_bool);
    let special = flag("special").unwrap_or(is_special);
    Some(AddedToken {
        content: token.get("content")?.as_str()?.to_owned(),
        single_word: flag("single_word").unwrap_or_default(),
        lstrip: flag("lstrip").unwrap_or_default(),
        rstrip: flag("rstrip").unwrap_or_default(),
        normalized: flag("normalized").unwrap_or(!special),
        special,
    })
}

/// Returns true for the key of a token that only the model names.
fn is_own(key: &str) -> bool {
    key.ends_with("_token") && !NAMED.contains(&key)
}

/// Returns true for a text, or an object that is marked as a token. Another object under a key of the
/// model's own is no token in transformers.
fn is_token(value: &Value) -> bool {
    value.is_string() || value.get("__type").is_some_and(|kind| kind == "AddedToken")
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(all) => all.is_empty(),
        Value::Object(all) => all.is_empty(),
        _ => false,
    }
}
