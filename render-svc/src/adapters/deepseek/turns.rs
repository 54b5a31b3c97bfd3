//! The messages of a conversation with their paths and tools.

use serde_json::Value;
use tandem_common::field::Path;

use super::blocks::Item;
use super::calls::Call;
use crate::adapter::Input;
use crate::conversation::{CONTENT, Conversation, Invalid, Object};
use tandem_template::python;

/// A message of the conversation.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    /// None for a message that the encoder adds.
    item: Option<&'a Item<'a>>,
    pub(super) role: &'a str,
    fields: Option<&'a Object>,
    /// Declared in the message or, for the first system message, with the conversation; each with
    /// its path.
    pub(super) tools: Vec<(Path, &'a Value)>,
}

/// Returns the conversation's messages. The first system message declares its tools; if there is
/// none, one is added.
pub(super) fn turns<'a>(said: &'a [Item<'a>], conversation: &'a Conversation) -> Result<Vec<Turn<'a>>, Invalid> {
    let mut turns = messages(said)?;
    let tools = listed(|| "tools".into(), conversation.tools.as_ref())?;
    if tools.is_empty() {
        return Ok(turns);
    }
    match turns.iter_mut().find(|turn| turn.role == "system") {
        Some(system) => system.tools.extend(tools),
        None => turns.insert(0, Turn { item: None, role: "system", fields: None, tools }),
    }
    Ok(turns)
}

pub(super) fn messages<'a>(items: &'a [Item<'a>]) -> Result<Vec<Turn<'a>>, Invalid> {
    items.iter().map(Turn::new).collect()
}

/// Returns a list's items, each with its path. A value that is false in Python is an empty list.
fn listed(path: impl Fn() -> Path, list: Option<&Value>) -> Result<Vec<(Path, &Value)>, Invalid> {
    match list {
        Some(Value::Array(items)) => Ok(items.iter().enumerate().map(|(i, item)| (path().index(i), item)).collect()),
        Some(other) if python::is_true(other) => Err(Invalid::new(path(), "must be a list")),
        _ => Ok(Vec::new()),
    }
}

impl<'a> Turn<'a> {
    fn new(item: &'a Item<'a>) -> Result<Self, Invalid> {
        let Some(fields) = item.message.as_object() else {
            return Err(Invalid::new(item.path(), "must be an object"));
        };
        let tools = listed(|| item.path().key("tools"), fields.get("tools"))?;
        let role = fields.get("role").and_then(Value::as_str).unwrap_or_default();
        Ok(Self { item: Some(item), role, fields: Some(fields), tools })
    }

    /// Returns its path in the request.
    pub(super) fn path(&self) -> Path {
        self.item.map_or_else(|| "tools".into(), Item::path)
    }

    pub(super) fn get(&self, key: &str) -> Option<&'a Value> {
        self.fields?.get(key)
    }

    /// Returns the value, unless it is false in Python.
    pub(super) fn given(&self, key: &str) -> Option<&'a Value> {
        self.get(key).filter(|value| python::is_true(value))
    }

    /// Returns the value as Python prints it; `None` for a missing one.
    pub(super) fn printed(&self, key: &str) -> String {
        self.get(key).map_or_else(|| "None".to_owned(), python::to_str)
    }

    /// Returns the value as Python prints it; an empty text for a value that is false in Python.
    pub(super) fn printed_or_empty(&self, key: &str) -> String {
        self.given(key).map(python::to_str).unwrap_or_default()
    }

    pub(super) fn invalid(&self, key: &str, problem: impl Into<String>) -> Invalid {
        Invalid::new(key, problem).within(self.path())
    }

    /// Returns an error about the position of the message.
    pub(super) fn misplaced(&self, problem: impl Into<String>) -> Invalid {
        let is_block = self.item.is_some_and(|item| item.block.is_some());
        self.invalid(if is_block { "" } else { "role" }, problem)
    }

    pub(super) fn unknown_role(&self) -> Invalid {
        self.invalid(
            "role",
            format!("role is not supported by this model: {}", self.get("role").unwrap_or(&Value::Null)),
        )
    }

    /// Returns the functions that the message declares, one JSON schema per line; None if there are
    /// none.
    pub(super) fn schemas(&self) -> Result<Option<String>, Invalid> {
        let missing = |path: &Path| Invalid::new(path.clone().key("function"), "must be set");
        let schema =
            |(path, tool): &(Path, &Value)| Ok(python::dumps(tool.get("function").ok_or_else(|| missing(path))?));
        let schemas: Vec<_> = self.tools.iter().map(schema).collect::<Result<_, Invalid>>()?;
        Ok((!schemas.is_empty()).then(|| schemas.join("\n")))
    }

    /// Returns the section that demands answers of a JSON schema.
    pub(super) fn response_format(&self) -> Option<String> {
        const HEAD: &str = "\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n";
        self.given("response_format").map(|schema| format!("{HEAD}{}", python::dumps(schema)))
    }

    pub(super) fn calls(&self) -> Result<Vec<Call<'a>>, Invalid> {
        let calls = listed(|| self.path().key("tool_calls"), self.get("tool_calls"))?;
        calls.into_iter().map(Call::new).collect()
    }

    pub(super) fn call_count(&self) -> usize {
        self.get("tool_calls").and_then(Value::as_array).map_or(0, Vec::len)
    }
}

/// The field with an assistant's reasoning.
pub(super) const REASONING: &str = "reasoning_content";

/// The fields of the final message that a model can continue.
pub(super) const CONTINUED_FIELDS: &[&str] = &[CONTENT, REASONING];

/// Fails if the request continues a message that is not the assistant's, or reasoning that it does
/// not have.
pub(super) fn check_continued(input: &Input<'_>, last: Option<&Turn<'_>>) -> Result<(), Invalid> {
    let (Some(turn), Some(field)) = (last, input.continue_final_message) else { return Ok(()) };
    let invalid = |problem: &str| Err(Invalid::new("continue_final_message", problem));
    if turn.role != "assistant" {
        invalid("needs a final message of the assistant")
    } else if field == REASONING && turn.given(REASONING).is_none() {
        invalid("the final message has no reasoning_content to continue")
    } else {
        Ok(())
    }
}

/// Returns the error of a request that continues reasoning which the prompt does not contain.
pub(super) fn reasoning_not_shown() -> Invalid {
    let problem = "the prompt has no reasoning_content here: set template_args.thinking to true";
    Invalid::new("continue_final_message", problem)
}
