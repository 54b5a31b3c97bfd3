//! The output spec: the data with which gen-svc splits a model's output into text, reasoning and
//! tool calls. It is inferred once per model from the tokenizer, the generation config and the
//! template. Then it is completed for the adapter that renders.

mod ends;
mod families;
mod head;
mod probe;
mod reasoning;
pub mod tool_calls;
mod vocabulary;

use serde_json::Value;
use tandem_model_files::artifacts::EosOrigin;
use tandem_model_files::tokenizer::Tokenizer;

pub use self::ends::{EndSource, TurnEnd, TurnEnds};
pub use self::probe::{Mark, Opened, opens};
pub use self::reasoning::Reasoning;

use self::probe::{MarkReader, ProbedTurn, Prober};
use self::vocabulary::Vocabulary;
use crate::adapter::{Adapter, Kind};
use crate::model::Model;

/// The data with which gen-svc reads a model's output. A generation request contains it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutputSpec {
    /// The ends of the model's turn: tokens, and text for formats whose end marker is not one token.
    pub ends: TurnEnds,
    /// Ids of special tokens that are part of a tool call, in ascending order. Their text is part
    /// of the answer.
    pub passed_token_ids: Vec<u32>,
    /// The markers around reasoning, if known.
    pub reasoning: Option<Reasoning>,
    /// The text with which the prompt starts the assistant's turn, without special tokens and
    /// reasoning. Empty if there is none.
    pub turn_head: String,
    /// True if no end of the model's turn is known. The model may then write turns of other roles.
    pub runs_on: bool,
}

/// Names of roles. A model writes them between turns if nothing ends its turn.
pub const ROLES: [&str; 4] = ["system", "user", "assistant", "tool"];

impl OutputSpec {
    /// Returns the part of a model's output spec that is the same for every adapter. It has the eos
    /// ids of the generation config and the tokenizer, and the end of turn that the template
    /// writes. It also has the end tokens of the tokenizer's family, reasoning markers and the
    /// start of the assistant's turn.
    #[must_use]
    pub fn infer(model: &Model) -> Self {
        let mut ends = TurnEnds::default();
        let origin = match model.artifacts.eos_origin {
            EosOrigin::GenerationConfig => EndSource::GenerationConfig,
            EosOrigin::Config => EndSource::Config,
            EosOrigin::Gguf => EndSource::Gguf,
        };
        model.artifacts.generation_eos.iter().for_each(|&id| ends.add(Mark::Token(id), origin));
        let vocabulary = model.tokenizer.as_ref().ok().map(|tokenizer| Vocabulary::new(tokenizer, &model.artifacts));
        for stop in &model.artifacts.stop_strings {
            // The text of a special token is not part of the output.
            let id = vocabulary.as_ref().and_then(|vocabulary| vocabulary.special_id(stop));
            ends.add(id.map_or_else(|| Mark::Text(stop.clone()), Mark::Token), EndSource::GenerationConfig);
        }
        let runs_on = model.templates.choose(None, false).is_err();
        let size = vocabulary::size(&model.artifacts);
        let (Ok(tokenizer), Some(vocabulary)) = (&model.tokenizer, vocabulary) else {
            ends.retain_tokens(|id| size.is_none_or(|size| u64::from(id) < size));
            let reasoning = reasoning::of_text(model);
            return Self { ends, reasoning, runs_on, ..Self::default() };
        };
        let named = model.special_tokens.get("eos_token").and_then(Value::as_str);
        if let Some(id) = named.and_then(|text| vocabulary.id(text)) {
            ends.add(Mark::Token(id), EndSource::EosToken);
        }
        let prober = Prober::new(model);
        let with_tools = Prober::with_tools(model);
        let probed = [prober.as_ref(), with_tools.as_ref()].into_iter().flatten();
        let turns: Vec<_> = probed.filter_map(|prober| probed_turn(model, tokenizer, prober)).collect();
        turns.iter().filter_map(|turn| turn.end.clone()).for_each(|end| ends.add(end, EndSource::Probe));
        // Where another end is known, the answer of this model may follow an end of its family.
        let has_end = ends.iter().next().is_some();
        let of_family = families::ends(&vocabulary).into_iter();
        let is_inside = |id| turns.iter().any(|turn| turn.continues_after(id));
        let of_family = of_family.filter(|&id| !(has_end && is_inside(id)));
        of_family.for_each(|id| ends.add(Mark::Token(id), EndSource::TokenizerFamily));
        ends.retain_tokens(|id| vocabulary.reaches(id));
        let opened = prober.map(|prober| probe::opened(model, &prober)).unwrap_or_default();
        let reasoning = reasoning::of_model(model, &vocabulary);
        Self { ends, passed_token_ids: Vec::new(), reasoning, turn_head: opened.head, runs_on }
    }

