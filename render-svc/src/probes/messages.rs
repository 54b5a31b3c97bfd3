//! Messages of the system and the developer, repeated roles, documents, and the generation prompt.

use serde_json::{Value, json};

use super::conversation::{
    self, ASSISTANT, DEVELOPER, DOCUMENT, FIRST_USER, RESULT, SECOND_ASSISTANT, SECOND_RESULT, SECOND_SYSTEM,
    SECOND_USER, SYSTEM, USER,
};
use super::finding::{Finding, Repeat};
use super::renderer::{Outcome, Probe, Renderer};
use super::tools::ToolFacts;

/// Messages of the system and of the developer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Instructions {
    /// A system message before all others.
    pub system_first: Finding,
    /// A system message before all others in a conversation with tools.
    pub system_beside_tools: Finding,
    /// A system message after an answer.
    pub system_later: Finding,
    /// A developer message before all others.
    pub developer_first: Finding,
    /// A developer message after an answer.
    pub developer_later: Finding,
}

impl Instructions {
    pub(super) fn of(renderer: &Renderer<'_>) -> Self {
        Self {
            system_first: first(renderer, "system", SYSTEM, None),
            system_beside_tools: first(renderer, "system", SYSTEM, Some(conversation::tools())),
            system_later: later(renderer, "system", SYSTEM),
            developer_first: first(renderer, "developer", DEVELOPER, None),
            developer_later: later(renderer, "developer", DEVELOPER),
        }
    }

    /// Returns the finding for a role and position. Unknown for other roles.
    #[must_use]
    pub fn finding(self, role: &str, is_first: bool) -> Finding {
        match (role, is_first) {
            ("system", true) => self.system_first,
            ("system", false) => self.system_later,
            ("developer", true) => self.developer_first,
            ("developer", false) => self.developer_later,
            _ => Finding::Unknown,
        }
    }
}

/// Returns the finding about a first message. If a text is lost, a list of one block is tried.
fn first(renderer: &Renderer<'_>, role: &str, mark: &str, tools: Option<Value>) -> Finding {
    let user = || renderer.message("user", USER);
    let without = Probe { tools: tools.clone(), ..Probe::of([user()]) };
    let found = |content: Value| {
        let messages = [json!({"role": role, "content": content}), user()];
        let probe = Probe { tools: tools.clone(), ..Probe::of(messages) };
        renderer.finding(&probe, mark, &without)
    };
    found(mark.into()).or(|| match found(json!([{"type": "text", "text": mark}])) {
        Finding::Shown => Finding::Shown,
        _ => Finding::Unknown,
    })
}

fn later(renderer: &Renderer<'_>, role: &str, mark: &str) -> Finding {
    let [before, answer, after] = [("user", USER), ("assistant", ASSISTANT), ("user", SECOND_USER)]
        .map(|(role, text)| renderer.message(role, text));
    let without = Probe::of([before.clone(), answer.clone(), after.clone()]);
    renderer.finding(&Probe::of([before, answer, renderer.message(role, mark), after]), mark, &without)
}

/// Two messages of one role in a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Repeats {
    /// System messages before all others.
    pub system: Repeat,
    /// Messages of users, at the start.
    pub user: Repeat,
    /// Messages of users after a system message.
    pub user_beside_system: Repeat,
    /// Messages of users after an answer.
    pub user_later: Repeat,
    /// Messages of the assistant.
    pub assistant: Repeat,
    /// Results of two calls.
    pub tool: Repeat,
}

