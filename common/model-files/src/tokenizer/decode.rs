//! Decoding: the text of token ids, as in transformers.
//!
//! The library builds a string for each token. The decoders of nearly all models are performed here,
//! on the bytes of the tokens.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::Value;

use super::bytes::ByteTable;
use super::classic::Classic;
use super::error::TokenizerError;

/// The limit of a decoded text: what can be encoded can be decoded.
const MAX_BYTES: usize = 10 << 20;

/// The decoder of a `tokenizer.json`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decoder {
    /// The bytes of all tokens form the text. Invalid UTF-8 becomes U+FFFD.
    ByteLevel,
    /// A run of byte tokens is text if it is valid UTF-8. Otherwise each of them becomes U+FFFD.
    ByteFallback { strip: Option<Strip> },
    /// The library decodes.
    Other,
}

/// Removes a character from the start of the text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Strip {
    char: char,
    /// How often at most.
    times: usize,
}

impl Decoder {
    pub(super) fn of(encoder: &tokenizers::Tokenizer) -> Result<Self, TokenizerError> {
        let spec = serde_json::to_value(encoder.get_decoder());
        let spec = spec.map_err(|error| TokenizerError::Json { reason: error.to_string() })?;
        let parts = match &spec["decoders"] {
            Value::Array(parts) => parts.as_slice(),
            _ => std::slice::from_ref(&spec),
        };
        let first = parts.iter().position(|part| part["type"] != "Replace").unwrap_or(parts.len());
        let (replaces, parts) = parts.split_at(first);
        let kinds: Vec<&str> = parts.iter().filter_map(|part| part["type"].as_str()).collect();
        Ok(match kinds[..] {
            ["ByteLevel"] if replaces.is_empty() => Self::ByteLevel,
            ["ByteFallback", "Fuse"] => Self::ByteFallback { strip: None },
            ["ByteFallback", "Fuse", "Strip"] if parts[2]["stop"] == 0 => {
                let strip = Strip::of(&parts[2]);
                strip.map_or(Self::Other, |strip| Self::ByteFallback { strip: Some(strip) })
            }
            _ => Self::Other,
        })
    }

    /// Decodes ids, which must be known.
    pub(super) fn decode(
        &self,
        ids: impl Iterator<Item = u32> + Clone,
        table: &ByteTable,
        classic: &Classic,
    ) -> Result<String, TokenizerError> {
        let tokens = ids.clone().filter_map(|id| Some((id, table.get(id)?)));
        let size = tokens.clone().map(|(_, bytes)| bytes.len()).sum::<usize>();
        if size > MAX_BYTES {
            return Err(TokenizerError::DecodedTooLong { limit: MAX_BYTES });
        }
        match self {
            Self::ByteLevel => {
                // Growth in steps would hold two copies.
                let mut text = Vec::with_capacity(size);
                tokens.for_each(|(_, bytes)| text.extend_from_slice(bytes));
                Ok(String::from_utf8(text)
                    .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
            }
            Self::ByteFallback { strip } => {
                let mut text = fused(tokens, table, size);
                if let Some(strip) = strip {
                    text.drain(..strip.bytes(&text));
                }
                Ok(text)
            }
            Self::Other => library_text(&classic.encoder, &ids.collect::<Vec<_>>()),
        }
    }
}

/// Decodes with the library. Its `Strip` panics where the removed ends overlap.
fn library_text(encoder: &tokenizers::Tokenizer, ids: &[u32]) -> Result<String, TokenizerError> {
    let reason = match catch_unwind(AssertUnwindSafe(|| encoder.decode(ids, false))) {
        Ok(Ok(text)) => return Ok(text),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "the tokenizer library panicked".to_owned(),
    };
    Err(TokenizerError::Decode { reason })
}

/// Joins tokens of `size` bytes in all, of which some are single bytes.
fn fused<'a>(tokens: impl Iterator<Item = (u32, &'a [u8])>, table: &ByteTable, size: usize) -> String {
    let mut text = String::with_capacity(size);
    let mut run = Vec::new();
    let end_run = |run: &mut Vec<u8>, text: &mut String| {
        match std::str::from_utf8(run) {
            Ok(run) => text.push_str(run),
            Err(_) => text.extend(std::iter::repeat_n(char::REPLACEMENT_CHARACTER, run.len())),
        }
        run.clear();
    };
    for (id, bytes) in tokens {
        if table.is_byte(id) {
            run.extend_from_slice(bytes);
        } else {
            end_run(&mut run, &mut text);
            text.push_str(&String::from_utf8_lossy(bytes));
        }
    }
    end_run(&mut run, &mut text);
    text
}

impl Strip {
    fn of(spec: &Value) -> Option<Self> {
        let char = spec["content"].as_str()?.chars().next()?;
        Some(Self { char, times: spec["start"].as_u64()?.try_into().ok()? })
    }

