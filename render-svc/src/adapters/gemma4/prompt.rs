//! Writes the prompt.

use std::borrow::Cow;
use std::convert::Infallible;

use serde_json::Value;
use tandem_template::{python, taint};

use super::declarations;
use super::revision::Revision;
use super::turns::{self, Call, Part, Response, System, Turn};
use super::values::{self, Keys};
use crate::adapter::Attachment;
use crate::conversation::Conversation;
use crate::conversation::media::MediaKind;
use crate::error::Error;
use crate::warning::Warning;

/// The settings of the prompt.
#[derive(Debug)]
pub(super) struct Options<'a> {
    /// The start of the prompt.
    pub bos: &'a str,
    /// The model reasons before it answers.
    pub thinks: bool,
    /// Keep thoughts of turns with calls, also before the last user message.
    pub preserves_thinking: bool,
    /// End with the start of the model's turn.
    pub adds_generation_prompt: bool,
    /// Start that turn with an empty thought if the model does not reason.
    pub shows_empty_thought: bool,
    /// The revision of the template that the prompt equals.
    pub revision: Revision,
    /// Refuse names of calls that the contract does not allow, and that the template writes.
    pub is_normalized: bool,
}

/// A prompt.
#[derive(Debug, Default)]
pub(super) struct Prompt {
    pub text: String,
    /// In the order of the markers.
    pub attachments: Vec<Attachment>,
    pub warnings: Vec<Warning>,
}

/// The end of a written turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The turn is complete, and the next one has its own start.
    Closed,
    /// A call without a result.
    Call,
    /// A result, after which the model continues in the same turn.
    Result,
}

/// The position of a turn among the others.
#[derive(Debug)]
struct Place<'a> {
    /// The roles of the turns before and after.
    previous: Option<&'a str>,
    next: Option<&'a str>,
    is_after_last_user: bool,
}

/// The parts of a turn that are written.
#[derive(Debug, Default)]
struct Progress {
    has_call: bool,
    has_result: bool,
    /// Words or media since the last result.
    has_words: bool,
}

/// Writes a whole conversation.
///
/// # Errors
/// A message or tool with a wrong shape, by path.
pub(super) fn write(conversation: &Conversation, options: &Options<'_>) -> Result<Prompt, Error> {
    let dialogue = turns::read(conversation, options.is_normalized)?;
    let tools = conversation.tools.as_ref().and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut prompt = Prompt { warnings: dialogue.warnings, ..Prompt::default() };
    prompt.text.push_str(options.bos);
    if options.thinks || !tools.is_empty() || dialogue.system.is_some() {
        prompt.system(dialogue.system, tools, options.thinks)?;
    }
    let end = prompt.turns(dialogue.turns, options);
    if options.adds_generation_prompt {
        prompt.generation_prompt(end, options);
    }
    Ok(prompt)
}

impl Prompt {
    fn system(&mut self, system: Option<System<'_>>, tools: &[Value], thinks: bool) -> Result<(), Error> {
        self.text.push_str("<|turn>system\n");
        if thinks {
            self.text.push_str("<|think|>\n");
        }
        if let Some(System { parts, separator }) = system {
            for part in parts {
                self.part(part, false, &mut Progress::default());
                self.text.push_str(separator);
            }
        }
        declarations::write(&mut self.text, tools)?;
        self.text.push_str("<turn|>\n");
        Ok(())
    }

    fn turns(&mut self, turns: Vec<Turn<'_>>, options: &Options<'_>) -> End {
        let last_user = turns.iter().rposition(|turn| turn.role == "user");
        let roles: Vec<&str> = turns.iter().map(|turn| turn.role).collect();
        let mut end = End::Closed;
        for (i, turn) in turns.into_iter().enumerate() {
            let place = Place {
                previous: i.checked_sub(1).map(|i| roles[i]),
                next: roles.get(i + 1).copied(),
                is_after_last_user: last_user.is_none_or(|user| i > user),
            };
            end = self.turn(turn, &place, options);
        }
        end
    }

    fn turn(&mut self, turn: Turn<'_>, place: &Place<'_>, options: &Options<'_>) -> End {
        let role = turn.shown_role();
        if !(role == "model" && place.previous == Some("assistant")) {
            self.push(&["<|turn>", role, "\n"]);
        }
        let shows_thinking = place.is_after_last_user || (options.preserves_thinking && turn.has_calls());
        if let Some(thinking) = turn.thinking.filter(|_| shows_thinking) {
            self.push(&["<|channel>thought\n", thinking, "\n<channel|>"]);
        }
        let progress = self.body(turn);
        self.end_turn(role, place, &progress, options.revision)
    }

