//! GenerateService: converts a call to a request, and its events to responses.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tandem_common::pb::generate::v1 as pb;
use tandem_common::pb::generate::v1::generate_service_server::{GenerateService, GenerateServiceServer};
use tandem_common::serve::{self, Caller};
use tokio::sync::mpsc::Receiver;
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use crate::engine::{Engine, Event};
use crate::executor;
use crate::request::GenerateRequest;

pub mod control;
mod convert;

pub use pb::generate_service_server::SERVICE_NAME;

/// Returns the generation service of an engine.
#[must_use]
pub fn server(engine: Engine, max_message_bytes: usize) -> GenerateServiceServer<impl GenerateService> {
    GenerateServiceServer::new(Service { engine }).max_decoding_message_size(max_message_bytes)
}

#[derive(Debug)]
struct Service {
    engine: Engine,
}

#[tonic::async_trait]
impl GenerateService for Service {
    type GenerateStream = Responses;

    async fn generate(&self, request: Request<pb::GenerateRequest>) -> Result<Response<Responses>, Status> {
        let deadline = serve::deadline(request.metadata());
        let caller = Caller::of(&request);
        let mut request = GenerateRequest::try_from(request.into_inner())?;
        let max_priority = caller.max_priority.unwrap_or(i32::MAX).min(self.engine.limits().max_priority);
        request.priority = request.priority.min(max_priority);
        request.caller = caller.id;
        let events = executor::submit(&self.engine, request, deadline).await?;
        Ok(Response::new(Responses::new(events, self.engine.clone())))
    }

    async fn get_model(&self, request: Request<pb::GetModelRequest>) -> Result<Response<pb::GetModelResponse>, Status> {
        let pb::GetModelRequest { model } = request.into_inner();
        let served = self.engine.model();
        served.check_id(&model)?;
        Ok(Response::new(pb::GetModelResponse { model: Some(served.into()) }))
    }
}

/// The response stream of a request. Dropping it cancels the request.
#[derive(Debug)]
pub struct Responses {
    events: Receiver<Event>,
    engine: Engine,
    ready: VecDeque<pb::GenerateResponse>,
    ended: bool,
}

impl Responses {
    fn new(events: Receiver<Event>, engine: Engine) -> Self {
        Self { events, engine, ready: VecDeque::new(), ended: false }
    }
}

impl Stream for Responses {
    type Item = Result<pb::GenerateResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(response) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(response)));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            // A channel that closes before the last event means that the engine's thread has ended.
            let event = ready!(self.events.poll_recv(context));
            let event = event.unwrap_or_else(|| Event::Refused(self.engine.lost()));
            self.ended = matches!(event, Event::Refused(_) | Event::Summary(_));
            match convert::responses(event) {
                Ok(responses) => self.ready.extend(responses),
                Err(error) => return Poll::Ready(Some(Err(error.into()))),
            }
        }
    }
}
