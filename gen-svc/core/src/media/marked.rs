//! Prompts with markers for media files. Each marker becomes an expansion of special
//! tokens, so that the tokens of the text around it do not change.

use std::sync::Arc;

use tandem_common::field::Path;
use tandem_images::PreparedImage;
use tandem_model_files::tokenizer::Tokenizer;

use super::axes::AxisPositions;
use super::messages::Encoded;
use super::prompt::{MediaPrompt, PromptMedia};
use super::room::Room;
use super::source::{ImageUrl, MediaSource};
use super::vision::Vision;
use crate::cache::{Digest, ImageSpan};
use crate::error::{FetchError, RequestError};

/// The field of files in a request.
const FIELD: &str = "media";

/// A prompt with markers.
#[derive(Debug, Clone, PartialEq)]
pub enum Marked {
    /// Text. A marker is the placeholder's text.
    Text(String),
    /// Token ids. A marker is the placeholder's id.
    TokenIds(Vec<u32>),
}

/// A media file and the place of its marker.
#[derive(Debug, Clone, PartialEq)]
pub struct MediaFile {
    /// The encoded file, or where it is.
    pub source: MediaSource,
    /// A byte of the text, or an index of the ids.
    pub offset: usize,
}

impl MediaFile {
    /// Returns the file if it is at a URL.
    fn url(&mut self, index: usize) -> Option<ImageUrl<'_>> {
        let MediaSource::Url(url) = &self.source else { return None };
        Some(ImageUrl::of_file(Path::item(FIELD, index).key("url"), url.clone(), &mut self.source))
    }

    /// Returns the size in bytes, as far as it is known.
    #[must_use]
    pub fn size(&self) -> usize {
        match &self.source {
            MediaSource::Bytes(bytes) => bytes.len(),
            MediaSource::Url(url) => url.len(),
        }
    }

    /// Returns the `index`-th file of a request.
    fn encoded(self, index: usize) -> Result<Encoded, RequestError> {
        let field = Path::item(FIELD, index);
        match self.source {
            MediaSource::Bytes(bytes) => Ok(Encoded { field, bytes }),
            MediaSource::Url(_) => Err(RequestError::Fetch { field: field.key("url"), source: FetchError::NoHosts }),
        }
    }
}

/// Returns the files at URLs.
pub(crate) fn urls(files: &mut [MediaFile]) -> Vec<ImageUrl<'_>> {
    files.iter_mut().enumerate().filter_map(|(index, file)| file.url(index)).collect()
}

impl Marked {
    /// Returns the size in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::TokenIds(ids) => size_of_val(ids.as_slice()),
        }
    }
}

impl Vision {
    /// Returns the prompt of a text or of ids with markers.
    ///
    /// # Errors
    /// A file is invalid or over a limit, an offset is not that of a marker, the texts or the images cannot
    /// fit into the context, or the model's expansion has tokens of text.
    pub fn marked(&self, prompt: Marked, media: Vec<MediaFile>, room: Room<'_>) -> Result<MediaPrompt, RequestError> {
        if media.len() > self.limits.images {
            return Err(RequestError::TooManyImages {
                field: Path::item(FIELD, self.limits.images),
                limit: self.limits.images,
            });
        }
        let offsets: Vec<usize> = media.iter().map(|file| file.offset).collect();
        if let Marked::Text(text) = &prompt {
            room.check("prompt", &self.split(text, &offsets)?)?;
        }
        let encoded = media.into_iter().enumerate().map(|(i, file)| file.encoded(i));
        let images = self.prepare(&encoded.collect::<Result<Vec<_>, _>>()?, room.context)?;
        let parts = match prompt {
            Marked::Text(text) => {
                let encode = |part: &str| {
                    room.tokenizer.encode(part, false).map_err(|error| RequestError::encode("prompt", error))
                };
                self.split(&text, &offsets)?.into_iter().map(encode).collect::<Result<_, _>>()?
            }
            Marked::TokenIds(ids) => self.parts_of_ids(&ids, &offsets)?,
        };
        let mut prompt = Spliced { token: self.image_token, ids: Vec::new(), spans: Vec::new() };
        let mut images_left = images.iter().enumerate();
        for part in parts {
            prompt.ids.extend(part);
            if let Some((index, (image, digest))) = images_left.next() {
                prompt.push(index, image, *digest, room.tokenizer)?;
            }
        }
        let Spliced { ids, spans, .. } = prompt;
        let images: Vec<_> = images.into_iter().map(|(image, _)| image).collect();
        let positions = self.attention.has_axes.then(|| AxisPositions::new(ids.len(), &spans, &images));
        Ok(MediaPrompt { ids, media: PromptMedia { images, spans, positions, is_mutual: self.attention.is_mutual } })
    }

    /// Divides a text at the markers: one part more than markers.
    fn split<'a>(&self, text: &'a str, offsets: &[usize]) -> Result<Vec<&'a str>, RequestError> {
        let marker = self.processor.placeholder();
        let (mut parts, mut start) = (Vec::with_capacity(offsets.len() + 1), 0);
        for (i, &offset) in offsets.iter().enumerate() {
            let before = text.get(start..offset).filter(|_| text[offset..].starts_with(marker));
            parts.push(before.ok_or_else(|| not_a_marker(i, offset, marker))?);
            start = offset + marker.len();
        }
        parts.push(&text[start..]);
        Ok(parts)
    }

    /// Divides ids at the markers: one part more than markers.
    fn parts_of_ids(&self, ids: &[u32], offsets: &[usize]) -> Result<Vec<Vec<u32>>, RequestError> {
        let (mut parts, mut start) = (Vec::with_capacity(offsets.len() + 1), 0);
        for (i, &offset) in offsets.iter().enumerate() {
            let before = ids.get(start..offset).filter(|_| ids.get(offset) == Some(&self.image_token));
            parts.push(before.ok_or_else(|| not_a_marker(i, offset, self.processor.placeholder()))?.to_vec());
            start = offset + 1;
        }
        parts.push(ids[start..].to_vec());
        Ok(parts)
    }
}

fn not_a_marker(index: usize, offset: usize, marker: &str) -> RequestError {
    let problem = format!("must be the start of a marker {marker:?} after the previous one, is {offset}");
    RequestError::invalid(Path::item(FIELD, index).key("offset"), problem)
}

/// Ids with the expansions of images.
struct Spliced {
    token: u32,
    ids: Vec<u32>,
    spans: Vec<ImageSpan>,
}

impl Spliced {
    /// Appends the expansion of an image.
    fn push(
        &mut self,
        image: usize,
        prepared: &Arc<PreparedImage>,
        digest: Digest,
        tokenizer: &Tokenizer,
    ) -> Result<(), RequestError> {
        let text = &prepared.plan.expansion.text;
        let ids = tokenizer.encode(text, false).map_err(|error| RequestError::encode(FIELD, error))?;
        if !ids.iter().all(|&id| tokenizer.is_special(id) || id == self.token) {
            let problem = "must be empty: this model's images need hf_messages_json, which is tokenized with them";
            return Err(RequestError::invalid(FIELD, problem));
        }
        let mut row = 0;
        for id in ids {
            let at = self.ids.len();
            self.ids.push(id);
            if id != self.token {
                continue;
            }
            match self.spans.last_mut() {
                Some(last) if last.image == image && last.positions.end == at => last.positions.end += 1,
                _ => self.spans.push(ImageSpan { positions: at..at + 1, first_row: row, image, digest }),
            }
            row += 1;
        }
        Ok(())
    }
}
