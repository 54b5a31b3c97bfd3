//! Requests and answers as JSON, as the command line takes and prints them.

use std::ops::Range;

use serde::Deserialize;
use serde_json::{Value, json};
use tandem_common::status::Failure;
use tandem_common::template::LocalTime;
use tandem_common::tokenizer::Encoding;

use crate::adapters::{Attachment, MediaSource, Warning};
use crate::chat::{Conversation, Invalid, Object};
use crate::clock;
use crate::error::Error;
use crate::render::{ControlTokens, Normalization, Output, RenderJob, RenderOptions, Rendered};

/// A request: the same fields as the contract's, with messages, tools and template_args as plain JSON.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    #[serde(default)]
    model: String,
    #[serde(default)]
    messages: Vec<Value>,
    tools: Option<Value>,
    documents: Option<Value>,
    template_args: Option<Object>,
    add_generation_prompt: Option<bool>,
    continue_final_message: Option<bool>,
    adapter: Option<String>,
    template: Option<String>,
    normalization: Option<Policy>,
    control_tokens: Option<Spelling>,
    render_time: Option<String>,
    #[serde(default, rename = "return")]
    returns: Returns,
}

/// One word, or a list of them.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "return must be \"token_ids\", \"offsets\", or a list of these")]
enum Returns {
    One(Return),
    Several(Vec<Return>),
}

impl Default for Returns {
    fn default() -> Self {
        Self::Several(Vec::new())
    }
}

impl Returns {
    fn has(&self, wanted: Return) -> bool {
        match self {
            Self::One(only) => *only == wanted,
            Self::Several(all) => all.contains(&wanted),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Policy {
    #[serde(alias = "CAPABILITY")]
    Capability,
    #[serde(alias = "NONE")]
    None,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Spelling {
    #[serde(alias = "default", alias = "TOKENS")]
    Tokens,
    #[serde(alias = "LITERAL")]
    Literal,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Return {
    TokenIds,
    Offsets,
}

/// Reads one request. `now` is what templates see as the time where the request gives none.
///
/// # Errors
/// The text is not JSON, or not of the request's shape.
pub fn request(text: &str, now: LocalTime) -> Result<RenderJob, Error> {
    let request: Request = serde_json::from_str(text).map_err(|e| Invalid::new("request", e.to_string()))?;
    let now = request.render_time.as_deref().map_or(Ok(now), clock::parse)?;
    Ok(RenderJob {
        model: request.model,
        conversation: Conversation {
            messages: request.messages,
            tools: request.tools,
            documents: request.documents,
            template_args: request.template_args.unwrap_or_default(),
        },
        options: RenderOptions {
            add_generation_prompt: request.add_generation_prompt,
            continue_final_message: request.continue_final_message.unwrap_or(false),
            adapter: request.adapter,
            now,
            normalization: match request.normalization {
                Some(Policy::None) => Normalization::None,
                Some(Policy::Capability) | None => Normalization::Capability,
            },
            template: request.template,
            control_tokens: match request.control_tokens {
                Some(Spelling::Literal) => ControlTokens::Literal,
                Some(Spelling::Tokens) | None => ControlTokens::Tokens,
            },
        },
        return_token_ids: request.returns.has(Return::TokenIds),
        return_offsets: request.returns.has(Return::Offsets),
    })
}

/// The answer to one request.
#[must_use]
pub fn answer(result: Result<Rendered, Error>) -> Value {
    match result {
        Ok(rendered) => rendered_json(rendered),
        Err(error) => json!({"error": Failure::from(&error).to_json()}),
    }
}

fn rendered_json(rendered: Rendered) -> Value {
    let mut answer = Object::new();
    match rendered.output {
        Output::Prompt { text, attachments, tokens } => {
            answer.insert("prompt".to_owned(), text.into());
            if !attachments.is_empty() {
                answer.insert("attachments".to_owned(), attachments.iter().map(attachment_json).collect());
            }
            if let Some(Encoding { ids, offsets }) = tokens {
                answer.insert("token_ids".to_owned(), ids.into());
                let pairs = |offsets: Vec<Range<usize>>| offsets.iter().map(|at| json!([at.start, at.end])).collect();
                answer.extend(offsets.map(|offsets| ("offsets".to_owned(), pairs(offsets))));
            }
        }
        Output::HfMessages(messages) => {
            answer.insert("hf_messages".to_owned(), messages.into());
        }
    }
    answer.insert("adapter".to_owned(), rendered.resolution.adapter.into());
    answer.insert("warnings".to_owned(), rendered.warnings.iter().map(warning_json).collect());
    Value::Object(answer)
}

fn attachment_json(attachment: &Attachment) -> Value {
    let Attachment { kind, path, source } = attachment;
    let mut answer = json!({"type": kind.name(), "path": path});
    match source {
        MediaSource::Base64(base64) => answer["base64"] = json!(base64),
        MediaSource::Location(location) => answer["location"] = json!(location),
        MediaSource::Declared(id) => answer["attachment_id"] = json!(id),
        MediaSource::Elsewhere => {}
    }
    answer
}

fn warning_json(warning: &Warning) -> Value {
    json!({"code": warning.code.name(), "path": warning.path, "text": warning.text})
}
