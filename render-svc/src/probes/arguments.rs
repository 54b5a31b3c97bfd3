//! The template's own arguments: the values that change a prompt, and the defaults.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::conversation::{self, ASSISTANT, REASONING, SECOND_USER, SYSTEM, USER};
use super::reasoning;
use super::renderer::{Outcome, Probe, Renderer};
use super::tools::ToolFacts;
use crate::conversation::Object;

/// The most arguments of a template that are tried. Known templates have at most 15.
const MAX_ARGUMENTS: usize = 24;

/// Names that a conversation sets itself, or that a request cannot set.
const OF_CONVERSATIONS: &[&str] = &[
    "messages",
    "tools",
    "documents",
    "add_generation_prompt",
    "continue_final_message",
    "chat_template",
    "tokenize",
    "reasoning_content",
];

/// Words that templates compare arguments with, in ascending order of effort.
const WORDS: &[&str] = &[
    "off", "on", "none", "no_think", "minimal", "low", "medium", "high", "xhigh", "max", "enabled", "adaptive",
    "disabled", "auto",
];

/// Words for reasoning that is on. They can be the default of a level although the template treats them
/// as any other text.
const ON: &[&str] = &["on", "medium", "high", "xhigh", "max", "enabled", "adaptive", "auto"];

/// Texts that no template compares an argument with.
const ANY_TEXTS: [&str; 2] = ["qzargtext", "qzargother"];

/// Numbers for an argument that is one, such as a budget: a usual mark of no limit, none, and the one
/// that shows that the argument is a number.
const NUMBERS: [i64; 3] = [-1, 0, A_NUMBER];
const A_NUMBER: i64 = 1024;

/// An argument that changes the prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct ArgumentFact {
    pub name: String,
    /// The values that give different prompts. If any text changes the prompt, texts are not listed.
    /// Empty if the argument is neither a text, a boolean nor a number, such as a list of tools.
    pub values: Vec<Value>,
    /// The value with which the prompt is the same as without the argument. None if no tried value
    /// is.
    pub default: Option<Value>,
    /// True if each text gives another prompt, such as a date that the prompt contains.
    pub is_any_text: bool,
}

impl ArgumentFact {
    /// Returns true if the argument's name is about reasoning.
    #[must_use]
    pub fn is_thinking(&self) -> bool {
        is_thinking(&self.name)
    }
}

fn is_thinking(name: &str) -> bool {
    let name = name.to_lowercase();
    ["think", "reason"].iter().any(|part| name.contains(part))
}

/// Returns every argument that changes a prompt, by name.
pub(super) fn of(renderer: &Renderer<'_>, tools: &ToolFacts) -> Vec<ArgumentFact> {
    let own = |name: &&str| !OF_CONVERSATIONS.contains(name) && !renderer.is_special_token(name) && !is_token(name);
    let names: Vec<&str> = renderer.template.variables().filter(own).take(MAX_ARGUMENTS).collect();
    if names.is_empty() {
        return Vec::new();
    }
    let words = words(renderer);
    let usual = Trial::new(renderer, bases(renderer, tools), &words);
    let mut found: Vec<_> = names.iter().map(|name| usual.fact(name)).collect();
    if found.contains(&None) {
        let rare = Trial::new(renderer, rare_bases(renderer), &words);
        for (name, fact) in names.iter().zip(&mut found) {
            *fact = fact.take().or_else(|| rare.changes(name).then(|| rare.fact(name)).flatten());
        }
    }
    found.into_iter().flatten().collect()
}

/// Returns true for the name of a special token, which a model's tokenizer sets.
fn is_token(name: &str) -> bool {
    name.ends_with("_token")
}

