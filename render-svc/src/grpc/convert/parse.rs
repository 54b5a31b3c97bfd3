//! ParseOutput: a request to a job, and an answer to messages.

use tandem_common::field::Path;
use tandem_common::pb::chat::v1::{ChatMessage, ToolCall, chat_message};
use tandem_common::pb::render::v1 as pb;
use tandem_common::pb::render::v1::{parse_output_request, parsed_delta};
use tonic::Status;

use super::chat;
use super::response::place;
use crate::answer_rules::ChosenRules;
use crate::conversation::Invalid;
use crate::error::Error;
use crate::parse::{Answer, Call, Delta, ParseWarning, ParseWarningCode, Value};
use crate::parse_output::{Output, ParseJob, ParseStart};

/// Returns the job of a request.
pub(in crate::grpc) fn job(request: pb::ParseOutputRequest) -> Result<ParseJob, Invalid> {
    let pb::ParseOutputRequest { model, output, prompt, tools, rules } = request;
    let output = match output {
        Some(parse_output_request::Output::Text(text)) => Output::Text(text),
        Some(parse_output_request::Output::Tokens(pb::OutputTokens { token_ids })) => Output::Ids(token_ids),
        None => return Err(Invalid::new("output", "must be text or tokens")),
    };
    Ok(ParseJob { model, output, prompt, tools: chat::tools(tools)?, rules })
}

/// Returns how to read an answer that is still written.
pub(in crate::grpc) fn start(start: pb::ParseOutputStart) -> Result<ParseStart, Invalid> {
    let pb::ParseOutputStart { model, prompt, tools, rules } = start;
    Ok(ParseStart { model, prompt, tools: chat::tools(tools)?, rules })
}

/// Returns the status of an error in the start of a stream.
pub(in crate::grpc) fn start_status(error: Error) -> Status {
    error.into_status(|failure| failure.locate(|path| (path.clone().within("start"), Path::default())))
}

/// Returns the status of an error. Ids are a field of `tokens`.
pub(in crate::grpc) fn status(error: Error) -> Status {
    let is_of_ids = matches!(error, Error::UnknownTokenId { .. } | Error::TooManyTokenIds { .. });
    error.into_status(|failure| {
        if is_of_ids { failure.locate(|path| (path.clone().within("tokens"), Path::default())) } else { failure }
    })
}

/// Returns the rules of a model and the reason for them.
pub(in crate::grpc) fn rules(chosen: &ChosenRules) -> pb::OutputRules {
    let ChosenRules { rules, reason, .. } = chosen;
    let (name, reason) = match rules {
        Ok(rules) => (rules.name.to_string(), reason.clone()),
        Err(problem) => (String::new(), problem.to_string()),
    };
    let rejected =
        |(rules, reason): &(&str, String)| pb::RejectedRules { rules: (*rules).to_owned(), reason: reason.clone() };
    pb::OutputRules { name, reason, rejected: chosen.rejected.iter().map(rejected).collect() }
}

/// Returns an answer as a message and warnings.
pub(in crate::grpc) fn output(answer: Answer) -> pb::ParsedOutput {
    let Answer { reasoning, content, calls, extra, warnings } = answer;
    let has_text = !content.is_empty() || calls.is_empty();
    let message = ChatMessage {
        role: "assistant".to_owned(),
        content: has_text.then_some(chat_message::Content::Text(content)),
        reasoning_content: (!reasoning.is_empty()).then_some(reasoning),
        tool_calls: calls.into_iter().map(call).collect(),
        extra_json: Some(Value::from(extra)).filter(Value::is_filled).and_then(|extra| extra.to_json()),
        ..ChatMessage::default()
    };
    pb::ParsedOutput { message: Some(message), warnings: warnings.into_iter().map(warning).collect() }
}

fn call(call: Call) -> ToolCall {
    let Call { id, name, arguments } = call;
    ToolCall { id: Some(id), name, arguments_json: arguments }
}

fn warning(warning: ParseWarning) -> pb::ParseWarning {
    let ParseWarning { code, place: offset, text } = warning;
    let code = match code {
        ParseWarningCode::Malformed => pb::ParseWarningCode::Malformed,
        ParseWarningCode::Unclosed => pb::ParseWarningCode::Unclosed,
        ParseWarningCode::Outside => pb::ParseWarningCode::Outside,
        ParseWarningCode::UnknownTool => pb::ParseWarningCode::UnknownTool,
    };
    pb::ParseWarning { code: code.into(), offset: place(offset), text }
}

/// Returns a part of an answer.
pub(in crate::grpc) fn delta(delta: Delta) -> pb::ParsedDelta {
    use parsed_delta::Part;
    let part = match delta {
        Delta::Reasoning(text) => Part::Reasoning(text),
        Delta::Content(text) => Part::Content(text),
        Delta::Call(index, Call { id, name, arguments }) => {
            Part::ToolCall(pb::ToolCallDelta { index: place(index), id, name, arguments_json: arguments })
        }
    };
    pb::ParsedDelta { part: Some(part) }
}