    /// Writes the body of a turn in the official order: calls, results, text. If calls are among
    /// the blocks, the results come last.
    fn body(&mut self, turn: Turn<'_>) -> Progress {
        let is_model = turn.shown_role() == "model";
        let (results, late_results) =
            if turn.has_inline_calls() { (Vec::new(), turn.results) } else { (turn.results, Vec::new()) };
        let mut progress = Progress::default();
        for call in &turn.calls {
            self.call(call, &mut progress);
        }
        self.results(turn.responses, &mut progress);
        self.results(results, &mut progress);
        for part in turn.parts {
            self.part(part, is_model, &mut progress);
        }
        self.results(late_results, &mut progress);
        progress
    }

    fn part(&mut self, part: Part<'_>, is_model: bool, progress: &mut Progress) {
        match part {
            Part::Text(text) => self.words(text, is_model, progress),
            Part::Media(attachment) => {
                self.media(attachment);
                progress.has_words = true;
            }
            Part::Call(call) => self.call(&call, progress),
            Part::Result(result) if is_model => self.results([result], progress),
            Part::Result(result) => {
                self.result(result);
                progress.has_words = true;
            }
        }
    }

    fn words(&mut self, text: &str, is_model: bool, progress: &mut Progress) {
        let text = if is_model { without_thoughts(text) } else { text.into() };
        let text = python::strip(&text);
        self.text.push_str(text);
        progress.has_words |= !text.is_empty();
    }

    fn call(&mut self, call: &Call<'_>, progress: &mut Progress) {
        self.push(&["<|tool_call>call:", call.name, "{"]);
        if let Some(arguments) = call.arguments {
            values::write_fields(&mut self.text, arguments, Keys::Bare);
        }
        self.text.push_str("}<tool_call|>");
        progress.has_call = true;
    }

    fn results<'a>(&mut self, results: impl IntoIterator<Item = Response<'a>>, progress: &mut Progress) {
        for result in results {
            self.result(result);
            progress.has_result = true;
            progress.has_words = false;
        }
    }

    fn result(&mut self, result: Response<'_>) {
        self.push(&["<|tool_response>response:", result.name, "{"]);
        match result.body.as_ref() {
            Value::Object(fields) => values::write_fields(&mut self.text, fields, Keys::Bare),
            value => {
                self.text.push_str("value:");
                values::write(&mut self.text, value, Keys::Bare);
            }
        }
        self.text.push_str("}<tool_response|>");
        for attachment in result.media {
            self.media(attachment);
        }
    }

    fn media(&mut self, attachment: Attachment) {
        let marker = match attachment.kind {
            MediaKind::Image => "<|image|>",
            MediaKind::Audio => "<|audio|>",
            MediaKind::Video => "<|video|>",
        };
        self.attachments.push(Attachment { offset: self.text.len(), ..attachment });
        self.text.push_str(marker);
    }

    fn push(&mut self, texts: &[&str]) {
        self.text.extend(texts.iter().copied());
    }

    fn end_turn(&mut self, role: &str, place: &Place<'_>, written: &Progress, revision: Revision) -> End {
        if written.has_call && !written.has_result {
            self.text.push_str("<|tool_response>");
            End::Call
        } else if role == "model" && place.next == Some("assistant") {
            if revision == Revision::Newest {
                self.text.push('\n');
            }
            End::Closed
        } else if written.has_result && !written.has_words && place.next.is_none() {
            End::Result
        } else {
            self.text.push_str("<turn|>\n");
            // The older revision does not record the end of the turn, and begins none after it.
            if written.has_result && revision == Revision::July2026 { End::Result } else { End::Closed }
        }
    }

    fn generation_prompt(&mut self, end: End, options: &Options<'_>) {
        match end {
            End::Closed => {
                self.text.push_str("<|turn>model\n");
                if options.shows_empty_thought && !options.thinks {
                    self.text.push_str("<|channel>thought\n<channel|>");
                }
            }
            End::Result if options.thinks => self.text.push_str("<|channel>thought\n"),
            End::Result | End::Call => {}
        }
    }
}

/// Returns the model's text without thoughts.
fn without_thoughts(text: &str) -> Cow<'_, str> {
    match taint::of(text) {
        None if !text.contains("<channel|>") && !text.contains("<|channel>") => Cow::Borrowed(text),
        None => spoken_parts(text).concat().into(),
        Some(taint) => {
            let Ok(parts) = taint.cut(text, |text| Ok::<_, Infallible>(spoken_parts(text)));
            parts.concat().into()
        }
    }
}

/// Returns the parts of a text that are outside of its thoughts.
fn spoken_parts(text: &str) -> Vec<&str> {
    let parts = text.split("<channel|>");
    parts.map(|part| part.split_once("<|channel>").map_or(part, |(before, _)| before)).collect()
}
