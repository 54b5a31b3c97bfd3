//! The forms of content that a template shows: a text, or a list of text blocks.

use serde_json::{Value, json};

use super::conversation::{self, ASSISTANT, FIRST_BLOCK, RESULT, SECOND_BLOCK, SECOND_USER, SYSTEM, USER};
use super::finding::Finding;
use super::renderer::{Outcome, Probe, Renderer};
use super::tools::{self, ToolFacts};

/// The treatment of a list of text blocks by a template.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ContentLists {
    /// It writes the text of each block.
    Walked,
    /// It writes the text of the first block only.
    FirstOnly,
    /// It writes the text of the last block only.
    LastOnly,
    /// It takes a list of one block only.
    OneOnly,
    /// It prints the list as Python or JSON prints it.
    Printed,
    /// It leaves the list out.
    LeftOut,
    /// It fails.
    Refused,
    /// The probe says nothing.
    #[default]
    Unknown,
}

impl ContentLists {
    /// Returns true if it writes the text of one block only.
    #[must_use]
    pub fn shows_one(self) -> bool {
        matches!(self, Self::FirstOnly | Self::LastOnly | Self::OneOnly)
    }

    /// Returns the name for display.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Walked => "walked",
            Self::FirstOnly => "first block only",
            Self::LastOnly => "last block only",
            Self::OneOnly => "one block only",
            Self::Printed => "printed",
            Self::LeftOut => "left out",
            Self::Refused => "refused",
            Self::Unknown => "unknown",
        }
    }
}

/// The forms of content of one role.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ContentFacts {
    /// Content that is a text.
    pub text: Finding,
    /// Content that is a list of two text blocks.
    pub lists: ContentLists,
}

impl ContentFacts {
    /// Returns true if the template shows this role's content only in lists, be it as it prints them. It may
    /// refuse the words of a probe, and print any list.
    #[must_use]
    pub fn needs_list(self) -> bool {
        let is_walked = self.lists == ContentLists::Walked || self.lists.shows_one();
        let is_printed = self.lists == ContentLists::Printed && self.text == Finding::LeftOut;
        self.text.is_lost() && is_walked || is_printed
    }
}

/// The forms of content by role.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RoleContents {
    /// Content of users.
    pub user: ContentFacts,
    /// Content of users in a conversation with tools.
    pub user_beside_tools: ContentFacts,
    /// Content of the system's first message.
    pub system: ContentFacts,
    /// Content of the developer's first message.
    pub developer: ContentFacts,
    /// Content of the assistant.
    pub assistant: ContentFacts,
    /// Results of tools.
    pub tool: ContentFacts,
}

impl RoleContents {
    pub(super) fn of(renderer: &Renderer<'_>, tools: &ToolFacts) -> Self {
        let first = |role, content| vec![said(role, content), renderer.message("user", USER)];
        let beside_tools = |content| Probe { tools: Some(conversation::tools()), ..Probe::of([said("user", content)]) };
        let assistant = |content| {
            let first = renderer.message("user", USER);
            vec![first, said("assistant", content), renderer.message("user", SECOND_USER)]
        };
        let plain = |messages: Vec<Value>| Probe { messages, ..Probe::default() };
        Self {
            user: facts(renderer, USER, |content| plain(vec![said("user", content)])),
            user_beside_tools: facts(renderer, USER, beside_tools),
            system: facts(renderer, SYSTEM, |content| plain(first("system", content))),
            developer: facts(renderer, SYSTEM, |content| plain(first("developer", content))),
            assistant: facts(renderer, ASSISTANT, |content| plain(assistant(content))),
            tool: match tools.shape {
                Some(shape) => facts(renderer, RESULT, |content| shape.answered(renderer, content)),
                None => facts(renderer, RESULT, |content| tools::lone_result(renderer, content)),
            },
        }
    }
}

fn said(role: &str, content: Value) -> Value {
    json!({"role": role, "content": content})
}

/// Returns the facts of the content that `probe` puts into a conversation.
fn facts(renderer: &Renderer<'_>, mark: &str, probe: impl Fn(Value) -> Probe) -> ContentFacts {
    let block = |text: &str| json!({"type": "text", "text": text});
    let text = renderer.found(&probe(mark.into()), mark);
    let two = lists(&renderer.render(&probe(json!([block(FIRST_BLOCK), block(SECOND_BLOCK)]))));
    let one = || lists(&renderer.render(&probe(json!([block(FIRST_BLOCK)]))));
    let lists = match two {
        // A template may walk lists from two blocks on, and print shorter ones.
        ContentLists::Walked => Some(one()).filter(|one| *one != ContentLists::FirstOnly).unwrap_or(two),
        ContentLists::Refused | ContentLists::LeftOut if one() == ContentLists::FirstOnly => ContentLists::OneOnly,
        _ => two,
    };
    // If neither form renders, the conversation is at fault.
    match (text, lists) {
        (Finding::Refused, ContentLists::Refused) => ContentFacts::default(),
        _ => ContentFacts { text, lists },
    }
}

fn lists(outcome: &Outcome) -> ContentLists {
    match outcome {
        Outcome::Failed => ContentLists::Refused,
        Outcome::Exceeded => ContentLists::Unknown,
        Outcome::Text(prompt) => lists_in(&prompt.to_lowercase()),
    }
}

fn lists_in(prompt: &str) -> ContentLists {
    match (prompt.find(FIRST_BLOCK), prompt.find(SECOND_BLOCK)) {
        (Some(first), _) if is_key_before(&prompt[..first]) => ContentLists::Printed,
        (Some(first), Some(second)) if first < second && !is_printed(&prompt[first..second]) => ContentLists::Walked,
        (Some(_), Some(_)) => ContentLists::Printed,
        (Some(_), None) => ContentLists::FirstOnly,
        (None, Some(second)) if is_key_before(&prompt[..second]) => ContentLists::Printed,
        (None, Some(_)) => ContentLists::LastOnly,
        (None, None) => ContentLists::LeftOut,
    }
}

/// Returns true if the text before a block's text ends with its key, as Python or JSON prints it.
fn is_key_before(prompt: &str) -> bool {
    const ENDS: [&str; 4] = ["'text': '", r#""text": ""#, r#""text":""#, r#"\"text\": \""#];
    ENDS.iter().any(|end| prompt.ends_with(end))
}

/// Returns true if the text between two blocks' texts spells the keys of a block.
fn is_printed(between: &str) -> bool {
    between.contains("type") && between.contains("text")
}
