//! The part of a conversation for which a template fails: the first one without which it does not.

use serde_json::{Value, json};
use tandem_common::field::Path;

use crate::conversation::{CONTENT, Content, Conversation, Object, content, function};

/// The most renderings in which the part is looked for.
const MAX_RENDERINGS: usize = 64;
/// The most arguments of the template that are taken out or become a text.
const MAX_ARGUMENTS: usize = 8;
/// The most messages without content that an error names.
const MAX_EMPTY_MESSAGES: usize = 8;

/// A part, and the messages without content that may be the cause.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The path of the part, such as `tools[0]`. None if it is unknown.
    pub field: Option<Path>,
    /// The paths of messages without content for which the template fails, and not for an empty text.
    pub empty_messages: Vec<Path>,
}

/// Returns the part without which a template does not fail. `fails` renders a changed conversation.
pub(crate) fn find(conversation: &Conversation, fails: impl Fn(&Conversation) -> bool) -> Fault {
    let mut left = MAX_RENDERINGS;
    let mut succeeds = move |changed: &Conversation| {
        left = left.saturating_sub(1);
        left > 0 && !fails(changed)
    };
    let empty_messages = empty_messages(conversation, &mut succeeds);
    let mut search = Search { conversation, succeeds: &mut succeeds };
    let field = search
        .argument()
        .or_else(|| search.list("tools", |conversation| &mut conversation.tools))
        .or_else(|| search.list("documents", |conversation| &mut conversation.documents))
        .or_else(|| search.call_arguments())
        .or_else(|| search.call())
        .or_else(|| search.content());
    Fault { field, empty_messages }
}

/// The search of a part.
struct Search<'c, S> {
    conversation: &'c Conversation,
    succeeds: &'c mut S,
}