impl Repeats {
    pub(super) fn of(renderer: &Renderer<'_>, tools: &ToolFacts) -> Self {
        let said = |role: &str, text: &str| renderer.message(role, text);
        let [user, second_user] = [USER, SECOND_USER].map(|text| said("user", text));
        let [answer, second_answer] = [ASSISTANT, SECOND_ASSISTANT].map(|text| said("assistant", text));
        let [system, second_system] = [SYSTEM, SECOND_SYSTEM].map(|text| said("system", text));
        let alone = Probe::of([system.clone(), user.clone()]);
        let turns = Probe::of([user.clone(), answer.clone(), second_user.clone()]);
        let users = |before: Vec<Value>| users(renderer, before, [&user, &second_user]);
        let beside_system = users(vec![system.clone()]);
        let later = users(vec![said("user", FIRST_USER), answer.clone()]);
        Self {
            system: repeat(
                renderer,
                &alone,
                &Probe::of([system, second_system, user.clone()]),
                [SYSTEM, SECOND_SYSTEM],
                &[SYSTEM],
            ),
            user: users(Vec::new()),
            user_beside_system: beside_system,
            user_later: later,
            assistant: repeat(
                renderer,
                &turns,
                &Probe::of([user, answer, second_answer, second_user]),
                [ASSISTANT, SECOND_ASSISTANT],
                &[ASSISTANT],
            ),
            tool: tools.shape.map_or(Repeat::Unknown, |shape| {
                let alone = shape.answered(renderer, RESULT.into());
                repeat(renderer, &alone, &shape.answered_twice(renderer), [RESULT, SECOND_RESULT], &[RESULT])
            }),
        }
    }
}

/// Returns the finding about two messages of users in a row after other messages. A template of one
/// question is enough, such as one for embeddings.
fn users(renderer: &Renderer<'_>, before: Vec<Value>, both: [&Value; 2]) -> Repeat {
    let probe = |users: &[&Value]| Probe {
        messages: before.iter().chain(users.iter().copied()).cloned().collect(),
        ..Probe::default()
    };
    repeat(renderer, &probe(&both[..1]), &probe(&both), [USER, SECOND_USER], &[USER])
}

/// Returns the finding about two marked messages in a row. `alone` must show the marks in `basis`.
fn repeat(renderer: &Renderer<'_>, alone: &Probe, both: &Probe, marks: [&str; 2], basis: &[&str]) -> Repeat {
    if !renderer.render(alone).shows(basis) {
        return Repeat::Unknown;
    }
    let both = renderer.render(both);
    let Some(prompt) = both.lower() else {
        return if both == Outcome::Failed { Repeat::Refused } else { Repeat::Unknown };
    };
    match (prompt.find(marks[0]), prompt.find(marks[1])) {
        (Some(first), Some(second)) if first < second => {
            let between = &prompt[first + marks[0].len()..second];
            if between.trim().is_empty() { Repeat::Merged } else { Repeat::Separate }
        }
        (Some(_), Some(_)) => Repeat::Separate,
        _ => Repeat::LeftOut,
    }
}

/// Returns the finding about documents.
pub(super) fn documents(renderer: &Renderer<'_>) -> Finding {
    let probe = |documents| Probe { documents, ..Probe::of([renderer.message("user", USER)]) };
    renderer.finding(&probe(Some(conversation::documents())), DOCUMENT, &probe(None))
}

/// The maximum size of a generation prompt as a fact. Known ones have up to 200 bytes.
const MAX_PROMPT_BYTES: usize = 4096;

/// Returns the text that the generation prompt adds to a prompt.
pub(super) fn generation_prompt(renderer: &Renderer<'_>) -> Option<String> {
    let asked = || Probe::of([renderer.message("user", USER)]);
    let (with, without) = (renderer.render(&asked()), renderer.render(&asked().ended()));
    let (with, without) = (with.text()?, without.text()?);
    let shared = with.char_indices().zip(without.chars()).find(|((_, a), b)| a != b).map(|((at, _), _)| at);
    let start = shared.map_or(without.len().min(with.len()), |at| before_open_mark(with, at));
    let added = &with[start..];
    Some(added[..added.floor_char_boundary(MAX_PROMPT_BYTES)].to_owned())
}

/// Returns the start of the mark that is open at `end`, else `end`. Without a generation prompt, some
/// templates write an end whose mark begins with the same letters.
fn before_open_mark(prompt: &str, end: usize) -> usize {
    let open = prompt[..end].rfind(['<', '[']);
    open.filter(|open| !prompt[*open..end].contains(['>', ']', ' ', '\n'])).unwrap_or(end)
}
