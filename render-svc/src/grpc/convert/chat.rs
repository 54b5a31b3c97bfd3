//! Converts the contract's typed messages to the JSON that templates read.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tandem_common::field::Path;
use tandem_common::pb::chat::v1 as chat;

use crate::conversation::{Conversation, Invalid, Object};

/// The problem of a tool or block without a kind: it is unset, or newer than this server.
const NO_KIND: &str = "must have a kind that is known to this server";

/// Converts a conversation. Errors have paths inside it.
pub(super) fn conversation(conversation: chat::Conversation) -> Result<Conversation, Invalid> {
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

/// Converts a list of tools. Errors have paths of the request that has the list.
pub(super) fn tools(tools: Vec<chat::Tool>) -> Result<Option<Value>, Invalid> {
    each("tools", tools, tool).map(list)
}

/// Converts a repeated field. An error contains the index of the item.
fn each<T>(field: &str, items: Vec<T>, convert: impl Fn(T) -> Result<Value, Invalid>) -> Result<Vec<Value>, Invalid> {
    let items = items.into_iter().enumerate();
    items.map(|(i, item)| convert(item).map_err(|e| e.within(Path::from(field).index(i)))).collect()
}

/// Returns the JSON list of a repeated field, or None if the field is empty. protobuf does not
/// distinguish an empty field from an unset field.
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
    if text.is_empty() { Err(Invalid::new(field, "must not be empty")) } else { Ok(Value::String(text)) }
}

fn message(message: chat::ChatMessage) -> Result<Value, Invalid> {
    let chat::ChatMessage { role, content, reasoning_content, tool_calls, tool_call_id, name, extra_json } = message;
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

fn content(content: chat::chat_message::Content) -> Result<Value, Invalid> {
    match content {
        chat::chat_message::Content::Text(text) => Ok(text.into()),
        chat::chat_message::Content::Blocks(chat::BlockList { blocks }) => {
            Ok(each("blocks.blocks", blocks, block)?.into())
        }
    }
}

fn block(block: chat::Block) -> Result<Value, Invalid> {
    use chat::block::Kind;
    match block.kind {
        Some(Kind::Text(chat::TextBlock { text })) => Ok(json!({"type": "text", "text": text})),
        Some(Kind::Image(image)) => media("image", image),
        Some(Kind::Audio(audio)) => media("audio", audio),
        Some(Kind::Video(video)) => media("video", video),
        Some(Kind::ToolUse(tool_use)) => self::tool_use(tool_use).map_err(|e| e.within("tool_use")),
        Some(Kind::ToolResult(result)) => tool_result(result).map_err(|e| e.within("tool_result")),
        Some(Kind::OtherJson(json)) => match object("other_json", &json)? {
            block if block.get("type").is_some_and(Value::is_string) => Ok(Value::Object(block)),
            _ => Err(Invalid::new("other_json", "must have a \"type\"")),
        },
        None => Err(Invalid::new("", NO_KIND)),
    }
}

fn media(kind: &str, block: chat::MediaBlock) -> Result<Value, Invalid> {
    use chat::media_block::Source;
    let chat::MediaBlock { source, mime_type } = block;
    let (key, text) = match source {
        Some(Source::Base64(base64)) => ("base64", base64),
        Some(Source::Data(data)) => ("base64", STANDARD.encode(&data)),
        Some(Source::Location(location)) => ("url", location),
        Some(Source::AttachmentId(id)) => ("attachment_id", id),
        None => ("base64", String::new()),
    };
    if text.is_empty() {
        return Err(Invalid::new(kind, "must hold base64 text, data, a location or an attachment's id"));
    }
    let mut block = json!({"type": kind, key: text});
    if !mime_type.is_empty() {
        block["mime_type"] = mime_type.into();
    }
    Ok(block)
}

fn tool_use(block: chat::ToolUseBlock) -> Result<Value, Invalid> {
    let chat::ToolUseBlock { id, name, input_json } = block;
    let input = if input_json.is_empty() { Object::new() } else { object("input_json", &input_json)? };
    let mut fields = Object::new();
    fields.insert("type".to_owned(), "tool_use".into());
    fields.extend(id.map(|id| ("id".to_owned(), id.into())));
    fields.insert("name".to_owned(), not_empty("name", name)?);
    fields.insert("input".to_owned(), input.into());
    Ok(Value::Object(fields))
}

fn tool_result(block: chat::ToolResultBlock) -> Result<Value, Invalid> {
    use chat::tool_result_block::Content;
    let chat::ToolResultBlock { tool_use_id, content, is_error } = block;
    let content = match content {
        None => Value::Null,
        Some(Content::Text(text)) => text.into(),
        Some(Content::Blocks(chat::BlockList { blocks })) => each("blocks.blocks", blocks, self::block)?.into(),
    };
    let mut fields = Object::new();
    fields.insert("type".to_owned(), "tool_result".into());
    fields.extend(tool_use_id.map(|id| ("tool_use_id".to_owned(), id.into())));
    fields.insert("content".to_owned(), content);
    fields.extend(is_error.map(|is_error| ("is_error".to_owned(), is_error.into())));
    Ok(Value::Object(fields))
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
        None => Err(Invalid::new("", NO_KIND)),
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
