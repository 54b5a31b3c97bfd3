//! Typed blocks `tool_use` and `tool_result` in the form that chat templates read: calls of the
//! assistant's message, and messages of the tool.

use serde_json::{Value, json};
use tandem_common::field::{Path, Step};
use tandem_common::status::Reason;
use tandem_template::python;

use super::place::Place;
use super::traced::Traced;
use crate::conversation::{CONTENT, Content, Invalid, Object, blocks, content, kind, unknown_block};
use crate::probes::ArgumentsShape;

/// The type of a call's block.
pub const TOOL_USE: &str = "tool_use";

/// The type of a result's block.
pub const TOOL_RESULT: &str = "tool_result";

/// The blocks that are converted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conversion {
    /// True if `tool_use` blocks become calls.
    pub calls: bool,
    /// True if `tool_result` blocks become messages.
    pub results: bool,
    /// The JSON type of the calls' arguments.
    pub arguments: ArgumentsShape,
}

/// Converts the typed blocks of each message. An assistant's calls follow the calls that its message
/// has. Results become messages before the rest of their message, because they answer the message
/// before it.
///
/// # Errors
/// A block without its name, with a wrong type of input or content, or in a message of another
/// role, by its path in the request.
pub fn convert(messages: Vec<Traced>, conversion: Conversion) -> Result<Vec<Traced>, Invalid> {
    let mut converted = Vec::with_capacity(messages.len());
    for message in messages {
        if blocks(&message.message).iter().any(|block| conversion.applies_to(block)) {
            converted.extend(Parts::read(message, conversion)?.into_messages()?);
        } else {
            converted.push(message);
        }
    }
    Ok(converted)
}

impl Conversion {
    fn applies_to(self, block: &Value) -> bool {
        match kind(block) {
            Some(TOOL_USE) => self.calls,
            Some(TOOL_RESULT) => self.results,
            _ => false,
        }
    }
}

/// A block and its place.
struct Block {
    value: Value,
    place: Place,
}

/// A message whose content is divided by kinds of blocks.
struct Parts {
    /// The message with all its blocks.
    message: Traced,
    calls: Vec<Block>,
    results: Vec<Traced>,
    rest: Vec<Block>,
}

impl Parts {
    fn read(mut message: Traced, conversion: Conversion) -> Result<Self, Invalid> {
        let Value::Array(values) = message.message["content"].take() else { unreachable!("the content is a list") };
        let places = message.place.take("content").into_items(values.len());
        let mut parts = Self { message, calls: Vec::new(), results: Vec::new(), rest: Vec::new() };
        for (value, place) in values.into_iter().zip(places) {
            parts.add(Block { value, place }, conversion)?;
        }
        Ok(parts)
    }

    fn add(&mut self, block: Block, conversion: Conversion) -> Result<(), Invalid> {
        let role = self.message.role();
        match kind(&block.value).filter(|_| conversion.applies_to(&block.value)) {
            Some(TOOL_USE) if role == Some("assistant") => self.calls.push(call(block, conversion.arguments)?),
            Some(TOOL_RESULT) if matches!(role, Some("user" | "tool")) => {
                self.results.push(result(block, &self.message)?);
            }
            Some(TOOL_USE) => return Err(misplaced(&block, "an assistant's message")),
            Some(_) => return Err(misplaced(&block, "a message of the user or the tool")),
            None => self.rest.push(block),
        }
        Ok(())
    }

    fn into_messages(self) -> Result<Vec<Traced>, Invalid> {
        let Self { message, calls, mut results, rest } = self;
        if results.is_empty() {
            return Ok(vec![with_calls(with_blocks(message, rest), calls)?]);
        }
        match rest.first() {
            None => {}
            Some(_) if message.role() == Some("tool") => {
                let problem = "must hold tool_result blocks only, or none, in a message of the tool";
                return Err(message.invalid(Invalid::new("content", problem)));
            }
            Some(_) => results.push(with_blocks(message, rest)),
        }
        Ok(results)
    }
}

fn misplaced(block: &Block, home: &str) -> Invalid {
    let problem = format!("blocks of type {:?} are rendered only in {home}", kind(&block.value).unwrap_or_default());
    Invalid { reason: Reason::UnknownBlock, field: block.place.path().clone(), problem }
}

/// Returns the message with these blocks as its content, or with an empty text.
fn with_blocks(mut message: Traced, rest: Vec<Block>) -> Traced {
    let (values, places): (Vec<_>, Vec<_>) = rest.into_iter().map(|block| (block.value, block.place)).unzip();
    let place = message.place.take("content").with_items(places);
    message.place.set("content", place);
    message.message["content"] = if values.is_empty() { "".into() } else { values.into() };
    message
}

