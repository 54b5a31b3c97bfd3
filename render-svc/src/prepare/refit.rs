//! Other messages where the prompt shows that the template treats them otherwise than its probes, such
//! as messages with calls: a list that the template prints becomes text, a text that it leaves out
//! becomes a list, null beside calls becomes an empty text, messages of one role in a row that it refuses
//! or leaves out are merged, and such messages of the system become the user's.

use std::collections::HashSet;

use serde_json::Value;
use tandem_common::field::{Path, Step};

use super::calls;
use super::forms::{self, ContentForm};
use super::merge::merge;
use super::normalize::system_to_user;
use super::null_content;
use super::place::Place;
use super::rewrite::{Change, Rewrite};
use super::traced::Traced;
use crate::adapter::AdapterOutput;
use crate::conversation::{CONTENT, Content, Conversation, blocks, content};
use crate::probes::ArgumentsShape;
use crate::warning::{Warning, WarningCode};

/// The bytes of a text that are compared with a printed list.
const COMPARED_BYTES: usize = 32;

/// The most messages whose lists are looked for in a prompt.
const MAX_SEARCHED: usize = 256;

/// A changed conversation.
#[derive(Debug)]
pub struct Refitted {
    pub conversation: Conversation,
    /// The place of each message in the request.
    pub places: Vec<Place>,
    /// The merges.
    pub rewrites: Vec<Rewrite>,
}

impl Refitted {
    /// Returns the conversation as it is.
    #[must_use]
    pub fn unchanged(conversation: &Conversation, places: &[Place]) -> Self {
        Self { conversation: conversation.clone(), places: places.to_vec(), rewrites: Vec::new() }
    }

    /// Returns a further change of this conversation.
    #[must_use]
    pub fn then(&self, mut next: Self) -> Self {
        next.rewrites.splice(..0, self.rewrites.iter().cloned());
        next
    }

    /// Returns a conversation with other forms of the content that its output prints as lists or leaves
    /// out. None if no form would change. Without an output, since the template failed, every list
    /// becomes text.
    #[must_use]
    pub fn with_forms(conversation: &Conversation, places: &[Place], output: Option<&AdapterOutput>) -> Option<Self> {
        let messages = &conversation.messages;
        let has_reason = match output {
            Some(output) => faults(conversation, output) > 0,
            None => messages.iter().any(|message| !blocks(message).is_empty()),
        };
        if !has_reason {
            return None;
        }
        let printed = output.map(|output| printed(messages, &output.prompt));
        let is_joined = |at: usize| printed.as_ref().is_none_or(|printed| printed.contains(&at));
        let lost: HashSet<_> = output.into_iter().flat_map(|output| lost(&output.warnings)).collect();
        let is_lost = |at: usize| !lost.is_empty() && lost.contains(&Path::item("messages", at));
        let form = |at: usize, message: &Value| match content(message) {
            Content::Blocks(_) if is_joined(at) => ContentForm::Text,
            Content::Text(_) if is_lost(at) => ContentForm::List,
            _ => ContentForm::AsIs,
        };
        Self::changed(conversation, places, |at, message| {
            // A block without text stays as it is.
            _ = forms::apply(message, form(at, &message.message));
        })
    }

    /// Returns a conversation with an empty text beside calls in place of null, for which a template may
    /// fail. None if there is an output, or no null.
    #[must_use]
    pub fn filled(conversation: &Conversation, places: &[Place], output: Option<&AdapterOutput>) -> Option<Self> {
        let is_null = |message: &Value| content(message) == Content::Null;
        if output.is_some() || !conversation.messages.iter().any(is_null) {
            return None;
        }
        Self::changed(conversation, places, |_, message| null_content::fill(message))
    }

    /// Returns a conversation in which the arguments of calls are objects. None if there is an output, or no
    /// such text.
    #[must_use]
    pub fn with_object_arguments(c: &Conversation, places: &[Place], output: Option<&AdapterOutput>) -> Option<Self> {
        Self::with_arguments(c, places, output, ArgumentsShape::Object)
    }

