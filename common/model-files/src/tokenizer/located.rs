//! The place of each id in the text, from the bytes of the tokens.
//!
//! The library stores the origin of each byte while it encodes: 150 bytes of memory for each byte of
//! the text. Where nothing changes the text, the bytes of the tokens are the text, so their lengths
//! are enough.

use std::ops::Range;

use serde_json::Value;

use super::bytes::ByteTable;
use super::classic::Classic;

/// How a tokenizer reports the place of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Locator {
    /// True if the white space at the ends of a token does not belong to its range.
    trims: bool,
}

impl Locator {
    /// Reads the post-processor. Returns None if places depend on more than the tokens.
    pub(super) fn of(encoder: &tokenizers::Tokenizer) -> Option<Self> {
        let spec = serde_json::to_value(encoder.get_post_processor()).ok()?;
        let mut byte_level = Vec::new();
        collect(&spec, &mut byte_level);
        let trims = byte_level.iter().any(|part| part["trim_offsets"] == true);
        let has_prefix = byte_level.iter().any(|part| part["add_prefix_space"] == true);
        (!(trims && has_prefix || loses_spaces(encoder)?)).then_some(Self { trims })
    }

    /// Returns the byte range of each id in `text`, widened to whole characters. Returns None if the
    /// bytes of the tokens are not the text. A space before them may be the tokenizer's.
    pub(super) fn locate(
        self,
        text: &str,
        ids: &[u32],
        table: &ByteTable,
        classic: &Classic,
    ) -> Option<Vec<Range<usize>>> {
        let ranges = |prefix| self.ranges(text, ids, (table, classic), prefix);
        ranges(b"").or_else(|| ranges(b" "))
    }

    /// Returns the byte range of each id, of which the first one has a prefix.
    fn ranges(
        self,
        text: &str,
        ids: &[u32],
        (table, classic): (&ByteTable, &Classic),
        mut prefix: &[u8],
    ) -> Option<Vec<Range<usize>>> {
        let mut end = 0;
        let ranges = ids.iter().map(|&id| {
            let start = end;
            let bytes = table.get(id).filter(|bytes| !bytes.is_empty())?;
            let bytes = bytes.strip_prefix(std::mem::take(&mut prefix))?;
            end += text.as_bytes()[start..].starts_with(bytes).then_some(bytes.len())?;
            let range = if self.trims { trimmed(start..end, &classic.encoder.id_to_token(id)?) } else { start..end };
            Some(text.floor_char_boundary(range.start)..text.ceil_char_boundary(range.end))
        });
        let mut ranges: Vec<_> = ranges.collect::<Option<_>>()?;
        // The library gives a token of the prefix alone the place of the first character.
        if let Some(first) = ranges.first_mut().filter(|first| first.start == first.end) {
            first.end = text.ceil_char_boundary(1);
        }
        (end == text.len()).then_some(ranges)
    }
}

/// Returns true if an added token takes the white space beside it, and a space is added before the text
/// after it. The added space would be found in the place of the taken one.
fn loses_spaces(encoder: &tokenizers::Tokenizer) -> Option<bool> {
    let added = encoder.get_added_vocabulary().get_added_tokens_decoder();
    let takes = added.values().any(|token| token.lstrip || token.rstrip);
    let normalizer = serde_json::to_string(&encoder.get_normalizer()).ok()?;
    let cuts = serde_json::to_string(&encoder.get_pre_tokenizer()).ok()?;
    let adds = ["\"Metaspace\"", "\"add_prefix_space\":true"].iter().any(|part| cuts.contains(part));
    Some(takes && (adds || normalizer.contains("\"Prepend\"")))
}

/// Collects the byte-level parts of a post-processor.
fn collect<'a>(spec: &'a Value, found: &mut Vec<&'a Value>) {
    match &spec["processors"] {
        Value::Array(parts) => parts.iter().for_each(|part| collect(part, found)),
        _ if spec["type"] == "ByteLevel" => found.push(spec),
        _ => {}
    }
}

/// Removes the white space at both ends of a token, in the vocabulary's spelling, from its range.
fn trimmed(range: Range<usize>, token: &str) -> Range<usize> {
    let is_space = |char: &char| *char == 'Ġ' || char.is_whitespace();
    let (leading, trailing) =
        (token.chars().take_while(is_space).count(), token.chars().rev().take_while(is_space).count());
    let start = (range.start + leading).min(range.end);
    start..range.end.saturating_sub(trailing).max(start)
}
