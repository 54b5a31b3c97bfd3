//! Media blocks, and the attachments that they refer to by id.

use std::collections::HashMap;

use serde_json::Value;

use super::path::Path;
use crate::adapters::{Attachment, MediaKind, MediaSource};
use crate::chat::{self, Invalid, Object};
use crate::error::Error;

/// The kind of media that a block of this type shows.
pub(super) fn kind(block_type: &str) -> Option<MediaKind> {
    match block_type {
        "image" | "image_url" => Some(MediaKind::Image),
        "audio" | "input_audio" => Some(MediaKind::Audio),
        "video" => Some(MediaKind::Video),
        _ => None,
    }
}

/// What the conversation declares for its blocks to refer to, by id.
#[derive(Debug)]
pub(super) struct Attachments<'a>(HashMap<&'a str, &'a Value>);

impl<'a> Attachments<'a> {
    /// Those of `template_args.attachments`, a list of `{"id", "type"?, …}`.
    ///
    /// # Errors
    /// It is no list, or one of them has no id.
    pub(super) fn declared_in(args: &'a Object) -> Result<Self, Invalid> {
        let declared = match args.get("attachments") {
            None | Some(Value::Null) => &[],
            Some(Value::Array(declared)) => declared.as_slice(),
            Some(_) => return Err(Invalid::new("template_args.attachments", "must be a list")),
        };
        let mut by_id = HashMap::new();
        for (i, attachment) in declared.iter().enumerate() {
            let Some(id) = attachment["id"].as_str() else {
                return Err(Invalid::new(format!("template_args.attachments[{i}].id"), "must be a string"));
            };
            by_id.insert(id, attachment);
        }
        Ok(Self(by_id))
    }

    /// What a media block shows.
    ///
    /// # Errors
    /// It refers to nothing, or to media of another kind.
    pub(super) fn shown_by(&self, block: &Value, kind: MediaKind, path: Path<'_>) -> Result<Attachment, Error> {
        let source = match &block["attachment_id"] {
            Value::Null => own_source(block, kind, path)?,
            Value::String(id) => self.declared(id, kind, path)?,
            _ => return Err(path.invalid("attachment_id", "must be a string").into()),
        };
        Ok(Attachment { kind, path: path.to_string(), source })
    }

    fn declared(&self, id: &str, kind: MediaKind, path: Path<'_>) -> Result<MediaSource, Error> {
        let Some(attachment) = self.0.get(id) else {
            return Err(Error::DanglingAttachment { field: format!("{path}.attachment_id"), id: id.to_owned() });
        };
        match chat::kind(attachment) {
            Some(declared) if declared != kind.name() => {
                let problem = format!("attachment {id:?} is declared as {declared:?}, not as {:?}", kind.name());
                Err(path.invalid("attachment_id", &problem).into())
            }
            _ => Ok(MediaSource::Declared(id.to_owned())),
        }
    }
}

/// Where a block says its data is. Without a word the caller has it, and matches it by its place.
fn own_source(block: &Value, kind: MediaKind, path: Path<'_>) -> Result<MediaSource, Invalid> {
    match &block["base64"] {
        Value::Null => {}
        Value::String(base64) => return Ok(MediaSource::Base64(base64.clone())),
        _ => return Err(path.invalid("base64", "must be a string")),
    }
    if let Some(base64) = block["input_audio"]["data"].as_str() {
        return Ok(MediaSource::Base64(base64.to_owned()));
    }
    let image_url = &block["image_url"];
    let places = [&block[kind.name()], &image_url["url"], image_url, &block["url"], &block["path"]];
    let place = places.into_iter().find_map(Value::as_str);
    Ok(place.map_or(MediaSource::Elsewhere, |place| MediaSource::Location(place.to_owned())))
}
