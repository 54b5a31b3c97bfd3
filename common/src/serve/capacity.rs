//! How many calls are worked on at once. One more is refused before anything is done for it.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;
use tonic::body::Body;

use super::health::is_health;
use crate::around::{Around, Keep, keep_with};
use crate::status::{Failure, Reason};

/// When a refused caller should try again.
const RETRY: Duration = Duration::from_secs(1);

/// Health checks at once.
const HEALTH: usize = 1024;

/// Places for calls, and others for health checks.
#[derive(Debug, Clone)]
pub(super) struct Capacity {
    calls: Arc<Semaphore>,
    health: Arc<Semaphore>,
}

impl Capacity {
    pub(super) fn new(calls: usize) -> Self {
        let calls = Arc::new(Semaphore::new(calls.min(Semaphore::MAX_PERMITS)));
        Self { calls, health: Arc::new(Semaphore::new(HEALTH)) }
    }

    pub(super) fn take(&self, request: &Request<Body>) -> Place {
        let places = if is_health(request) { &self.health } else { &self.calls };
        Place(Arc::clone(places).try_acquire_owned().ok())
    }
}

/// A call's place, if there was one, which it has until its answer has ended.
#[derive(Debug)]
pub(super) struct Place(Option<OwnedSemaphorePermit>);

impl Keep for OwnedSemaphorePermit {}

impl Around for Place {
    async fn finish<E, F>(self, answer: impl FnOnce() -> F + Send) -> Result<Response<Body>, E>
    where
        F: Future<Output = Result<Response<Body>, E>> + Send,
    {
        match self.0 {
            Some(place) => Ok(keep_with(answer().await?, place)),
            None => {
                let message = "as many calls as the server takes at once are in progress";
                let failure = Failure::new(Reason::Overloaded, message).retry_after(RETRY);
                Ok(Status::from(failure).into_http())
            }
        }
    }
}
