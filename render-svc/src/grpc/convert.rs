//! Between the contracts and the domain. Whole messages are taken apart, so that a new field does not compile until someone has
//! decided what it does.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tandem_common::pb::chat::v1 as chat;
use tandem_common::pb::generate::v1 as generate;
use tandem_common::pb::render::v1 as pb;

use crate::adapters::{self, Attachment, MediaKind, MediaSource, Resolution, Warning, WarningCode};
use crate::capabilities::Capabilities;
use crate::chat::{Conversation, Invalid, Object};
use crate::clock;
use crate::error::Error;
use crate::models::Model;
use crate::output_spec::OutputSpec;
use crate::render::{Normalization, Output, RenderJob, RenderOptions, Rendered};

pub(super) fn render_job(request: pb::RenderRequest) -> Result<RenderJob, Invalid> {
    let pb::RenderRequest { model, conversation, options, return_token_ids } = request;
    job(model, conversation, options, return_token_ids)
}

pub(super) fn job(
    model: String,
    conversation: Option<chat::Conversation>,
    options: Option<pb::RenderOptions>,
    return_token_ids: bool,
) -> Result<RenderJob, Invalid> {
    let conversation = conversation.map_or_else(|| Ok(Conversation::default()), self::conversation)?;
    Ok(RenderJob { model, conversation, options: render_options(options.unwrap_or_default())?, return_token_ids })
}

fn render_options(options: pb::RenderOptions) -> Result<RenderOptions, Invalid> {
    let policy = normalization(options.normalization)?;
    let pb::RenderOptions {
        add_generation_prompt,
        continue_final_message,
        adapter,
        render_time: time,
        normalization: _,
    } = options;
    Ok(RenderOptions {
        add_generation_prompt,
        continue_final_message: continue_final_message.unwrap_or(false),
        adapter,
        now: time.as_deref().map_or_else(|| Ok(clock::now()), clock::parse)?,
        normalization: policy,
    })
}

fn normalization(number: i32) -> Result<Normalization, Invalid> {
    match pb::Normalization::try_from(number) {
        Ok(pb::Normalization::Unspecified | pb::Normalization::Capability) => Ok(Normalization::Capability),
        Ok(pb::Normalization::None) => Ok(Normalization::None),
        Err(_) => Err(Invalid::new("options.normalization", format!("{number} is unknown to this server"))),
    }
}

fn conversation(conversation: chat::Conversation) -> Result<Conversation, Invalid> {
    let chat::Conversation { messages, tools, documents, template_args_json } = conversation;
    Ok(Conversation {
        messages: each("messages", messages, message)?,
        tools: list(each("tools", tools, tool)?),
        documents: list(each("documents", documents, |document| {
            Ok(Value::Object(object("document_json", &document.document_json)?))
        })?),
        template_args: template_args_json
            .map_or_else(|| Ok(Object::new()), |json| object("template_args_json", &json))?,
    })
}

/// Converts a repeated field, naming the index of the item that is wrong.
fn each<T>(field: &str, items: Vec<T>, convert: impl Fn(T) -> Result<Value, Invalid>) -> Result<Vec<Value>, Invalid> {
    let items = items.into_iter().enumerate();
    items.map(|(i, item)| convert(item).map_err(|e| e.within(&format!("{field}[{i}]")))).collect()
}

/// A repeated field's JSON list; none when empty, since the wire cannot tell the two apart.
fn list(items: Vec<Value>) -> Option<Value> {
    (!items.is_empty()).then_some(Value::Array(items))
}

fn parse(field: &str, json: &str) -> Result<Value, Invalid> {
    serde_json::from_str(json).map_err(|e| Invalid::new(field, format!("must be JSON: {e}")))
}

fn object(field: &str, json: &str) -> Result<Object, Invalid> {
    match parse(field, json)? {
        Value::Object(object) => Ok(object),
        _ => Err(Invalid::new(field, "must be a JSON object")),
    }
}

fn not_empty(field: &str, text: String) -> Result<Value, Invalid> {
    match text.is_empty() {
        true => Err(Invalid::new(field, "must not be empty")),
        false => Ok(Value::String(text)),
    }
}

