//! The tokens of each image in a tokenized prompt.

use std::sync::Arc;

use tandem_images::PreparedImage;

use super::messages::FIELD;
use crate::cache::{Digest, ImageSpan};
use crate::error::RequestError;

/// Divides the image tokens among the images, in order.
///
/// # Errors
/// The prompt has another number of image tokens than the images: the messages contain some as text.
pub(super) fn of(
    ids: &[u32],
    token: u32,
    images: &[(Arc<PreparedImage>, Digest)],
) -> Result<Vec<ImageSpan>, RequestError> {
    let mut places = (0..).zip(ids).filter(|(_, id)| **id == token).map(|(at, _)| at);
    let expected: usize = images.iter().map(|(image, _)| image.plan.expansion.tokens).sum();
    let found = places.clone().count();
    if found != expected {
        let problem =
            format!("must not contain image tokens as text: the prompt has {found}, the images have {expected}");
        return Err(RequestError::invalid(FIELD, problem));
    }
    let mut spans: Vec<ImageSpan> = Vec::new();
    for (index, (image, digest)) in images.iter().enumerate() {
        for row in 0..image.plan.expansion.tokens {
            let Some(at) = places.next() else { break };
            match spans.last_mut() {
                Some(last) if last.image == index && last.positions.end == at => last.positions.end += 1,
                _ => spans.push(ImageSpan { positions: at..at + 1, first_row: row, image: index, digest: *digest }),
            }
        }
    }
    Ok(spans)
}
