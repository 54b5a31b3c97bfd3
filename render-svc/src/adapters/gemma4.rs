//! `gemma-4`: the Gemma 4 prompt, written natively and equal to the official chat template in some of
//! its revisions. It replaces these, and renders where a model ships no template or a request
//! pins it. Any other template of a model renders itself.
//!
//! The adapter also renders input that the template does not support. Typed `tool_use` and
//! `tool_result` blocks are written at their position, and a tool result is written in the model
//! turn of its call. A media block in any message becomes a marker, and its data becomes an
//! attachment. Input that the template ignores, such as an unknown block or a number as content, is
//! an error here. A tool result without a call causes a warning. A tool may be declared without its
//! `function` object.

mod attachments;
mod declarations;
mod prompt;
mod revision;
mod turns;
mod values;

use serde_json::Value;
use tandem_common::field::Path;
use tandem_template::literal::KnownNames;
use tandem_template::python;

use self::prompt::{Options, Prompt};
use self::revision::Shipped;
use crate::adapter::{Adapter, AdapterOutput, EncoderArgument, Input, Kind, Match};
use crate::conversation::{self, Conversation, Invalid, media};
use crate::error::Error;
use crate::model::Model;
use crate::probes::ArgumentsShape;
use crate::warning::{Warning, WarningCode, ignored};

pub(super) const GEMMA4: Adapter = Adapter {
    kind: Kind::Family,
    stops_at_images: |_| false,
    markup: MARKUP,
    turn_ends: &[TURN_TOKENS[1]],
    reasoning: Some(("<|channel>", "<channel|>")),
    arguments: ArgumentsShape::Object,
    known_names: KnownNames {
        roles: &[conversation::ROLES, &["model"]],
        ..KnownNames::with(&[conversation::FIELDS, conversation::TOOL_FIELDS, media::FIELDS, FIELDS])
    },
    template_args: &[EncoderArgument::new("enable_thinking"), EncoderArgument::new("preserve_thinking")],
    ..Adapter::new(
        "gemma-4",
        "Gemma 4's turns: tools, calls and results in its own notation, media as markers with ordered attachments",
        matches,
        render,
    )
};

/// Fields in schemas and messages that only this encoder reads.
const FIELDS: &[&str] = &["nullable", "items", "enum", "response", "tool_responses"];

const MARKUP: &[&str] = &[
    "<|turn>",
    "<turn|>",
    "<|think|>",
    "<|channel>",
    "<channel|>",
    "<|tool>",
    "<tool|>",
    "<|tool_call>",
    "<tool_call|>",
    "<|tool_response>",
    "<tool_response|>",
    "<|\"|>",
    "<|image|>",
    "<|audio|>",
    "<|video|>",
];

/// Tokens at the start and end of turns in every Gemma 4 template, and in no template of another
/// family.
const TURN_TOKENS: [&str; 2] = ["<|turn>", "<turn|>"];

/// The empty thought, as templates write it.
const EMPTY_THOUGHT: &str = "<|channel>thought\n<channel|>";

/// The template_args that the adapter reads.
const KNOWN_ARGS: [&str; 4] = ["enable_thinking", "preserve_thinking", "attachments", "bos_token"];

fn matches(model: &Model) -> Match {
    let shipped = Shipped::of(model);
    match (shipped, identity(model)) {
        (Shipped::Known(revision), _) => {
            Match::Selected(format!("the model's chat template is Gemma 4's, revision {revision}, which it equals"))
        }
        (Shipped::Nothing, Some(identity)) => {
            Match::Selected(format!("{identity}, and the model ships no chat template"))
        }
        (Shipped::Other, Some(identity)) => {
            Match::Yields(format!("{identity}, and its chat template is none of the revisions that the adapter equals"))
        }
        (_, None) => Match::NotSelected("neither the model's type nor its chat template is Gemma 4's".to_owned()),
    }
}

/// Returns why the model is of the family; None if it is not.
fn identity(model: &Model) -> Option<String> {
    let architecture = model.artifacts.architecture.as_deref().unwrap_or_default();
    if architecture.starts_with("gemma4") {
        Some(format!("the model's type is {architecture}"))
    } else {
        writes_turns(model).then(|| "the model's chat template writes Gemma 4's turn tokens".to_owned())
    }
}

/// Returns true if the model's templates write turns of Gemma 4. A comment about them writes none.
fn writes_turns(model: &Model) -> bool {
    TURN_TOKENS.iter().all(|token| model.templates.write(token))
}

fn render(model: &Model, input: &Input<'_>) -> Result<AdapterOutput, Error> {
    let options = options(model, input);
    let Prompt { text, attachments, warnings } = if input.continue_final_message.is_some() {
        continued(input.conversation, &options)?
    } else {
        prompt::write(input.conversation, &options)?
    };
    let warnings = self::warnings(input.conversation).into_iter().chain(warnings).collect();
    Ok(AdapterOutput { prompt: text, attachments, warnings })
}

