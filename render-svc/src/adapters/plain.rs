//! `plain`: message texts joined by newlines, for models about whose format nothing is known.

use super::{Adapter, Input, Kind, Rendering, Verdict, Warning, WarningCode};
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

fn render(_: &Model, input: &Input<'_>) -> Result<Rendering, Error> {
    let texts: Result<Vec<_>, _> = input.conversation.messages.iter().enumerate().map(text).collect();
    Ok(Rendering { prompt: texts?.join("\n"), attachments: Vec::new(), warnings: warnings(input.conversation) })
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

fn warnings(conversation: &Conversation) -> Vec<Warning> {
    let ignored = |is_given: bool, code, path: &str| {
        let text = format!("the plain adapter cannot show {path} to the model: ignored");
        is_given.then_some(Warning { code, path: path.to_owned(), text })
    };
    let Conversation { messages: _, tools, documents, template_args } = conversation;
    [
        ignored(tools.is_some(), WarningCode::ToolsIgnored, "tools"),
        ignored(documents.is_some(), WarningCode::DocumentsIgnored, "documents"),
        ignored(!template_args.is_empty(), WarningCode::TemplateArgsIgnored, "template_args"),
    ]
    .into_iter()
    .flatten()
    .collect()
}
