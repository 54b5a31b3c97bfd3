//! The choice of the rules for a model's answers.
//!
//! The first of these that there are:
//!
//! - the configured ones,
//! - `response_template` in tokenizer_config.json,
//! - the built-in rules that read back the calls that the model's adapter renders,
//! - the built-in rules whose mark the chat template or the tokenizer has,
//! - reasoning and content alone.

mod notation;
mod sample;

use std::sync::Arc;

use serde_json::Value as Json;

pub use self::notation::Notation;
pub(crate) use self::notation::{Arguments, Form, ID, INDEX, KEY, Kind, Spelling};
pub(crate) use self::sample::special_tokens;
use self::sample::{CALLS, CONTENT, REASONING, Sample, Sampler};
use crate::adapter::Adapter;
use crate::fact::FactSource;
use crate::model::Model;
use crate::parse::{Answer, AnswerReader, BUILT_IN, BuiltIn, Call, Context, Rules, RulesProblem, Value, values};

/// The rules for the answers to an adapter's prompts, with the reason for the choice.
#[derive(Debug, Clone)]
pub struct ChosenRules {
    /// The rules, or why those of the model cannot be used.
    pub rules: Result<Arc<Rules>, RulesProblem>,
    /// How they were found.
    pub source: FactSource,
    /// The reason, for people.
    pub reason: String,
    /// The rules before them, each with the reason why it was not chosen.
    pub rejected: Vec<(&'static str, String)>,
}

/// The name of a model's own rules.
const OWN: &str = "response_template";

/// Chooses rules for the answers to one adapter's prompts.
#[derive(Debug)]
pub struct Chooser<'a> {
    pub adapter: &'a Adapter,
    pub model: &'a Model,
    /// The texts around reasoning.
    pub reasoning: Option<(String, String)>,
    /// The texts that end the turn.
    pub ends: Vec<String>,
}

impl Chooser<'_> {
    /// Returns the rules of a name.
    ///
    /// # Errors
    /// There are none of the name, or the model's own ones cannot be used.
    pub fn pinned(&self, name: &str) -> Result<Arc<Rules>, RulesProblem> {
        let (context, _) = self.context();
        if name == OWN {
            let own = self.own_template().ok_or(RulesProblem::Absent)?;
            return Ok(Arc::new(Rules::own(own, context.id_form)?));
        }
        let built_in = BUILT_IN.iter().find(|built_in| built_in.name == name);
        let built_in = built_in.ok_or_else(|| RulesProblem::Unknown { name: name.to_owned() })?;
        Ok(Arc::new(Rules::built_in(built_in, &context)))
    }

    /// Returns the rules for the model: the configured ones, if there are any.
    #[must_use]
    pub fn choose(&self, configured: Option<&str>) -> ChosenRules {
        let found = |rules, source, reason: &str| ChosenRules {
            rules,
            source,
            reason: reason.to_owned(),
            rejected: Vec::new(),
        };
        if let Some(name) = configured {
            return found(self.pinned(name), FactSource::Configuration, "pinned by the model's settings");
        }
        if self.own_template().is_some() {
            return found(self.pinned(OWN), FactSource::Files, "tokenizer_config.json has them");
        }
        let (context, samples) = self.context();
        self.built_in(&context, &samples)
    }

    /// Returns the notation in which the adapter writes calls. None if it writes none that the rules read back.
    #[must_use]
    pub fn notation(&self, rules: &Arc<Rules>) -> Option<Notation> {
        let sampler = Sampler::new(self.adapter, self.model);
        Notation::probe(&sampler, rules, &self.context().0)
    }

    fn own_template(&self) -> Option<&Json> {
        self.model.artifacts.response_template.as_ref()
    }

    fn context(&self) -> (Context, Vec<Sample>) {
        let sampler = Sampler::new(self.adapter, self.model);
        let samples = sampler.samples();
        let context = Context {
            reasoning: self.reasoning.clone(),
            ends: self.ends.clone(),
            generation_prompt: sampler.generation_prompt(),
            id_form: samples.first().map(|sample| sample.id_form).unwrap_or_default(),
        };
        (context, samples)
    }

    fn built_in(&self, context: &Context, samples: &[Sample]) -> ChosenRules {
        let all: Vec<_> = BUILT_IN.iter().map(|row| (row, Arc::new(Rules::built_in(row, context)))).collect();
        let tools = values(Some(&sample::tools()));
        for sample in samples {
            // The last one of the best, from the end, is the first one.
            let scores = all.iter().rev().filter_map(|(row, rules)| Some((score(sample, rules, &tools)?, row, rules)));
            if let Some((_, row, rules)) = scores.max_by_key(|(score, ..)| *score) {
                let adapter = self.adapter.name;
                let reason = format!("{} read back the calls that adapter {adapter} renders", row.name);
                let rejected = before(row, "they do not read back the calls, or other parts less well");
                return ChosenRules { rules: Ok(Arc::clone(rules)), source: FactSource::Probe, reason, rejected };
            }
        }
        let unread =
            if samples.is_empty() { "the adapter renders no calls" } else { "they do not read back the calls" };
        for (row, rules) in all.iter().filter(|(row, _)| !row.mark.is_empty()) {
            let is_written = self.model.templates.write(row.mark);
            if !is_written && !self.has_token(row.mark) {
                continue;
            }
            let (place, source) = match is_written {
                true => ("chat template", FactSource::TemplateText),
                false => ("tokenizer", FactSource::Tokenizer),
            };
            let reason = format!("the {place} has {}", row.mark);
            let rejected = before(row, &format!("{unread}, and nothing in the model's files has their mark"));
            return ChosenRules { rules: Ok(Arc::clone(rules)), source, reason, rejected };
        }
        let rules = all.into_iter().find(|(row, _)| row.name == "text").map(|(_, rules)| rules);
        let rules = rules.ok_or_else(|| RulesProblem::Unknown { name: "text".to_owned() });
        let reason = "nothing shows how the model writes calls".to_owned();
        let rejected = BUILT_IN.last().map(|last| before(last, unread)).unwrap_or_default();
        ChosenRules { rules, source: FactSource::Default, reason, rejected }
    }

    fn has_token(&self, text: &str) -> bool {
        let tokenizer = self.model.tokenizer.as_ref().ok();
        tokenizer.is_some_and(|tokenizer| tokenizer.added_tokens().iter().any(|token| token.text == text))
    }
}

