//! ControlService: reports the state and load of a server, and controls it.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use tandem_common::pb::generate::v1 as pb;
use tandem_common::pb::generate::v1::control_service_server::{ControlService, ControlServiceServer};
use tandem_common::status::{Failure, Reason};
use tandem_core::cache::Usage;
use tandem_core::engine::{Engine, Gauges};
use tandem_core::error::RequestError;
use tandem_core::lifecycle::{Lifecycle, ServerState};
use tonic::{Request, Response, Status};

use super::convert;

pub use pb::control_service_server::SERVICE_NAME;

/// Returns the control service of a server. `engine` is set once the model is loaded.
#[must_use]
pub fn server(
    lifecycle: Lifecycle,
    engine: Arc<OnceLock<Engine>>,
    max_message_bytes: usize,
) -> ControlServiceServer<impl ControlService> {
    ControlServiceServer::new(Control { lifecycle, engine, started: Instant::now(), max_message_bytes })
}

#[derive(Debug)]
struct Control {
    lifecycle: Lifecycle,
    engine: Arc<OnceLock<Engine>>,
    started: Instant,
    max_message_bytes: usize,
}

impl Control {
    /// Returns the engine. Without one, the state decides the error.
    fn engine(&self) -> Result<&Engine, RequestError> {
        let missing = || self.lifecycle.check_serving().err().unwrap_or(RequestError::Loading);
        self.engine.get().ok_or_else(missing)
    }
}

#[tonic::async_trait]
impl ControlService for Control {
    async fn get_server(
        &self,
        _request: Request<pb::GetServerRequest>,
    ) -> Result<Response<pb::GetServerResponse>, Status> {
        let engine = self.engine.get();
        let limits = engine.map(Engine::limits).unwrap_or_default();
        Ok(Response::new(pb::GetServerResponse {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            state: server_state(self.lifecycle.state()).into(),
            model: engine.map(|engine| convert::loaded_model(engine.model())),
            max_queue: count(limits.max_queue),
            max_running: count(limits.max_running),
            prefill_chunk: count(limits.prefill_chunk),
            max_message_bytes: self.max_message_bytes as u64,
        }))
    }

    async fn get_load(&self, _request: Request<pb::GetLoadRequest>) -> Result<Response<pb::GetLoadResponse>, Status> {
        let Gauges { queued, running, tokens, preemptions, kv_blocks, states, steps: _, rows: _ } =
            self.engine()?.gauges();
        let Usage { total, held, kept, positions } = kv_blocks;
        Ok(Response::new(pb::GetLoadResponse {
            queued: count(queued),
            running: count(running),
            kv_cache: Some(pb::KvCache {
                block_size: count(positions),
                total_blocks: count(total),
                held_blocks: count(held),
                kept_blocks: count(kept),
            }),
            generated_tokens: tokens,
            preemptions,
            recurrent_states: (states.total > 0).then(|| pb::RecurrentStates {
                total_states: count(states.total),
                held_states: count(states.held),
                kept_states: count(states.kept),
            }),
        }))
    }

    async fn flush_prefix_cache(
        &self,
        _request: Request<pb::FlushPrefixCacheRequest>,
    ) -> Result<Response<pb::FlushPrefixCacheResponse>, Status> {
        let engine = self.engine()?;
        if let Some(external) = engine.external() {
            let problem = format!("{} has no such method for its cache", external.name);
            return Err(Failure::new(Reason::UnknownMethod, problem).into());
        }
        let flushed_blocks = count(engine.flush_prefix_cache().await?);
        tracing::info!(flushed_blocks, "prefix cache flushed");
        Ok(Response::new(pb::FlushPrefixCacheResponse { flushed_blocks }))
    }

    async fn drain(&self, _request: Request<pb::DrainRequest>) -> Result<Response<pb::DrainResponse>, Status> {
        tracing::info!("drain requested");
        self.lifecycle.drain();
        Ok(Response::new(pb::DrainResponse {}))
    }
}

fn server_state(state: ServerState) -> pb::ServerState {
    match state {
        ServerState::Loading => pb::ServerState::Loading,
        ServerState::Serving => pb::ServerState::Serving,
        ServerState::Draining => pb::ServerState::Draining,
        ServerState::Failed => pb::ServerState::Failed,
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
