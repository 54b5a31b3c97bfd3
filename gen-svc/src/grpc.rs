//! GenerateService: converts a call to a request, and its events to responses.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tandem_common::pb::generate::v1 as pb;
use tandem_common::pb::generate::v1::generate_service_server::{GenerateService, GenerateServiceServer};
use tandem_common::serve::{self, Caller};
use tandem_common::timing::PROGRESS_INTERVAL;
use tandem_core::answer::{Event, RequestProgress};
use tandem_core::engine::Engine;
use tandem_core::error::RequestError;
use tokio::sync::mpsc::Receiver;
use tokio::time::{Instant, Sleep, sleep, timeout, timeout_at};
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use self::late::LateEnd;
use crate::executor::{Draft, Executor};

pub mod control;
mod convert;
mod late;

pub use convert::gpu;
pub use pb::generate_service_server::SERVICE_NAME;

/// Returns the generation service of an engine.
#[must_use]
pub fn server(engine: Engine, max_message_bytes: usize) -> GenerateServiceServer<impl GenerateService> {
    GenerateServiceServer::new(Service { executor: Executor::new(engine) }).max_decoding_message_size(max_message_bytes)
}

#[derive(Debug)]
struct Service {
    executor: Executor,
}

#[tonic::async_trait]
impl GenerateService for Service {
    type GenerateStream = Responses;

    async fn generate(&self, request: Request<pb::GenerateRequest>) -> Result<Response<Responses>, Status> {
        let (deadline, last) = (serve::deadline(request.metadata()), serve::last_deadline(request.metadata()));
        let caller = Caller::of(&request);
        let mut draft = Draft::try_from(request.into_inner())?;
        draft.request.priority = draft.request.priority.min(caller.max_priority.unwrap_or(i32::MAX));
        draft.request.caller = caller.id;
        let progress = Arc::<RequestProgress>::default();
        let late = LateEnd::new(last, &draft.request, Arc::clone(&progress));
        let first_output = draft.request.resume.as_ref().map_or(0, |resume| resume.output_index);
        let mut preparation: Preparation = {
            let submitted = self.executor.clone().submit(draft, deadline, Arc::clone(&progress));
            Box::pin(async move {
                match deadline {
                    None => submitted.await,
                    Some(deadline) => {
                        timeout_at(deadline.into(), submitted).await.unwrap_or(Err(RequestError::DeadlineInQueue))
                    }
                }
            })
        };
        let source = match timeout(PROGRESS_INTERVAL, &mut preparation).await {
            Ok(events) => Source::Events(events?),
            Err(_) => Source::Preparation(preparation),
        };
        let engine = self.executor.engine().clone();
        Ok(Response::new(Responses::new(source, (late, first_output), progress, engine)))
    }

    async fn get_loaded_model(
        &self,
        request: Request<pb::GetLoadedModelRequest>,
    ) -> Result<Response<pb::GetLoadedModelResponse>, Status> {
        let pb::GetLoadedModelRequest { model } = request.into_inner();
        let engine = self.executor.engine();
        let served = engine.model();
        served.check_id(&model)?;
        let gpus: Vec<pb::Gpu> = engine.gpus().into_iter().map(convert::gpu).collect();
        let external = engine.external().map(convert::external_engine);
        let gpu = gpus.first().cloned();
        let model = pb::LoadedModel { gpu, gpus, engine: external, ..convert::loaded_model(served) };
        Ok(Response::new(pb::GetLoadedModelResponse { model: Some(model) }))
    }
}

/// A request that is prepared, and then submitted.
type Preparation = Pin<Box<dyn Future<Output = Result<Receiver<Event>, RequestError>> + Send>>;

/// Where a request's events come from.
enum Source {
    /// The request is not submitted yet.
    Preparation(Preparation),
    Events(Receiver<Event>),
}

impl Source {
    /// Returns the next event, or None after a loss of the engine's thread.
    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Option<Event>> {
        loop {
            match self {
                Self::Events(events) => return events.poll_recv(context),
                Self::Preparation(preparation) => match ready!(preparation.as_mut().poll(context)) {
                    Ok(events) => *self = Self::Events(events),
                    Err(error) => return Poll::Ready(Some(Event::Refused(error))),
                },
            }
        }
    }
}

/// The response stream of a request. While the engine sends no event, it has a `progress` event at
/// each interval. Dropping it cancels the request.
struct Responses {
    source: Source,
    late: LateEnd,
    first_output: u32,
    progress: Arc<RequestProgress>,
    engine: Engine,
    ready: VecDeque<pb::GenerateResponse>,
    /// Ends one interval after the last response.
    silence: Pin<Box<Sleep>>,
    ended: bool,
}

impl Responses {
    fn new(
        source: Source,
        (late, first_output): (LateEnd, u32),
        progress: Arc<RequestProgress>,
        engine: Engine,
    ) -> Self {
        let silence = Box::pin(sleep(PROGRESS_INTERVAL));
        Self { source, late, first_output, progress, engine, ready: VecDeque::new(), silence, ended: false }
    }

    /// Returns the next event, the last ones if the deadline has come, or a `progress` event after an interval of
    /// silence.
    fn poll_responses(&mut self, context: &mut Context<'_>) -> Poll<Result<Vec<pb::GenerateResponse>, RequestError>> {
        if let Poll::Ready(event) = self.source.poll_event(context) {
            // A channel that closes before the last event means that the engine's thread has ended.
            let event = event.unwrap_or_else(|| Event::Refused(self.engine.lost()));
            self.ended = matches!(event, Event::Refused(_) | Event::Summary(_));
            self.late.add(&event, self.first_output);
            return Poll::Ready(convert::responses(event));
        }
        if let Poll::Ready(ended) = self.late.poll(context) {
            self.ended = true;
            let responses = ended?.into_iter().map(convert::responses).collect::<Result<Vec<_>, _>>();
            return Poll::Ready(responses.map(|responses| responses.concat()));
        }
        ready!(self.silence.as_mut().poll(context));
        let age = self.engine.step_age().unwrap_or_default();
        Poll::Ready(Ok(vec![convert::progress(&self.progress, age)]))
    }
}

impl Stream for Responses {
    type Item = Result<pb::GenerateResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        while self.ready.is_empty() && !self.ended {
            let responses = ready!(self.poll_responses(context));
            match responses {
                Ok(responses) => self.ready.extend(responses),
                Err(error) => return Poll::Ready(Some(Err(error.into()))),
            }
        }
        self.silence.as_mut().reset(Instant::now() + PROGRESS_INTERVAL);
        Poll::Ready(self.ready.pop_front().map(Ok))
    }
}
