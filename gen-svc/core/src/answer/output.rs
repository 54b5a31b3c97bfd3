//! One output of a request: from token ids to text.

use super::event::{Delta, Token, TopToken};
use crate::output::{Matched, OutputPipeline, TextSegment, TokenOutput, push_segment};
use crate::request::{PreparedRequest, Stage};
use crate::sampling::Logprobs;

/// The state of an output.
#[derive(Debug)]
pub(super) struct Output {
    pipeline: OutputPipeline,
    stage: Stage,
    /// True if the last token has ended the reasoning, so that the next one is the grammar's first.
    is_before_grammar: bool,
    /// The whole output, if the request asks for extracted text.
    whole: Vec<TextSegment>,
    /// The tokens, with those before a resume.
    tokens: usize,
    /// The part that is not sent yet.
    pending: Delta,
}

impl Output {
    pub(super) fn new(request: &PreparedRequest) -> Self {
        Self {
            pipeline: request.output.clone(),
            stage: request.stage,
            is_before_grammar: false,
            whole: request.delivered.clone(),
            tokens: request.generated().len(),
            pending: Delta::default(),
        }
    }

    /// Returns the number of tokens, with those before a resume.
    pub(super) fn tokens(&self) -> usize {
        self.tokens
    }

    /// Returns whether the grammar binds the next token.
    pub(super) fn stage(&self) -> Stage {
        self.stage
    }

    /// Returns true if the request has a grammar that binds no token yet.
    pub(super) fn grammar_not_reached(&self) -> bool {
        self.stage == Stage::Waiting || self.is_before_grammar
    }

    /// Returns the token that must come next because reasoning has reached its limit.
    pub(super) fn forced(&self, request: &PreparedRequest) -> Option<u32> {
        request.reasoning.forced(request.limits.max_reasoning_tokens, &self.pipeline)
    }

    /// Adds a token. Returns the stop condition that it meets.
    pub(super) fn push(&mut self, request: &PreparedRequest, id: u32, logprobs: Option<&Logprobs>) -> Option<Matched> {
        self.tokens += 1;
        let TokenOutput { segments, stopped } = self.pipeline.push(id);
        let was_waiting = self.stage == Stage::Waiting;
        self.stage = self.stage.after(self.pipeline.is_reasoning());
        self.is_before_grammar = was_waiting && self.stage == Stage::Bound;
        self.add(segments);
        self.pending.token_ids.extend(request.returns.token_ids.then_some(id));
        self.pending.tokens.extend(logprobs.map(|logprobs| token(request, id, logprobs)));
        stopped
    }

    /// Adds the text that is held back, at the end of the output.
    pub(super) fn flush(&mut self) {
        let segments = self.pipeline.finish();
        self.add(segments);
    }

    fn add(&mut self, segments: Vec<TextSegment>) {
        let pending = &mut self.pending.segments;
        if pending.is_empty() {
            *pending = segments;
        } else {
            segments.into_iter().for_each(|segment| push_segment(pending, segment));
        }
    }

    /// Returns the part that is not sent yet.
    pub(super) fn take(&mut self, request: &PreparedRequest, output: u32) -> Delta {
        let Delta { mut segments, token_ids, tokens, .. } = std::mem::take(&mut self.pending);
        if request.extraction.is_some() {
            segments.iter().for_each(|segment| push_segment(&mut self.whole, segment.clone()));
        }
        if segments.is_empty() {
            segments.push(TextSegment { reasoning: self.pipeline.is_reasoning(), ..TextSegment::default() });
        }
        if !request.returns.bytes {
            segments.iter_mut().for_each(|segment| segment.bytes.clear());
        }
        Delta { output, segments, token_ids, tokens }
    }

    /// Returns the extracted text of the whole output, if the request asks for it.
    pub(super) fn extracted(&self, request: &PreparedRequest) -> Option<String> {
        request.extraction.as_ref().map(|rules| rules.apply(&self.whole))
    }
}

/// Returns a token with its log-probability and the likeliest alternatives.
pub(super) fn token(request: &PreparedRequest, id: u32, logprobs: &Logprobs) -> Token {
    let bytes = |id| request.output.bytes(id);
    let top = logprobs.top.iter().map(|&(id, logprob)| TopToken { id, bytes: bytes(id), logprob });
    Token { id, bytes: bytes(id), logprob: logprobs.logprob, top: top.collect() }
}
