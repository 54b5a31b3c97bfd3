//! One adapter applied to one model, with the control tokens, the arguments and the output spec of
//! the pair.

use std::sync::{Arc, OnceLock};

use tandem_template::literal::ControlTokenFinder;

use super::encoder_arguments::encoder_arguments;
use crate::adapter::Adapter;
use crate::answer_rules::{Chooser, ChosenRules, Notation};
use crate::error::Error;
use crate::model::Model;
use crate::output_spec::OutputSpec;
use crate::output_spec::{Mark, Reasoning};
use crate::parse::{Rules, RulesProblem};
use crate::probes::ArgumentFact;

/// The facts about an adapter's prompts for one model: the control tokens, the encoder's arguments and
/// the output spec. Each is computed at first use.
#[derive(Debug)]
pub struct PromptFormat {
    pub adapter: Adapter,
    model: Arc<Model>,
    /// The part of the model's output spec that is the same for every adapter.
    model_output: Arc<OutputSpec>,
    output_spec: OnceLock<Arc<OutputSpec>>,
    control_tokens: OnceLock<ControlTokenFinder>,
    arguments: OnceLock<Vec<ArgumentFact>>,
    answer_rules: OnceLock<ChosenRules>,
    notation: OnceLock<Option<Notation>>,
}

impl PromptFormat {
    pub(super) fn new(adapter: Adapter, model: Arc<Model>, model_output: Arc<OutputSpec>) -> Self {
        let (output_spec, control_tokens, arguments) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        let (answer_rules, notation) = (OnceLock::new(), OnceLock::new());
        Self { adapter, model, model_output, output_spec, control_tokens, arguments, answer_rules, notation }
    }

    /// Returns the output spec for these prompts.
    #[must_use]
    pub fn output_spec(&self) -> Arc<OutputSpec> {
        let made = || Arc::new(self.model_output.with_adapter(&self.adapter, &self.model));
        Arc::clone(self.output_spec.get_or_init(made))
    }

    /// Returns the arguments that the family's encoder reads. Empty for other kinds of adapters.
    #[must_use]
    pub fn encoder_arguments(&self) -> &[ArgumentFact] {
        self.arguments.get_or_init(|| encoder_arguments(&self.adapter, &self.model))
    }

    /// Returns the rules that read the answers to these prompts.
    #[must_use]
    pub fn answer_rules(&self) -> &ChosenRules {
        self.answer_rules.get_or_init(|| self.chooser().choose(self.model.configured_rules.as_deref()))
    }

    /// Returns the rules of this name for answers to these prompts.
    ///
    /// # Errors
    /// There are none of the name, or the model's own ones cannot be used.
    pub fn named_rules(&self, name: &str) -> Result<Arc<Rules>, RulesProblem> {
        match &self.answer_rules().rules {
            Ok(rules) if rules.name == name => Ok(Arc::clone(rules)),
            _ => self.chooser().pinned(name),
        }
    }

    /// Returns the notation of the calls in the answers to these prompts. None if it is not found, or the rules do not
    /// read it.
    #[must_use]
    pub fn notation(&self) -> Option<&Notation> {
        let rules = || self.answer_rules().rules.as_ref().ok();
        self.notation.get_or_init(|| self.chooser().notation(rules()?)).as_ref()
    }

    fn chooser(&self) -> Chooser<'_> {
        let (spec, tokenizer) = (self.output_spec(), self.model.tokenizer.as_ref().ok());
        let token = |id| Some(String::from_utf8_lossy(tokenizer?.token_bytes(id)?).into_owned());
        let text = |mark: &Mark| match mark {
            Mark::Token(id) => token(*id),
            Mark::Text(text) => Some(text.clone()),
        };
        let reasoning = spec.reasoning.and_then(|markers| match markers {
            Reasoning::Tokens(start, end) => token(start).zip(token(end)),
            Reasoning::Text(start, end) => Some((start.to_owned(), end.to_owned())),
        });
        let reasoning = reasoning.filter(|(start, end)| !start.is_empty() && !end.is_empty());
        let ends = spec.ends.iter().filter_map(|end| text(&end.mark)).filter(|text| !text.is_empty()).collect();
        Chooser { adapter: &self.adapter, model: &self.model, reasoning, ends }
    }

    /// Returns the control tokens of these prompts.
    ///
    /// # Errors
    /// The model has no tokenizer, or too many control tokens to search for.
    pub fn control_tokens(&self) -> Result<&ControlTokenFinder, Error> {
        if let Some(made) = self.control_tokens.get() {
            return Ok(made);
        }
        let made = self.model.control_tokens(self.adapter.markup)?;
        Ok(self.control_tokens.get_or_init(|| made))
    }
}