fn message(message: chat::Message) -> Result<Value, Invalid> {
    let chat::Message { role, content, reasoning_content, tool_calls, tool_call_id, name, extra_json } = message;
    let mut fields = Object::new();
    fields.insert("role".to_owned(), not_empty("role", role)?);
    if let Some(content) = content {
        fields.insert("content".to_owned(), self::content(content)?);
    }
    let optional = [("reasoning_content", reasoning_content), ("tool_call_id", tool_call_id), ("name", name)];
    fields.extend(optional.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.into()))));
    if !tool_calls.is_empty() {
        fields.insert("tool_calls".to_owned(), each("tool_calls", tool_calls, tool_call)?.into());
    }
    if let Some(json) = extra_json {
        add_extra(&mut fields, &json)?;
    }
    fields.entry("content").or_insert(Value::Null);
    Ok(Value::Object(fields))
}

fn add_extra(fields: &mut Object, json: &str) -> Result<(), Invalid> {
    for (key, value) in object("extra_json", json)? {
        if fields.contains_key(&key) {
            return Err(Invalid::new("extra_json", format!("the key {key:?} is already set by its own field")));
        }
        fields.insert(key, value);
    }
    Ok(())
}

fn content(content: chat::message::Content) -> Result<Value, Invalid> {
    match content {
        chat::message::Content::Text(text) => Ok(text.into()),
        chat::message::Content::Blocks(chat::BlockList { blocks }) => Ok(each("content", blocks, block)?.into()),
    }
}

fn block(block: chat::Block) -> Result<Value, Invalid> {
    use chat::block::Kind;
    match block.kind {
        Some(Kind::Text(chat::TextBlock { text })) => Ok(json!({"type": "text", "text": text})),
        Some(Kind::Image(image)) => Ok(json!({"type": "image", "base64": image_base64(image)?})),
        Some(Kind::OtherJson(json)) => Ok(Value::Object(object("other_json", &json)?)),
        None => Err(Invalid::new("kind", "must be set, and known to this server")),
    }
}

fn image_base64(image: chat::ImageBlock) -> Result<String, Invalid> {
    use chat::image_block::Source;
    match image.source {
        Some(Source::Base64(base64)) if !base64.is_empty() => Ok(base64),
        Some(Source::Data(chat::MediaData { data, mime_type: _ })) if !data.is_empty() => Ok(STANDARD.encode(&data)),
        _ => Err(Invalid::new("image", "must hold base64 text or data")),
    }
}

fn tool_call(call: chat::ToolCall) -> Result<Value, Invalid> {
    let chat::ToolCall { id, name, arguments_json } = call;
    let function = json!({"name": not_empty("name", name)?, "arguments": parse("arguments_json", &arguments_json)?});
    Ok(match id {
        Some(id) => json!({"id": id, "type": "function", "function": function}),
        None => json!({"type": "function", "function": function}),
    })
}

fn tool(tool: chat::Tool) -> Result<Value, Invalid> {
    use chat::tool::Kind;
    match tool.kind {
        Some(Kind::Function(function)) => function_tool(function).map_err(|e| e.within("function")),
        Some(Kind::ToolJson(json)) => Ok(Value::Object(object("tool_json", &json)?)),
        None => Err(Invalid::new("kind", "must be set, and known to this server")),
    }
}

fn function_tool(function: chat::FunctionTool) -> Result<Value, Invalid> {
    let chat::FunctionTool { name, description, parameters_json } = function;
    let mut fields = Object::new();
    fields.insert("name".to_owned(), not_empty("name", name)?);
    fields.extend(description.map(|text| ("description".to_owned(), text.into())));
    if let Some(json) = parameters_json {
        fields.insert("parameters".to_owned(), Value::Object(object("parameters_json", &json)?));
    }
    Ok(json!({"type": "function", "function": fields}))
}

pub(super) fn rendered(rendered: Rendered) -> pb::RenderResponse {
    let timings = pb::RenderTimings {
        render_ms: rendered.render_time.as_secs_f64() * 1e3,
        tokenize_ms: rendered.tokenize_time.as_secs_f64() * 1e3,
    };
    pb::RenderResponse {
        fingerprint: Some(fingerprint(&rendered)),
        output_spec: Some(output_spec(rendered.output_spec())),
        resolution: Some(resolution(&rendered.resolution)),
        warnings: rendered.warnings.iter().map(warning).collect(),
        timings: Some(timings),
        output: Some(output(rendered.output)),
    }
}

fn output(output: Output) -> pb::render_response::Output {
    match output {
        Output::Prompt { text, attachments, token_ids } => pb::render_response::Output::Prompt(pb::Prompt {
            text,
            token_ids: token_ids.unwrap_or_default(),
            attachments: attachments.into_iter().map(attachment).collect(),
        }),
        Output::HfMessages(messages) => {
            let messages_json = Value::from(messages).to_string();
            pb::render_response::Output::HfMessages(pb::HfMessages { messages_json })
        }
    }
}

