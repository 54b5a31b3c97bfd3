//! Placeholders of a rendered prompt.

use std::ops::Range;

use crate::error::ImageError;

/// A prompt in which each placeholder is replaced by an image's expansion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expanded {
    /// The text, which is tokenized as a whole.
    pub text: String,
    /// Where each expansion is in `text`, in bytes.
    pub ranges: Vec<Range<usize>>,
    /// Where the literal ranges of the prompt are in `text`, in bytes.
    pub literal: Vec<Range<usize>>,
}

/// Replaces each `placeholder` in `prompt` by the expansion of the image at the same index. Fails
/// if the prompt has more or fewer placeholders than expansions.
pub fn expand<S: AsRef<str>>(prompt: &str, placeholder: &str, expansions: &[S]) -> Result<Expanded, ImageError> {
    expand_outside(prompt, placeholder, expansions, &[])
}

/// The same, but the `literal` ranges of `prompt`, which are in order, have no placeholders.
pub fn expand_outside<S: AsRef<str>>(
    prompt: &str,
    placeholder: &str,
    expansions: &[S],
    literal: &[Range<usize>],
) -> Result<Expanded, ImageError> {
    let is_literal = |start: usize| {
        let next = literal.partition_point(|range| range.end <= start);
        literal.get(next).is_some_and(|range| range.start < start + placeholder.len())
    };
    let found = prompt.match_indices(placeholder).map(|(start, _)| start);
    let starts: Vec<usize> = found.filter(|&start| !is_literal(start)).collect();
    if starts.len() != expansions.len() || placeholder.is_empty() {
        let (images, placeholders) = (expansions.len(), starts.len());
        return Err(ImageError::Placeholders { placeholder: placeholder.to_owned(), placeholders, images });
    }
    let (mut text, mut ranges, mut end) = (String::new(), Vec::with_capacity(starts.len()), 0);
    for (expansion, start) in expansions.iter().zip(&starts) {
        text.push_str(&prompt[end..*start]);
        let at = text.len();
        text.push_str(expansion.as_ref());
        ranges.push(at..text.len());
        end = start + placeholder.len();
    }
    text.push_str(&prompt[end..]);
    let moved = |range: &Range<usize>| {
        let before = starts.partition_point(|start| *start < range.start);
        let (prompt_end, text_end) = match before.checked_sub(1) {
            None => (0, 0),
            Some(last) => (starts[last] + placeholder.len(), ranges[last].end),
        };
        text_end + range.start - prompt_end..text_end + range.end - prompt_end
    };
    let literal = literal.iter().map(moved).collect();
    Ok(Expanded { text, ranges, literal })
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::*;

    #[test]
    fn each_placeholder_is_replaced_in_order() {
        let expanded = expand("a<i>b<i>", "<i>", &["<i><i>", "y"]).expect("two images");
        assert_eq!(expanded.text, "a<i><i>by");
        assert_eq!(expanded.ranges, [1..7, 8..9]);
    }

    #[test]
    fn a_placeholder_in_literal_text_stays() {
        let expanded = expand_outside("<i>a<i>b<i>c", "<i>", &["<i><i>"], &[0..3, 8..11]).expect("one image");
        assert_eq!(expanded.text, "<i>a<i><i>b<i>c");
        assert_eq!((expanded.ranges.first(), expanded.ranges.len()), (Some(&(4..10)), 1));
        assert_eq!(expanded.literal, [0..3, 11..14]);
        assert!(expand_outside("<i>", "<i>", &["x"], from_ref(&(1..2))).is_err());
    }

    #[test]
    fn a_placeholder_too_many_is_an_error() {
        let error = expand("<i> and <i>", "<i>", &["x"]).expect_err("one image");
        assert_eq!(error, ImageError::Placeholders { placeholder: "<i>".into(), placeholders: 2, images: 1 });
    }

    #[test]
    fn a_prompt_without_images_is_unchanged() {
        let none: &[&str] = &[];
        assert_eq!(expand("text", "<i>", none).expect("no image").text, "text");
    }
}
