//! ControlService: looks at a server and runs it.

use std::time::Instant;

use tandem_common::pb::generate::v1 as pb;
use tandem_common::pb::generate::v1::control_service_server::{ControlService, ControlServiceServer};
use tonic::{Request, Response, Status};

use crate::cache::{BLOCK, Usage};
use crate::engine::{Engine, Gauges, Stage};
use crate::error::Error;
use crate::serve::Served;

pub use pb::control_service_server::SERVICE_NAME;

/// The service over what is served, be it loaded or not.
#[must_use]
pub fn server(served: Served, max_message_bytes: usize) -> ControlServiceServer<impl ControlService> {
    ControlServiceServer::new(Control { served, started: Instant::now(), max_message_bytes })
}

#[derive(Debug)]
struct Control {
    served: Served,
    started: Instant,
    max_message_bytes: usize,
}

impl Control {
    fn engine(&self) -> Result<&Engine, Error> {
        let without = if self.served.is_ending() { Error::Draining } else { Error::Loading };
        self.served.engine().ok_or(without)
    }
}

#[tonic::async_trait]
impl ControlService for Control {
    async fn get_server(
        &self,
        _request: Request<pb::GetServerRequest>,
    ) -> Result<Response<pb::GetServerResponse>, Status> {
        let engine = self.served.engine();
        let without = if self.served.is_ending() { pb::ServerState::Draining } else { pb::ServerState::Loading };
        let limits = engine.map(Engine::limits).unwrap_or_default();
        Ok(Response::new(pb::GetServerResponse {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            state: engine.map_or(without, |engine| state(engine.stage())).into(),
            model: engine.map(|engine| engine.model().into()),
            max_queue: count(limits.max_queue),
            max_running: count(limits.max_running),
            prefill_chunk: count(limits.prefill_chunk),
            max_message_bytes: self.max_message_bytes as u64,
        }))
    }

    async fn get_load(&self, _request: Request<pb::GetLoadRequest>) -> Result<Response<pb::GetLoadResponse>, Status> {
        let Gauges { queued, running, tokens, preemptions, kv_blocks: Usage { total, held, kept } } =
            self.engine()?.gauges();
        Ok(Response::new(pb::GetLoadResponse {
            queued: count(queued),
            running: count(running),
            kv_cache: Some(pb::KvCache {
                block_size: count(BLOCK),
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
        tracing::info!("told to drain");
        self.served.end();
        Ok(Response::new(pb::DrainResponse {}))
    }
}

fn state(stage: Stage) -> pb::ServerState {
    match stage {
        Stage::Serving => pb::ServerState::Serving,
        Stage::Draining | Stage::Stopping => pb::ServerState::Draining,
        Stage::Failed => pb::ServerState::Failed,
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