/// Returns the words that the template can compare an argument with.
fn words(renderer: &Renderer<'_>) -> Vec<&'static str> {
    let texts: HashSet<&str> = renderer.template.literal_text().split('\0').collect();
    WORDS.iter().copied().filter(|word| texts.contains(word)).collect()
}

/// The conversations in which arguments are tried: a question, and one of every kind of message; if a
/// template refuses the second one, its parts.
fn bases(renderer: &Renderer<'_>, tools: &ToolFacts) -> Vec<Probe> {
    let said = |role: &str, text: &str| renderer.message(role, text);
    let thought = |mut message: Value| {
        message["reasoning_content"] = REASONING.into();
        message
    };
    let of = |messages: Vec<Value>| Probe { messages, ..Probe::default() };
    let [system, user] = [said("system", SYSTEM), said("user", USER)];
    let answered = of(vec![user.clone(), thought(said("assistant", ASSISTANT)), said("user", SECOND_USER)]);
    let called = tools.shape.map(|shape| {
        let mut called = shape.answered(renderer, json!("result"));
        called.messages[1] = thought(called.messages[1].take());
        called
    });
    let last = called.as_ref().unwrap_or(&answered);
    let start = vec![system.clone(), user.clone(), said("assistant", &reasoning::section(ASSISTANT))];
    let whole = Probe { tools: last.tools.clone(), ..of([start, last.messages.clone()].concat()) };
    let is_rendered = |probe: &Probe| renderer.render(probe).text().is_some();
    let question = of(vec![user.clone()]);
    if is_rendered(&whole) {
        return vec![question, whole];
    }
    let parts = [question, of(vec![system, user]), answered];
    parts.into_iter().chain(called).filter(is_rendered).collect()
}

/// The conversations in which arguments are tried that have no effect in the other ones: reasoning of
/// an earlier turn, with tools and without; documents; and an answer that ends the conversation. None
/// has a system message.
fn rare_bases(renderer: &Renderer<'_>) -> Vec<Probe> {
    let user = || renderer.message("user", USER);
    let answer = || {
        let mut message = renderer.message("assistant", ASSISTANT);
        message["reasoning_content"] = REASONING.into();
        message
    };
    let answered = Probe::of([user(), answer(), renderer.message("user", SECOND_USER)]);
    let bases = [
        Probe { tools: Some(conversation::tools()), ..answered.clone() },
        answered,
        Probe { documents: Some(conversation::documents()), ..Probe::of([user()]) },
        Probe::of([user(), answer()]).ended(),
    ];
    bases.into_iter().filter(|probe| renderer.render(probe).text().is_some()).collect()
}

/// The prompts of all bases with one value of an argument.
type Prompts = Vec<Outcome>;

/// A value that was tried, and its prompts.
type Tried = (Value, Prompts);

/// A template with the conversations in which its arguments are tried.
struct Trial<'r, 'a> {
    renderer: &'r Renderer<'a>,
    bases: Vec<Probe>,
    /// The prompts without any argument.
    unset: Prompts,
    words: &'r [&'static str],
}

impl<'r, 'a> Trial<'r, 'a> {
    fn new(renderer: &'r Renderer<'a>, bases: Vec<Probe>, words: &'r [&'static str]) -> Self {
        let unset = bases.iter().map(|base| renderer.render(base)).collect();
        Self { renderer, bases, unset, words }
    }

    /// Returns the prompts with a value. None if the budget is used up.
    fn render(&self, name: &str, value: &Value) -> Option<Prompts> {
        let args: Object = [(name.to_owned(), value.clone())].into_iter().collect();
        let with = |base: &Probe| Probe { args: args.clone(), ..base.clone() };
        let prompts: Prompts = self.bases.iter().map(|base| self.renderer.render(&with(base))).collect();
        (!prompts.contains(&Outcome::Exceeded)).then_some(prompts)
    }

    fn tried(&self, name: &str, values: impl IntoIterator<Item = Value>) -> Option<Vec<Tried>> {
        values.into_iter().map(|value| self.render(name, &value).map(|prompts| (value, prompts))).collect()
    }

    /// Returns true if a text or a boolean changes a prompt.
    fn changes(&self, name: &str) -> bool {
        let values = [ANY_TEXTS[0].into(), false.into(), true.into()];
        values.iter().any(|value| self.render(name, value).is_some_and(|prompts| prompts != self.unset))
    }

    fn fact(&self, name: &str) -> Option<ArgumentFact> {
        let text = self.render(name, &ANY_TEXTS[0].into())?;
        let differs = text != self.unset && text != self.render(name, &ANY_TEXTS[1].into())?;
        // A template that walks a text as a list of tools writes its letters one by one.
        let is_any_text = differs && shows(&text, ANY_TEXTS[0]);
        let found = match self.is_number(name, &text)? {
            true => {
                let compared = self.comparands(name).into_iter().filter(Value::is_number);
                self.tried(name, NUMBERS.map(Value::from).into_iter().chain(compared))?
            }
            false if differs => self.of_any_text(name, is_any_text)?,
            false => self.of_booleans_and_words(name, &text)?,
        };
        let mut found = distinct(found);
        let has_values = found.iter().any(|(_, prompts)| *prompts != self.unset);
        // Only something else than the tried values has an effect, such as a list.
        let is_other = !has_values && !differs && is_rendered(&text) && text != self.unset;
        let changes = differs || is_other || has_values;
        found.retain(|(_, prompts)| !is_other && self.takes(prompts));
        let default = found.iter().find(|(_, prompts)| *prompts == self.unset).map(|(value, _)| value.clone());
        let listed = found.into_iter().map(|(value, _)| value).filter(|value| !is_any_text || !value.is_string());
        changes.then(|| ArgumentFact { name: name.to_owned(), values: listed.collect(), default, is_any_text })
    }

    /// Returns true if a value renders each conversation that renders without the argument.
    fn takes(&self, prompts: &Prompts) -> bool {
        prompts.iter().zip(&self.unset).all(|(prompt, unset)| prompt.text().is_some() || unset.text().is_none())
    }

    /// Returns the words and numbers with which the template may compare an argument.
    fn comparands(&self, name: &str) -> Vec<Value> {
        let words = self.words.iter().map(|word| Value::from(*word));
        let own = compared(self.renderer.template.source(), name);
        let own = own.into_iter().filter(|value| !self.words.iter().any(|word| value == word));
        words.chain(own).collect()
    }

    /// Returns true if an argument is a number: the template takes one, and no text; or it writes the
    /// number, and no text.
    fn is_number(&self, name: &str, text: &Prompts) -> Option<bool> {
        if shows(text, ANY_TEXTS[0]) {
            return Some(false);
        }
        let (number, digits) = (self.render(name, &A_NUMBER.into())?, A_NUMBER.to_string());
        let is_written = shows(&number, &digits) && !shows(&self.unset, &digits);
        Some(is_rendered(&number) && (!is_rendered(text) || is_written))
    }

    /// Returns the values of an argument that is written. A word matters as the default only, and a
    /// boolean only if the template does not write it.
    fn of_any_text(&self, name: &str, is_any_text: bool) -> Option<Vec<Tried>> {
        let mut found = self.tried(name, [false, true].map(Value::from))?;
        found.retain(|(value, prompts)| {
            let written = if *value == Value::Bool(true) { "True" } else { "False" };
            shows(&self.unset, written) || !shows(prompts, written)
        });
        if is_any_text {
            let words = self.tried(name, self.comparands(name))?;
            found.extend(words.into_iter().filter(|(_, prompts)| *prompts == self.unset));
        }
        Some(found)
    }

    /// Returns booleans, and the words that differ from any other text. If booleans do not, the
    /// argument is a level, whose default is a word if there is one.
    fn of_booleans_and_words(&self, name: &str, text: &Prompts) -> Option<Vec<Tried>> {
        let mut booleans = self.tried(name, [false, true].map(Value::from))?;
        let words = self.tried(name, self.comparands(name))?;
        let is_as_any = |(_, prompts): &Tried| prompts == text || !is_rendered(prompts);
        let is_on = |value: &Value| is_thinking(name) && ON.iter().any(|word| value == word);
        let is_level = booleans.iter().all(is_as_any) && !words.iter().all(is_as_any);
        let is_kept = |tried: &Tried| !is_as_any(tried) || (is_level && is_on(&tried.0));
        let words: Vec<Tried> = words.into_iter().filter(is_kept).collect();
        if is_level {
            let has_default = words.iter().any(|(_, prompts)| *prompts == self.unset);
            booleans.retain(|(_, prompts)| *prompts == self.unset && !has_default);
        }
        Some([booleans, words].concat())
    }
}

