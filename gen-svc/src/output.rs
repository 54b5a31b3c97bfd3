//! Token ids in, clean text out: nothing of a control token, no half character, no part of a stop string.
//!
//! A token passes three stages. [`special`] decides by its id whether it ends the output, leaves no text, or is text.
//! [`detokenize`] turns the bytes of text tokens into whole characters. [`stop`] finds stop strings and holds back what may
//! still become one. What the deltas of an output add up to does not depend on how it was cut into tokens.

pub mod detokenize;
pub mod special;
pub mod stop;

use tandem_common::tokenizer::Tokenizer;

use detokenize::Utf8Stream;
use special::Fates;
use stop::StopMatcher;

/// How an output is to be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spec {
    /// Ids that end the output: eos ids and the request's stop ids. Their text does not show, unless they are in `passed`.
    pub end_token_ids: Vec<u32>,
    /// The output ends before the first of these. Empty strings match nothing.
    pub stop_strings: Vec<String>,
    /// Ids that leave no text although the tokenizer does not call them special, such as eos ids that do not end the output.
    pub dropped: Vec<u32>,
    /// Ids that are text although the tokenizer calls them special. They win over `dropped`.
    pub passed: Vec<u32>,
}

/// What ended an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Matched {
    /// One of the end ids.
    StopToken(u32),
    /// One of the stop strings.
    StopString(String),
}

/// What a token has brought.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Step {
    /// Whole characters that can no longer become part of a stop string. Empty while text is held back.
    pub text: String,
    /// Set when this token has ended the output. `text` is then the last of it.
    pub stopped: Option<Matched>,
}

/// The state of one output.
#[derive(Debug, Clone)]
pub struct OutputPipeline {
    tokenizer: Tokenizer,
    fates: Fates,
    utf8: Utf8Stream,
    stop: StopMatcher,
    ended: bool,
}

impl OutputPipeline {
    /// The pipeline of one output.
    pub fn new(tokenizer: Tokenizer, spec: &Spec) -> Self {
        Self {
            tokenizer,
            fates: Fates::new(spec),
            utf8: Utf8Stream::default(),
            stop: StopMatcher::new(&spec.stop_strings),
            ended: false,
        }
    }

    /// Takes the next token. After the output has ended, tokens bring nothing.
    pub fn push(&mut self, id: u32) -> Step {
        if self.ended {
            return Step::default();
        }
        let fate = self.fates.of(id, &self.tokenizer);
        let mut step = if fate.shows() { self.push_text(id) } else { Step::default() };
        if fate.ends() && step.stopped.is_none() {
            step.text += &self.finish();
            step.stopped = Some(Matched::StopToken(id));
        }
        self.ended |= step.stopped.is_some();
        step
    }

    /// What a token stands for. One beyond the tokenizer's vocabulary, which a padded output layer can produce, has none.
    #[must_use]
    pub fn bytes(&self, id: u32) -> Vec<u8> {
        self.tokenizer.token_bytes(id).unwrap_or_default().to_vec()
    }

    /// Ends the output and gives what was held back. A character that was never completed becomes U+FFFD.
    pub fn finish(&mut self) -> String {
        if self.ended {
            return String::new();
        }
        self.ended = true;
        let mut step = self.search(|utf8, text| utf8.finish(text));
        if step.stopped.is_none() {
            step.text += &self.stop.finish();
        }
        step.text
    }

    /// An id beyond the vocabulary, which a padded output layer can produce, has no bytes.
    fn push_text(&mut self, id: u32) -> Step {
        let tokenizer = self.tokenizer.clone();
        let bytes = tokenizer.token_bytes(id).unwrap_or_default();
        self.search(|utf8, text| utf8.push(bytes, text))
    }

    /// Lets `decode` add whole characters to what is searched for stop strings.
    fn search(&mut self, decode: impl FnOnce(&mut Utf8Stream, &mut String)) -> Step {
        let mut text = String::new();
        decode(&mut self.utf8, &mut text);
        let (text, found) = self.stop.push(&text);
        Step { text, stopped: found.map(Matched::StopString) }
    }
}
