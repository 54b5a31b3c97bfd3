//! `plain`: message texts joined by newlines, for models about whose format nothing is known.

use super::{Adapter, Input, Kind, Rendering, Verdict, WarningCode, ignored};
use crate::chat::{Content, Conversation, Invalid, blocks_to_text, content};
use crate::error::Error;
use crate::models::Model;

pub(super) const PLAIN: Adapter = Adapter {
    name: "plain",
    description: "message texts joined by newlines, for models about whose format nothing is known",
    serves: |_| Verdict::Serves("serves every model that nothing else does".to_owned()),
    kind: Kind::Format,
    stops_at_images: Conversation::has_images,
    markup: &[],
    render,
};

const IGNORED: &[WarningCode] =
    &[WarningCode::ToolsIgnored, WarningCode::DocumentsIgnored, WarningCode::TemplateArgsIgnored];

fn render(_: &Model, input: &Input<'_>) -> Result<Rendering, Error> {
    let texts: Result<Vec<_>, _> = input.conversation.messages.iter().enumerate().map(text).collect();
    let warnings = ignored("plain", input.conversation, IGNORED);
    Ok(Rendering { prompt: texts?.join("\n"), attachments: Vec::new(), warnings })
}

fn text((i, message): (usize, &serde_json::Value)) -> Result<String, Invalid> {
    let path = format!("messages[{i}]");
    match content(message) {
        Content::Null => Ok(String::new()),
        Content::Text(text) => Ok(text.to_owned()),
        Content::Blocks(blocks) => blocks_to_text(blocks).map_err(|e| e.within(&path)),
        Content::Other(_) => Err(Invalid::new(format!("{path}.content"), "must be text or a list of blocks")),
    }
}
