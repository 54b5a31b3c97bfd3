//! Assembles a task's events and its answer from the events of one or more replicas.

use tandem_common::pb::generate::v1::generate_response::Event;
use tandem_common::pb::generate::v1::{Accepted, Delta, FinishReason, Finished, Progress, PromptLogprobs, Summary};

use super::replay::ReplayCursor;
use crate::parse::{self, RunningAnswer};

/// An event of a task.
#[derive(Debug, Clone, PartialEq)]
pub enum TaskEvent {
    /// The generation runs.
    Accepted(Accepted),
    /// The replica works on the task, and has no other event.
    Progress(Progress),
    /// Log probabilities of the prompt's next tokens.
    PromptLogprobs(PromptLogprobs),
    /// More of the answer.
    Delta(Delta),
    /// More of the parts of the answer, if the task reads them.
    Parsed(Vec<parse::Delta>),
    /// The whole answer; the last event.
    Finished(Answer),
}

/// The whole answer of a task.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// All deltas' text.
    pub text: String,
    /// Why the output ended.
    pub finish: Option<Finished>,
    /// Usage and timings of the last replica.
    pub summary: Summary,
    /// The parts of the answer, if the task reads them.
    pub parsed: Option<parse::Answer>,
}

/// Consequence of a replica's event for the task.
#[derive(Debug)]
pub(super) enum Step {
    /// Nothing for the caller.
    Skip,
    Emit(TaskEvent),
    End(TaskEvent),
    Interrupted,
    /// The replica's model failed. The summary follows.
    Failed,
    /// A resumed output repeats other tokens or text than the delivered ones.
    Diverged,
}

/// The output so far.
#[derive(Debug)]
pub(super) struct TaskOutput {
    returns_token_ids: bool,
    is_accepted: bool,
    token_ids: Vec<u32>,
    text: String,
    finish: Option<Finished>,
    cursor: ReplayCursor,
    /// Reads the parts of the answer, if the task wants them.
    reader: Option<RunningAnswer>,
    /// The parts that are read and not delivered.
    parsed: Vec<parse::Delta>,
}

impl TaskOutput {
    /// Returns an empty output. Deltas have token ids only if `returns_token_ids` is true.
    pub(super) fn new(returns_token_ids: bool, reader: Option<RunningAnswer>) -> Self {
        Self {
            returns_token_ids,
            reader,
            parsed: Vec::new(),
            is_accepted: false,
            token_ids: Vec::new(),
            text: String::new(),
            finish: None,
            cursor: ReplayCursor::default(),
        }
    }

    /// Returns the number of tokens generated so far.
    pub(super) fn tokens(&self) -> usize {
        self.token_ids.len()
    }

    /// Returns the token ids that a resumed output starts after.
    pub(super) fn resume_after(&self) -> &[u32] {
        &self.token_ids[..self.cursor.resume_at()]
    }

    /// Makes a resumed output start after the last delivered token, which is then not repeated.
    pub(super) fn keep_last_token(&mut self) {
        self.cursor.keep_last_token();
    }

    /// Prepares for the events of a resumed output, which repeat the last ones.
    pub(super) fn restart(&mut self) {
        self.finish = None;
        self.cursor.restart();
    }

    /// Adds an event of the current replica.
    pub(super) fn advance(&mut self, event: Event) -> Step {
        match event {
            Event::Accepted(accepted) => self.accepted(accepted),
            Event::Progress(progress) => Step::Emit(TaskEvent::Progress(progress)),
            Event::PromptLogprobs(part) => self.prompt_logprobs(part),
            Event::Delta(delta) => self.delta(delta),
            Event::Finished(finished) => self.finished(finished),
            Event::Summary(summary) => Step::End(TaskEvent::Finished(self.answer(summary))),
        }
    }

    /// The caller gets the first replica's event only.
    fn accepted(&mut self, accepted: Accepted) -> Step {
        if std::mem::replace(&mut self.is_accepted, true) {
            Step::Skip
        } else {
            Step::Emit(TaskEvent::Accepted(accepted))
        }
    }

    fn prompt_logprobs(&mut self, mut part: PromptLogprobs) -> Step {
        self.cursor.advance_prompt(&mut part.tokens);
        if part.tokens.is_empty() { Step::Skip } else { Step::Emit(TaskEvent::PromptLogprobs(part)) }
    }

    /// A replica that drains ends the output as cancelled. Another attempt may complete it.
    fn finished(&mut self, finished: Finished) -> Step {
        match finished.reason() {
            FinishReason::Cancelled => Step::Interrupted,
            reason => {
                self.finish = Some(finished);
                if reason == FinishReason::Error { Step::Failed } else { Step::Skip }
            }
        }
    }

    fn delta(&mut self, mut delta: Delta) -> Step {
        if !self.repeats_delivered(&delta) {
            return Step::Diverged;
        }
        self.cursor.advance(&mut delta);
        self.token_ids.extend(&delta.token_ids);
        self.text.push_str(&delta.text);
        if let Some(reader) = &mut self.reader {
            self.parsed.extend(reader.feed(&delta.token_ids, &delta.text));
        }
        if !self.returns_token_ids {
            delta.token_ids.clear();
        }
        let is_empty = delta.text.is_empty() && delta.token_ids.is_empty() && delta.tokens.is_empty();
        if is_empty { Step::Skip } else { Step::Emit(TaskEvent::Delta(delta)) }
    }

    /// Returns true if the part of a delta that repeats delivered output equals it.
    fn repeats_delivered(&self, delta: &Delta) -> bool {
        let (ids, bytes) = self.cursor.left_to_repeat();
        let ids = &self.token_ids[self.token_ids.len() - ids..];
        let text = &self.text.as_bytes()[self.text.len() - bytes..];
        start_alike(ids, &delta.token_ids) && start_alike(text, delta.text.as_bytes())
    }

    /// Returns the end of an accepted output whose deadline passed without the replica's own end.
    /// Returns None if the output has not begun.
    pub(super) fn end_at_deadline(&mut self) -> Option<TaskEvent> {
        let reason = FinishReason::Deadline.into();
        self.finish.get_or_insert(Finished { reason, ..Finished::default() });
        self.is_accepted.then(|| TaskEvent::Finished(self.answer(Summary::default())))
    }

    fn answer(&mut self, summary: Summary) -> Answer {
        let parsed = self.reader.take().map(|reader| {
            let (deltas, answer) = reader.finish();
            self.parsed.extend(deltas);
            answer
        });
        Answer { text: std::mem::take(&mut self.text), finish: self.finish.take(), summary, parsed }
    }

    /// Returns the parts of the answer that were read since the last call, if any.
    pub(super) fn take_parsed(&mut self) -> Option<TaskEvent> {
        (!self.parsed.is_empty()).then(|| TaskEvent::Parsed(std::mem::take(&mut self.parsed)))
    }
}

/// Returns true if both are equal up to the end of the shorter one.
fn start_alike<T: PartialEq>(left: &[T], right: &[T]) -> bool {
    left.iter().zip(right).all(|(left, right)| left == right)
}
