//! Objects and lists as elements within elements: the arguments of MiniMax M3's calls.
//!
//! An element is `<key>`, its content and `</key>`, with a mark before both tags. Its content is a text, or the entries
//! of an object, or the items of a list, whose key is `item`.

use super::fault::ContentError;
use super::python;
use super::value::{Dict, Keys, Value};

/// The most elements within elements.
const MAX_DEPTH: usize = 64;
/// The key of a list's items.
pub(super) const ITEM: &str = "item";

const NOT_ELEMENTS: ContentError = ContentError::NotA("elements with their ends");

/// Returns the elements of a text. White space between them has no meaning.
pub(super) fn elements(text: &str, mark: &str) -> Result<Dict, ContentError> {
    let mut reader = Reader { rest: text, open: format!("{mark}<"), mark };
    let children = reader.children(0)?;
    if reader.rest.is_empty() { entries(children) } else { Err(NOT_ELEMENTS) }
}

fn entries(children: Vec<(String, Value)>) -> Result<Dict, ContentError> {
    let mut entries = Dict::new();
    for (key, value) in children {
        Keys::Distinct.insert(&mut entries, key, value)?;
    }
    Ok(entries)
}

struct Reader<'t> {
    rest: &'t str,
    mark: &'t str,
    /// The mark and the start of a tag.
    open: String,
}

impl<'t> Reader<'t> {
    /// Reads elements up to the end of the one around them, or of the text.
    fn children(&mut self, depth: usize) -> Result<Vec<(String, Value)>, ContentError> {
        let mut children = Vec::new();
        loop {
            self.rest = self.rest.trim_start_matches(python::is_space);
            let tag = self.rest.strip_prefix(self.open.as_str()).filter(|tag| !tag.starts_with('/'));
            let Some(tag) = tag else { return Ok(children) };
            let (key, content) = tag.split_once('>').ok_or(NOT_ELEMENTS)?;
            if key.is_empty() || key.contains('<') || depth == MAX_DEPTH {
                return Err(NOT_ELEMENTS);
            }
            self.rest = content;
            let value = self.content(depth)?;
            let end = self.rest.strip_prefix(self.open.as_str()).and_then(|end| end.strip_prefix('/'));
            let after = end.and_then(|end| end.strip_prefix(key)?.strip_prefix('>'));
            self.rest = after.ok_or(NOT_ELEMENTS)?;
            children.push((key.to_owned(), value));
        }
    }

    /// Reads up to the end of an element.
    fn content(&mut self, depth: usize) -> Result<Value, ContentError> {
        let (text, rest) = self.rest.split_at(self.rest.find(self.open.as_str()).ok_or(NOT_ELEMENTS)?);
        let is_end = rest.get(self.mark.len()..).is_some_and(|tag| tag.starts_with("</"));
        if is_end {
            self.rest = rest;
            return Ok(Value::Text(text.to_owned()));
        }
        let children = self.children(depth + 1)?;
        if children.iter().all(|(key, _)| key == ITEM) && !children.is_empty() {
            return Ok(Value::List(children.into_iter().map(|(_, value)| value).collect()));
        }
        if children.is_empty() { Err(NOT_ELEMENTS) } else { entries(children).map(Value::from) }
    }
}
