//! The limits of one conversation, and of its images.

use std::io::Cursor;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use tandem_common::status::Reason;

use crate::conversation::Invalid;
use crate::conversation::media::{Media, MediaKind, Source};
use crate::walk::At;

/// Characters of base64 at the start of an image in which its size is searched; a multiple of four.
const HEADER_CHARS: usize = 1 << 20;

/// The limits of one conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Limits")]
pub struct Limits {
    /// Maximum bytes of the prompt.
    #[arg(long, env = "TANDEM_MAX_PROMPT_BYTES", default_value_t = Self::DEFAULT.max_prompt_bytes, value_name = "BYTES")]
    pub max_prompt_bytes: u64,

    /// Maximum images in a conversation.
    #[arg(long, env = "TANDEM_MAX_IMAGES", default_value_t = Self::DEFAULT.max_images, value_name = "IMAGES")]
    pub max_images: usize,

    /// Maximum pixels of an image: width times height, from its header. Images that the request
    /// does not contain, or whose header has no size, are not checked.
    #[arg(long, env = "TANDEM_MAX_IMAGE_PIXELS", default_value_t = Self::DEFAULT.max_image_pixels, value_name = "PIXELS")]
    pub max_image_pixels: u64,

    /// Steps of a chat template: operations, rounds of loops, and one for every 32 bytes of text
    /// that is copied or searched. Every byte of the conversation adds 16. Real templates need far less;
    /// a hostile one stops within 2 seconds.
    #[arg(skip = Self::DEFAULT.max_template_steps)]
    pub max_template_steps: u64,

    /// Bytes of values that a chat template may hold at once, or twice those of the prompt, if these are
    /// more. Every byte of the conversation adds 8.
    #[arg(skip = Self::DEFAULT.max_template_bytes)]
    pub max_template_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Limits {
    /// The default limits.
    pub const DEFAULT: Self = Self {
        max_template_steps: 30_000_000,
        max_template_bytes: 256 << 20,
        max_prompt_bytes: 128 << 20,
        max_images: 256,
        max_image_pixels: 128 << 20,
    };

    /// Returns the limits of a conversation that is rendered on a connection thread: a few
    /// milliseconds at most.
    #[must_use]
    pub fn short(self) -> Self {
        Self {
            max_template_steps: self.max_template_steps.min(20_000),
            max_template_bytes: self.max_template_bytes.min(1 << 20),
            max_prompt_bytes: self.max_prompt_bytes.min(32 << 10),
            ..self
        }
    }

    /// Returns the limits of a chat template. Tainted characters take more bytes.
    #[must_use]
    pub fn template(&self, has_taint: bool) -> tandem_template::Limits {
        let widest = if has_taint { char::MAX.len_utf8() as u64 } else { 1 };
        tandem_template::Limits {
            steps: self.max_template_steps,
            bytes: self.max_template_bytes.max(self.max_prompt_bytes.saturating_mul(2)),
            output: self.max_prompt_bytes.saturating_mul(widest),
        }
    }

    /// Returns the error of an image that is too large, or that exceeds the number of images as the
    /// `number`-th one.
    pub(crate) fn refused_image(&self, at: &At<'_>, image: &Value, number: usize) -> Option<Invalid> {
        let refused = |reason, problem| Some(Invalid { reason, field: at.path(), problem });
        if number > self.max_images {
            let problem = format!("conversation has more than {} images (--max-images)", self.max_images);
            return refused(Reason::TooManyImages, problem);
        }
        let [width, height] = size(image)?;
        let limit = self.max_image_pixels;
        if width.saturating_mul(height) <= limit {
            return None;
        }
        let problem = format!("image has {width} x {height} pixels, limit {limit} (--max-image-pixels)");
        refused(Reason::ImageTooLarge, problem)
    }
}

/// Returns an image's width and height in pixels, if the request contains the image and its header
/// contains them.
fn size(image: &Value) -> Option<[u64; 2]> {
    let Source::Base64(base64) = Media::read(image, MediaKind::Image).ok()?.source else { return None };
    let chars = base64.bytes().filter(|char| !char.is_ascii_whitespace());
    let mut chars: Vec<u8> = chars.take(HEADER_CHARS).collect();
    chars.truncate(chars.len() / 4 * 4);
    let header = STANDARD.decode(chars).ok()?;
    if let [b'B', b'M', .., 12, 0, 0, 0] = header.get(..18)? {
        return old_bitmap_size(&header);
    }
    let size = imagesize::reader_size(Cursor::new(&header)).ok()?;
    let [width, height] = [size.width as u64, size.height as u64];
    // A bitmap that is stored from the top down has a negative height.
    let is_negative = header.starts_with(b"BM") && height > u64::from(u32::MAX / 2);
    Some([width, if is_negative { (1 << 32) - height } else { height }])
}

/// Returns the sides of a bitmap with the header of OS/2, which `imagesize` does not know: 16 bits each.
fn old_bitmap_size(header: &[u8]) -> Option<[u64; 2]> {
    let side = |at: usize| Some(u64::from(u16::from_le_bytes(*header.get(at..)?.first_chunk()?)));
    Some([side(18)?, side(20)?])
}