/// The most values of a template's tags that an argument is compared with.
const MAX_COMPARANDS: usize = 8;
/// The longest word that an argument is compared with, in bytes.
const MAX_WORD_BYTES: usize = 32;

/// Returns the quoted words and the numbers in tags of a source that name an argument.
fn compared(source: &str, name: &str) -> Vec<Value> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let starts = source.match_indices("{%").chain(source.match_indices("{{")).map(|(at, _)| &source[at + 2..]);
    let tags = starts.filter_map(|rest| Some(&rest[..rest.find("%}").into_iter().chain(rest.find("}}")).min()?]));
    for tag in tags {
        if !tag.split(|c| !is_word(c)).any(|word| word == name) {
            continue;
        }
        let quoted = ['\'', '"'].into_iter().flat_map(|quote| {
            let parts: Vec<_> = tag.split(quote).collect();
            // A word that is looked for in an argument is a part of a text or list.
            let is_value = |pair: &&[&str]| !pair[1].trim_start().starts_with("in ");
            parts[1..]
                .chunks(2)
                .filter(|pair| pair.len() == 2)
                .filter(is_value)
                .map(|pair| pair[0].to_owned())
                .collect::<Vec<_>>()
        });
        let quoted = quoted.filter(|word| !word.is_empty() && word.len() <= MAX_WORD_BYTES);
        let quoted = quoted.filter(|word| word.chars().all(|c| is_word(c) || c == '-'));
        let numbers = tag.split(|c| !is_word(c) && c != '-').filter_map(|word| word.parse::<i64>().ok());
        found.extend(quoted.map(Value::from).chain(numbers.map(Value::from)));
    }
    let mut seen = HashSet::new();
    found.retain(|value| seen.insert(value.to_string()));
    found.truncate(MAX_COMPARANDS);
    found
}

/// Returns the values that render, each with other prompts than those before it.
fn distinct(tried: Vec<Tried>) -> Vec<Tried> {
    let mut found: Vec<Tried> = Vec::new();
    for (value, prompts) in tried {
        if is_rendered(&prompts) && !found.iter().any(|(_, known)| *known == prompts) {
            found.push((value, prompts));
        }
    }
    found
}

fn is_rendered(prompts: &Prompts) -> bool {
    prompts.iter().any(|prompt| prompt.text().is_some())
}

fn shows(prompts: &Prompts, text: &str) -> bool {
    prompts.iter().any(|prompt| prompt.text().is_some_and(|prompt| prompt.contains(text)))
}
