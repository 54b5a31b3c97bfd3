//! Requests and answers of the command line as JSON.

use std::ops::Range;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tandem_common::field::Path;
use tandem_common::pb::generate::v1 as generate;
use tandem_common::status::{Failure, Reason};
use tandem_common::suggestion::unknown_key;
use tandem_model_files::tokenizer::Encoding;
use tandem_template::LocalTime;

use super::output_spec;
use crate::adapter::{Attachment, MediaSource};
use crate::capabilities::Capabilities;
use crate::clock;
use crate::conversation::{Conversation, Invalid, Object};
use crate::error::Error;
use crate::job::{ControlTokenPolicy, FinalMessage, Normalization, RenderJob, RenderOptions};
use crate::render::{HfMessages, Output, Rendered};
use crate::warning::Warning;

/// A request: the same fields as the contract's, with messages, tools and template_args as plain
/// JSON.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    model: Option<String>,
    messages: Option<Vec<Value>>,
    tools: Option<Vec<Value>>,
    documents: Option<Vec<Value>>,
    template_args: Option<Object>,
    add_generation_prompt: Option<bool>,
    continue_final_message: Option<Value>,
    adapter: Option<String>,
    template: Option<String>,
    normalization: Option<Policy>,
    control_tokens: Option<Spelling>,
    capabilities: Option<Vec<String>>,
    render_time: Option<String>,
    omit_media: Option<bool>,
    #[serde(rename = "return")]
    returns: Option<Returns>,
}

/// Reads one request. `now` is the time that templates see if the request contains none.
///
/// # Errors
/// The text is not a JSON object, or a field is unknown or has a wrong shape, by name.
pub fn request(text: &str, now: LocalTime) -> Result<RenderJob, Error> {
    if !text.trim_ascii_start().starts_with('{') {
        return Err(malformed("must be a JSON object").into());
    }
    let request: Request = serde_json::from_str(text).map_err(|error| wrong(text, &error))?;
    let returns = request.returns.unwrap_or_default();
    let final_message = request.continue_final_message.as_ref().map(FinalMessage::read).transpose();
    let options = RenderOptions {
        add_generation_prompt: request.add_generation_prompt,
        continue_final_message: final_message.map_err(|problem| Invalid::new("continue_final_message", problem))?,
        adapter: request.adapter,
        now: request.render_time.as_deref().map_or(Ok(now), clock::parse)?,
        normalization: request.normalization.map_or(Normalization::Capability, Policy::domain),
        template: request.template,
        control_tokens: request.control_tokens.map_or(ControlTokenPolicy::Tokens, Spelling::domain),
        capabilities: request.capabilities.map(|names| capabilities(&names)).transpose()?,
    };
    let conversation = Conversation {
        messages: request.messages.unwrap_or_default(),
        tools: request.tools.map(Value::Array),
        documents: request.documents.map(Value::Array),
        template_args: request.template_args.unwrap_or_default(),
    };
    Ok(RenderJob {
        model: request.model.unwrap_or_default(),
        conversation,
        options,
        token_ids: returns.has(Return::TokenIds).into(),
        return_offsets: returns.has(Return::Offsets),
        omit_media: request.omit_media.unwrap_or(false),
        is_task: false,
    })
}

fn capabilities(names: &[String]) -> Result<Capabilities, Invalid> {
    let read = Capabilities::from_names(names.iter().map(String::as_str));
    read.map_err(|problem| Invalid::new("capabilities", problem))
}

/// Returns true if a value has the shape of a field.
type Shape = fn(&Value) -> bool;

/// Every field with its expected value, for people, and the check of a value.
const FIELDS: [(&str, &str, Shape); 15] = [
    ("model", "text", Value::is_string),
    ("messages", "a list", Value::is_array),
    ("tools", "a list", Value::is_array),
    ("documents", "a list", Value::is_array),
    ("template_args", "an object", Value::is_object),
    ("add_generation_prompt", "true or false", Value::is_boolean),
    ("continue_final_message", "true, false or the name of a field", |value| FinalMessage::read(value).is_ok()),
    ("adapter", "text", Value::is_string),
    ("template", "text", Value::is_string),
    ("normalization", "\"capability\" or \"none\"", is::<Policy>),
    ("control_tokens", "\"tokens\" or \"literal\"", is::<Spelling>),
    ("capabilities", "a list of names such as \"SUPPORTS_SYSTEM_ROLE\"", is::<Vec<String>>),
    ("render_time", "a time such as \"2025-07-04T09:05:03\"", Value::is_string),
    ("omit_media", "true or false", Value::is_boolean),
    ("return", "\"token_ids\", \"offsets\", or a list of these", is::<Returns>),
];

fn is<T: DeserializeOwned>(value: &Value) -> bool {
    T::deserialize(value).is_ok()
}

/// Returns the error of a request that could not be read. The request is read again, field by
/// field.
fn wrong(text: &str, error: &serde_json::Error) -> Invalid {
    let Ok(object) = serde_json::from_str::<Object>(text) else {
        return malformed(format!("must be a JSON object: {error}"));
    };
    for (name, value) in object.iter().filter(|(_, value)| !value.is_null()) {
        let field = Path::default().key(name.clone());
        match FIELDS.iter().find(|(known, ..)| known == name) {
            None => return Invalid::new(field, unknown_key(name, &FIELDS.map(|(name, ..)| name))),
            Some((_, wanted, is_right)) if !is_right(value) => return Invalid::new(field, format!("must be {wanted}")),
            Some(_) => {}
        }
    }
    Invalid::new("request", error.to_string())
}

