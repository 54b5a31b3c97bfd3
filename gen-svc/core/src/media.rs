//! Images in prompts: from messages to token ids and pixel values, as the model's processor in
//! transformers does it.
//!
//! 1. `fetch` fetches images at URLs, from hosts that are allowed. `messages` takes the images out
//!    of the messages.
//! 2. The images are decoded and prepared, several at once.
//! 3. The model's chat template writes the prompt, with a placeholder for each image.
//! 4. Each placeholder becomes an expansion, which contains the image's tokens.
//! 5. The whole text is tokenized. `spans` finds the tokens of each image.

mod axes;
mod fetch;
mod hosts;
mod limits;
mod marked;
mod messages;
mod prompt;
mod room;
mod source;
mod spans;
mod vision;

pub use axes::AxisPositions;
pub use hosts::{ImageHost, Origin, OriginError, is_public};
pub use limits::MediaLimits;
pub(crate) use marked::urls;
pub use marked::{Marked, MediaFile};
pub use messages::{HfMessages, decode_base64};
pub use prompt::{MediaPrompt, PromptMedia};
pub use room::Room;
pub use source::{ImageUrl, MediaSource};
pub use vision::{ImageAttention, Vision, read_processor};