    /// Returns the spec with these eos ids in place of every one that is inferred, also of those
    /// that an adapter adds. Ends that are no tokens remain. An empty list changes nothing.
    #[must_use]
    pub fn with_eos_override(mut self, ids: Option<&[u32]>) -> Self {
        if let Some(ids) = ids.filter(|ids| !ids.is_empty()) {
            self.ends.replace_tokens(ids);
        }
        self
    }

    /// Returns the spec without ids that the model's output layer lacks.
    #[must_use]
    pub fn within_vocabulary(mut self, model: &Model) -> Self {
        let vocabulary = model.tokenizer.as_ref().ok().map(|tokenizer| Vocabulary::new(tokenizer, &model.artifacts));
        self.ends.retain_tokens(|id| vocabulary.as_ref().is_none_or(|vocabulary| vocabulary.reaches(id)));
        self
    }

    /// Returns the spec for prompts of this adapter. Each turn end of the adapter is added: as an
    /// id if it is one token, else as a stop string. The special tokens of tool calls are added
    /// too, except ends of the turn. The start of the assistant's turn is that of these prompts.
    #[must_use]
    pub fn with_adapter(&self, adapter: &Adapter, model: &Model) -> Self {
        let mut spec = self.clone();
        let vocabulary = model.tokenizer.as_ref().ok().map(|tokenizer| Vocabulary::new(tokenizer, &model.artifacts));
        spec.add_ends(adapter.turn_ends, vocabulary.as_ref());
        spec.reasoning = spec.reasoning.or(adapter.reasoning.map(|(start, end)| Reasoning::Text(start, end)));
        if adapter.kind == Kind::Format && !has_control_token(adapter, vocabulary.as_ref()) {
            spec.reasoning = spec.reasoning.filter(|markers| matches!(markers, Reasoning::Tokens(..)));
        }
        if adapter.kind != Kind::Template {
            spec.turn_head = head::of_adapter(adapter, model, spec.reasoning).unwrap_or_default();
        }
        if let Some(vocabulary) = &vocabulary {
            let ends = spec.ends.token_ids();
            spec.passed_token_ids = tokens_of_calls(vocabulary);
            spec.passed_token_ids.retain(|id| !ends.contains(id));
        }
        spec
    }

    fn add_ends(&mut self, ends: &[&str], vocabulary: Option<&Vocabulary<'_>>) {
        for end in ends {
            let id = vocabulary.and_then(|vocabulary| vocabulary.id(end));
            self.ends.add(id.map_or_else(|| Mark::Text((*end).to_owned()), Mark::Token), EndSource::Adapter);
        }
        self.runs_on &= ends.is_empty();
    }
}

/// Probes the assistant's turn. None if the tokenizer has too many control tokens to search.
fn probed_turn(model: &Model, tokenizer: &Tokenizer, prober: &Prober<'_>) -> Option<ProbedTurn> {
    let reader = MarkReader::new(tokenizer, model).ok()?;
    Some(probe::probe_turn(prober, &reader))
}

/// Returns true if a special token ends the turns of a format. Without one, a marker that a user
/// wrote as text looks like the model's own.
fn has_control_token(adapter: &Adapter, vocabulary: Option<&Vocabulary<'_>>) -> bool {
    let is_token = |end: &&str| vocabulary.is_some_and(|vocabulary| vocabulary.special_id(end).is_some());
    adapter.turn_ends.iter().any(is_token)
}

/// Returns the special tokens of tool calls, in ascending order. A model may write them whether or
/// not its prompt explains them.
fn tokens_of_calls(vocabulary: &Vocabulary<'_>) -> Vec<u32> {
    let added = vocabulary.tokenizer.added_tokens().iter();
    let markers = added.filter(|token| token.is_special && tool_calls::is_marker(&token.text));
    let mut ids: Vec<u32> = markers.map(|token| token.id).filter(|&id| vocabulary.reaches(id)).collect();
    ids.sort_unstable();
    ids
}