/// Returns the error of a text that is not a JSON object.
pub(super) fn malformed(problem: impl ToString) -> Invalid {
    Invalid { reason: Reason::MalformedMessage, ..Invalid::new("request", problem.to_string()) }
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
pub(super) enum Spelling {
    #[serde(alias = "default", alias = "TOKENS")]
    Tokens,
    #[serde(alias = "LITERAL")]
    Literal,
}

impl Spelling {
    pub(super) fn domain(self) -> ControlTokenPolicy {
        match self {
            Self::Tokens => ControlTokenPolicy::Tokens,
            Self::Literal => ControlTokenPolicy::Literal,
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

/// Returns the answer to one request.
#[must_use]
pub fn answer(result: Result<Rendered, Error>) -> Value {
    match result {
        Ok(rendered) => rendered_json(rendered),
        Err(error) => json!({"error": failure_json(&error)}),
    }
}

/// Returns the failure of a request. The command line's caller may see the names of all models.
fn failure_json(error: &Error) -> Value {
    let mut failure = Failure::from(error).to_json();
    if let Error::ModelNotFound { .. } | Error::ModelNotNamed { .. } = error {
        failure["message"] = Failure::new(Reason::ModelNotFound, error.to_string()).message().into();
    }
    failure
}

fn rendered_json(rendered: Rendered) -> Value {
    let mut answer = Object::new();
    match rendered.output {
        Output::Prompt { text, attachments, tokens: encoding } => {
            answer.insert("prompt".to_owned(), text.into());
            if !attachments.is_empty() {
                answer.insert("attachments".to_owned(), attachments.iter().map(attachment_json).collect());
            }
            answer.extend(encoding.into_iter().flat_map(tokens));
        }
        Output::HfMessages(hf) => {
            let template = hf_template(&hf);
            answer.insert("hf_messages".to_owned(), hf.messages.into());
            answer.insert("hf_template".to_owned(), template.into());
        }
    }
    answer.insert("adapter".to_owned(), rendered.resolution.adapter.unwrap_or_default().into());
    answer.insert("output_spec".to_owned(), output_spec::json(generate::OutputSpec::from(&*rendered.output_spec)));
    if let Ok(tokenizer) = &rendered.model.tokenizer {
        answer.insert("tokenizer_sha256".to_owned(), tokenizer.sha256().into());
    }
    let mut warnings: Vec<Value> = rendered.warnings.iter().map(warning_json).collect();
    warnings.dedup(); // an option of the contract may have no separate key
    answer.insert("warnings".to_owned(), warnings.into());
    Value::Object(answer)
}

/// Returns the other inputs of the model's chat template, without defaults, and the time.
fn hf_template(hf: &HfMessages) -> Object {
    let given = |value: &Option<Value>| value.clone().filter(|value| !value.is_null());
    let args = Some(&hf.template_args).filter(|args| !args.is_empty());
    let fields = [
        ("tools", given(&hf.tools)),
        ("documents", given(&hf.documents)),
        ("template_args", args.map(|args| args.clone().into())),
        ("add_generation_prompt", (!hf.add_generation_prompt).then_some(Value::from(false))),
        ("continue_final_message", hf.continue_final_message.then_some(Value::from(true))),
        ("render_time", Some(hf.now.to_string().into())),
        ("literal_control_tokens", (hf.control_tokens == ControlTokenPolicy::Literal).then_some(Value::from(true))),
    ];
    fields.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

/// Returns `{"token_ids", "offsets"?}`.
pub(super) fn tokens(Encoding { ids, offsets }: Encoding) -> Object {
    let pairs = |offsets: Vec<Range<usize>>| offsets.iter().map(|at| json!([at.start, at.end])).collect();
    let ids = [("token_ids".to_owned(), ids.into())];
    ids.into_iter().chain(offsets.map(|offsets| ("offsets".to_owned(), pairs(offsets)))).collect()
}

fn attachment_json(attachment: &Attachment) -> Value {
    let Attachment { kind, path, offset, mime_type, source } = attachment;
    let mut answer = json!({"type": kind.name(), "path": path.to_string(), "offset": offset});
    if let Some(mime_type) = mime_type {
        answer["mime_type"] = json!(mime_type);
    }
    match source {
        MediaSource::Base64(base64) => answer["base64"] = json!(base64),
        MediaSource::Location(location) => answer["location"] = json!(location),
        MediaSource::Declared(id) => answer["attachment_id"] = json!(id),
        MediaSource::Elsewhere => {}
    }
    answer
}

fn warning_json(warning: &Warning) -> Value {
    json!({"code": warning.code.name(), "path": key(&warning.path), "text": warning.text})
}

/// Returns the path in a JSON request as text. `return` is one key for two options of the contract.
pub(super) fn key(path: &Path) -> String {
    match path.to_string() {
        path if matches!(&*path, "return_token_ids" | "return_offsets") => "return".to_owned(),
        path => path,
    }
}
