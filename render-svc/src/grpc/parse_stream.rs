//! StreamParseOutput: an answer that is read while it is written.

use std::pin::Pin;

use futures_util::stream::unfold;
use tandem_common::pb::render::v1 as pb;
use tandem_common::pb::render::v1::stream_parse_output_request::Event as Part;
use tandem_common::pb::render::v1::stream_parse_output_response::Event;
use tokio_stream::Stream;
use tonic::{Status, Streaming};

use super::convert::parse as convert;
use crate::conversation::Invalid;
use crate::error::Error;
use crate::executor::Executor;
use crate::parse::Delta;
use crate::parse_output::{Output, RunningParse};

/// The events of a call.
pub(super) type Events = Pin<Box<dyn Stream<Item = Result<pb::StreamParseOutputResponse, Status>> + Send>>;

/// Returns the events for the messages of a client. Each is made when it is polled for.
pub(super) fn events(executor: Executor, messages: Streaming<pb::StreamParseOutputRequest>) -> Events {
    let call = Call { executor, messages, parse: None, last: None };
    Box::pin(unfold(Some(call), async |call| {
        let mut call = call?;
        let event = call.next().await.transpose()?;
        let is_last = event.is_err() || matches!(event, Ok(Event::Finished(_)));
        let response = event.map(|event| pb::StreamParseOutputResponse { event: Some(event) });
        Some((response, (!is_last).then_some(call)))
    }))
}

struct Call {
    executor: Executor,
    messages: Streaming<pb::StreamParseOutputRequest>,
    /// None before the start, and after the end.
    parse: Option<RunningParse>,
    /// The last event, while the parts before it are sent.
    last: Option<Event>,
}

impl Call {
    async fn next(&mut self) -> Result<Option<Event>, Status> {
        if let Some(last) = self.last.take() {
            return Ok(Some(last));
        }
        while let Some(message) = self.messages.message().await? {
            let deltas = self.take(message).await?;
            if !deltas.is_empty() {
                return Ok(Some(parsed(deltas)));
            }
        }
        self.finish().await.map(Some)
    }

    /// Reads a message, and returns the parts that are certain with it.
    async fn take(&mut self, message: pb::StreamParseOutputRequest) -> Result<Vec<Delta>, Status> {
        let output = match (message.event, &self.parse) {
            (Some(Part::Start(start)), None) => {
                let start = convert::start(start).map_err(|invalid| convert::start_status(invalid.into()))?;
                self.parse = Some(self.executor.start_parse(start).await.map_err(convert::start_status)?);
                return Ok(Vec::new());
            }
            (Some(Part::Start(_)), Some(_)) => return Err(invalid("start", "must not come twice")),
            (None, _) => return Err(invalid("event", "must be start, text or tokens")),
            (_, None) => return Err(invalid("start", "must be the first message")),
            (Some(Part::Text(text)), Some(_)) => Output::Text(text),
            (Some(Part::Tokens(pb::OutputTokens { token_ids })), Some(_)) => Output::Ids(token_ids),
        };
        let Some(mut parse) = self.parse.take() else { return Ok(Vec::new()) };
        let read = move || parse.feed(output).map(|deltas| (parse, deltas));
        let (parse, deltas) = self.executor.run(0, read).await.flatten().map_err(convert::status)?;
        self.parse = Some(parse);
        Ok(deltas)
    }

    /// Ends the answer, and returns the next event.
    async fn finish(&mut self) -> Result<Event, Status> {
        let Some(parse) = self.parse.take() else { return Err(invalid("start", "must be the first message")) };
        let finished = self.executor.run(0, move || parse.finish()).await.flatten();
        let (deltas, answer, rules) = finished.map_err(convert::status)?;
        let (output, rules) = (Some(convert::output(answer)), rules.name.to_string());
        let finished = Event::Finished(pb::ParseOutputResponse { output, rules });
        if deltas.is_empty() {
            return Ok(finished);
        }
        self.last = Some(finished);
        Ok(parsed(deltas))
    }
}

fn parsed(deltas: Vec<Delta>) -> Event {
    Event::Parsed(pb::ParsedDeltas { deltas: deltas.into_iter().map(convert::delta).collect() })
}

fn invalid(field: &str, problem: &str) -> Status {
    convert::status(Error::from(Invalid::new(field, problem)))
}
