//! The conversation as an adapter is to get it: normalized to what the model's template can take, and checked.

use serde_json::Value;

use super::{Normalization, RenderOptions};
use crate::adapters::{Choice, Dialect, Kind, Warning, WarningCode};
use crate::calls;
use crate::capabilities::{self, Capabilities, Change, Normalized, Rewrite};
use crate::chat::{Content, Conversation, Invalid, blocks, blocks_to_text, content, kind, unknown_block};
use crate::error::Error;
use crate::media::{self, MediaKind};
use crate::models::Model;
use crate::origins::Origins;
use crate::tools;

/// A conversation that is ready to be rendered.
#[derive(Debug)]
pub(super) struct Prepared {
    pub conversation: Conversation,
    /// With the request's paths.
    pub warnings: Vec<Warning>,
    pub origins: Origins,
}

/// Prepares a conversation for the adapter that renders it as text.
pub(super) fn for_text(
    conversation: Conversation,
    options: &RenderOptions,
    choice: &Choice,
    model: &Model,
) -> Result<Prepared, Error> {
    let adapter = &choice.adapter;
    if adapter.kind != Kind::Family {
        conversation.check_not_empty()?;
    }
    let mut warnings: Vec<_> = guess_warning(choice).into_iter().chain(image_warning(choice, &conversation)).collect();
    let mut prepared = rewritten(conversation, options, choice, model, Blocks::Joined)?;
    if adapter.kind == Kind::Template && options.normalization == Normalization::Capability {
        let tools = prepared.conversation.tools.is_some();
        let template = model.templates.choose(options.template.as_deref(), tools)?;
        check_blocks(&prepared.conversation, template.template.literal_text())
            .map_err(|invalid| prepared.origins.invalid(invalid))?;
    }
    if options.template.is_some() && adapter.kind != Kind::Template {
        let why = format!("the {} adapter has no templates to choose from", adapter.name);
        warnings.push(super::option_ignored("template", &why));
    }
    prepared.warnings.splice(..0, warnings);
    Ok(prepared)
}

/// Prepares a conversation whose messages become HF messages.
pub(super) fn for_hf(
    conversation: Conversation,
    options: &RenderOptions,
    choice: &Choice,
    model: &Model,
) -> Result<Prepared, Error> {
    rewritten(conversation, options, choice, model, Blocks::Kept)
}

/// What becomes of lists of nothing but text blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blocks {
    Joined,
    Kept,
}

/// Rewrites the conversation as the policy says. Encoders of families and the policy NONE take messages as they are.
fn rewritten(
    mut conversation: Conversation,
    options: &RenderOptions,
    choice: &Choice,
    model: &Model,
    lists: Blocks,
) -> Result<Prepared, Error> {
    let is_asked_for = options.normalization == Normalization::Capability;
    let is_family = choice.adapter.kind == Kind::Family;
    let reads_input_schema = || choice.adapter.kind == Kind::Template && model.templates.mention("input_schema");
    let mut shadowed = Vec::new();
    let tools = match conversation.tools.as_mut().filter(|_| (is_asked_for || is_family) && !reads_input_schema()) {
        Some(tools) => {
            let origins = tools::rewrite(tools);
            shadowed.extend(tools::warnings(tools));
            origins
        }
        None => Vec::new(),
    };
    if is_family && options.dialect == Dialect::Contract && lists == Blocks::Joined {
        calls::convert_arguments(&mut conversation.messages, choice.adapter.arguments);
    }
    if is_family || !is_asked_for {
        return Ok(Prepared { conversation, warnings: shadowed, origins: Origins { messages: Vec::new(), tools } });
    }
    if lists == Blocks::Joined {
        join_lists(&mut conversation)?;
    }
    let capabilities = options.capabilities.unwrap_or(model.capabilities);
    let mut prepared = normalized(conversation, capabilities, tools);
    prepared.warnings.extend(shadowed);
    Ok(prepared)
}

fn normalized(
    conversation: Conversation,
    capabilities: Capabilities,
    tools: Vec<crate::origins::ToolOrigin>,
) -> Prepared {
    let Normalized { conversation, rewrites, sources } = capabilities::normalize(conversation, capabilities);
    let warnings = rewrites.iter().map(rewrite_warning).collect();
    Prepared { conversation, warnings, origins: Origins { messages: sources, tools } }
}

fn join_lists(conversation: &mut Conversation) -> Result<(), Invalid> {
    for (i, message) in conversation.messages.iter_mut().enumerate() {
        join_text_blocks(message).map_err(|e| e.within(&format!("messages[{i}]")))?;
    }
    Ok(())
}

fn join_text_blocks(message: &mut Value) -> Result<(), Invalid> {
    let joined = match content(message) {
        Content::Blocks(blocks) if blocks.iter().all(|block| kind(block) == Some("text")) => blocks_to_text(blocks)?,
        _ => return Ok(()),
    };
    message["content"] = Value::String(joined);
    Ok(())
}

/// A block of a type that is no string of the template would be printed as Python prints an object.
fn check_blocks(conversation: &Conversation, literals: &str) -> Result<(), Invalid> {
    let is_known =
        |block: &Value| kind(block).is_some_and(|kind| kind == "text" || literals.split('\0').any(|l| l == kind));
    for (i, message) in conversation.messages.iter().enumerate() {
        let mut blocks = blocks(message).iter().enumerate();
        if let Some((j, block)) = blocks.find(|(_, block)| !is_known(block)) {
            return Err(unknown_block(block, j).within(&format!("messages[{i}]")));
        }
    }
    Ok(())
}

fn rewrite_warning(rewrite: &Rewrite) -> Warning {
    let code = match rewrite.change {
        Change::Merged => WarningCode::MessagesMerged,
        Change::SystemToUser => WarningCode::SystemRewritten,
    };
    Warning { code, path: rewrite.path(), text: rewrite.to_string() }
}

/// Warns of a format that was chosen because nothing identifies the model's own.
fn guess_warning(choice: &Choice) -> Option<Warning> {
    choice.is_guess.then(|| Warning {
        code: WarningCode::FormatGuessed,
        path: "model".to_owned(),
        text: format!("{}: rendered as {}; pin an adapter to confirm", choice.resolution.reason, choice.adapter.name),
    })
}

/// Warns of images whose data a pinned adapter does not put into the prompt. Families refuse or attach them themselves.
fn image_warning(choice: &Choice, conversation: &Conversation) -> Option<Warning> {
    let path = conversation.first_image().filter(|_| choice.adapter.kind != Kind::Family)?;
    let count = conversation.messages.iter().map(image_count).sum::<usize>();
    let text = format!(
        "images whose data is not in the prompt: {count}; adapter {:?}, {}, renders text only",
        choice.adapter.name, choice.resolution.reason
    );
    Some(Warning { code: WarningCode::ImagesIgnored, path, text })
}

fn image_count(holder: &Value) -> usize {
    let of_block = |block: &Value| match media::kind(block) {
        Some(MediaKind::Image) => 1,
        _ => image_count(block),
    };
    blocks(holder).iter().map(of_block).sum()
}
