//! Reads the answer of a running task, whose text lacks most special tokens.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::Value as Json;
use tandem_model_files::tokenizer::Tokenizer;
use tandem_model_files::utf8::Utf8Stream;

use super::answer::{Answer, AnswerReader, Delta};
use super::engine::ParseError;
use super::rules::Rules;
use super::tokens::{is_read, special_text, tools};

/// Reads an answer from its text and its ids. The caller gets the text; the ids show where the special tokens
/// that the rules read were.
#[derive(Debug)]
pub struct RunningAnswer {
    reader: AnswerReader,
    rules: Arc<Rules>,
    tokenizer: Tokenizer,
    /// The special tokens whose text is in the answer's text.
    passed: Vec<u32>,
    /// The tokens before which gen-svc ends an incomplete character.
    segment_ends: Vec<u32>,
    /// The text of the ids so far: the bytes of an incomplete character, and the length of the rest.
    utf8: Utf8Stream,
    length: usize,
    /// Hidden tokens that are not read yet, each with its place in the answer's text.
    hidden: VecDeque<(usize, String)>,
    /// The bytes of the answer's text that are read.
    read: usize,
}

impl RunningAnswer {
    /// Starts to read the answer to a prompt. The text of the tokens `passed` is in the answer's text. `segment_ends` end
    /// the output, or begin or end its reasoning.
    ///
    /// # Errors
    /// The rules do not fit the prompt.
    pub fn new(
        rules: Arc<Rules>,
        tokenizer: Tokenizer,
        passed: Vec<u32>,
        segment_ends: Vec<u32>,
        prompt: &str,
        given: Option<&Json>,
    ) -> Result<Self, ParseError> {
        let reader = AnswerReader::new(Arc::clone(&rules), prompt, &tools(&rules, given))?;
        Ok(Self {
            reader,
            rules,
            tokenizer,
            passed,
            segment_ends,
            utf8: Utf8Stream::default(),
            length: 0,
            hidden: VecDeque::new(),
            read: 0,
        })
    }

    /// Reads more ids and more text, which may be that of earlier ids.
    pub fn feed(&mut self, ids: &[u32], text: &str) -> Vec<Delta> {
        ids.iter().for_each(|id| self.take(*id));
        let (mut deltas, mut rest) = (Vec::new(), text);
        while let Some((place, _)) = self.hidden.front() {
            let before = place.saturating_sub(self.read);
            if before > rest.len() {
                break;
            }
            let (first, after) = rest.split_at(rest.floor_char_boundary(before));
            deltas.extend(self.reader.feed(first));
            self.read += first.len();
            rest = after;
            if let Some((_, marker)) = self.hidden.pop_front() {
                deltas.extend(self.reader.feed(&marker));
            }
        }
        deltas.extend(self.reader.feed(rest));
        self.read += rest.len();
        deltas
    }

    /// Ends the answer.
    #[must_use]
    pub fn finish(mut self) -> (Vec<Delta>, Answer) {
        let mut deltas = Vec::new();
        for (_, marker) in self.hidden {
            deltas.extend(self.reader.feed(&marker));
        }
        let (last, answer) = self.reader.finish();
        deltas.extend(last);
        (deltas, answer)
    }

    fn take(&mut self, id: u32) {
        if self.segment_ends.contains(&id) && !self.utf8.finish().is_empty() {
            self.length += char::REPLACEMENT_CHARACTER.len_utf8();
        }
        if !self.tokenizer.is_special(id) || self.passed.contains(&id) {
            self.length += self.utf8.push(self.tokenizer.token_bytes(id).unwrap_or_default()).0.len();
            return;
        }
        let marker = is_read(&self.tokenizer, &self.rules, id).then(|| special_text(&self.tokenizer, id)).flatten();
        if let Some(marker) = marker {
            self.hidden.push_back((self.length, marker));
        }
    }
}
