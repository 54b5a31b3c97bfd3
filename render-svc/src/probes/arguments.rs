//! The template's own arguments: the values that change a prompt, and the defaults.

use serde_json::{Value, json};

use super::conversation::{ASSISTANT, REASONING, SECOND_USER, SYSTEM, USER};
use super::renderer::{Outcome, Probe, Renderer};
use super::tools::ToolFacts;
use crate::conversation::Object;

/// The most arguments of a template that are tried. Known templates have at most 15.
const MAX_ARGUMENTS: usize = 24;

/// Names that a conversation sets itself.
const OF_CONVERSATIONS: &[&str] = &["messages", "tools", "documents", "add_generation_prompt"];

/// Words that templates compare arguments with, in ascending order of effort.
const WORDS: &[&str] = &[
    "off", "on", "none", "no_think", "minimal", "low", "medium", "high", "xhigh", "max", "enabled", "disabled", "auto",
];

/// Texts that no template compares an argument with.
const ANY_TEXTS: [&str; 2] = ["qzargtext", "qzargother"];

/// An argument that changes the prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct ArgumentFact {
    /// The name.
    pub name: String,
    /// The values that give different prompts. If any text changes the prompt, texts are not listed.
    pub values: Vec<Value>,
    /// The value with which the prompt is the same as without the argument. None if there is none
    /// among those that were tried.
    pub default: Option<Value>,
    /// True if each text gives another prompt, such as a date that the prompt contains.
    pub is_any_text: bool,
}

impl ArgumentFact {
    /// Returns true if the argument's name is about reasoning.
    #[must_use]
    pub fn is_thinking(&self) -> bool {
        let name = self.name.to_lowercase();
        ["think", "reason"].iter().any(|part| name.contains(part))
    }
}

/// Returns every argument that changes a prompt, by name.
pub(super) fn of(renderer: &Renderer<'_>, tools: &ToolFacts) -> Vec<ArgumentFact> {
    let own = |name: &&str| !OF_CONVERSATIONS.contains(name) && !renderer.is_special_token(name) && !is_token(name);
    let names: Vec<&str> = renderer.template.variables().filter(own).take(MAX_ARGUMENTS).collect();
    let bases = bases(renderer, tools);
    names.into_iter().filter_map(|name| fact(renderer, &bases, name)).collect()
}

/// Returns true for the name of a special token, which a model's tokenizer sets.
fn is_token(name: &str) -> bool {
    name.ends_with("_token")
}

/// The conversations in which arguments are tried: a question to a system, a question after an
/// answer with reasoning, and the result of a call.
fn bases(renderer: &Renderer<'_>, tools: &ToolFacts) -> Vec<Probe> {
    let said = |role: &str, text: &str| renderer.message(role, text);
    let mut thought = said("assistant", ASSISTANT);
    thought["reasoning_content"] = REASONING.into();
    let mut bases = vec![
        Probe::of([said("system", SYSTEM), said("user", USER)]),
        Probe::of([said("user", USER)]),
        Probe::of([said("user", USER), thought, said("user", SECOND_USER)]),
    ];
    bases.extend(tools.shape.map(|shape| shape.answered(renderer, json!("result"))));
    bases.retain(|probe| renderer.render(probe).text().is_some());
    bases
}

/// The prompts of all bases with one value of an argument.
type Prompts = Vec<Outcome>;

fn fact(renderer: &Renderer<'_>, bases: &[Probe], name: &str) -> Option<ArgumentFact> {
    let render = |value: Option<&Value>| -> Prompts {
        let args: Object = value.map(|value| (name.to_owned(), value.clone())).into_iter().collect();
        let with = |base: &Probe| Probe {
            messages: base.messages.clone(),
            tools: base.tools.clone(),
            args: args.clone(),
            ..Probe::default()
        };
        bases.iter().map(|base| renderer.render(&with(base))).collect()
    };
    let unset = render(None);
    let is_rendered = |prompts: &Prompts| prompts.iter().any(|prompt| prompt.text().is_some());
    let [any_text, other_text] = ANY_TEXTS.map(|text| render(Some(&text.into())));
    let is_any_text = any_text != other_text;
    let tried = [Value::Bool(false), Value::Bool(true)].into_iter().chain(WORDS.iter().map(|word| (*word).into()));
    let mut found: Vec<(Value, Prompts)> = Vec::new();
    for value in tried {
        let prompts = render(Some(&value));
        // A word that has no effect of its own is as any other text.
        let is_plain_text = value.is_string() && prompts == any_text;
        if is_rendered(&prompts) && !is_plain_text && !found.iter().any(|(_, known)| *known == prompts) {
            found.push((value, prompts));
        }
    }
    let default = found.iter().find(|(_, prompts)| *prompts == unset).map(|(value, _)| value.clone());
    let changes = is_any_text || found.iter().any(|(_, prompts)| *prompts != unset);
    let values = |(value, _): (Value, _)| (!is_any_text || !value.is_string()).then_some(value);
    let values = found.into_iter().filter_map(values).collect();
    changes.then(|| ArgumentFact { name: name.to_owned(), values, default, is_any_text })
}