    /// Returns the number of bytes to remove.
    fn bytes(&self, text: &str) -> usize {
        text.chars().take(self.times).take_while(|char| *char == self.char).map(char::len_utf8).sum()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{ByteTable, Classic, Decoder, Strip};

    const TOKENS: [&str; 8] = ["<0xE4>", "<0xBD>", "<0xA0>", "\u{2581}", "\u{e4}\u{bd}", "\u{142}", "ab", "\u{4f60}"];

    fn library(decoder: &Value) -> tokenizers::Tokenizer {
        let vocab: serde_json::Map<_, _> = (0..).zip(TOKENS).map(|(id, token)| (token.to_owned(), json!(id))).collect();
        let added = json!([{"id": 8, "content": "<é>", "special": true, "single_word": false, "lstrip": false,
                            "rstrip": false, "normalized": false}]);
        let model = json!({"type": "BPE", "vocab": vocab, "merges": []});
        let file = json!({"version": "1.0", "added_tokens": added, "decoder": decoder, "model": model});
        tokenizers::Tokenizer::from_bytes(file.to_string()).expect("a valid file")
    }

    /// Returns all sequences of at most four of the nine ids.
    fn sequences() -> impl Iterator<Item = Vec<u32>> {
        let digits = |number: u32, length: u32| (0..length).map(move |digit| number / 9u32.pow(digit) % 9).collect();
        (0..=4).flat_map(move |length| (0..9u32.pow(length)).map(move |number| digits(number, length)))
    }

    #[test]
    fn the_text_of_any_ids_is_the_one_of_the_library() {
        let replace = json!({"type": "Replace", "pattern": {"String": "\u{2581}"}, "content": " "});
        let fallback = [replace, json!({"type": "ByteFallback"}), json!({"type": "Fuse"})];
        let strip = json!({"type": "Strip", "content": " ", "start": 2, "stop": 0});
        let bytes = json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true});
        let stripped = [&fallback[..], &[strip]].concat();
        let cases = [
            (bytes, Decoder::ByteLevel),
            (json!({"type": "Sequence", "decoders": fallback}), Decoder::ByteFallback { strip: None }),
            (
                json!({"type": "Sequence", "decoders": stripped}),
                Decoder::ByteFallback { strip: Some(Strip { char: ' ', times: 2 }) },
            ),
            (json!({"type": "Sequence", "decoders": stripped[..2]}), Decoder::Other),
        ];
        for (spec, kind) in cases {
            let library = library(&spec);
            let decoder = Decoder::of(&library).expect("a decoder");
            assert_eq!(decoder, kind);
            let (table, classic) =
                (ByteTable::new(&library).expect("a table"), Classic::new(library).expect("an encoder"));
            for ids in sequences() {
                let text = decoder.decode(ids.iter().copied(), &table, &classic).expect("a text");
                assert_eq!(text, classic.encoder.decode(&ids, false).expect("a text"), "{ids:?} {spec}");
            }
        }
    }

    #[test]
    fn a_panic_of_the_library_is_an_error() {
        let library = library(&json!({"type": "Sequence", "decoders": [replace("ab", "a"), strip(1, 1)]}));
        let decoder = Decoder::of(&library).expect("a decoder");
        let (table, classic) = (ByteTable::new(&library).expect("a table"), Classic::new(library).expect("an encoder"));
        let error = decoder.decode([6].into_iter(), &table, &classic).expect_err("no text");
        assert!(error.to_string().contains("panicked"), "{error}");
    }

    fn replace(from: &str, to: &str) -> Value {
        json!({"type": "Replace", "pattern": {"String": from}, "content": to})
    }

    fn strip(start: u32, stop: u32) -> Value {
        json!({"type": "Strip", "content": "a", "start": start, "stop": stop})
    }

    #[test]
    fn the_bytes_of_tokens_are_the_text_of_the_library_in_any_order_of_steps() {
        let bytes = json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true});
        let (fallback, fuse) = (json!({"type": "ByteFallback"}), json!({"type": "Fuse"}));
        let accepted = [
            json!([fallback, fuse, replace("b", "B")]),
            json!([replace("ab", "xy"), fallback, fuse, replace("x", "<>"), replace(">", "")]),
            json!([bytes, replace("a", "A")]),
            json!([replace("a", "\u{142}"), bytes]),
            json!([strip(1, 0), fallback, fuse]),
            json!([strip(0, 2), replace("\u{2581}", "ab"), strip(2, 1), fuse]),
        ];
        for decoders in accepted {
            let library = library(&json!({"type": "Sequence", "decoders": decoders}));
            let table = ByteTable::new(&library).expect("a table");
            for ids in sequences().filter(|ids| !ids.contains(&0) && !ids.contains(&1) && !ids.contains(&2)) {
                let text: Vec<u8> = ids.iter().filter_map(|id| table.get(*id)).flatten().copied().collect();
                let expected = library.decode(&ids, false).expect("a text");
                assert_eq!(String::from_utf8_lossy(&text), expected, "{ids:?} {decoders}");
            }
        }
    }

    #[test]
    fn a_step_that_depends_on_the_neighbours_of_a_token_is_refused() {
        let bytes = json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true});
        let (fallback, fuse) = (json!({"type": "ByteFallback"}), json!({"type": "Fuse"}));
        let metaspace =
            json!({"type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": "always", "split": true});
        let refused = [
            (json!([fuse, replace("\n ", "\n")]), "\\n "),
            (json!([bytes, replace(" t", "_T")]), " t"),
            (json!([fallback, strip(1, 0), fuse]), "Strip"),
            (json!([fuse, strip(0, 1)]), "Strip"),
            (json!([fuse, fallback]), "ByteFallback"),
            (json!([fuse, bytes]), "ByteLevel"),
            (json!([fuse, metaspace]), "Metaspace"),
        ];
        for (decoders, named) in refused {
            let error = ByteTable::new(&library(&json!({"type": "Sequence", "decoders": decoders})));
            let error = error.err().expect("a refusal").to_string();
            assert!(error.starts_with("unsupported decoder") && error.contains(named), "{error}");
        }
    }
}
