//! The output spec: the data with which gen-svc splits a model's output into text, reasoning and
//! tool calls. It is inferred once per model from the tokenizer, the generation config and the
//! template. Then it is completed for the adapter that renders.

mod ends;
mod probe;
mod reasoning;
pub mod tool_calls;
mod vocabulary;

use serde_json::Value;

pub use self::reasoning::Reasoning;

use self::probe::End;
use self::vocabulary::Vocabulary;
use crate::adapter::{Adapter, Kind};
use crate::model::Model;

/// The data with which gen-svc reads a model's output. A generation request contains it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutputSpec {
    /// Ids that end the model's turn, in ascending order.
    pub eos_token_ids: Vec<u32>,
    /// Strings that end the model's turn, for formats whose end marker is not one token.
    pub stop_strings: Vec<String>,
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
        let mut eos_token_ids = model.artifacts.generation_eos.clone();
        let runs_on = model.templates.choose(None, false).is_err();
        let Ok(tokenizer) = &model.tokenizer else {
            return Self { eos_token_ids: ascending(eos_token_ids), runs_on, ..Self::default() };
        };
        let named = model.special_tokens.get("eos_token").and_then(Value::as_str);
        let vocabulary = Vocabulary::new(tokenizer, &model.artifacts);
        eos_token_ids.extend(named.and_then(|text| vocabulary.id(text)));
        eos_token_ids.extend(ends::of_families(&vocabulary));
        let mut stop_strings = Vec::new();
        match probe::end_of_turn(model, tokenizer) {
            Some(End::Token(id)) => eos_token_ids.push(id),
            Some(End::Text(text)) => stop_strings.push(text),
            None => {}
        }
        let mut eos_token_ids = ascending(eos_token_ids);
        eos_token_ids.retain(|&id| vocabulary.reaches(id));
        let reasoning = reasoning::of_model(model, &vocabulary);
        let turn_head = probe::turn_head(model, tokenizer, reasoning).unwrap_or_default();
        Self { eos_token_ids, stop_strings, passed_token_ids: Vec::new(), reasoning, turn_head, runs_on }
    }

    /// Returns the spec for prompts of this adapter. Each turn end of the adapter is added: as an
    /// id if it is one token, else as a stop string. The special tokens of tool calls that the
    /// adapter or a template writes are added too.
    #[must_use]
    pub fn with_adapter(&self, adapter: &Adapter, model: &Model) -> Self {
        let mut spec = self.clone();
        let vocabulary = model.tokenizer.as_ref().ok().map(|tokenizer| Vocabulary::new(tokenizer, &model.artifacts));
        spec.add_ends(adapter.turn_ends, vocabulary.as_ref());
        spec.reasoning = spec.reasoning.or(adapter.reasoning.map(|(start, end)| Reasoning::Text(start, end)));
        if adapter.kind == Kind::Format && !has_control_token(adapter, vocabulary.as_ref()) {
            spec.reasoning = spec.reasoning.filter(|markers| matches!(markers, Reasoning::Tokens(..)));
        }
        if let Some(vocabulary) = &vocabulary {
            spec.passed_token_ids = tokens_of_calls(adapter, model, vocabulary);
            spec.passed_token_ids.retain(|id| !spec.eos_token_ids.contains(id));
        }
        spec
    }

    fn add_ends(&mut self, ends: &[&str], vocabulary: Option<&Vocabulary<'_>>) {
        for end in ends {
            match vocabulary.and_then(|vocabulary| vocabulary.id(end)) {
                Some(id) => self.eos_token_ids.push(id),
                None if self.stop_strings.iter().all(|known| known != end) => self.stop_strings.push((*end).to_owned()),
                None => {}
            }
        }
        self.eos_token_ids = ascending(std::mem::take(&mut self.eos_token_ids));
        self.runs_on &= ends.is_empty();
    }
}

/// Returns true if a special token ends the turns of a format. Without one, a marker that a user
/// wrote as text looks like the model's own.
fn has_control_token(adapter: &Adapter, vocabulary: Option<&Vocabulary<'_>>) -> bool {
    let is_token = |end: &&str| vocabulary.is_some_and(|vocabulary| vocabulary.special_id(end).is_some());
    adapter.turn_ends.iter().any(is_token)
}

fn ascending(mut ids: Vec<u32>) -> Vec<u32> {
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// Returns the special tokens of tool calls that a template or the adapter writes.
fn tokens_of_calls(adapter: &Adapter, model: &Model, vocabulary: &Vocabulary<'_>) -> Vec<u32> {
    let is_written = |text: &str| adapter.markup.contains(&text) || model.templates.write(text);
    let markers = vocabulary
        .tokenizer
        .added_tokens()
        .iter()
        .filter(|token| token.is_special && tool_calls::is_marker(&token.text));
    let written = markers.filter(|token| vocabulary.reaches(token.id) && is_written(&token.text));
    ascending(written.map(|token| token.id).collect())
}
