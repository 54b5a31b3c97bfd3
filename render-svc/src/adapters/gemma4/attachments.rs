//! Media blocks, and the attachments that they refer to by id.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::Value;

use crate::adapter::{Attachment, MediaSource};
use crate::conversation::media::{Media, MediaKind, Source};
use crate::conversation::{self, Invalid, Object};
use crate::error::Error;
use crate::walk::At;

/// The attachments that the conversation declares, by id.
#[derive(Debug)]
pub(super) struct Attachments<'a>(HashMap<&'a str, &'a Value>);

impl<'a> Attachments<'a> {
    /// Reads the attachments of `template_args.attachments`, a list of `{"id", "type"?, …}`.
    ///
    /// # Errors
    /// The value is not a list, or an attachment has no id.
    pub(super) fn declared_in(args: &'a Object) -> Result<Self, Invalid> {
        let declared = match args.get("attachments") {
            None | Some(Value::Null) => &[],
            Some(Value::Array(declared)) => declared.as_slice(),
            Some(_) => return Err(Invalid::new("template_args.attachments", "must be a list")),
        };
        let mut by_id = HashMap::new();
        for (i, attachment) in declared.iter().enumerate() {
            let Some(id) = attachment["id"].as_str() else {
                return Err(At::new("template_args.attachments", i).invalid("id", "must be a string"));
            };
            by_id.insert(id, attachment);
        }
        Ok(Self(by_id))
    }

    /// Returns the attachment of a media block. The position of its marker is set when the prompt
    /// is written.
    ///
    /// # Errors
    /// The block refers to an undeclared attachment, or to media of another kind.
    pub(super) fn shown_by(&self, block: &Value, kind: MediaKind, path: At<'_>) -> Result<Attachment, Error> {
        let Media { source, mime_type, .. } =
            Media::read(block, kind).map_err(|key| path.invalid(key, "must be a string"))?;
        let mime_type = mime_type.map(Cow::into_owned);
        let (source, mime_type) = match &block["attachment_id"] {
            Value::Null => (kept(source), mime_type),
            Value::String(id) => {
                let declared = self.declared(id, kind, path)?;
                let declared_type = || Some(declared.get("mime_type")?.as_str()?.to_owned());
                (MediaSource::Declared(id.clone()), mime_type.or_else(declared_type))
            }
            _ => return Err(path.invalid("attachment_id", "must be a string").into()),
        };
        Ok(Attachment { kind, path: path.path(), offset: 0, mime_type, source })
    }

    fn declared(&self, id: &str, kind: MediaKind, path: At<'_>) -> Result<&'a Value, Error> {
        let Some(attachment) = self.0.get(id) else {
            return Err(Error::DanglingAttachment { field: path.path().key("attachment_id"), id: id.to_owned() });
        };
        match conversation::kind(attachment) {
            Some(declared) if declared != kind.name() => {
                let problem = format!("attachment {id:?} is declared as {declared:?}, not as {:?}", kind.name());
                Err(path.invalid("attachment_id", &problem).into())
            }
            _ => Ok(attachment),
        }
    }
}

/// Returns the location of a block's data. If the block contains none, the caller has the data.
fn kept(source: Source<'_>) -> MediaSource {
    match source {
        Source::Base64(base64) => MediaSource::Base64(base64.to_owned()),
        Source::Url(location) | Source::Path(location) => MediaSource::Location(location.to_owned()),
        Source::Unknown => MediaSource::Elsewhere,
    }
}
