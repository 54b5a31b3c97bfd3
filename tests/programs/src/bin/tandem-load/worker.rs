//! A worker: runs one task after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use tandem_common::call::Credentials;
use tokio::time::{sleep, timeout};

use crate::args::Args;
use crate::figures::Figures;
use crate::task::{self, KINDS};

/// The pause after a failure, so that an unreachable service does not fail thousands of tasks.
const PAUSE: Duration = Duration::from_millis(200);

/// What all workers share.
#[derive(Debug)]
pub(crate) struct Plan {
    args: Args,
    credentials: Credentials,
    begun: AtomicUsize,
    has_ended: Arc<AtomicBool>,
}

impl Plan {
    pub(crate) fn new(args: Args, has_ended: Arc<AtomicBool>) -> Self {
        let credentials = Credentials { ca: args.ca.clone(), identity: None, token_file: args.token_file.clone() };
        Self { args, credentials, begun: AtomicUsize::new(0), has_ended }
    }

    pub(crate) fn parallel(&self) -> usize {
        self.args.parallel.max(1)
    }

    /// Returns the number of the next task, or nothing if there are enough.
    fn next(&self) -> Option<usize> {
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        (number < self.args.tasks || !self.has_ended.load(Ordering::Relaxed)).then_some(number)
    }

    async fn run(&self, kind: usize) -> Result<String> {
        let Args { service, tokens, patience_seconds, .. } = &self.args;
        let task = task::run(service, &self.credentials, kind, *tokens);
        let done = timeout(Duration::from_secs(*patience_seconds), task).await;
        done.unwrap_or_else(|_| Err(anyhow!("no answer within {patience_seconds} s")))
    }
}

/// One of the workers.
#[derive(Debug)]
pub(crate) struct Worker {
    plan: Arc<Plan>,
    number: usize,
}

impl Worker {
    pub(crate) fn new(plan: Arc<Plan>, number: usize) -> Self {
        Self { plan, number }
    }

    /// Runs tasks until there are enough.
    pub(crate) async fn run(self) -> Figures {
        let mut figures = Figures::default();
        while let Some(number) = self.plan.next() {
            let (kind, began) = (number % KINDS, Instant::now());
            match self.plan.run(kind).await {
                Ok(text) => figures.answer(kind, text, began.elapsed()),
                Err(error) => {
                    let seconds = began.elapsed().as_secs_f64();
                    let worker = self.number;
                    figures.failure(&format!("worker {worker}, task {number} failed after {seconds:.1} s: {error:#}"));
                    sleep(PAUSE).await;
                }
            }
        }
        figures
    }
}
