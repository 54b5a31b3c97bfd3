//! One answer: its text, printed as it arrives, and its statistics.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tandem_common::pb::chat::v1::{ChatMessage, chat_message::Content};
use tandem_common::pb::generate::v1::FinishReason;
use tandem_common::pb::task::v1::run_task_response::Event;
use tandem_common::pb::task::v1::{RunTaskResponse, TaskFinished};
use tonic::Streaming;

use crate::refusal::Refusal;
use crate::terminal;
use crate::wrap::Wrap;

/// The part of an answer that has arrived.
#[derive(Debug)]
pub(crate) struct Answer {
    text: String,
    asked: Instant,
    first: Option<Duration>,
    finished: Option<TaskFinished>,
    /// Wraps the text for a terminal. Elsewhere it is printed as it is.
    wrap: Option<Wrap>,
}

impl Answer {
    pub(crate) fn new() -> Self {
        let wrap = io::stdout().is_terminal().then(Wrap::default);
        Self { text: String::new(), asked: Instant::now(), first: None, finished: None, wrap }
    }

    /// Prints the stream until it ends. If this future is dropped, the text so far remains usable.
    pub(crate) async fn print(&mut self, stream: &mut Streaming<RunTaskResponse>) -> Result<()> {
        while let Some(response) = stream.message().await.map_err(Refusal)? {
            match response.event {
                Some(Event::Delta(delta)) => self.print_text(&delta.text)?,
                Some(Event::Rendered(rendered)) => {
                    rendered.warnings.iter().for_each(|warning| eprintln!("warning: {}", warning.text))
                }
                Some(Event::Finished(finished)) => self.finished = Some(finished),
                Some(Event::Accepted(_) | Event::PromptLogprobs(_) | Event::Progress(_) | Event::Parsed(_)) | None => {}
            }
        }
        self.finished.as_ref().context("the stream ended before the answer was complete").map(drop)
    }

    fn print_text(&mut self, text: &str) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        self.first.get_or_insert_with(|| self.asked.elapsed());
        self.text.push_str(text);
        match &mut self.wrap {
            Some(wrap) => print(&wrap.push(text, terminal::width)),
            None => print(text),
        }
    }

    /// Ends the answer's last line.
    pub(crate) fn close(&mut self) -> io::Result<()> {
        let held = self.wrap.as_mut().map(|wrap| wrap.finish(terminal::width)).unwrap_or_default();
        let end = if self.text.is_empty() || self.text.ends_with('\n') { "" } else { "\n" };
        print(&(held + end))
    }

    /// Returns the message for the history: the service's message, or the text before a
    /// cancellation.
    pub(crate) fn into_message(self) -> Option<ChatMessage> {
        let text = (!self.text.is_empty()).then_some(self.text);
        let cancelled = text.map(|text| ChatMessage {
            role: "assistant".into(),
            content: Some(Content::Text(text)),
            ..ChatMessage::default()
        });
        self.finished.and_then(|finished| finished.message).or(cancelled)
    }

    /// Returns one line of statistics. `limit` is the maximum number of tokens of the answer.
    pub(crate) fn summary(&self, limit: u32) -> String {
        let Some(finished) = &self.finished else { return "cancelled".to_owned() };
        let usage = finished.usage.unwrap_or_default();
        let mut parts = vec![format!(
            "{}, {}",
            count(usage.prompt_tokens, "prompt token"),
            count(usage.completion_tokens, "answer token")
        )];
        parts.extend(self.first.map(|first| format!("first text after {:.2} s", first.as_secs_f64())));
        parts.extend(speed(finished).map(|speed| format!("{speed:.1} tokens/s")));
        parts.push(format!("seed {}", finished.seed));
        parts.extend(unusual_end(finished, usage.completion_tokens >= limit).map(str::to_owned));
        parts.join(" · ")
    }
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

fn count(number: u32, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// Returns tokens per second without the first token, which is part of prefill.
fn speed(finished: &TaskFinished) -> Option<f64> {
    let seconds = finished.timings?.decode_ms / 1000.0;
    let tokens = finished.usage?.completion_tokens.checked_sub(1)?;
    (tokens > 0 && seconds > 0.0).then(|| f64::from(tokens) / seconds)
}

fn unusual_end(finished: &TaskFinished, is_at_limit: bool) -> Option<&'static str> {
    match finished.finish.as_ref()?.reason() {
        FinishReason::Stop | FinishReason::Unspecified => None,
        FinishReason::Length if is_at_limit => Some("cut off at --max-new-tokens"),
        FinishReason::Length => Some("cut off: the model's context is full; /new starts a new conversation"),
        FinishReason::Cancelled => Some("cancelled by the service"),
        FinishReason::Deadline => Some("cut off at the deadline"),
        FinishReason::GrammarLimit => Some("the grammar is too costly to follow further"),
        FinishReason::Error => Some("the model failed; see the log of gen-svc"),
    }
}

/// Returns true if another message may be answered. Either the service rejected this one, or it is
/// unreachable for now and does not end with this chat.
pub(crate) fn can_retry(error: &anyhow::Error, is_owner: bool) -> bool {
    error.downcast_ref::<Refusal>().is_some_and(|refusal| !is_owner || refusal.is_answer())
}
