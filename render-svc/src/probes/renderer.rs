//! Renders probes within a budget.

use std::borrow::Cow;
use std::cell::Cell;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tandem_template::{ChatTemplate, Input, Limits, LocalTime, RenderError};

use super::conversation::{NEEDED_SYSTEM, USER, documents, tools};
use super::finding::Finding;
use crate::conversation::Object;

/// The limits of one rendering. The largest known template needs 4,000 steps for a probe.
pub(crate) const LIMITS: Limits = Limits { steps: 20_000, bytes: 4 << 20, output: 1 << 20 };
/// The most renderings that may exceed the limits. No further ones are tried then.
const MAX_EXCEEDED: u32 = 2;
/// The most renderings of a template's probes.
const MAX_RENDERINGS: u32 = 700;
/// The most time for the probes of a model's templates. The slowest known template needs 0.1 s in a
/// debug build.
const MAX_TIME: Duration = Duration::from_secs(2);

/// Returns the time at which probes that start now end at the latest.
#[must_use]
pub fn deadline() -> Instant {
    Instant::now() + MAX_TIME
}

/// The values that a model gives its template in addition to a conversation.
#[derive(Debug, Clone, Copy)]
pub struct ModelValues<'a> {
    /// Named special tokens and their text.
    pub special_tokens: &'a Object,
    /// Arguments where a request sets none.
    pub toggles: &'a Object,
}

impl ModelValues<'_> {
    /// Returns these arguments, and the model's own where they set none.
    fn with_toggles<'p>(&'p self, args: &'p Object) -> Cow<'p, Object> {
        match (args.is_empty(), self.toggles.is_empty()) {
            (_, true) => Cow::Borrowed(args),
            (true, false) => Cow::Borrowed(self.toggles),
            (false, false) => {
                let mut all = self.toggles.clone();
                all.extend(args.clone());
                Cow::Owned(all)
            }
        }
    }
}

/// The form in which a template shows the words of users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UserForm {
    Text,
    /// Only in a list of blocks.
    Blocks,
}

/// The parts of a conversation that a template needs in addition to the messages of a probe.
#[derive(Debug, Clone, Copy, Default)]
struct Needed {
    system: bool,
    tools: bool,
    documents: bool,
}

impl Needed {
    /// Returns the needs of known templates, none first.
    fn all() -> [Self; 5] {
        let none = Self::default();
        let (system, tools) = (Self { system: true, ..none }, Self { tools: true, ..none });
        [none, tools, system, Self { tools: true, ..system }, Self { documents: true, ..none }]
    }
}

/// A conversation of a probe.
#[derive(Debug, Default, Clone)]
pub(crate) struct Probe {
    pub(crate) messages: Vec<Value>,
    pub(crate) tools: Option<Value>,
    pub(crate) documents: Option<Value>,
    pub(crate) args: Object,
    pub(crate) has_no_generation_prompt: bool,
}

impl Probe {
    /// Returns a probe of these messages.
    pub(super) fn of<const N: usize>(messages: [Value; N]) -> Self {
        Self { messages: messages.into(), ..Self::default() }
    }

    /// Returns the probe without a generation prompt.
    pub(super) fn ended(self) -> Self {
        Self { has_no_generation_prompt: true, ..self }
    }

    /// Returns the probe with another text of the same length in place of a mark.
    fn with_other(&self, mark: &str) -> Self {
        let other: String = mark.chars().rev().collect();
        let mut probe = self.clone();
        let lists = probe.tools.iter_mut().chain(&mut probe.documents);
        probe.messages.iter_mut().chain(lists).for_each(|value| replace(value, mark, &other));
        probe
    }
}

/// Replaces a mark in the texts of a value.
fn replace(value: &mut Value, mark: &str, other: &str) {
    match value {
        Value::String(text) => *text = text.replace(mark, other),
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, mark, other)),
        Value::Object(fields) => fields.values_mut().for_each(|field| replace(field, mark, other)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The outcome of a rendering.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Text(String),
    /// The template raised, or failed.
    Failed,
    /// The budget is used up.
    Exceeded,
}

impl Outcome {
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Failed | Self::Exceeded => None,
        }
    }

    /// Returns the prompt in lower case, since a template may write texts in upper case.
    pub(super) fn lower(&self) -> Option<String> {
        self.text().map(str::to_lowercase)
    }

    /// Returns true if the prompt contains every mark.
    pub(super) fn shows(&self, marks: &[&str]) -> bool {
        self.lower().is_some_and(|text| marks.iter().all(|mark| text.contains(mark)))
    }
}

/// The largest part of a prompt in which a text is changed, as a multiple of the text's size.
const MAX_CHANGE: usize = 4;

/// Returns true if two prompts differ, in one part of at most this size.
fn is_short_change(prompt: &str, other: &str, max: usize) -> bool {
    let (prompt, other) = (prompt.as_bytes(), other.as_bytes());
    let same = |pairs: &mut dyn Iterator<Item = (&u8, &u8)>| pairs.take_while(|(a, b)| a == b).count();
    let start = same(&mut prompt.iter().zip(other));
    let end = same(&mut prompt[start..].iter().rev().zip(other[start..].iter().rev()));
    let changed = prompt.len().max(other.len()) - start - end;
    changed > 0 && changed <= max
}

