//! The JSON form of requests and failures, with flat keys. The answers of `render-svc render
//! --jsonl` are requests too.

use serde_json::{Map, Value, json};
use tandem_common::field::Path;
use tandem_common::suggestion::unknown_key;
use tandem_core::error::RequestError;
use tandem_core::grammar::{Grammar, GrammarKind, Whitespace};
use tandem_core::media::{HfMessages, Marked, MediaFile, MediaSource, decode_base64};
use tandem_core::request::{GenerateRequest, Input, StopOptions};
use tandem_core::sampling::SamplingOptions;
use tandem_core::sampling::parameters::PARAMETER_NAMES;
use tandem_core::with_sampling_parameters;
use tandem_template::LocalTime;

use super::fields::Fields;
use super::output_spec::output_spec;

/// Field paths of the protocol, and the flat keys that replace them. The first match is used.
const FLAT: &[(&str, &str)] = &[
    ("sampling.", ""),
    ("stop.stop_strings", "stop"),
    ("stop.", ""),
    ("token_ids.ids", "token_ids"),
    ("hf_messages_json", "hf_messages"),
    ("media", "attachments"),
];

/// The keys of a request besides the sampling parameters.
const INPUT_KEYS: &[&str] =
    &["prompt", "attachments", "token_ids", "hf_messages", "hf_template", "output_spec", "tokenizer_sha256"];
const OPTION_KEYS: &[&str] = &[
    "max_new_tokens",
    "min_new_tokens",
    "max_reasoning_tokens",
    "logit_bias",
    "seed",
    "stop",
    "stop_token_ids",
    "ignore_eos",
    "include_stop",
    "grammar",
];
/// The keys of an answer of render-svc that are no part of a request.
const ANSWER_KEYS: &[&str] = &["adapter", "warnings", "offsets"];

/// A line of the input.
#[derive(Debug)]
pub(super) enum Line {
    /// A request.
    Request(Box<GenerateRequest>),
    /// A failed answer of render-svc, which has no prompt.
    Failed(Value),
}

/// The values of `--set`, for requests that have no value of the key.
#[derive(Debug, Default)]
pub(super) struct Defaults(Map<String, Value>);

impl Defaults {
    /// Fails if a key is no option of a request, or a value has the wrong type.
    pub(super) fn new(settings: Vec<(String, Value)>) -> Result<Self, RequestError> {
        let defaults = Self(settings.into_iter().collect());
        let options = [OPTION_KEYS, PARAMETER_NAMES].concat();
        let fields = Fields::new(defaults.0.clone());
        if let Some(key) = fields.other_than(&options) {
            return Err(RequestError::invalid(key, unknown_key(key, &options)));
        }
        options_of(fields, Input::TokenIds(Vec::new()))?;
        Ok(defaults)
    }

    /// Reads a line.
    ///
    /// # Errors
    /// The text is not a JSON object, or it has an unknown key or a value of the wrong type.
    pub(super) fn read(&self, text: &[u8]) -> Result<Line, RequestError> {
        let text = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text); // a byte order mark
        let value: Value =
            serde_json::from_slice(text).map_err(|error| RequestError::Malformed { problem: error.to_string() })?;
        let Value::Object(mut object) = value else {
            return Err(RequestError::Malformed { problem: "must be a JSON object".into() });
        };
        if object.len() == 1 && object.get("error").is_some_and(Value::is_object) {
            return Ok(Line::Failed(Value::Object(object)));
        }
        for (key, value) in &self.0 {
            let given = object.entry(key).or_insert(Value::Null);
            if given.is_null() {
                given.clone_from(value);
            }
        }
        request(Fields::new(object)).map(|request| Line::Request(Box::new(request)))
    }
}

fn request(mut fields: Fields) -> Result<GenerateRequest, RequestError> {
    let is_answer = fields.has("adapter") || fields.has("output_spec");
    let keys = [INPUT_KEYS, OPTION_KEYS, PARAMETER_NAMES].concat();
    let known = if is_answer { [&keys, ANSWER_KEYS].concat() } else { keys.clone() };
    match fields.other_than(&known) {
        None => {}
        Some("messages") => {
            let problem = "is not a key of a prompt: render the conversation first, with `render-svc render --jsonl`";
            return Err(RequestError::invalid("messages", problem));
        }
        Some(key) => return Err(RequestError::invalid(key, unknown_key(key, &keys))),
    }
    let input = input(&mut fields, is_answer)?;
    let output_spec = output_spec(&mut fields)?;
    let expected_tokenizer_sha256 = fields.text("tokenizer_sha256")?;
    Ok(GenerateRequest { output_spec, expected_tokenizer_sha256, ..options_of(fields, input)? })
}

