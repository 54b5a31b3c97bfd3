//! Where the images of a request are.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use tandem_common::field::Path;

/// An encoded file.
#[derive(Debug, Clone, PartialEq)]
pub enum MediaSource {
    /// Its bytes.
    Bytes(Vec<u8>),
    /// The URL that it is fetched from.
    Url(String),
}

/// An image of a request that is at a URL.
#[derive(Debug)]
pub struct ImageUrl<'a> {
    /// The path of the URL in the request.
    pub(super) field: Path,
    pub(super) url: String,
    place: Place<'a>,
}

/// Where a fetched file goes.
#[derive(Debug)]
enum Place<'a> {
    /// A block of a message, as a data URL.
    Text(&'a mut String),
    /// A file of a prompt with markers.
    File(&'a mut MediaSource),
}

impl<'a> ImageUrl<'a> {
    /// Returns the image of a message's block, whose text is the URL.
    pub(super) fn of_block(field: Path, text: &'a mut String) -> Self {
        Self { field, url: text.clone(), place: Place::Text(text) }
    }

    /// Returns the image of a file.
    pub(super) fn of_file(field: Path, url: String, source: &'a mut MediaSource) -> Self {
        Self { field, url, place: Place::File(source) }
    }

    /// Replaces the URL by the file.
    pub(super) fn set(self, bytes: Vec<u8>) {
        match self.place {
            Place::Text(text) => *text = format!("data:;base64,{}", BASE64_STANDARD.encode(bytes)),
            Place::File(source) => *source = MediaSource::Bytes(bytes),
        }
    }
}
