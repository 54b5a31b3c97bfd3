//! The part of a conversation for which a template fails.

use serde_json::{Value, json};

use crate::conversation::{CONTENT, Content, Conversation, content};

/// The most renderings in which the part is looked for.
const MAX_RENDERINGS: usize = 32;

/// A part, and the messages without content that may be the cause.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The path of the part, such as `tools[0]`. None if it is unknown.
    pub field: Option<String>,
    /// The paths of messages without content for which the template fails, and not for an empty text.
    pub empty_messages: Vec<String>,
}

/// Returns the part without which a template does not fail. `fails` renders a changed conversation.
pub(crate) fn find(conversation: &Conversation, fails: impl Fn(&Conversation) -> bool) -> Fault {
    let mut left = MAX_RENDERINGS;
    let mut succeeds = |changed: &Conversation| {
        left = left.saturating_sub(1);
        left > 0 && !fails(changed)
    };
    let empty_messages = empty_messages(conversation, &mut succeeds);
    let field = of_list(conversation, "tools", |conversation| &mut conversation.tools, &mut succeeds)
        .or_else(|| of_list(conversation, "documents", |conversation| &mut conversation.documents, &mut succeeds))
        .or_else(|| of_arguments(conversation, &mut succeeds))
        .or_else(|| of_contents(conversation, &mut succeeds));
    Fault { field, empty_messages }
}

/// Returns the path of a list without which the template does not fail, or of the one item at fault.
fn of_list(
    conversation: &Conversation,
    name: &str,
    list: impl Fn(&mut Conversation) -> &mut Option<Value>,
    succeeds: &mut impl FnMut(&Conversation) -> bool,
) -> Option<String> {
    let mut without = conversation.clone();
    let items = list(&mut without).take()?.as_array().map_or(0, Vec::len);
    if items == 0 || !succeeds(&without) {
        return None;
    }
    let without_item = |item: usize| {
        let mut without = conversation.clone();
        let items = list(&mut without).as_mut().and_then(Value::as_array_mut);
        items.into_iter().for_each(|items| _ = items.remove(item));
        without
    };
    let item = if items > 1 { (0..items).find(|item| succeeds(&without_item(*item))) } else { Some(0) };
    Some(item.map_or(name.to_owned(), |item| format!("{name}[{item}]")))
}

/// Returns the path of the arguments without which the template does not fail.
fn of_arguments(conversation: &Conversation, succeeds: &mut impl FnMut(&Conversation) -> bool) -> Option<String> {
    let mut calls = Vec::new();
    for (i, message) in conversation.messages.iter().enumerate() {
        let of_message = message.get("tool_calls").and_then(Value::as_array).map_or(0, Vec::len);
        calls.extend((0..of_message).map(|j| (i, j)));
    }
    let without = |calls: &[(usize, usize)]| {
        let mut without = conversation.clone();
        for (i, j) in calls {
            let call = &mut without.messages[*i]["tool_calls"][*j];
            let function = if call.get("function").is_some() { call.get_mut("function") } else { Some(call) };
            let arguments = function.and_then(|function| function.get_mut("arguments"));
            arguments.into_iter().for_each(|arguments| *arguments = json!({}));
        }
        without
    };
    if calls.is_empty() || !succeeds(&without(&calls)) {
        return None;
    }
    let (i, j) = *calls.iter().find(|call| succeeds(&without(&[**call])))?;
    let function = conversation.messages[i]["tool_calls"][j].get("function").map_or("", |_| ".function");
    Some(format!("messages[{i}].tool_calls[{j}]{function}.arguments"))
}

/// Returns the path of the content in whose place the template takes a text.
fn of_contents(conversation: &Conversation, succeeds: &mut impl FnMut(&Conversation) -> bool) -> Option<String> {
    let messages = conversation.messages.iter().enumerate();
    let mut others = messages.filter(|(_, message)| matches!(content(message), Content::Blocks(_) | Content::Other(_)));
    let at = others.find(|(at, _)| succeeds(&with_text(conversation, &[*at], "x")));
    at.map(|(at, _)| format!("messages[{at}].{CONTENT}"))
}

/// Returns the messages without content for which the template fails, and not for an empty text.
fn empty_messages(conversation: &Conversation, succeeds: &mut impl FnMut(&Conversation) -> bool) -> Vec<String> {
    let messages = conversation.messages.iter().enumerate();
    let empty = messages.filter(|(_, message)| content(message) == Content::Null).map(|(at, _)| at);
    let empty: Vec<_> = empty.take(MAX_EMPTY_MESSAGES).collect();
    if empty.is_empty() || !succeeds(&with_text(conversation, &empty, "")) {
        return Vec::new();
    }
    let others = |kept: usize| empty.iter().copied().filter(|at| *at != kept).collect::<Vec<_>>();
    let at_fault = empty.iter().filter(|at| !succeeds(&with_text(conversation, &others(**at), "")));
    at_fault.map(|at| format!("messages[{at}]")).collect()
}

/// The most messages without content that an error names.
const MAX_EMPTY_MESSAGES: usize = 8;

fn with_text(conversation: &Conversation, messages: &[usize], text: &str) -> Conversation {
    let mut conversation = conversation.clone();
    messages.iter().for_each(|at| conversation.messages[*at][CONTENT] = text.into());
    conversation
}