/// Renders probes with one template.
pub(crate) struct Renderer<'a> {
    pub(super) template: &'a ChatTemplate,
    values: ModelValues<'a>,
    user: UserForm,
    needed: Needed,
    deadline: Instant,
    exceeded: Cell<u32>,
    rendered: Cell<u32>,
}

impl<'a> Renderer<'a> {
    /// Returns a renderer that adds to each probe the parts without which the template does not show a
    /// user's words, and true. If the template only shows other roles, returns false. None if it renders no question.
    pub(super) fn fitting(
        template: &'a ChatTemplate,
        values: ModelValues<'a>,
        deadline: Instant,
    ) -> Option<(Self, bool)> {
        let mut renderer = Self::new(template, values, deadline);
        let asked = |renderer: &Self| renderer.render(&Probe::of([renderer.message("user", USER)]));
        if renderer.fit(|renderer| asked(renderer).shows(&[USER])) {
            return Some((renderer, true));
        }
        renderer.fit(|renderer| asked(renderer).text().is_some()).then_some((renderer, false))
    }

    /// Returns a renderer that adds to each probe the parts with which `is_shown` holds. If it never
    /// does, it adds none.
    pub(crate) fn showing(
        template: &'a ChatTemplate,
        values: ModelValues<'a>,
        is_shown: impl Fn(&Self) -> bool,
    ) -> Self {
        let mut renderer = Self::new(template, values, deadline());
        renderer.fit(is_shown);
        renderer
    }

    fn new(template: &'a ChatTemplate, values: ModelValues<'a>, deadline: Instant) -> Self {
        let (exceeded, rendered) = (Cell::new(0), Cell::new(0));
        let (user, needed) = (UserForm::Text, Needed::default());
        Self { template, values, user, needed, deadline, exceeded, rendered }
    }

    /// Changes the parts that are added until the condition holds. If it never does, none are.
    fn fit(&mut self, is_fit: impl Fn(&Self) -> bool) -> bool {
        for needed in Needed::all() {
            for user in [UserForm::Text, UserForm::Blocks] {
                (self.needed, self.user) = (needed, user);
                if is_fit(self) {
                    return true;
                }
            }
        }
        (self.needed, self.user) = (Needed::default(), UserForm::Text);
        false
    }

    /// Returns a message with content in the form that the template shows.
    pub(crate) fn message(&self, role: &str, text: &str) -> Value {
        json!({"role": role, "content": self.content(text)})
    }

    /// Returns content in the form that the template shows.
    pub(crate) fn content(&self, text: &str) -> Value {
        match self.user {
            UserForm::Text => text.into(),
            UserForm::Blocks => json!([{"type": "text", "text": text}]),
        }
    }

    pub(super) fn is_special_token(&self, name: &str) -> bool {
        self.values.special_tokens.contains_key(name)
    }

    /// Renders a probe with the further parts that the template needs.
    pub(crate) fn render(&self, probe: &Probe) -> Outcome {
        let is_used_up = self.exceeded.get() >= MAX_EXCEEDED || self.rendered.get() >= MAX_RENDERINGS;
        if is_used_up || Instant::now() > self.deadline {
            return Outcome::Exceeded;
        }
        self.rendered.set(self.rendered.get() + 1);
        let tools = self.needed.tools.then(tools);
        let documents = self.needed.documents.then(documents);
        let has_system = probe.messages.first().is_some_and(|message| message["role"] == "system");
        let system = (self.needed.system && !has_system).then(|| self.message("system", NEEDED_SYSTEM));
        let messages: Vec<Value> = system.into_iter().chain(probe.messages.iter().cloned()).collect();
        let input = Input {
            messages: &messages,
            tools: probe.tools.as_ref().or(tools.as_ref()),
            documents: probe.documents.as_ref().or(documents.as_ref()),
            args: &self.values.with_toggles(&probe.args),
            special_tokens: self.values.special_tokens,
            add_generation_prompt: !probe.has_no_generation_prompt,
            continue_final_message: None,
            now: LocalTime::EPOCH,
            taint: None,
        };
        match self.template.apply(&input, &LIMITS) {
            Ok(applied) => Outcome::Text(applied.text),
            Err(RenderError::Limit { .. } | RenderError::Cancelled) => {
                self.exceeded.set(self.exceeded.get() + 1);
                Outcome::Exceeded
            }
            Err(_) => Outcome::Failed,
        }
    }

    /// Returns the finding about a mark in a probe. It is shown, too, if another text in its place gives
    /// another prompt: the template changes texts, such as to upper case. A text whose letters are
    /// written one by one is not.
    pub(super) fn found(&self, probe: &Probe, mark: &str) -> Finding {
        match self.render(probe) {
            Outcome::Text(prompt) if prompt.contains(mark) => Finding::Shown,
            Outcome::Text(prompt) => match self.render(&probe.with_other(mark)) {
                Outcome::Text(other) if is_short_change(&prompt, &other, MAX_CHANGE * mark.len()) => Finding::Shown,
                _ => Finding::LeftOut,
            },
            Outcome::Failed => Finding::Refused,
            Outcome::Exceeded => Finding::Unknown,
        }
    }

    /// Returns the finding about a mark in a probe, if the template renders the same conversation
    /// without it.
    pub(super) fn finding(&self, probe: &Probe, mark: &str, without: &Probe) -> Finding {
        match self.found(probe, mark) {
            Finding::Refused if self.render(without).text().is_none() => Finding::Unknown,
            finding => finding,
        }
    }
}
