//! Images of the user's messages, read from files.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use tandem_common::pb::chat::v1::block::Kind;
use tandem_common::pb::chat::v1::media_block::Source;
use tandem_common::pb::chat::v1::{Block, MediaBlock};

/// The most bytes of a file: the default limit of the services' messages.
const MAX_BYTES: u64 = 32 << 20;

/// A format of image files.
#[derive(Debug)]
struct Format {
    name: &'static str,
    mime_type: &'static str,
    /// Bytes of each file of the format, and their offset.
    signatures: &'static [(usize, &'static [u8])],
}

const FORMATS: &[Format] = &[
    Format { name: "JPEG", mime_type: "image/jpeg", signatures: &[(0, b"\xff\xd8\xff")] },
    Format { name: "PNG", mime_type: "image/png", signatures: &[(0, b"\x89PNG\r\n\x1a\n")] },
    Format { name: "WebP", mime_type: "image/webp", signatures: &[(0, b"RIFF"), (8, b"WEBP")] },
    Format { name: "GIF", mime_type: "image/gif", signatures: &[(0, b"GIF8"), (5, b"a")] },
    Format { name: "BMP", mime_type: "image/bmp", signatures: &[(0, b"BM")] },
];

impl Format {
    fn of(data: &[u8]) -> Option<&'static Self> {
        let has = |(offset, bytes): &(usize, &[u8])| data.get(*offset..).is_some_and(|data| data.starts_with(bytes));
        FORMATS.iter().find(|format| format.signatures.iter().all(has))
    }
}

/// An image of a message.
#[derive(Debug)]
pub(crate) struct Image {
    name: String,
    format: &'static Format,
    data: Vec<u8>,
}

impl Image {
    /// Reads a file. Fails if it is no regular file, is larger than the limit, or has none of the
    /// formats.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let shown = path.display();
        let data = match read_bounded(path) {
            Ok(data) => data,
            Err(error) => bail!("image cannot be read: {shown}: {error}; give the path of an image file"),
        };
        if data.len() as u64 > MAX_BYTES {
            bail!("image is larger than {} MiB: {shown}; give a smaller file", MAX_BYTES >> 20);
        }
        let Some(format) = Format::of(&data) else {
            let names: Vec<_> = FORMATS.iter().map(|format| format.name).collect();
            bail!("image format is not supported: {shown}; convert the file to one of {}", names.join(", "));
        };
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { name, format, data })
    }

    /// Returns the content block.
    pub(crate) fn into_block(self) -> Block {
        let (source, mime_type) = (Some(Source::Data(self.data)), self.format.mime_type.to_owned());
        Block { kind: Some(Kind::Image(MediaBlock { source, mime_type })) }
    }

    /// Returns width and height in pixels, if the file's header states them.
    fn pixels(&self) -> Option<(usize, usize)> {
        let size = imagesize::blob_size(&self.data).ok()?;
        // A bitmap that is stored from the top down has a negative height, read here as unsigned.
        i32::try_from(size.height).ok().map(|_| (size.width, size.height))
    }
}

/// Name, format, pixels and size, such as `cat.png, PNG, 640 × 480, 12 KiB`.
impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.name, self.format.name)?;
        if let Some((width, height)) = self.pixels() {
            write!(f, ", {width} × {height}")?;
        }
        write!(f, ", {} KiB", self.data.len().div_ceil(1024))
    }
}

/// Returns the content of a regular file, of which at most one byte exceeds the limit. Other files
/// are not opened: a pipe without a writer would block.
fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    match fs::metadata(path)? {
        file if file.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
        file if !file.is_file() => return Err(io::Error::other("not a regular file")),
        _ => {}
    }
    let mut data = Vec::new();
    File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut data)?;
    Ok(data)
}

/// Returns the path that a user typed, or that a terminal inserted for a dropped file: possibly
/// quoted, with escaped spaces, or in the home folder `~`.
pub(crate) fn typed_path(text: &str) -> PathBuf {
    let quoted = ['\'', '"'].iter().find_map(|quote| text.strip_prefix(*quote)?.strip_suffix(*quote));
    let text = quoted.map_or_else(|| text.replace("\\ ", " "), str::to_owned);
    let in_home = text.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/'));
    match in_home.zip(std::env::home_dir()) {
        Some((rest, home)) => home.join(rest.trim_start_matches('/')),
        None => text.into(),
    }
}
