//! The DeepSeek families. Each ports its official encoder and equals it byte for byte.
//!
//! The official encoders read neither lists of text blocks nor typed tool calls and results. The
//! adapters rewrite them to plain messages: V3.2 in both dialects, V4 in the contract's dialect
//! only, because the V4 encoder defines lists itself. Media blocks are rejected, so that a prompt
//! never contains base64 text.

mod arguments;
mod blocks;
mod calls;
mod identity;
mod images;
mod markup;
mod settings;
mod turns;
mod v32;
mod v4;

pub(super) use v4::DEEPSEEK_V4;
pub(super) use v32::DEEPSEEK_V32;
