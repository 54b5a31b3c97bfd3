//! `plain`: message texts joined by newlines, for models about whose format nothing is known.

use tandem_template::ArgumentsShape;

use super::{Adapter, Input, Kind, Rendering, Verdict, WarningCode, ignored};
use crate::chat::{Conversation, blocks_to_text, text};
use crate::error::Error;
use crate::models::Model;

pub(super) const PLAIN: Adapter = Adapter {
    name: "plain",
    description: "message texts joined by newlines, for models about whose format nothing is known",
    serves: |_| Verdict::Serves("serves every model that nothing else does".to_owned()),
    kind: Kind::Format,
    stops_at_images: Conversation::has_images,
    markup: &[],
    turn_ends: &[],
    arguments: ArgumentsShape::Either,
    leaves_bos_to_tokenizer: true,
    render,
};

const IGNORED: &[WarningCode] =
    &[WarningCode::ToolsIgnored, WarningCode::DocumentsIgnored, WarningCode::TemplateArgsIgnored];

fn render(_: &Model, input: &Input<'_>) -> Result<Rendering, Error> {
    let texts = input.conversation.messages.iter().enumerate();
    let texts =
        texts.map(|(i, message)| text(message, blocks_to_text).map_err(|e| e.within(&format!("messages[{i}]"))));
    let texts: Result<Vec<_>, _> = texts.collect();
    let warnings = ignored("plain", input.conversation, IGNORED);
    Ok(Rendering { prompt: texts?.join("\n"), attachments: Vec::new(), warnings })
}
