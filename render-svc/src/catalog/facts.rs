//! The facts about a served model, each with its source.

use super::served_model::ServedModel;
use crate::adapter::Kind;
use crate::answer_rules::ChosenRules;
use crate::fact::{Fact, FactSource};
use crate::output_spec::{EndSource, Mark, TurnEnd};
use crate::probes::{ArgumentFact, TemplateFacts};

/// Returns the facts about a model: its capabilities, what its default chat template does, and why its
/// adapter renders.
#[must_use]
pub fn facts(served: &ServedModel) -> Vec<Fact> {
    let model = &served.model;
    let flags = model.capabilities.flags().zip(&model.capability_sources);
    let flags = flags.map(|((name, is_set), (_, source))| Fact::new(name, yes_no(is_set), *source));
    let listed = |facts: Option<&TemplateFacts>| facts.map(|facts| facts.listed()).unwrap_or_default();
    let (mut probed, with_tools) = (listed(model.facts()), listed(model.tool_facts()));
    let is_of_tools = |name: &str| name.starts_with("tools.");
    probed.retain(|(name, _)| !is_of_tools(name));
    probed.extend(with_tools.into_iter().filter(|(name, _)| is_of_tools(name)));
    let probed = probed.into_iter().map(|(name, value)| Fact::new(name, value, FactSource::Probe));
    let adapter = Fact::new("adapter.reason", served.adapter.resolution.reason.clone(), FactSource::Adapter);
    flags.chain(probed).chain(ends(served)).chain([adapter]).chain(answer_rules(served)).collect()
}

/// Returns the rules that read the model's answers, and the reason for them or why they cannot be used.
fn answer_rules(served: &ServedModel) -> Vec<Fact> {
    let ChosenRules { rules, source, reason, .. } = served.adapter.format.answer_rules();
    let fact = |name, value: &str| Fact::new(name, value, *source);
    match rules {
        Ok(rules) => vec![fact("answer.rules", &rules.name), fact("answer.reason", reason)],
        Err(problem) => vec![fact("answer.problem", &problem.to_string())],
    }
}

/// Returns the ends of the assistant's turn, each with the first way in which it was found.
fn ends(served: &ServedModel) -> Vec<Fact> {
    let spec = served.adapter.format.output_spec();
    let tokenizer = served.model.tokenizer.as_ref().ok();
    let text = |mark: &Mark| match mark {
        Mark::Text(text) => text.clone(),
        Mark::Token(id) => match tokenizer.and_then(|tokenizer| tokenizer.token_bytes(*id)) {
            Some(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            None => id.to_string(),
        },
    };
    let end = |end: &TurnEnd| {
        let source = end.sources.first().map_or(FactSource::Default, |source| source_of(*source));
        Fact::new("end_of_turn", text(&end.mark), source)
    };
    spec.ends.iter().map(end).collect()
}

fn source_of(source: EndSource) -> FactSource {
    match source {
        EndSource::Override => FactSource::Configuration,
        EndSource::GenerationConfig | EndSource::Config | EndSource::Gguf | EndSource::EosToken => FactSource::Files,
        EndSource::TokenizerFamily => FactSource::Tokenizer,
        EndSource::Probe => FactSource::Probe,
        EndSource::Adapter => FactSource::Adapter,
    }
}

fn yes_no(is_set: bool) -> &'static str {
    if is_set { "yes" } else { "no" }
}

/// Returns the arguments that change a model's prompts, each with its source: those of its chat
/// template or of its family's encoder, whichever renders. A format has none. The configuration
/// replaces the defaults, and adds arguments for a template.
#[must_use]
pub fn arguments(served: &ServedModel) -> Vec<(ArgumentFact, FactSource)> {
    let model = &served.model;
    let format = &served.adapter.format;
    let (found, source) = match format.adapter.kind {
        Kind::Family => (format.encoder_arguments(), FactSource::Adapter),
        Kind::Template => (model.facts().map_or(&[][..], |facts| &facts.arguments), FactSource::Probe),
        Kind::Format => return Vec::new(),
    };
    let mut arguments: Vec<_> = found.iter().map(|argument| (argument.clone(), source)).collect();
    for (name, value) in &model.toggles {
        let default = Some(value.clone());
        match arguments.iter_mut().find(|(argument, _)| argument.name == *name) {
            Some((argument, source)) => {
                argument.default = default;
                *source = FactSource::Configuration;
            }
            None if format.adapter.kind == Kind::Template => {
                let argument = ArgumentFact { name: name.clone(), values: Vec::new(), default, is_any_text: false };
                arguments.push((argument, FactSource::Configuration));
            }
            // The encoder does not read it.
            None => {}
        }
    }
    arguments.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
    arguments
}