/// Takes the prompt. In an answer of render-svc, token ids replace the text that they come from.
fn input(fields: &mut Fields, is_answer: bool) -> Result<Input, RequestError> {
    if let Some(messages) = fields.read("hf_messages", "a list of messages", |value| value.as_array().cloned())? {
        let template = fields.read("hf_template", "an object", |value| value.as_object().cloned())?;
        return hf_messages(messages, Fields::below("hf_template", template.unwrap_or_default()));
    }
    let attachments = fields.read("attachments", "a list", |value| value.as_array().cloned())?.unwrap_or_default();
    if !attachments.is_empty() {
        // Their offsets count bytes of the text, so that token ids are of no use.
        let Some(text) = fields.text("prompt")? else {
            return Err(RequestError::invalid("prompt", "must be set together with attachments"));
        };
        fields.ids("token_ids")?;
        return Ok(Input::WithMedia(Marked::Text(text), media(attachments)?));
    }
    match (fields.text("prompt")?, fields.ids("token_ids")?) {
        (Some(_), Some(_)) if !is_answer => {
            Err(RequestError::invalid("token_ids", "must not be set together with prompt"))
        }
        (_, Some(ids)) => Ok(Input::TokenIds(ids)),
        (Some(text), None) => Ok(Input::Text(text)),
        (None, None) => Err(RequestError::invalid("prompt", "must be set, or token_ids")),
    }
}

/// Reads the attachments of a prompt, as render-svc writes them.
fn media(attachments: Vec<Value>) -> Result<Vec<MediaFile>, RequestError> {
    let file = |(i, value): (usize, Value)| {
        let path = Path::item("attachments", i);
        let Value::Object(object) = value else { return Err(RequestError::invalid(path, "must be an object")) };
        let mut fields = Fields::below(path.clone(), object);
        if fields.text("type")?.as_deref() != Some("image") {
            return Err(RequestError::invalid(fields.path("type"), "must be image: no other media are generated from"));
        }
        let offset = fields.integer("offset")?;
        let offset = offset.ok_or_else(|| RequestError::invalid(fields.path("offset"), "must be set"))?;
        let source = match (fields.text("base64")?, fields.text("url")?) {
            (Some(text), _) => MediaSource::Bytes(decode_base64(&text, || fields.path("base64"))?),
            (None, Some(url)) => MediaSource::Url(url),
            (None, None) => return Err(RequestError::invalid(path, "must have base64 or url")),
        };
        Ok(MediaFile { source, offset })
    };
    attachments.into_iter().enumerate().map(file).collect()
}

/// Reads messages, and the other inputs of the model's chat template.
fn hf_messages(messages: Vec<Value>, mut template: Fields) -> Result<Input, RequestError> {
    const KEYS: [&str; 7] = [
        "tools",
        "documents",
        "template_args",
        "add_generation_prompt",
        "continue_final_message",
        "render_time",
        "literal_control_tokens",
    ];
    if let Some(key) = template.other_than(&KEYS) {
        return Err(RequestError::invalid(template.path(key), unknown_key(key, &KEYS)));
    }
    let continue_final_message = template.boolean("continue_final_message")?.unwrap_or_default();
    const TIME: &str = "a time such as \"2025-07-04T09:05:03\"";
    let time = |value: &Value| LocalTime::parse(value.as_str()?);
    let list = |value: &Value| value.is_array().then(|| value.clone());
    Ok(Input::HfMessages(Box::new(HfMessages {
        tools: template.read("tools", "a list", list)?,
        documents: template.read("documents", "a list", list)?,
        template_args: template
            .read("template_args", "an object", |value| value.as_object().cloned())?
            .unwrap_or_default(),
        add_generation_prompt: template.boolean("add_generation_prompt")?.unwrap_or(!continue_final_message),
        continue_final_message,
        literal_control_tokens: template.boolean("literal_control_tokens")?.unwrap_or_default(),
        ..HfMessages::new(messages, template.read("render_time", TIME, time)?.unwrap_or_else(LocalTime::now))
    })))
}