    /// Returns a conversation in which the arguments of calls are JSON texts. None if there is an output, or no
    /// such object.
    #[must_use]
    pub fn with_text_arguments(c: &Conversation, places: &[Place], output: Option<&AdapterOutput>) -> Option<Self> {
        Self::with_arguments(c, places, output, ArgumentsShape::Text)
    }

    fn with_arguments(
        conversation: &Conversation,
        places: &[Place],
        output: Option<&AdapterOutput>,
        wanted: ArgumentsShape,
    ) -> Option<Self> {
        if output.is_some() {
            return None;
        }
        let convert =
            |message: &mut Traced| calls::convert_arguments(std::slice::from_mut(&mut message.message), wanted);
        Self::changed(conversation, places, |_, message| convert(message))
    }

    /// Returns a conversation in which system messages that its output leaves out are the user's. Without
    /// an output, all but the first. None if there is none.
    #[must_use]
    pub fn with_users(conversation: &Conversation, places: &[Place], output: Option<&AdapterOutput>) -> Option<Self> {
        let is_system = |message: &Value| message.get("role").is_some_and(|role| role == "system");
        let lost: Option<HashSet<_>> = output.map(|output| lost(&output.warnings).collect());
        let is_changed = |at: usize, message: &Value| {
            is_system(message) && lost.as_ref().map_or(at > 0, |lost| lost.contains(&Path::item("messages", at)))
        };
        if !conversation.messages.iter().enumerate().any(|(at, message)| is_changed(at, message)) {
            return None;
        }
        let mut rewrites = Vec::new();
        let mut refitted = Self::changed(conversation, places, |at, message| {
            if is_changed(at, &message.message) {
                system_to_user(message);
                rewrites.push(Rewrite { change: Change::SystemToUser, messages: message.sources.clone() });
            }
        })?;
        refitted.rewrites = rewrites;
        Some(refitted)
    }

    /// Returns a conversation with changed messages. None if no change has an effect.
    fn changed(
        conversation: &Conversation,
        places: &[Place],
        mut change: impl FnMut(usize, &mut Traced),
    ) -> Option<Self> {
        let mut refitted = Self { conversation: conversation.clone(), places: places.to_vec(), rewrites: Vec::new() };
        let messages = refitted.conversation.messages.iter_mut().zip(&mut refitted.places);
        for (at, (message, place)) in messages.enumerate() {
            let sources = place.message().into_iter().collect();
            let taken = std::mem::replace(place, Place::at(Path::default()));
            let mut traced = Traced { message: message.take(), place: taken, sources };
            change(at, &mut traced);
            (*message, *place) = (traced.message, traced.place);
        }
        (refitted.conversation.messages != conversation.messages).then_some(refitted)
    }

    /// Returns a conversation in which messages in a row of one of these roles are merged. None if it has
    /// none, if one of them has no content, for which a template may fail anywhere, or if its output
    /// leaves out no message.
    #[must_use]
    pub fn merged(
        conversation: &Conversation,
        places: &[Place],
        output: Option<&AdapterOutput>,
        roles: &[&str],
    ) -> Option<Self> {
        if output.is_some_and(|output| lost(&output.warnings).next().is_none()) {
            return None;
        }
        let messages = &conversation.messages;
        let is_empty = |message: &Value| content(message) == Content::Null && message.get("tool_calls").is_none();
        if messages.windows(2).any(|pair| pair[0].get("role") == pair[1].get("role") && pair.iter().any(is_empty)) {
            return None;
        }
        let traced = |(message, place): (&Value, &Place)| Traced {
            message: message.clone(),
            sources: place.message().into_iter().collect(),
            place: place.clone(),
        };
        let mut rewrites = Vec::new();
        let is_merged = |role: &str, _: bool| roles.contains(&role);
        let traced = merge(messages.iter().zip(places).map(traced).collect(), is_merged, &mut rewrites);
        if rewrites.is_empty() {
            return None;
        }
        rewrites.iter_mut().for_each(|rewrite| rewrite.change = Change::MergedToShow);
        let (messages, places) = traced.into_iter().map(|traced| (traced.message, traced.place)).unzip();
        Some(Self { conversation: conversation.with_messages(messages), places, rewrites })
    }
}

