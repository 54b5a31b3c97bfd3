//! The ends of a model's turn, each with the ways in which it was found.

use super::probe::Mark;

/// A way in which an end of turn is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EndSource {
    /// The service's configuration of the model.
    Override,
    /// `generation_config.json`.
    GenerationConfig,
    /// `config.json`.
    Config,
    /// The keys of a GGUF file.
    Gguf,
    /// The tokenizer's `eos_token`.
    EosToken,
    /// The list of the tokenizer's family.
    TokenizerFamily,
    /// The chat template, which writes it at the end of every probed turn.
    Probe,
    /// The adapter that renders.
    Adapter,
}

/// One end of turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnEnd {
    /// The end, as a token or as text.
    pub mark: Mark,
    /// The ways in which it was found, in the order of [`EndSource`].
    pub sources: Vec<EndSource>,
}

/// The ends of a model's turn. Ends that are found more than once have several sources.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TurnEnds {
    ends: Vec<TurnEnd>,
    /// True if the configuration replaces every token that is found.
    is_overridden: bool,
}

impl TurnEnds {
    /// Adds an end that was found. Tokens are left out if the configuration lists them.
    pub(super) fn add(&mut self, mark: Mark, source: EndSource) {
        if self.is_overridden && matches!(mark, Mark::Token(_)) {
            return;
        }
        match self.ends.iter_mut().find(|end| end.mark == mark) {
            Some(end) if end.sources.contains(&source) => {}
            Some(end) => {
                end.sources.push(source);
                end.sources.sort_unstable();
            }
            None => self.ends.push(TurnEnd { mark, sources: vec![source] }),
        }
    }

    /// Replaces the tokens by those of the configuration.
    pub(super) fn replace_tokens(&mut self, ids: &[u32]) {
        self.ends.retain(|end| matches!(end.mark, Mark::Text(_)));
        self.is_overridden = false;
        ids.iter().for_each(|&id| self.add(Mark::Token(id), EndSource::Override));
        self.is_overridden = true;
    }

    /// Removes tokens that the output layer lacks.
    pub(super) fn retain_tokens(&mut self, is_reached: impl Fn(u32) -> bool) {
        self.ends.retain(|end| !matches!(end.mark, Mark::Token(id) if !is_reached(id)));
    }

    /// Returns every end, in the order in which they were found.
    pub fn iter(&self) -> impl Iterator<Item = &TurnEnd> {
        self.ends.iter()
    }

    /// Returns the ids of the ends that are tokens, in ascending order.
    #[must_use]
    pub fn token_ids(&self) -> Vec<u32> {
        let ids = self.ends.iter().filter_map(|end| match end.mark {
            Mark::Token(id) => Some(id),
            Mark::Text(_) => None,
        });
        let mut ids: Vec<u32> = ids.collect();
        ids.sort_unstable();
        ids
    }

    /// Returns the ends that are no tokens.
    #[must_use]
    pub fn texts(&self) -> Vec<String> {
        let texts = self.ends.iter().filter_map(|end| match &end.mark {
            Mark::Token(_) => None,
            Mark::Text(text) => Some(text.clone()),
        });
        texts.collect()
    }
}
