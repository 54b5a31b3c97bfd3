//! The merges that a vocabulary with scores implies. SentencePiece has no list of them: it joins any two neighbours that make
//! a piece, the best piece first.

use std::borrow::Cow;
use std::cmp::Reverse;

use super::super::TokenizerError;

/// Bytes that all merges may take. Those of a vocabulary of a quarter million pieces take a seventh; a vocabulary of long
/// pieces that all begin with each other has more than its file has bytes.
const MAX_BYTES: usize = 256 << 20;

/// What a merge takes beside its text, in bytes.
const OVERHEAD: usize = 64;

/// A piece, and the two that make it.
struct Merge {
    whole: usize,
    left: usize,
    right: usize,
}

/// Every way to make a piece of two others, in the order in which they are to be tried: the whole with the higher score
/// first, of equals the one with the longer left half, and then the one with the longer right half.
///
/// Takes time in proportion to the text of all pieces and merges, sorting aside. Scores are finite or infinite.
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
    let beginnings = longest_beginnings(&pieces.iter().map(|piece| piece.as_bytes()).collect::<Vec<_>>());
    let backwards: Vec<Vec<u8>> = pieces.iter().map(|piece| piece.bytes().rev().collect()).collect();
    let ends = longest_beginnings(&backwards);
    drop(backwards);
    let (mut merges, mut bytes, mut rights) = (Vec::new(), 0, Vec::new());
    for (whole, piece) in pieces.iter().enumerate() {
        rights.clear();
        rights.extend(chain(&ends, whole));
        for left in chain(&beginnings, whole) {
            // Lefts come from the longest down and rights are taken from the shortest up.
            let wanted = piece.len() - pieces[left].len();
            while rights.pop_if(|right| pieces[*right].len() < wanted).is_some() {}
            let Some(&right) = rights.last().filter(|right| pieces[**right].len() == wanted) else { continue };
            bytes += piece.len() + OVERHEAD;
            if bytes > MAX_BYTES {
                return Err(TokenizerError::Merges { limit: MAX_BYTES });
            }
            merges.push(Merge { whole, left, right });
        }
    }
    Ok(merges)
}

/// For every text the longest other that it begins with. Empty ones are left out.
fn longest_beginnings<T: AsRef<[u8]>>(texts: &[T]) -> Vec<Option<usize>> {
    let mut sorted: Vec<usize> = (0..texts.len()).filter(|&at| !texts[at].as_ref().is_empty()).collect();
    sorted.sort_unstable_by_key(|&at| texts[at].as_ref());
    let mut longest = vec![None; texts.len()];
    // In this order, what a text begins with comes before it, with nothing in between that does not begin so too.
    let mut open: Vec<usize> = Vec::new();
    for at in sorted {
        while open.pop_if(|open| !texts[at].as_ref().starts_with(texts[*open].as_ref())).is_some() {}
        longest[at] = open.last().copied();
        open.push(at);
    }
    longest
}

/// What a text begins with, what that begins with, and so on.
fn chain(longest: &[Option<usize>], at: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(longest[at], |&at| longest[at])
}
