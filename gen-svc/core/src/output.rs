//! Converts token ids into text without control tokens, incomplete characters and parts of stop
//! strings.
//!
//! A token passes four stages:
//!
//! 1. [`special`] decides by the id whether the token ends the output, leaves no text, or is text.
//! 2. [`reasoning`] decides by the id whether a segment of the output ends before or after the
//!    token.
//! 3. [`scan`] finds stop strings and reasoning markers in the bytes of text tokens. It holds back
//!    bytes that may become one. [`strings`] is the search.
//! 4. [`Utf8Stream`] turns the released bytes into whole characters.
//!
//! The joined deltas of an output do not depend on how its text is divided into tokens. [`extract`]
//! applies the rules that remove parts of the whole text.

pub mod extract;
mod policy;
pub mod reasoning;
pub mod scan;
mod segment;
pub mod special;
pub mod strings;

use std::sync::Arc;

use tandem_model_files::tokenizer::Tokenizer;
use tandem_model_files::utf8::Utf8Stream;

pub use policy::OutputPolicy;
use reasoning::{Change, Reasoning};
use scan::{Found, Scanner};
pub use segment::{TextSegment, push_segment};
use special::{TokenAction, TokenActions};

/// The stop condition that ended an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Matched {
    /// One of the end ids.
    StopToken(u32),
    /// One of the stop strings.
    StopString(String),
}

/// The result of processing one token.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenOutput {
    /// The released text, in order. Empty while text is held back. A token has more than two
    /// segments only if its text contains several markers.
    pub segments: Vec<TextSegment>,
    /// Set if this token ended the output. No segments follow.
    pub stopped: Option<Matched>,
}

/// The state of one output.
#[derive(Debug, Clone)]
pub struct OutputPipeline {
    tokenizer: Tokenizer,
    actions: Arc<TokenActions>,
    reasoning: Reasoning,
    scanner: Scanner,
    utf8: Utf8Stream,
    /// The tokens that followed reasoning text or a start marker, with the end markers.
    reasoning_tokens: usize,
    ended: bool,
}

impl OutputPipeline {
    /// Creates the pipeline of one output of `prompt`.
    pub fn new(tokenizer: Tokenizer, policy: &OutputPolicy, prompt: &[u32]) -> Self {
        let is_control = |id: u32| policy.control_token_ids.contains(&id) || tokenizer.is_special(id);
        let actions = TokenActions::new(policy);
        let text_of = |id: u32| match actions.of(id, &tokenizer) {
            TokenAction::Text | TokenAction::End | TokenAction::TextThenEnd => {
                tokenizer.token_bytes(id).unwrap_or_default()
            }
            TokenAction::Drop => &[],
        };
        let (reasoning, markers) = Reasoning::after(prompt, &policy.reasoning, is_control, text_of);
        Self {
            actions: Arc::new(actions),
            reasoning,
            scanner: Scanner::new(&policy.stop_strings, policy.shown_stop_strings, markers),
            utf8: Utf8Stream::default(),
            reasoning_tokens: 0,
            ended: false,
            tokenizer,
        }
    }

    /// Processes the next token. After the end of the output, the result is empty.
    pub fn push(&mut self, id: u32) -> TokenOutput {
        let mut output = TokenOutput::default();
        if self.ended {
            return output;
        }
        self.reasoning_tokens += usize::from(self.reasoning.is_inside());
        if self.reasoning.makes(Change::Starts, id) {
            self.end_segment(Change::Starts, &mut output.segments);
        }
        let action = self.actions.of(id, &self.tokenizer);
        if action.shows() {
            output.stopped = self.push_text(id, &mut output.segments).map(Matched::StopString);
        }
        if self.reasoning.makes(Change::Ends, id) {
            self.end_segment(Change::Ends, &mut output.segments);
        }
        if action.ends() && output.stopped.is_none() {
            self.flush(&mut output.segments);
            output.stopped = Some(Matched::StopToken(id));
        }
        self.ended = output.stopped.is_some();
        if self.ended {
            self.flush(&mut output.segments);
        }
        output
    }

    /// Returns true if the next text is reasoning.
    #[must_use]
    pub fn is_reasoning(&self) -> bool {
        self.reasoning.is_inside()
    }

    /// Returns the number of tokens inside reasoning, with those of its end markers.
    #[must_use]
    pub fn reasoning_tokens(&self) -> usize {
        self.reasoning_tokens
    }

    /// Returns the bytes of a token; none for an id beyond the tokenizer's vocabulary. A padded
    /// output layer can produce such ids.
    #[must_use]
    pub fn bytes(&self, id: u32) -> Vec<u8> {
        self.tokenizer.token_bytes(id).unwrap_or_default().to_vec()
    }

    /// Ends the output, and returns the text that was held back as at most one segment. An
    /// incomplete character becomes U+FFFD.
    pub fn finish(&mut self) -> Vec<TextSegment> {
        let mut segments = Vec::new();
        if !std::mem::replace(&mut self.ended, true) {
            self.flush(&mut segments);
        }
        segments
    }

    /// Adds a token's text. Returns the stop string that the text completes, if any.
    fn push_text(&mut self, id: u32, segments: &mut Vec<TextSegment>) -> Option<String> {
        let bytes = self.bytes(id);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let scanned = self.scanner.push(rest);
            rest = scanned.rest;
            self.release(scanned.released, segments);
            match scanned.found {
                Some(Found::Stop(stop)) => return Some(stop),
                Some(Found::Marker(marker)) => self.pass_marker(marker, segments),
                None => {}
            }
        }
        None
    }

    /// Releases a marker's text as reasoning, and starts or ends reasoning.
    fn pass_marker(&mut self, marker: Vec<u8>, segments: &mut Vec<TextSegment>) {
        match self.reasoning.next_change() {
            Change::Starts => {
                self.end_segment(Change::Starts, segments);
                self.release(marker, segments);
            }
            Change::Ends => {
                self.release(marker, segments);
                self.end_segment(Change::Ends, segments);
            }
        }
    }

    fn end_segment(&mut self, change: Change, segments: &mut Vec<TextSegment>) {
        self.flush(segments);
        self.reasoning.apply(change);
        self.scanner.look_for(self.reasoning.awaited_strings());
    }

    /// Releases the text that was held back.
    fn flush(&mut self, segments: &mut Vec<TextSegment>) {
        let held = self.scanner.finish();
        self.release(held, segments);
        let (mut text, bytes) = (String::new(), self.utf8.finish());
        if !bytes.is_empty() {
            text.push(char::REPLACEMENT_CHARACTER);
        }
        push_segment(segments, TextSegment { reasoning: self.reasoning.is_inside(), text, bytes });
    }

    fn release(&mut self, bytes: Vec<u8>, segments: &mut Vec<TextSegment>) {
        let (text, bytes) = self.utf8.push(&bytes);
        push_segment(segments, TextSegment { reasoning: self.reasoning.is_inside(), text, bytes });
    }
}