/// Returns the number of messages that a prompt prints as lists or leaves out.
#[must_use]
pub fn faults(conversation: &Conversation, output: &AdapterOutput) -> usize {
    printed(&conversation.messages, &output.prompt).len() + lost(&output.warnings).count()
}

/// Returns the conversation with a further key in every block, which a template shows only if it prints
/// lists. None without lists.
#[must_use]
pub fn with_further_keys(conversation: &Conversation) -> Option<Conversation> {
    let mut changed = conversation.clone();
    let contents = changed.messages.iter_mut().filter_map(|message| message.get_mut(CONTENT)?.as_array_mut());
    let blocks = contents.flatten().filter_map(Value::as_object_mut);
    blocks.for_each(|block| _ = block.insert(FURTHER_KEY.to_owned(), true.into()));
    (changed != *conversation).then_some(changed)
}

/// A key that no template reads.
const FURTHER_KEY: &str = "tandem-further-key";

/// Returns the paths of messages and blocks that are left out. A text that is cut is not, nor a name.
fn lost(warnings: &[Warning]) -> impl Iterator<Item = &Path> {
    let lost = warnings.iter().filter(|warning| warning.code == WarningCode::MessageIgnored);
    lost.map(|warning| &warning.path).filter(|path| matches!(path.steps()[..], [.., Step::Index(_)]))
}

/// Returns the messages whose lists are in a prompt as Python or JSON prints them.
fn printed(messages: &[Value], prompt: &str) -> Vec<usize> {
    let lists = messages.iter().enumerate().filter(|(_, message)| !blocks(message).is_empty()).take(MAX_SEARCHED);
    let mut lists = lists.peekable();
    if lists.peek().is_none() {
        return Vec::new();
    }
    let shown = |keys: &[&'static str]| keys.iter().copied().filter(|key| prompt.contains(key)).collect::<Vec<_>>();
    let (keys, starts) = (shown(&KEYS), shown(&BLOCK_STARTS));
    let is_printed = |message: &Value| {
        let start = blocks(message).iter().find_map(|block| Some(plain_start(block.get("text")?.as_str()?)));
        start.is_some_and(|start| {
            let before = if start.len() < MIN_BYTES { &starts } else { &keys };
            before.iter().any(|before| prompt.contains(&format!("{before}{start}")))
        })
    };
    lists.filter(|(_, message)| is_printed(message)).map(|(at, _)| at).collect()
}

/// The key of a block's text, as Python and JSON print it.
const KEYS: [&str; 4] = ["'text': '", "'text': \"", "\"text\": \"", "\"text\":\""];

/// A block up to its text. A short text may follow [`KEYS`] by chance, such as in a call's arguments.
const BLOCK_STARTS: [&str; 4] = [
    "{'type': 'text', 'text': '",
    "{'type': 'text', 'text': \"",
    "{\"type\": \"text\", \"text\": \"",
    "{\"type\":\"text\",\"text\":\"",
];

/// The size of a text that is not short.
const MIN_BYTES: usize = 8;

/// Returns the start of a text that Python and JSON print as it is.
fn plain_start(text: &str) -> &str {
    let is_escaped = |c: char| c.is_control() || matches!(c, '"' | '\'' | '\\' | '<' | '>' | '&');
    let end = text.find(is_escaped).unwrap_or(text.len());
    &text[..text.floor_char_boundary(end.min(COMPARED_BYTES))]
}
