//! How many calls are worked on at once. One more is refused before anything is done for it.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::body::Body;
use tonic::{Code, Status};

use super::around::{Around, Keep, keep_with};
use super::is_health;
use crate::status::Failure;

/// When a refused caller should try again.
const RETRY: Duration = Duration::from_secs(1);

/// Places for calls.
#[derive(Debug, Clone)]
pub(super) struct Capacity(Arc<Semaphore>);

impl Capacity {
    pub(super) fn new(calls: usize) -> Self {
        Self(Arc::new(Semaphore::new(calls.min(Semaphore::MAX_PERMITS))))
    }

    pub(super) fn take(&self, request: &Request<Body>) -> Place {
        if is_health(request) {
            return Place::NotNeeded;
        }
        Arc::clone(&self.0).try_acquire_owned().map_or(Place::None, Place::Taken)
    }
}

/// A call's place, which it has until its answer has ended.
#[derive(Debug)]
pub(super) enum Place {
    NotNeeded,
    Taken(OwnedSemaphorePermit),
    None,
}

impl Keep for OwnedSemaphorePermit {}

impl Around for Place {
    async fn finish<E>(
        self,
        answer: impl Future<Output = Result<Response<Body>, E>> + Send,
    ) -> Result<Response<Body>, E> {
        match self {
            Self::NotNeeded => answer.await,
            Self::Taken(place) => Ok(keep_with(answer.await?, place)),
            Self::None => {
                let message = "as many calls as the server takes at once are in progress";
                let failure = Failure::new(Code::ResourceExhausted, "OVERLOADED", message).retry_after(RETRY);
                Ok(Status::from(failure).into_http())
            }
        }
    }
}
