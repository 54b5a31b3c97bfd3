//! The conversation as an adapter gets it: normalized to the capabilities of the model's template,
//! and checked.

mod calls;
pub mod hf_messages;
pub mod normalize;
pub mod origins;
mod tools;

use serde_json::Value;

use self::normalize::{Change, Normalized, Rewrite};
use self::origins::{Origins, ToolOrigin};
use crate::adapter::Kind;
use crate::capabilities::Capabilities;
use crate::catalog::ResolvedAdapter;
use crate::conversation::media::{self, MediaKind};
use crate::conversation::{Content, Conversation, Invalid, blocks, blocks_to_text, content, kind, unknown_block};
use crate::error::Error;
use crate::job::{Normalization, RenderOptions};
use crate::model::Model;
use crate::resolve::ResolvedRender;
use crate::warning::{self, Warning, WarningCode, option_ignored};

/// A conversation that is ready to be rendered.
#[derive(Debug)]
pub struct Prepared {
    /// The conversation.
    pub conversation: Conversation,
    /// Warnings, with paths of the request.
    pub warnings: Vec<Warning>,
    /// The places in the request of rewritten parts.
    pub origins: Origins,
}

/// Prepares a conversation for the adapter that renders it as text.
///
/// # Errors
/// A message or block that the adapter cannot render, by path.
pub fn for_prompt(
    conversation: Conversation,
    options: &RenderOptions,
    resolved: &ResolvedRender<'_>,
) -> Result<Prepared, Error> {
    let adapter = resolved.adapter();
    let mut warnings: Vec<_> = guess_warning(&resolved.adapter).into_iter().collect();
    warnings.extend(difference_warning(&resolved.adapter));
    warnings.extend(image_warning(&resolved.adapter, &conversation));
    warnings.extend(warning::without_content(&conversation.messages));
    let mut prepared = rewritten(conversation, options, resolved, Blocks::Joined)?;
    if let Some(template) = resolved.template()
        && options.normalization == Normalization::Capability
    {
        check_blocks(&prepared.conversation, template.template.literal_text())
            .map_err(|invalid| prepared.origins.invalid(invalid))?;
    }
    if options.template.is_some() && adapter.kind != Kind::Template {
        let why = format!("the {} adapter has no templates to choose from", adapter.name);
        warnings.push(option_ignored("template", &why));
    }
    prepared.warnings.splice(..0, warnings);
    Ok(prepared)
}

/// Prepares a conversation whose messages become HF messages.
///
/// # Errors
/// A message that cannot be normalized, by path.
pub fn for_hf(
    conversation: Conversation,
    options: &RenderOptions,
    resolved: &ResolvedRender<'_>,
) -> Result<Prepared, Error> {
    let mut warnings: Vec<_> = text_only_warning(resolved.model, &conversation).into_iter().collect();
    warnings.extend(warning::without_content(&conversation.messages));
    let mut prepared = rewritten(conversation, options, resolved, Blocks::Kept)?;
    prepared.warnings.splice(..0, warnings);
    Ok(prepared)
}

/// The treatment of lists that contain only text blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blocks {
    Joined,
    Kept,
}

/// Rewrites the conversation as the policy requires. Under NONE, messages stay as they are. Adapters
/// of families convert messages themselves, apart from the type of arguments.
fn rewritten(
    mut conversation: Conversation,
    options: &RenderOptions,
    resolved: &ResolvedRender<'_>,
    lists: Blocks,
) -> Result<Prepared, Error> {
    let (model, adapter) = (resolved.model, resolved.adapter());
    let is_normalized = options.normalization == Normalization::Capability;
    let is_family = adapter.kind == Kind::Family;
    let reads_input_schema = || adapter.kind == Kind::Template && model.templates.mention("input_schema");
    let mut shadowed = Vec::new();
    let tools = match conversation.tools.as_mut().filter(|_| (is_normalized || is_family) && !reads_input_schema()) {
        Some(tools) => {
            let origins = tools::rewrite(tools);
            shadowed.extend(tools::warnings(tools));
            origins
        }
        None => Vec::new(),
    };
    if is_family && is_normalized && lists == Blocks::Joined {
        calls::convert_arguments(&mut conversation.messages, adapter.arguments);
    }
    if is_family || !is_normalized {
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

fn normalized(conversation: Conversation, capabilities: Capabilities, tools: Vec<ToolOrigin>) -> Prepared {
    let Normalized { conversation, rewrites, sources } = normalize::normalize(conversation, capabilities);
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

/// Fails if the template contains no string with the type of a block. It would print that block as
/// Python prints an object.
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

/// Warns of a format that was selected although nothing identifies the model's own.
fn guess_warning(choice: &ResolvedAdapter) -> Option<Warning> {
    choice.is_guess.then(|| Warning {
        code: WarningCode::FormatGuessed,
        path: "model".to_owned(),
        text: format!("{}: rendered as {}; pin an adapter to confirm", choice.resolution.reason, choice.adapter().name),
    })
}

/// Warns of a chat template of the model that differs from the prompts of its family's encoder.
fn difference_warning(choice: &ResolvedAdapter) -> Option<Warning> {
    let difference = choice.difference.as_deref()?;
    let text = format!(
        "{difference}: rendered by {}; pin tokenizer-template for the template, or this adapter to confirm",
        choice.adapter().name
    );
    Some(Warning { code: WarningCode::TemplateDiffers, path: "model".to_owned(), text })
}

/// Warns of images whose data a pinned adapter does not put into the prompt. Families reject or
/// attach images themselves.
fn image_warning(choice: &ResolvedAdapter, conversation: &Conversation) -> Option<Warning> {
    let path = conversation.first_image().filter(|_| choice.adapter().kind != Kind::Family)?;
    let count = conversation.messages.iter().map(image_count).sum::<usize>();
    let text = format!(
        "images whose data is not in the prompt: {count}; adapter {:?}, {}, renders text only",
        choice.adapter().name,
        choice.resolution.reason
    );
    Some(Warning { code: WarningCode::ImagesIgnored, path, text })
}

/// Warns of images for a model that takes none.
fn text_only_warning(model: &Model, conversation: &Conversation) -> Option<Warning> {
    let path = conversation.first_image().filter(|_| !model.takes_images)?;
    let text = format!("model {:?} takes text only: its files have no image processor", model.id);
    Some(Warning { code: WarningCode::ImagesNotSupported, path, text })
}

fn image_count(holder: &Value) -> usize {
    let of_block = |block: &Value| match media::kind(block) {
        Some(MediaKind::Image) => 1,
        _ => image_count(block),
    };
    blocks(holder).iter().map(of_block).sum()
}
