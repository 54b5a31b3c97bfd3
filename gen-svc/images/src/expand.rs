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
}

/// Replaces each `placeholder` in `prompt` by the expansion of the image at the same index. Fails
/// if the prompt has more or fewer placeholders than expansions.
pub fn expand<S: AsRef<str>>(prompt: &str, placeholder: &str, expansions: &[S]) -> Result<Expanded, ImageError> {
    let placeholders = prompt.matches(placeholder).count();
    if placeholders != expansions.len() || placeholder.is_empty() {
        let images = expansions.len();
        return Err(ImageError::Placeholders { placeholder: placeholder.to_owned(), placeholders, images });
    }
    let mut parts = prompt.split(placeholder);
    let mut text = parts.next().unwrap_or_default().to_owned();
    let mut ranges = Vec::with_capacity(placeholders);
    for (expansion, part) in expansions.iter().zip(parts) {
        let start = text.len();
        text.push_str(expansion.as_ref());
        ranges.push(start..text.len());
        text.push_str(part);
    }
    Ok(Expanded { text, ranges })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_placeholder_is_replaced_in_order() {
        let expanded = expand("a<i>b<i>", "<i>", &["<i><i>", "y"]).expect("two images");
        assert_eq!(expanded.text, "a<i><i>by");
        assert_eq!(expanded.ranges, [1..7, 8..9]);
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