fn options_of(mut fields: Fields, input: Input) -> Result<GenerateRequest, RequestError> {
    let (grammar, after_reasoning) = grammar(&mut fields)?.unzip();
    Ok(GenerateRequest {
        sampling: fields.sampling()?,
        stop: StopOptions {
            max_new_tokens: fields.integer("max_new_tokens")?,
            min_new_tokens: fields.integer("min_new_tokens")?.unwrap_or_default(),
            max_reasoning_tokens: fields.integer("max_reasoning_tokens")?,
            stop_strings: fields.string_or_strings("stop")?,
            stop_token_ids: fields.ids("stop_token_ids")?.unwrap_or_default(),
            ignore_eos: fields.boolean("ignore_eos")?.unwrap_or_default(),
            include_stop: fields.boolean("include_stop")?.unwrap_or_default(),
        },
        grammar,
        after_reasoning: after_reasoning.unwrap_or_default(),
        ..GenerateRequest::new(input)
    })
}

/// Returns the failure as `{"error": {code, reason, message, field?}}`.
pub(super) fn failure(error: &RequestError) -> Value {
    let mut failure = error.failure().to_json();
    if let Some(Value::String(field)) = failure.get_mut("field") {
        *field = flat(field);
    }
    json!({ "error": failure })
}

/// Returns a failed answer as one line of text: `REASON: field: message`.
pub(super) fn failure_text(failed: &Value) -> String {
    let parts = ["reason", "field", "message"].map(|key| failed["error"][key].as_str());
    parts.into_iter().flatten().collect::<Vec<_>>().join(": ")
}

/// Returns the flat key of a field path.
fn flat(path: &str) -> String {
    let flat = FLAT.iter().find_map(|(nested, flat)| Some(format!("{flat}{}", path.strip_prefix(nested)?)));
    flat.unwrap_or_else(|| path.to_owned())
}

macro_rules! read_sampling {
    ($($(#[$doc:meta])+ $name:ident: $type:ty = $neutral:expr, $range:expr, $default:expr;)+) => {
        impl Fields {
            fn sampling(&mut self) -> Result<SamplingOptions, RequestError> {
                Ok(SamplingOptions {
                    $($name: <$type>::take(self, stringify!($name))?,)+
                    logit_bias: self.bias("logit_bias")?,
                    n: None,
                    seed: self.integer("seed")?,
                })
            }
        }
    };
}

with_sampling_parameters!(read_sampling);

/// The type of a sampling parameter.
trait Parameter: Sized {
    /// Reads the value of a key.
    fn take(fields: &mut Fields, key: &str) -> Result<Option<Self>, RequestError>;
}

impl Parameter for f32 {
    fn take(fields: &mut Fields, key: &str) -> Result<Option<Self>, RequestError> {
        fields.float(key)
    }
}

impl Parameter for u32 {
    fn take(fields: &mut Fields, key: &str) -> Result<Option<Self>, RequestError> {
        fields.integer(key)
    }
}

/// Takes an object with one of `json_schema`, `regex`, `lark` and `choice`, and with `whitespace` and
/// `after_reasoning`. Returns the grammar, and whether it may begin after reasoning.
fn grammar(fields: &mut Fields) -> Result<Option<(Grammar, bool)>, RequestError> {
    const KINDS: [&str; 4] = ["json_schema", "regex", "lark", "choice"];
    const KEYS: [&str; 6] = ["json_schema", "regex", "lark", "choice", "whitespace", "after_reasoning"];
    const EXPECTED: &str = "an object with json_schema, regex, lark or choice";
    let Some(object) = fields.read("grammar", EXPECTED, |value| {
        let object = value.as_object()?;
        (KINDS.iter().filter(|kind| object.contains_key(**kind)).count() == 1).then(|| object.clone())
    })?
    else {
        return Ok(None);
    };
    let mut grammar = Fields::below("grammar", object);
    if let Some(key) = grammar.other_than(&KEYS) {
        return Err(RequestError::invalid(grammar.path(key), unknown_key(key, &KEYS)));
    }
    let whitespace = grammar.read("whitespace", "bounded, none or free", |value| match value.as_str()? {
        "bounded" => Some(Whitespace::Bounded),
        "none" => Some(Whitespace::Nothing),
        "free" => Some(Whitespace::Free),
        _ => None,
    })?;
    let after_reasoning = grammar.boolean("after_reasoning")?.unwrap_or_default();
    let schema = |value: &Value| Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    let kind = if grammar.has("json_schema") {
        grammar.read("json_schema", "a JSON schema", schema)?.map(GrammarKind::JsonSchema)
    } else if grammar.has("regex") {
        grammar.text("regex")?.map(GrammarKind::Regex)
    } else if grammar.has("lark") {
        grammar.text("lark")?.map(GrammarKind::Lark)
    } else {
        Some(GrammarKind::Choice(grammar.choice("choice")?))
    };
    let grammar = |kind| Grammar { kind, whitespace: whitespace.unwrap_or_default() };
    Ok(kind.map(grammar).map(|grammar| (grammar, after_reasoning)))
}
