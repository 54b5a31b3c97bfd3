//! `plain`: message texts joined by newlines, for models of unknown format.

use tandem_common::field::Path;

use super::formats::{MARKUP, guess, tagged_text, with_calls};
use crate::adapter::{Adapter, AdapterOutput, Input, Match};
use crate::conversation::text;
use crate::error::Error;
use crate::model::Model;
use crate::warning::{WarningCode, ignored};

pub(super) const PLAIN: Adapter = Adapter {
    leaves_bos_to_tokenizer: true,
    markup: MARKUP,
    ..Adapter::new(
        "plain",
        "message texts joined by newlines, for models about whose format nothing is known",
        |model| Match::Guessed(guess(model).reason),
        render,
    )
};

const IGNORED: &[WarningCode] =
    &[WarningCode::ToolsIgnored, WarningCode::DocumentsIgnored, WarningCode::TemplateArgsIgnored];

fn render(_: &Model, input: &Input<'_>) -> Result<AdapterOutput, Error> {
    let texts = input.conversation.messages.iter().enumerate();
    let with_calls = |message| with_calls(text(message, tagged_text)?, message);
    let texts = texts.map(|(i, message)| with_calls(message).map_err(|e| e.within(Path::item("messages", i))));
    let texts: Result<Vec<_>, _> = texts.collect();
    let warnings = ignored("plain", input.conversation, IGNORED);
    Ok(AdapterOutput { prompt: texts?.join("\n"), attachments: Vec::new(), warnings })
}
