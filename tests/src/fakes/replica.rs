//! A replica of the generation service that plays the events that a test decides.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tandem_common::pb::generate::v1::generate_request::Input;
use tandem_common::pb::generate::v1::generate_response::Event;
use tandem_common::pb::generate::v1::generate_service_server::{GenerateService, GenerateServiceServer};
use tandem_common::pb::generate::v1::{self as generate, FinishReason};
use tokio::net::TcpListener;
use tokio::time::sleep;
use tokio_stream::{Stream, StreamExt as _};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

/// The events of an answer, each after a pause. Without events, the call has no response.
pub type Played = Vec<(Duration, Event)>;

/// Returns the answer to a call. The number is that of the calls before.
type Play = dyn Fn(&Request<generate::GenerateRequest>, usize) -> Result<Played, Status> + Send + Sync;

/// The replica. It completes its events as the contract requires: empty `accepted` events, summaries
/// and lists of log probabilities.
#[derive(Clone)]
pub struct Replica {
    play: Arc<Play>,
    end: Option<Status>,
    model: Option<generate::LoadedModel>,
    calls: Arc<AtomicUsize>,
}

impl fmt::Debug for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replica").field("calls", &self.calls).finish_non_exhaustive()
    }
}

impl Replica {
    /// Creates a replica that answers each call as `play` decides.
    pub fn new(
        play: impl Fn(&Request<generate::GenerateRequest>, usize) -> Result<Played, Status> + Send + Sync + 'static,
    ) -> Self {
        Self { play: Arc::new(play), end: None, model: None, calls: Arc::default() }
    }

    /// Creates a replica that plays the same for each call.
    #[must_use]
    pub fn playing(answer: Result<Played, Status>) -> Self {
        Self::new(move |_, _| answer.clone())
    }

    /// Creates a replica that plays the same events for each call, without pauses.
    #[must_use]
    pub fn of(events: Vec<Event>) -> Self {
        Self::playing(Ok(at_once(events)))
    }

    /// Creates a replica that answers health checks only.
    #[must_use]
    pub fn mute() -> Self {
        Self::of(Vec::new())
    }

    /// Returns the replica with the model that GetLoadedModel reports. Without one, the method is not
    /// implemented.
    #[must_use]
    pub fn with_model(self, model: generate::LoadedModel) -> Self {
        Self { model: Some(model), ..self }
    }

    /// Returns the replica with this status at the end of each answer.
    #[must_use]
    pub fn with_end(self, status: Status) -> Self {
        Self { end: Some(status), ..self }
    }

    /// Returns a replica that plays the same, without calls so far.
    #[must_use]
    pub fn again(&self) -> Self {
        Self { calls: Arc::default(), ..self.clone() }
    }

    /// Returns the number of calls of Generate.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    /// Serves the replica as healthy, and returns its address.
    ///
    /// # Panics
    /// If no port is free.
    pub async fn serve(&self) -> String {
        self.serve_with(UnhealthyAtFirst(0.into())).await
    }

    /// Serves the replica with this health, and returns its address.
    ///
    /// # Panics
    /// If no port is free.
    pub async fn serve_with(&self, health: impl Health) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        let server = Server::builder().add_service(HealthServer::new(health));
        let server = server.add_service(GenerateServiceServer::new(self.clone()));
        tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
        address
    }
}

#[tonic::async_trait]
impl GenerateService for Replica {
    type GenerateStream = Pin<Box<dyn Stream<Item = Result<generate::GenerateResponse, Status>> + Send>>;

    async fn generate(
        &self,
        request: Request<generate::GenerateRequest>,
    ) -> Result<Response<Self::GenerateStream>, Status> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let (pauses, events): (Vec<_>, Vec<_>) = (self.play)(&request, call)?.into_iter().unzip();
        let pauses = pauses.into_iter().chain(std::iter::repeat(Duration::ZERO));
        let events: Vec<_> = pauses.zip(reported(request.get_ref(), events)).collect();
        if events.is_empty() {
            std::future::pending::<()>().await;
        }
        let response = |(pause, event)| async move {
            sleep(pause).await;
            Ok(generate::GenerateResponse { event: Some(event) })
        };
        let end = tokio_stream::iter(self.end.clone().map(Err));
        Ok(Response::new(Box::pin(tokio_stream::iter(events).then(response).chain(end))))
    }

    async fn get_loaded_model(
        &self,
        _request: Request<generate::GetLoadedModelRequest>,
    ) -> Result<Response<generate::GetLoadedModelResponse>, Status> {
        let model = self.model.clone().ok_or_else(|| Status::unimplemented("any model"))?;
        Ok(Response::new(generate::GetLoadedModelResponse { model: Some(model) }))
    }
}