fn with_calls(mut message: Traced, calls: Vec<Block>) -> Result<Traced, Invalid> {
    if calls.is_empty() {
        return Ok(message);
    }
    let mut all = match message.message.get_mut("tool_calls").map(Value::take) {
        Some(Value::Array(calls)) => calls,
        Some(other) if python::is_true(&other) => {
            return Err(message.invalid(Invalid::new("tool_calls", "must be a list")));
        }
        _ => Vec::new(),
    };
    let place = message.place.take("tool_calls");
    let mut places = place.clone().into_items(all.len());
    for call in calls {
        all.push(call.value);
        places.push(call.place);
    }
    message.place.set("tool_calls", place.with_items(places));
    message.message["tool_calls"] = all.into();
    Ok(message)
}

/// Converts a `tool_use` block to a call. Other keys of the block become keys of the call.
fn call(block: Block, arguments: ArgumentsShape) -> Result<Block, Invalid> {
    let Block { value, place } = block;
    let path = |key: &str| place.path_of(&[Step::Key(key)]);
    let name = value["name"].as_str().filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| Invalid::new(path("name"), "must be a string that is not empty"))?;
    let input = match &value["input"] {
        Value::Null => Value::Object(Object::new()),
        input @ Value::Object(_) => input.clone(),
        _ => return Err(Invalid::new(path("input"), "must be a JSON object")),
    };
    let arguments = if arguments == ArgumentsShape::Text { python::dumps(&input).into() } else { input };
    let mut call = Object::new();
    call.extend(id(&value, "id").map(|id| ("id".to_owned(), id)));
    call.insert("type".to_owned(), "function".into());
    call.insert("function".to_owned(), json!({"name": name, "arguments": arguments}));
    let function = Place::made_from(place.path().clone()).with("name", Place::at(path("name")));
    let function = function.with("arguments", Place::at(path("input")));
    let made = Place::made_from(place.path().clone()).with("id", Place::at(path("id"))).with("function", function);
    Ok(with_other_keys(Block { value: Value::Object(call), place: made }, value, &place, &["name", "input"]))
}

/// Converts a `tool_result` block of a message to a message of the tool. Other keys of the block, and
/// of a message of the tool, become keys of the new message.
fn result(block: Block, message: &Traced) -> Result<Traced, Invalid> {
    let Block { mut value, place } = block;
    let path = |key: &str| place.path_of(&[Step::Key(key)]);
    check_content(&value).map_err(|e| Invalid { field: place.path_of(&e.field.steps()), ..e })?;
    let content = match value["content"].take() {
        Value::Null => "".into(),
        content => content,
    };
    let mut made = Place::made_from(place.path().clone()).with("content", Place::at(path("content")));
    let mut fields = Object::from_iter([("role".to_owned(), "tool".into())]);
    if let Some(id) = id(&value, "tool_use_id") {
        fields.insert("tool_call_id".to_owned(), id);
        made.set("tool_call_id", Place::at(path("tool_use_id")));
    }
    fields.insert("content".to_owned(), content);
    let made = Block { value: Value::Object(fields), place: made };
    let mut made = with_other_keys(made, value, &place, &["tool_use_id"]);
    if message.role() == Some("tool") {
        made = with_other_keys(made, message.message.clone(), &message.place, &[]);
    }
    Ok(Traced { message: made.value, place: made.place, sources: message.sources.clone() })
}

fn id(block: &Value, key: &str) -> Option<Value> {
    block.get(key).filter(|id| !id.is_null()).cloned()
}

/// Adds the keys of `from` that are not consumed and that the made value lacks.
fn with_other_keys(mut made: Block, from: Value, place: &Place, consumed: &[&str]) -> Block {
    if let (Value::Object(fields), Value::Object(from)) = (&mut made.value, from) {
        for (key, value) in from {
            if !consumed.contains(&key.as_str()) && key != "type" && !fields.contains_key(&key) {
                made.place.set(&key, Place::at(place.path_of(&[Step::Key(&key)])));
                fields.insert(key, value);
            }
        }
    }
    made
}

/// Checks the content of a result: text, or blocks other than calls and results.
fn check_content(result: &Value) -> Result<(), Invalid> {
    if matches!(content(result), Content::Other(_)) {
        return Err(Invalid::new("content", "must be text or a list of blocks"));
    }
    let mut blocks = blocks(result).iter().enumerate();
    match blocks.find(|(_, block)| matches!(kind(block), Some(TOOL_USE | TOOL_RESULT))) {
        Some((i, block)) => Err(unknown_block(block, Path::item(CONTENT, i))),
        None => Ok(()),
    }
}
