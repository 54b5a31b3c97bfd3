//! The content of parts in the prefix cache.

use std::ops::Range;
use std::sync::Arc;

use super::table::{BLOCK, Part};

/// The content of a part in the prefix cache. Whole keys are compared, so that different prompts
/// never share a part.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    prefix: Prefix,
    tokens: [u32; BLOCK],
    /// The images whose tokens are in the part: their ids are the same for every image.
    images: Box<[ImagePart]>,
}

/// The tokens of one image in a part.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ImagePart {
    /// The place of the first of them in the part.
    at: usize,
    /// The row of the image's features that it takes.
    row: usize,
    digest: Digest,
}

/// A SHA-256 of an image.
pub type Digest = [u8; 32];

/// Consecutive tokens of one image in a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageSpan {
    /// Their positions.
    pub positions: Range<usize>,
    /// The row of the image's features that the first of them takes.
    pub first_row: usize,
    /// The index of the image in its request.
    pub image: usize,
    /// The digest of the image and of its preparation.
    pub digest: Digest,
}

/// A prompt and the tokens after it, as the prefix cache identifies them.
#[derive(Debug, Clone, Copy)]
pub struct Content<'a> {
    /// Only parts of the same salt are found.
    pub salt: &'a Arc<str>,
    /// True if the keys are those of a long sequence. Only parts of such a one are found then, else only others.
    pub is_long: bool,
    pub tokens: &'a [u32],
    /// The images among the tokens, in order and disjoint.
    pub images: &'a [ImageSpan],
}

/// The positions before a part.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Prefix {
    /// No positions: the start of a prompt with this cache salt, of a long sequence or another.
    Start { salt: Arc<str>, is_long: bool },
    /// Another part.
    Part(Part),
}

impl Content<'_> {
    /// Returns the key of part number `at`, whose tokens are all there.
    pub(super) fn key(&self, prefix: Prefix, at: usize) -> Key {
        let part = at * BLOCK..(at + 1) * BLOCK;
        let first = self.images.partition_point(|span| span.positions.end <= part.start);
        let spans = self.images[first..].iter().take_while(|span| span.positions.start < part.end);
        let mut key = Key { prefix, tokens: [0; BLOCK], images: spans.map(|span| span.part(part.start)).collect() };
        key.tokens.copy_from_slice(&self.tokens[part]);
        key
    }

    /// Returns the prefix of the first part.
    pub(super) fn start(&self) -> Prefix {
        Prefix::Start { salt: Arc::clone(self.salt), is_long: self.is_long }
    }
}

impl ImageSpan {
    /// Returns the tokens in the part that starts at position `part`, which the span reaches.
    fn part(&self, part: usize) -> ImagePart {
        let start = self.positions.start.max(part);
        ImagePart { at: start - part, row: self.first_row + start - self.positions.start, digest: self.digest }
    }
}
