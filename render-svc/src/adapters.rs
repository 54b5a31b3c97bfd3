//! Every adapter, one file per family, in order of precedence.
//!
//! To add a family, write one file in `adapters/` and add one line to [`ADAPTERS`].

mod deepseek;
mod formats;
mod gemma4;
mod plain;
mod tokenizer_template;

use std::borrow::Cow;

pub(crate) use tokenizer_template::is_reserved as is_reserved_argument;

use crate::adapter::Adapter;

/// Every adapter. The first one that matches a model renders its conversations.
pub const ADAPTERS: &[Adapter] = &[
    deepseek::DEEPSEEK_V32,
    deepseek::DEEPSEEK_V4,
    gemma4::GEMMA4,
    tokenizer_template::TOKENIZER_TEMPLATE,
    formats::CHATML,
    formats::LLAMA3,
    formats::TAGGED,
    plain::PLAIN,
];

/// Adapters in order of precedence.
#[derive(Debug, Clone)]
pub struct Registry(Cow<'static, [Adapter]>);

impl Default for Registry {
    /// [`ADAPTERS`].
    fn default() -> Self {
        Self(Cow::Borrowed(ADAPTERS))
    }
}

impl From<Vec<Adapter>> for Registry {
    fn from(adapters: Vec<Adapter>) -> Self {
        Self(Cow::Owned(adapters))
    }
}

impl Registry {
    /// Returns every adapter, in order of precedence.
    #[must_use]
    pub fn adapters(&self) -> &[Adapter] {
        &self.0
    }
}
