//! An engine in another process, behind the port of gen-svc's own engine.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tandem_core::answer::{Answer, CheckedAnswer};
use tandem_core::cache::{StateUsage, Usage};
use tandem_core::engine::{EngineEnded, EngineLimits, ExternalEngine, Gauges, TokenEngine};
use tandem_core::error::{LoadError, RequestError};
use tandem_core::lifecycle::Lifecycle;
use tandem_core::request::{PreparedRequest, ServedModel};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;

use crate::choice;
use crate::driver;
use crate::lack::Lack;
use crate::shared::{Parts, Shared};
use crate::turns::Entry;

/// How often waiting requests are asked whether they end.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The handle on an engine in another process.
#[derive(Debug)]
pub struct RemoteEngine {
    shared: Arc<Shared>,
    runtime: Handle,
    tasks: TaskTracker,
}

impl RemoteEngine {
    /// Creates the handle, under a server's lifecycle. Its requests are tasks of the current runtime. The thread ends
    /// after them, once the lifecycle is stopped.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(parts: Parts, lifecycle: Lifecycle) -> Result<(Arc<Self>, JoinHandle<()>), LoadError> {
        let stop = lifecycle.cancellation();
        let shared = Arc::new(Shared::new(parts, lifecycle));
        let (runtime, tasks) = (Handle::current(), TaskTracker::new());
        tasks.close();
        let engine = Arc::new(Self { shared, runtime: runtime.clone(), tasks: tasks.clone() });
        tasks.spawn_on(watch_queue(Arc::clone(&engine.shared), tasks.clone()), &runtime);
        let wait = move || {
            runtime.block_on(async {
                stop.cancelled().await;
                tasks.wait().await
            })
        };
        let thread = std::thread::Builder::new().name("engine".into()).spawn(wait).map_err(LoadError::Thread)?;
        Ok((engine, thread))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl TokenEngine for RemoteEngine {
    fn model(&self) -> &ServedModel {
        &self.shared.model
    }

    fn limits(&self) -> EngineLimits {
        self.shared.limits
    }

    fn external(&self) -> Option<ExternalEngine> {
        let kind = self.shared.kind;
        Some(ExternalEngine {
            name: kind.name,
            version: self.shared.facts().version,
            unsupported_fields: self.shared.lacks().into_iter().map(|lack| lack.field).collect(),
            missing_promises: kind.missing_promises,
        })
    }

    fn check(&self, request: &PreparedRequest) -> Result<(), RequestError> {
        let kind = self.shared.kind;
        if self.shared.is_gone() {
            return Err(RequestError::EngineUnavailable);
        }
        Lack::check(self.shared.lacks(), kind.name, request)?;
        let is_resumed = !request.generated().is_empty();
        if request.bound > 0 && choice::rests(request, &self.shared.model.tokenizer).is_none() {
            return Err(RequestError::ResumeUnsupported { engine: kind.name, feature: "a grammar other than choice" });
        }
        if is_resumed && request.sampling.presence_penalty != 0.0 {
            return Err(RequestError::ResumeUnsupported { engine: kind.name, feature: "a presence penalty" });
        }
        Ok(())
    }

    fn start(&self, answer: Box<Answer>) -> Result<(), EngineEnded> {
        if self.shared.stop.is_cancelled() {
            return Err(EngineEnded);
        }
        let answer = CheckedAnswer::new(answer, &self.shared.model);
        let request = answer.request();
        let entry = Entry {
            caller: Arc::clone(&request.caller),
            priority: request.priority,
            outputs: (request.sampling.n as usize).min(self.shared.limits.max_running),
            since: Instant::now(),
            request: answer,
        };
        self.shared.turns.lock().add(entry);
        admit(&self.shared, &self.tasks, &self.runtime);
        Ok(())
    }

    fn activity(&self) -> Gauges {
        let load = *self.shared.load.lock();
        let held = load.kv_used.map_or(0, |used| (used * load.kv_blocks as f64).round() as usize);
        let usage = Usage { total: load.kv_blocks, held, kept: 0, positions: load.kv_block_size };
        Gauges {
            running: self.shared.turns.lock().running(),
            tokens: self.shared.tokens.load(Ordering::Relaxed),
            preemptions: load.preemptions,
            kv_blocks: usage,
            states: StateUsage::default(),
            ..Gauges::default()
        }
    }

    fn age(&self) -> Option<Duration> {
        Some(self.shared.age())
    }

    fn flush_prefix_cache(&self) -> Result<oneshot::Receiver<usize>, EngineEnded> {
        Err(EngineEnded)
    }
}

/// Starts the requests for which there is room.
fn admit(shared: &Arc<Shared>, tasks: &TaskTracker, runtime: &Handle) {
    loop {
        let Some(entry) = shared.turns.lock().start() else { return };
        let (shared, own_tasks, own_runtime) = (Arc::clone(shared), tasks.clone(), runtime.clone());
        let task = async move {
            let Entry { request, caller, outputs, .. } = entry;
            driver::run(request, &shared).await;
            shared.turns.lock().end(&caller, outputs);
            admit(&shared, &own_tasks, &own_runtime);
        };
        tasks.spawn_on(task, runtime);
    }
}

/// Ends waiting requests whose caller is gone or whose deadline is over, and sets the places of the others.
async fn watch_queue(shared: Arc<Shared>, tasks: TaskTracker) {
    while !shared.stop.is_cancelled() {
        tokio::time::sleep(LOOK_INTERVAL).await;
        look_at_queue(&shared, false);
        admit(&shared, &tasks, &Handle::current());
    }
    look_at_queue(&shared, true);
}

fn look_at_queue(shared: &Shared, is_stopped: bool) {
    let is_lost = shared.is_lost();
    shared.turns.lock().remove(|answer, place| {
        answer.set_queue_place(place);
        if is_lost {
            answer.refuse(RequestError::EngineUnavailable);
        }
        is_lost || answer.interrupt(is_stopped, shared.patience)
    });
}