fn attachment(attachment: Attachment) -> pb::Attachment {
    use pb::attachment::Source;
    let kind = match attachment.kind {
        MediaKind::Image => pb::MediaKind::Image,
        MediaKind::Audio => pb::MediaKind::Audio,
        MediaKind::Video => pb::MediaKind::Video,
    };
    let source = match attachment.source {
        MediaSource::Base64(base64) => Some(Source::Base64(base64)),
        MediaSource::Location(location) => Some(Source::Location(location)),
        MediaSource::Declared(id) => Some(Source::AttachmentId(id)),
        MediaSource::Elsewhere => None,
    };
    pb::Attachment { kind: kind.into(), path: attachment.path, source }
}

pub(crate) fn resolution(resolution: &Resolution) -> pb::Resolution {
    let rejected = |(adapter, reason): &(&str, String)| pb::RejectedAdapter {
        adapter: (*adapter).to_owned(),
        reason: reason.clone(),
    };
    pb::Resolution {
        adapter: resolution.adapter.to_owned(),
        reason: resolution.reason.clone(),
        rejected: resolution.rejected.iter().map(rejected).collect(),
    }
}

pub(crate) fn warning(warning: &Warning) -> pb::Warning {
    let code = match warning.code {
        WarningCode::ToolsIgnored => pb::WarningCode::ToolsIgnored,
        WarningCode::TemplateArgsIgnored => pb::WarningCode::TemplateArgsIgnored,
        WarningCode::DocumentsIgnored => pb::WarningCode::DocumentsIgnored,
        WarningCode::MessagesMerged => pb::WarningCode::MessagesMerged,
        WarningCode::SystemRewritten => pb::WarningCode::SystemRewritten,
    };
    pb::Warning { code: code.into(), path: warning.path.clone(), text: warning.text.clone() }
}

pub(crate) fn fingerprint(rendered: &Rendered) -> pb::Fingerprint {
    pb::Fingerprint {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        template_sha256: rendered.model.template_sha256.clone().unwrap_or_default(),
        tokenizer_sha256: tokenizer_sha256(&rendered.model),
        prompt_sha256: rendered.prompt_sha256.clone().unwrap_or_default(),
    }
}

fn tokenizer_sha256(model: &Model) -> String {
    model.tokenizer.as_ref().map(|tokenizer| tokenizer.sha256().to_owned()).unwrap_or_default()
}

pub(crate) fn output_spec(spec: &OutputSpec) -> generate::OutputSpec {
    let OutputSpec { eos_token_ids, stop_strings } = spec;
    generate::OutputSpec {
        eos_token_ids: eos_token_ids.clone(),
        stop_strings: stop_strings.clone(),
        special_token_classes: Vec::new(),
    }
}

pub(super) fn model_info(model: &Model) -> Result<pb::ModelInfo, Error> {
    let special = |(name, text): (&String, &Value)| {
        let text = text.as_str()?;
        let id = model.tokenizer.as_ref().and_then(|tokenizer| tokenizer.token_to_id(text));
        Some(pb::SpecialToken { name: name.clone(), text: text.to_owned(), id })
    };
    Ok(pb::ModelInfo {
        id: model.id.clone(),
        architecture: model.artifacts.architecture.clone().unwrap_or_default(),
        context_length: model.artifacts.context_length.unwrap_or_default(),
        adapter: adapters::resolve(model)?.1.adapter.to_owned(),
        special_tokens: model.special_tokens.iter().filter_map(special).collect(),
        tokenizer_sha256: tokenizer_sha256(model),
        template_sha256: model.template_sha256.clone().unwrap_or_default(),
        capabilities: capabilities(model.capabilities),
    })
}

fn capabilities(capabilities: Capabilities) -> Vec<i32> {
    use pb::Capability;
    let Capabilities { supports_system_role, requires_strict_turns, supports_tool_calls, supports_reasoning } =
        capabilities;
    let flags = [
        (supports_system_role, Capability::SupportsSystemRole),
        (requires_strict_turns, Capability::RequiresStrictTurns),
        (supports_tool_calls, Capability::SupportsToolCalls),
        (supports_reasoning, Capability::SupportsReasoning),
    ];
    flags.into_iter().filter_map(|(is_set, flag)| is_set.then_some(flag.into())).collect()
}
