//! The prompt of a request.

use super::model::ServedModel;
use super::validate::{check, check_ids};
use crate::error::RequestError;
use crate::media::{self, HfMessages, ImageUrl, Marked, MediaFile, PromptMedia, Room, Vision};

/// A prompt.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// Text. Control tokens in it are tokenized as such, and none are added.
    Text(String),
    /// Token ids.
    TokenIds(Vec<u32>),
    /// A prompt with markers for media files, and the files in the order of the markers.
    WithMedia(Marked, Vec<MediaFile>),
    /// Messages with images, for models with a processor.
    HfMessages(Box<HfMessages>),
}

/// The token ids of a prompt, and its images.
#[derive(Debug)]
pub(super) struct TokenizedPrompt {
    pub(super) ids: Vec<u32>,
    pub(super) media: Option<PromptMedia>,
}

impl Input {
    /// Returns the path of this input in the request.
    pub(super) fn field(&self) -> &'static str {
        match self {
            Self::Text(_) => "prompt",
            Self::TokenIds(_) => "token_ids.ids",
            Self::WithMedia(Marked::Text(_), _) => "prompt",
            Self::WithMedia(Marked::TokenIds(_), _) => "token_ids.ids",
            Self::HfMessages(_) => "hf_messages_json",
        }
    }

    /// Returns the images at URLs, in order.
    pub(super) fn urls(&mut self) -> Vec<ImageUrl<'_>> {
        match self {
            Self::HfMessages(messages) => messages.urls(),
            Self::WithMedia(_, files) => media::urls(files),
            Self::Text(_) | Self::TokenIds(_) => Vec::new(),
        }
    }

    /// Returns the ids of the prompt, checked against the model.
    pub(super) fn tokenize(self, model: &ServedModel, expected: Option<&str>) -> Result<TokenizedPrompt, RequestError> {
        check_tokenizer(model, expected)?;
        let mut images = None;
        let field = self.field();
        let room = Room { tokenizer: &model.tokenizer, context: model.context_length };
        let ids = match self {
            Self::Text(text) => {
                room.check(field, &[&text])?;
                model.tokenizer.encode(&text, false).map_err(|error| RequestError::encode(field, error))?
            }
            Self::TokenIds(ids) => ids,
            Self::WithMedia(prompt, files) => {
                let prompt = vision(model)?.marked(prompt, files, room)?;
                images = Some(prompt.media);
                prompt.ids
            }
            Self::HfMessages(messages) => {
                let prompt = vision(model)?.prompt(*messages, room)?;
                images = Some(prompt.media);
                prompt.ids
            }
        };
        check(!ids.is_empty(), field, || "must not be empty".into())?;
        check_ids(field, &ids, model.vocabulary_size)?;
        if ids.len() >= model.context_length {
            return Err(RequestError::PromptTooLong { field, tokens: ids.len(), context: model.context_length });
        }
        Ok(TokenizedPrompt { ids, media: images })
    }
}

/// Returns the model's processor of images.
fn vision(model: &ServedModel) -> Result<&Vision, RequestError> {
    model.vision.as_ref().ok_or_else(|| RequestError::ImagesNotSupported { model: model.id.clone() })
}

/// Fails if the caller used another tokenizer.
fn check_tokenizer(model: &ServedModel, expected: Option<&str>) -> Result<(), RequestError> {
    let found = model.tokenizer.sha256();
    match expected {
        Some(expected) if expected != found => {
            Err(RequestError::TokenizerMismatch { expected: expected.to_owned(), found: found.to_owned() })
        }
        _ => Ok(()),
    }
}