fn options<'a>(model: &'a Model, input: &Input<'a>) -> Options<'a> {
    let args = &input.conversation.template_args;
    let bos = args.get("bos_token").or_else(|| model.special_tokens.get("bos_token"));
    let is_set = |name| args.get(name).is_some_and(python::is_true);
    Options {
        bos: bos.and_then(Value::as_str).unwrap_or("<bos>"),
        thinks: is_set("enable_thinking"),
        preserves_thinking: is_set("preserve_thinking"),
        adds_generation_prompt: input.add_generation_prompt,
        shows_empty_thought: shows_empty_thought(model),
        revision: Shipped::of(model).rendered(),
        is_normalized: input.is_normalized,
    }
}

/// Returns true if the prompt contains an empty thought when thinking is off. If the model has a
/// template of the family, the template decides. Otherwise this is true for all variants except E2B
/// and E4B, which have per-layer embeddings and would start to reason in their answer.
fn shows_empty_thought(model: &Model) -> bool {
    if writes_turns(model) { model.templates.write(EMPTY_THOUGHT) } else { !has_per_layer_embeddings(model) }
}

fn has_per_layer_embeddings(model: &Model) -> bool {
    let config = &model.artifacts.config;
    let text_config = config.get("text_config").unwrap_or(config);
    let width = text_config.get("hidden_size_per_layer_input").and_then(Value::as_u64);
    let gguf_width = || model.artifacts.gguf()?.find::<u32>("gemma4.embedding_length_per_layer_input").ok()?;
    width.or_else(|| gguf_width().map(u64::from)).is_some_and(|width| width > 0)
}

fn warnings(conversation: &Conversation) -> Vec<Warning> {
    let mut warnings = ignored("the Gemma 4 prompt", conversation, &[WarningCode::DocumentsIgnored]);
    let given = conversation.template_args.keys().map(String::as_str);
    let unknown: Vec<&str> = given.filter(|name| !KNOWN_ARGS.contains(name)).collect();
    if !unknown.is_empty() {
        let text = format!("{} mean nothing to the Gemma 4 prompt: ignored", unknown.join(", "));
        warnings.push(Warning::new(WarningCode::TemplateArgsIgnored, "template_args", text));
    }
    warnings
}

/// The text that transformers appends to the final message, to find the end of this message in the
/// prompt. Templates may trim its last space.
const TAG: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

/// Returns the prompt up to the end of the final message's text.
fn continued(conversation: &Conversation, options: &Options<'_>) -> Result<Prompt, Error> {
    let mut conversation = conversation.clone();
    let last = conversation.messages.len().saturating_sub(1);
    let Some(text) = final_text(&mut conversation.messages) else {
        return Err(Invalid::new(Path::item("messages", last).key("content"), "holds no text to continue").into());
    };
    let said = text.clone();
    text.push_str(TAG);
    let mut prompt = prompt::write(&conversation, options)?;
    let end = end_of(&said, &prompt.text)?;
    prompt.text.truncate(end);
    prompt.attachments.retain(|attachment| attachment.offset < end);
    prompt.warnings.extend(blocks_after_text(&conversation.messages[last]).map(|(i, block)| left_out(last, i, block)));
    Ok(prompt)
}

/// Returns the blocks of the final message after the text that is continued. The prompt ends before
/// them.
fn blocks_after_text(message: &Value) -> impl Iterator<Item = (usize, &Value)> {
    let blocks = conversation::blocks(message);
    let text = blocks.iter().rposition(|block| block.get("text").is_some()).unwrap_or(blocks.len());
    blocks.iter().enumerate().skip(text + 1)
}

fn left_out(message: usize, i: usize, block: &Value) -> Warning {
    let is_media = media::kind(block).is_some();
    let code = if is_media { WarningCode::ImagesIgnored } else { WarningCode::MessageIgnored };
    let text = "the block follows the text that continue_final_message continues: not in the prompt";
    Warning::new(code, Path::item("messages", message).key("content").index(i), text)
}

/// Returns the text of the last message, or of its last block with a text.
fn final_text(messages: &mut [Value]) -> Option<&mut String> {
    let text = match messages.last_mut()?.get_mut("content")? {
        Value::Array(blocks) => blocks.iter_mut().rev().find_map(|block| block.get_mut("text"))?,
        content => content,
    };
    match text {
        Value::String(text) => Some(text),
        _ => None,
    }
}

fn end_of(said: &str, prompt: &str) -> Result<usize, Invalid> {
    let tag = prompt.rfind(TAG.trim_end()).filter(|_| prompt.contains(python::strip(said)));
    let Some(tag) = tag else {
        let problem = "the final message's text does not appear in the prompt, so it cannot be continued";
        return Err(Invalid::new("continue_final_message", problem));
    };
    let (before, after) = prompt.split_at(tag);
    Ok(if after.starts_with(TAG) { tag } else { python::rstrip(before).len() })
}
