//! One answer: its text, printed as it arrives, and its statistics.

use std::error::Error;
use std::fmt;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tandem_common::pb::chat::v1::{Message, message::Content};
use tandem_common::pb::generate::v1::FinishReason;
use tandem_common::pb::task::v1::run_task_response::Event;
use tandem_common::pb::task::v1::{RunTaskResponse, TaskFinished};
use tonic::{Code, Status, Streaming};

/// The part of an answer that has arrived.
#[derive(Debug)]
pub(crate) struct Answer {
    text: String,
    asked: Instant,
    first: Option<Duration>,
    finished: Option<TaskFinished>,
}

impl Answer {
    pub(crate) fn new() -> Self {
        Self { text: String::new(), asked: Instant::now(), first: None, finished: None }
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
                Some(Event::Accepted(_) | Event::PromptLogprobs(_)) | None => {}
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
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    /// Ends the answer's last line.
    pub(crate) fn close(&self) -> io::Result<()> {
        if self.text.is_empty() || self.text.ends_with('\n') { Ok(()) } else { writeln!(io::stdout()) }
    }

    /// Returns the message for the history: the service's message, or the text before a
    /// cancellation.
    pub(crate) fn into_message(self) -> Option<Message> {
        let text = (!self.text.is_empty()).then_some(self.text);
        let cancelled = text.map(|text| Message {
            role: "assistant".into(),
            content: Some(Content::Text(text)),
            ..Message::default()
        });
        self.finished.and_then(|finished| finished.message).or(cancelled)
    }

    /// Returns one line of statistics.
    pub(crate) fn summary(&self) -> String {
        let Some(finished) = &self.finished else { return "cancelled".to_owned() };
        let usage = finished.usage.unwrap_or_default();
        let mut parts =
            vec![format!("{} prompt tokens, {} answer tokens", usage.prompt_tokens, usage.completion_tokens)];
        parts.extend(self.first.map(|first| format!("first text after {:.2} s", first.as_secs_f64())));
        parts.extend(speed(finished).map(|speed| format!("{speed:.1} tokens/s")));
        parts.push(format!("seed {}", finished.seed));
        parts.extend(unusual_end(finished).map(str::to_owned));
        parts.join(" · ")
    }
}

/// Returns tokens per second without the first token, which is part of prefill.
fn speed(finished: &TaskFinished) -> Option<f64> {
    let seconds = finished.timings?.decode_ms / 1000.0;
    let tokens = finished.usage?.completion_tokens.checked_sub(1)?;
    (tokens > 0 && seconds > 0.0).then(|| f64::from(tokens) / seconds)
}

fn unusual_end(finished: &TaskFinished) -> Option<&'static str> {
    match finished.finish.as_ref()?.reason() {
        FinishReason::Stop | FinishReason::Unspecified => None,
        FinishReason::Length => Some("cut off at the length limit (--max-new-tokens or the model's context)"),
        FinishReason::Cancelled => Some("cancelled by the service"),
        FinishReason::Deadline => Some("cut off at the deadline"),
        FinishReason::Error => Some("the model failed; see the log of gen-svc"),
    }
}

/// A status, displayed as message and code.
#[derive(Debug)]
pub(crate) struct Refusal(pub(crate) Status);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?})", self.0.message(), self.0.code())
    }
}

impl Error for Refusal {}

/// Returns true if the service rejected the request, rather than being unreachable.
pub(crate) fn is_refusal(error: &anyhow::Error) -> bool {
    let refusal = error.downcast_ref::<Refusal>();
    refusal.is_some_and(|refusal| !matches!(refusal.0.code(), Code::Unavailable | Code::Unknown))
}
