//! Token ids in, clean text out: nothing of a control token, no half character, no part of a stop string.
//!
//! A token passes four stages. [`special`] decides by its id whether it ends the output, leaves no text, or is text. [`reasoning`]
//! decides, by its id too, whether a part of the output ends before or after it. [`scan`] finds stop strings, and reasoning markers
//! that are text, in the bytes of text tokens, and holds back what may still become one ([`strings`] is the search itself).
//! [`detokenize`] turns what is released into whole characters. What the deltas of an output add up to does not depend on how its
//! text was cut into tokens. [`extract`] applies the rules that say what of the whole text to leave out.

pub mod detokenize;
pub mod extract;
pub mod reasoning;
pub mod scan;
mod spec;
pub mod special;
pub mod strings;

use std::sync::Arc;

use tandem_model_files::tokenizer::Tokenizer;

use detokenize::Utf8Stream;
use reasoning::{Change, Reasoning};
use scan::{Found, Scanner};
use special::{TokenAction, TokenActions};

pub use spec::Spec;

/// What ended an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Matched {
    /// One of the end ids.
    StopToken(u32),
    /// One of the stop strings.
    StopString(String),
}

/// Text that is all reasoning, or not at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Part {
    /// Whether it is reasoning.
    pub reasoning: bool,
    /// Whole characters that can no longer become part of a stop string or a marker.
    pub text: String,
    /// What they were made of.
    pub bytes: Vec<u8>,
}

/// Adds a part: to the last one, if it is of the same kind.
pub fn add_part(parts: &mut Vec<Part>, part: Part) {
    match parts.last_mut() {
        _ if part.bytes.is_empty() && part.text.is_empty() => {}
        Some(last) if last.reasoning == part.reasoning => {
            last.text += &part.text;
            last.bytes.extend(part.bytes);
        }
        _ => parts.push(part),
    }
}

/// What a token has brought.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Step {
    /// In order. None while text is held back; more than two only where a token's text holds more than one marker.
    pub parts: Vec<Part>,
    /// Set when this token has ended the output. Then no more parts follow.
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
    ended: bool,
}

impl OutputPipeline {
    /// The pipeline of one output of `prompt`.
    pub fn new(tokenizer: Tokenizer, spec: &Spec, prompt: &[u32]) -> Self {
        let is_control = |id: u32| spec.control_token_ids.contains(&id) || tokenizer.is_special(id);
        let actions = TokenActions::new(spec);
        let text_of = |id: u32| match actions.of(id, &tokenizer) {
            TokenAction::Text | TokenAction::End | TokenAction::TextThenEnd => {
                tokenizer.token_bytes(id).unwrap_or_default()
            }
            TokenAction::Drop => &[],
        };
        let (reasoning, markers) = Reasoning::after(prompt, &spec.reasoning, is_control, text_of);
        Self {
            actions: Arc::new(actions),
            reasoning,
            scanner: Scanner::new(&spec.stop_strings, spec.shown_stop_strings, markers),
            utf8: Utf8Stream::default(),
            ended: false,
            tokenizer,
        }
    }

    /// Takes the next token. After the output has ended, tokens bring nothing.
    pub fn push(&mut self, id: u32) -> Step {
        let mut step = Step::default();
        if self.ended {
            return step;
        }
        if self.reasoning.makes(Change::Starts, id) {
            self.end_part(Change::Starts, &mut step.parts);
        }
        let action = self.actions.of(id, &self.tokenizer);
        if action.shows() {
            step.stopped = self.push_text(id, &mut step.parts).map(Matched::StopString);
        }
        if self.reasoning.makes(Change::Ends, id) {
            self.end_part(Change::Ends, &mut step.parts);
        }
        if action.ends() && step.stopped.is_none() {
            self.flush(&mut step.parts);
            step.stopped = Some(Matched::StopToken(id));
        }
        self.ended = step.stopped.is_some();
        if self.ended {
            self.flush(&mut step.parts);
        }
        step
    }

    /// Whether what comes now is reasoning.
    #[must_use]
    pub fn is_reasoning(&self) -> bool {
        self.reasoning.is_inside()
    }

    /// What a token stands for. One beyond the tokenizer's vocabulary, which a padded output layer can produce, has none.
    #[must_use]
    pub fn bytes(&self, id: u32) -> Vec<u8> {
        self.tokenizer.token_bytes(id).unwrap_or_default().to_vec()
    }

    /// Ends the output and gives what was held back: one part at most. A character that was never completed becomes U+FFFD.
    pub fn finish(&mut self) -> Vec<Part> {
        let mut parts = Vec::new();
        if !std::mem::replace(&mut self.ended, true) {
            self.flush(&mut parts);
        }
        parts
    }

    /// Adds a token's text. Returns the stop string that it completes, if any.
    fn push_text(&mut self, id: u32, parts: &mut Vec<Part>) -> Option<String> {
        let bytes = self.bytes(id);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let scanned = self.scanner.push(rest);
            rest = scanned.rest;
            self.release(scanned.released, parts);
            match scanned.found {
                Some(Found::Stop(stop)) => return Some(stop),
                Some(Found::Marker(marker)) => self.pass_marker(marker, parts),
                None => {}
            }
        }
        None
    }

    /// The text of a marker is part of the reasoning that it encloses.
    fn pass_marker(&mut self, marker: Vec<u8>, parts: &mut Vec<Part>) {
        match self.reasoning.next_change() {
            Change::Starts => {
                self.end_part(Change::Starts, parts);
                self.release(marker, parts);
            }
            Change::Ends => {
                self.release(marker, parts);
                self.end_part(Change::Ends, parts);
            }
        }
    }

    fn end_part(&mut self, change: Change, parts: &mut Vec<Part>) {
        self.flush(parts);
        self.reasoning.apply(change);
        self.scanner.look_for(self.reasoning.awaited_strings());
    }

    /// Releases what was held back.
    fn flush(&mut self, parts: &mut Vec<Part>) {
        let held = self.scanner.finish();
        self.release(held, parts);
        let (mut text, bytes) = (String::new(), self.utf8.finish());
        if !bytes.is_empty() {
            text.push(char::REPLACEMENT_CHARACTER);
        }
        add_part(parts, Part { reasoning: self.reasoning.is_inside(), text, bytes });
    }

    fn release(&mut self, bytes: Vec<u8>, parts: &mut Vec<Part>) {
        let (text, bytes) = self.utf8.push(bytes);
        add_part(parts, Part { reasoning: self.reasoning.is_inside(), text, bytes });
    }
}