/// Returns the events without pauses.
#[must_use]
pub fn at_once(events: Vec<Event>) -> Played {
    events.into_iter().map(|event| (Duration::ZERO, event)).collect()
}

/// Returns the events without the tokens that a resumed output has, one for each `delta`.
#[must_use]
pub fn not_yet_generated(request: &generate::GenerateRequest, mut events: Played) -> Played {
    let mut delivered = request.resume.as_ref().map_or(0, |resume| resume.generated_tokens);
    events.retain(|(_, event)| {
        let is_delivered = matches!(event, Event::Delta(_)) && delivered > 0;
        delivered -= u32::from(is_delivered);
        !is_delivered
    });
    events
}

/// Returns the event of an accepted request.
#[must_use]
pub fn accepted() -> Event {
    Event::Accepted(generate::Accepted::default())
}

/// Returns a part of an output's text, and the ids at its end.
#[must_use]
pub fn part(text: &str, token_ids: &[u32]) -> Event {
    let (text, token_ids) = (text.to_owned(), token_ids.to_vec());
    Event::Delta(generate::Delta { text, token_ids, ..generate::Delta::default() })
}

/// Returns the events of an output's end.
#[must_use]
pub fn ended(reason: FinishReason) -> Vec<Event> {
    let finished = generate::Finished { reason: reason.into(), ..generate::Finished::default() };
    vec![Event::Finished(finished), Event::Summary(generate::Summary::default())]
}

/// Completes events for a request.
fn reported(request: &generate::GenerateRequest, events: Vec<Event>) -> Vec<Event> {
    let resumed = request.resume.as_ref().map_or(0, |resume| resume.generated_tokens);
    let prompt_tokens = match &request.input {
        Some(Input::TokenIds(tokens)) => tokens.ids.len() as u32 - resumed,
        _ => 0,
    };
    let seed = request.sampling.as_ref().and_then(|sampling| sampling.seed).unwrap_or_default();
    let returns = request.return_options.unwrap_or_default();
    let mut completion_tokens = resumed;
    let mut complete = |event| match event {
        Event::Accepted(accepted) if accepted == generate::Accepted::default() => {
            let accepted = Event::Accepted(generate::Accepted { prompt_tokens, ..accepted });
            let count = if returns.prompt_logprobs.is_some() && resumed == 0 { prompt_tokens.max(1) - 1 } else { 0 };
            let tokens = vec![generate::TokenInfo::default(); count as usize];
            let logprobs = Event::PromptLogprobs(generate::PromptLogprobs { tokens });
            [accepted].into_iter().chain((count > 0).then_some(logprobs)).collect()
        }
        Event::Delta(mut delta) => {
            completion_tokens += delta.token_ids.len() as u32;
            if returns.logprobs.is_some() && delta.tokens.is_empty() {
                let token = |id: &u32| generate::TokenInfo { id: *id, ..generate::TokenInfo::default() };
                delta.tokens = delta.token_ids.iter().map(token).collect();
            }
            vec![Event::Delta(delta)]
        }
        Event::Summary(summary) if summary == generate::Summary::default() => {
            let total_tokens = prompt_tokens + completion_tokens;
            let usage =
                generate::Usage { prompt_tokens, completion_tokens, total_tokens, ..generate::Usage::default() };
            let timings = Some(generate::Timings::default());
            vec![Event::Summary(generate::Summary { usage: Some(usage), timings, seed })]
        }
        event => vec![event],
    };
    events.into_iter().flat_map(&mut complete).collect()
}

/// Health behind a proxy that asks another service on each check. The first services, up to this
/// number, stay unhealthy.
#[derive(Debug)]
pub struct UnhealthyAtFirst(pub AtomicUsize);

#[tonic::async_trait]
impl Health for UnhealthyAtFirst {
    type WatchStream = tokio_stream::Pending<Result<HealthCheckResponse, Status>>;

    async fn check(&self, _request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        let ill = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |ill| ill.checked_sub(1));
        let status = if ill.is_ok() { ServingStatus::NotServing } else { ServingStatus::Serving };
        Ok(Response::new(HealthCheckResponse { status: status.into() }))
    }

    async fn watch(&self, _request: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("not called"))
    }
}
