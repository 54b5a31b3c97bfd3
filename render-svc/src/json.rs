//! Requests and answers as JSON, as the command line takes and prints them.

use std::ops::Range;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tandem_common::status::Failure;
use tandem_common::template::LocalTime;
use tandem_common::tokenizer::Encoding;

use crate::adapters::{Attachment, MediaSource, Warning};
use crate::chat::{Conversation, Invalid, Object};
use crate::clock;
use crate::error::Error;
use crate::render::{ControlTokens, Normalization, Output, RenderJob, RenderOptions, Rendered};

/// Reads one request: the same fields as the contract's, with messages, tools and template_args as plain JSON. `now` is what
/// templates see as the time where the request gives none.
///
/// # Errors
/// The text is not a JSON object, or one of its fields is unknown or not of its shape, by name.
pub fn request(text: &str, now: LocalTime) -> Result<RenderJob, Error> {
    let object =
        serde_json::from_str(text).map_err(|e| Invalid::new("request", format!("must be a JSON object: {e}")))?;
    let mut fields = Fields(object);
    let conversation = Conversation {
        messages: fields.list("messages")?.unwrap_or_default(),
        tools: fields.list("tools")?.map(Value::Array),
        documents: fields.list("documents")?.map(Value::Array),
        template_args: fields.object("template_args")?.unwrap_or_default(),
    };
    let render_time: Option<String> = fields.take("render_time", "a time such as \"2025-07-04T09:05:03\"")?;
    let options = RenderOptions {
        add_generation_prompt: fields.take("add_generation_prompt", "true or false")?,
        continue_final_message: fields.take("continue_final_message", "true or false")?.unwrap_or(false),
        adapter: fields.take("adapter", "text")?,
        now: render_time.as_deref().map_or(Ok(now), clock::parse)?,
        normalization: fields.take("normalization", POLICIES)?.map_or(Normalization::Capability, Policy::domain),
        template: fields.take("template", "text")?,
        control_tokens: fields.take("control_tokens", SPELLINGS)?.map_or(ControlTokens::Tokens, Spelling::domain),
    };
    let returns: Returns = fields.take("return", RETURNS)?.unwrap_or_default();
    let job = RenderJob {
        model: fields.take("model", "text")?.unwrap_or_default(),
        conversation,
        options,
        return_token_ids: returns.has(Return::TokenIds),
        return_offsets: returns.has(Return::Offsets),
    };
    fields.finish()?;
    Ok(job)
}

const POLICIES: &str = "\"capability\" or \"none\"";
const SPELLINGS: &str = "\"tokens\" or \"literal\"";
const RETURNS: &str = "\"token_ids\", \"offsets\", or a list of these";
const KNOWN: &str = "model, messages, tools, documents, template_args, add_generation_prompt, continue_final_message, adapter, template, \
                     normalization, control_tokens, render_time and return";

/// The fields of a request that were not read yet.
struct Fields(Object);

impl Fields {
    /// A field, which null leaves out.
    fn value(&mut self, name: &str) -> Option<Value> {
        self.0.swap_remove(name).filter(|value| !value.is_null())
    }

    fn list(&mut self, name: &str) -> Result<Option<Vec<Value>>, Invalid> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::Array(items)) => Ok(Some(items)),
            Some(_) => Err(Invalid::new(name, "must be a list")),
        }
    }

    fn object(&mut self, name: &str) -> Result<Option<Object>, Invalid> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::Object(object)) => Ok(Some(object)),
            Some(_) => Err(Invalid::new(name, "must be an object")),
        }
    }

    /// A small field; the large ones are not read twice.
    fn take<T: DeserializeOwned>(&mut self, name: &str, wanted: &str) -> Result<Option<T>, Invalid> {
        let value = self.value(name).map(serde_json::from_value).transpose();
        value.map_err(|_| Invalid::new(name, format!("must be {wanted}")))
    }

    fn finish(self) -> Result<(), Invalid> {
        match self.0.keys().next() {
            Some(name) => Err(Invalid::new(name, format!("is no field of a request; there are {KNOWN}"))),
            None => Ok(()),
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

impl Policy {
    fn domain(self) -> Normalization {
        match self {
            Self::Capability => Normalization::Capability,
            Self::None => Normalization::None,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Spelling {
    #[serde(alias = "default", alias = "TOKENS")]
    Tokens,
    #[serde(alias = "LITERAL")]
    Literal,
}

impl Spelling {
    fn domain(self) -> ControlTokens {
        match self {
            Self::Tokens => ControlTokens::Tokens,
            Self::Literal => ControlTokens::Literal,
        }
    }
}

/// One word, or a list of them.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Return {
    TokenIds,
    Offsets,
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
