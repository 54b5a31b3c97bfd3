//! The DeepSeek families. Each ports its official encoder and equals it byte for byte.
//!
//! The official encoders read neither lists of text blocks nor typed tool calls and results, and V3.2
//! writes `None` for missing content. Under CAPABILITY the adapters rewrite these to plain messages,
//! take arguments as objects too, and reject media blocks, so that a prompt never contains base64
//! text. Under NONE they read messages as the official encoders do.
//!
//! The makers ship encoders and no chat templates. A template in a model's folder is therefore not
//! theirs: the encoder renders, and a template that renders differently is warned of.

mod arguments;
mod blocks;
mod calls;
mod effort;
mod identity;
mod images;
mod markup;
mod settings;
mod template;
mod turns;
mod v32;
mod v4;

pub(super) use v4::DEEPSEEK_V4;
pub(super) use v32::DEEPSEEK_V32;
