//! The merges of a vocabulary with scores. SentencePiece has no list of merges: it joins any two
//! neighbours that form a piece, the piece with the highest score first.

use std::borrow::Cow;
use std::cmp::Reverse;

use crate::tokenizer::error::TokenizerError;

/// The memory limit of all merges. A vocabulary of 250,000 pieces needs a seventh. Long pieces that
/// are prefixes of each other can need more than the size of their file.
const MAX_BYTES: usize = 256 << 20;

/// The memory of a merge without its text.
const OVERHEAD_BYTES: usize = 64;

/// A piece and its two halves.
struct Merge {
    whole: usize,
    left: usize,
    right: usize,
}

/// Returns all splits of pieces into two pieces, by priority: higher score of the whole, then
/// longer left half, then longer right half.
///
/// The time is proportional to the text of all pieces and merges, plus sorting. Scores must not be
/// NaN.
pub(super) fn derive(pieces: &[Cow<'_, str>], scores: &[f32]) -> Result<Vec<(String, String)>, TokenizerError> {
    let mut merges = find(pieces)?;
    let lengths: Vec<usize> = pieces.iter().map(|piece| piece.chars().count()).collect();
    merges.sort_by(|one, other| {
        let lengths = |merge: &Merge| Reverse((lengths[merge.left], lengths[merge.right]));
        let by_score = scores[other.whole].total_cmp(&scores[one.whole]);
        by_score.then_with(|| (lengths(one), one.whole).cmp(&(lengths(other), other.whole)))
    });
    Ok(merges.iter().map(|merge| (pieces[merge.left].to_string(), pieces[merge.right].to_string())).collect())
}

fn find(pieces: &[Cow<'_, str>]) -> Result<Vec<Merge>, TokenizerError> {
    let prefixes = longest_prefixes(&pieces.iter().map(|piece| piece.as_bytes()).collect::<Vec<_>>());
    let reversed: Vec<Vec<u8>> = pieces.iter().map(|piece| piece.bytes().rev().collect()).collect();
    let suffixes = longest_prefixes(&reversed);
    drop(reversed);
    let (mut merges, mut bytes, mut rights) = (Vec::new(), 0, Vec::new());
    for (whole, piece) in pieces.iter().enumerate() {
        rights.clear();
        rights.extend(chain(&suffixes, whole));
        for left in chain(&prefixes, whole) {
            // Left halves come in descending length, so the right halves of ascending length are
            // consumed once.
            let wanted = piece.len() - pieces[left].len();
            while rights.pop_if(|right| pieces[*right].len() < wanted).is_some() {}
            let Some(&right) = rights.last().filter(|right| pieces[**right].len() == wanted) else { continue };
            bytes += piece.len() + OVERHEAD_BYTES;
            if bytes > MAX_BYTES {
                return Err(TokenizerError::Merges { limit: MAX_BYTES });
            }
            merges.push(Merge { whole, left, right });
        }
    }
    Ok(merges)
}

/// Returns for every text the longest other text that is a prefix of it. Ignores empty texts.
fn longest_prefixes<T: AsRef<[u8]>>(texts: &[T]) -> Vec<Option<usize>> {
    let mut sorted: Vec<usize> = (0..texts.len()).filter(|&at| !texts[at].as_ref().is_empty()).collect();
    sorted.sort_unstable_by_key(|&at| texts[at].as_ref());
    let mut longest = vec![None; texts.len()];
    // In sorted order a text follows each of its prefixes, and all texts in between start with it
    // too.
    let mut open: Vec<usize> = Vec::new();
    for at in sorted {
        while open.pop_if(|open| !texts[at].as_ref().starts_with(texts[*open].as_ref())).is_some() {}
        longest[at] = open.last().copied();
        open.push(at);
    }
    longest
}

/// Returns the prefixes of a text, the longest first.
fn chain(longest: &[Option<usize>], at: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(longest[at], |&at| longest[at])
}