/// Returns the rules before a row, with the reason against them.
fn before(row: &BuiltIn, reason: &str) -> Vec<(&'static str, String)> {
    let before = BUILT_IN.iter().take_while(|other| other.name != row.name);
    before.map(|other| (other.name, reason.to_owned())).collect()
}

/// Returns how well rules read a sample: 1, and 2 for the content, and 1 for the reasoning. None if they do not read its
/// calls.
fn score(sample: &Sample, rules: &Arc<Rules>, tools: &[Value]) -> Option<u32> {
    let answer = read(sample, rules, tools)?;
    let is_equal = |(call, (name, arguments)): (&Call, &(&str, &str))| {
        call.name == *name && is_same_json(&call.arguments, arguments)
    };
    if answer.calls.len() != sample.calls || !answer.calls.iter().zip(&CALLS).all(is_equal) {
        return None;
    }
    let content = if sample.turn.contains(CONTENT) { CONTENT } else { "" };
    let reasoning = if sample.turn.contains(REASONING) { REASONING } else { "" };
    let is_clean = answer.warnings.is_empty();
    Some(
        1 + 4 * u32::from(answer.content == content)
            + 2 * u32::from(answer.reasoning == reasoning)
            + u32::from(is_clean),
    )
}

/// Returns true if two JSON texts have the same value. A template may sort the keys.
fn is_same_json(one: &str, other: &str) -> bool {
    let value = |text| serde_json::from_str::<Json>(text).ok();
    value(one).is_some_and(|one| value(other) == Some(one))
}

fn read(sample: &Sample, rules: &Arc<Rules>, tools: &[Value]) -> Option<Answer> {
    let head = rules.head.as_deref().unwrap_or_default();
    let find = |head: &str| sample.turn.find(head).and_then(|at| sample.turn.get(at + head.len()..));
    let answer = find(head).or_else(|| find(head.trim()))?;
    Some(AnswerReader::new(Arc::clone(rules), "", tools).ok()?.read(answer))
}
