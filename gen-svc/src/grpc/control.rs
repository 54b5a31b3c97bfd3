//! ControlService: reports the state and load of a server, and controls it.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use tandem_common::pb::generate::v1 as pb;
use tandem_common::pb::generate::v1::control_service_server::{ControlService, ControlServiceServer};
use tonic::{Request, Response, Status};

use crate::cache::Usage;
use crate::engine::{Engine, Gauges};
use crate::error::Error;
use crate::lifecycle::{Lifecycle, ServerState};

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
    fn engine(&self) -> Result<&Engine, Error> {
        let missing = || self.lifecycle.check_serving().err().unwrap_or(Error::Loading);
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
            state: pb::ServerState::from(self.lifecycle.state()).into(),
            model: engine.map(|engine| engine.model().into()),
            max_queue: count(limits.max_queue),
            max_running: count(limits.max_running),
            prefill_chunk: count(limits.prefill_chunk),
            max_message_bytes: self.max_message_bytes as u64,
        }))
    }

    async fn get_load(&self, _request: Request<pb::GetLoadRequest>) -> Result<Response<pb::GetLoadResponse>, Status> {
        let Gauges { queued, running, tokens, preemptions, kv_blocks, steps: _, rows: _ } = self.engine()?.gauges();
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
        }))
    }

    async fn flush_prefix_cache(
        &self,
        _request: Request<pb::FlushPrefixCacheRequest>,
    ) -> Result<Response<pb::FlushPrefixCacheResponse>, Status> {
        let flushed_blocks = count(self.engine()?.flush_prefix_cache().await?);
        tracing::info!(flushed_blocks, "prefix cache flushed");
        Ok(Response::new(pb::FlushPrefixCacheResponse { flushed_blocks }))
    }

    async fn drain(&self, _request: Request<pb::DrainRequest>) -> Result<Response<pb::DrainResponse>, Status> {
        tracing::info!("drain requested");
        self.lifecycle.drain();
        Ok(Response::new(pb::DrainResponse {}))
    }
}

impl From<ServerState> for pb::ServerState {
    fn from(state: ServerState) -> Self {
        match state {
            ServerState::Loading => Self::Loading,
            ServerState::Serving => Self::Serving,
            ServerState::Draining => Self::Draining,
            ServerState::Failed => Self::Failed,
        }
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