impl<S: FnMut(&Conversation) -> bool> Search<'_, S> {
    fn without(&mut self, change: impl FnOnce(&mut Conversation)) -> bool {
        let mut without = self.conversation.clone();
        change(&mut without);
        (self.succeeds)(&without)
    }

    /// Returns the first of `count` parts at fault: the template succeeds without it and those after it, and
    /// fails without those after it. `without_from` takes out all parts from an index on.
    fn first(&mut self, count: usize, without_from: impl Fn(&mut Conversation, usize)) -> Option<usize> {
        if count == 0 || !self.without(|conversation| without_from(conversation, 0)) {
            return None;
        }
        let (mut succeeds, mut fails) = (0, count);
        while fails - succeeds > 1 {
            let middle = usize::midpoint(succeeds, fails);
            if self.without(|conversation| without_from(conversation, middle)) {
                succeeds = middle;
            } else {
                fails = middle;
            }
        }
        Some(succeeds)
    }

    /// Returns the path of an argument of the template.
    fn argument(&mut self) -> Option<Path> {
        let names: Vec<_> = self.conversation.template_args.keys().take(MAX_ARGUMENTS).cloned().collect();
        let name = names.into_iter().find(|name| {
            let is_without = self.without(|without| _ = without.template_args.shift_remove(name));
            is_without || self.without(|changed| _ = changed.template_args.insert(name.clone(), "x".into()))
        });
        name.map(|name| Path::from("template_args").key(name))
    }

    /// Returns the path of an item of a list, or of the list if a template fails for any.
    fn list(&mut self, name: &'static str, list: impl Fn(&mut Conversation) -> &mut Option<Value>) -> Option<Path> {
        let mut given = self.conversation.clone();
        let count = list(&mut given).as_ref()?.as_array().map_or(0, Vec::len);
        let cut = |conversation: &mut Conversation, from: usize| {
            let items = list(conversation).as_mut().and_then(Value::as_array_mut);
            items.into_iter().for_each(|items| items.truncate(from));
            if from == 0 {
                *list(conversation) = None;
            }
        };
        if let Some(first) = self.first(count, cut) {
            let is_any = count > 1 && first == 0 && !self.without(|without| retain(list(without), |item| item > 0));
            return Some(if is_any { name.into() } else { Path::item(name, first) });
        }
        // A template may fail without the list.
        let keep_first = |conversation: &mut Conversation, from: usize| cut(conversation, from + 1);
        self.first(count.saturating_sub(1), keep_first).map(|before| Path::item(name, before + 1))
    }

    /// Returns the calls of all messages: the indices of the message and of the call.
    fn calls(&self) -> Vec<(usize, usize)> {
        let mut calls = Vec::new();
        for (i, message) in self.conversation.messages.iter().enumerate() {
            let of_message = message.get("tool_calls").and_then(Value::as_array).map_or(0, Vec::len);
            calls.extend((0..of_message).map(|j| (i, j)));
        }
        calls
    }

    /// Returns the path of the arguments of a call.
    fn call_arguments(&mut self) -> Option<Path> {
        let calls = self.calls();
        let empty_from = |conversation: &mut Conversation, from: usize| {
            for (i, j) in &calls[from..] {
                let call = &mut conversation.messages[*i]["tool_calls"][*j];
                let function = if call.get("function").is_some() { call.get_mut("function") } else { Some(call) };
                let arguments = function.and_then(|function| function.get_mut("arguments"));
                arguments.into_iter().for_each(|arguments| *arguments = json!({}));
            }
        };
        let (i, j) = calls[self.first(calls.len(), empty_from)?];
        let (steps, _) = function(&self.conversation.messages[i]["tool_calls"][j]);
        Some(Path::item("messages", i).key("tool_calls").index(j).join(steps).key("arguments"))
    }

    /// Returns the path of a call in whose place the template takes a whole one.
    fn call(&mut self) -> Option<Path> {
        let calls = self.calls();
        let whole_from = |conversation: &mut Conversation, from: usize| {
            for (i, j) in &calls[from..] {
                let call = &mut conversation.messages[*i]["tool_calls"][*j];
                let mut whole = call.as_object().cloned().unwrap_or_else(Object::new);
                whole.insert("type".to_owned(), "function".into());
                whole.insert("function".to_owned(), json!({"name": "f", "arguments": {}}));
                *call = whole.into();
            }
        };
        let (i, j) = calls[self.first(calls.len(), whole_from)?];
        Some(Path::item("messages", i).key("tool_calls").index(j))
    }

    /// Returns the path of content in whose place the template takes a text.
    fn content(&mut self) -> Option<Path> {
        let messages = self.conversation.messages.iter().enumerate();
        let others = messages.filter(|(_, message)| matches!(content(message), Content::Blocks(_) | Content::Other(_)));
        let others: Vec<_> = others.map(|(at, _)| at).collect();
        let texts_from =
            |conversation: &mut Conversation, from: usize| set_contents(conversation, &others[from..], "x");
        let first = self.first(others.len(), texts_from)?;
        Some(Path::item("messages", others[first]).key(CONTENT))
    }
}

fn retain(list: &mut Option<Value>, keep: impl Fn(usize) -> bool) {
    let mut index = 0..;
    let items = list.as_mut().and_then(Value::as_array_mut);
    items.into_iter().for_each(|items| items.retain(|_| index.next().is_some_and(&keep)));
}

/// Returns the messages without content for which the template fails, and not for an empty text.
fn empty_messages(conversation: &Conversation, succeeds: &mut impl FnMut(&Conversation) -> bool) -> Vec<Path> {
    let messages = conversation.messages.iter().enumerate();
    let empty = messages.filter(|(_, message)| content(message) == Content::Null).map(|(at, _)| at);
    let empty: Vec<_> = empty.take(MAX_EMPTY_MESSAGES).collect();
    let mut succeeds_with = |filled: &[usize]| {
        let mut conversation = conversation.clone();
        set_contents(&mut conversation, filled, "");
        succeeds(&conversation)
    };
    if empty.is_empty() || !succeeds_with(&empty) {
        return Vec::new();
    }
    let others = |kept: usize| empty.iter().copied().filter(|at| *at != kept).collect::<Vec<_>>();
    let at_fault = empty.iter().filter(|at| !succeeds_with(&others(**at)));
    at_fault.map(|at| Path::item("messages", *at)).collect()
}

fn set_contents(conversation: &mut Conversation, messages: &[usize], text: &str) {
    messages.iter().for_each(|at| conversation.messages[*at][CONTENT] = text.into());
}
