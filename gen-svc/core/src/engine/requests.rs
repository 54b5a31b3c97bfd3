//! The requests in the engine: the state that all outputs of a request share.

use std::collections::HashMap;
use std::sync::Arc;

use crate::answer::Answer;
use crate::models::Features;

/// The identity of a request: its number in the order of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct RequestId(u64);

/// All requests with sequences that wait or run.
#[derive(Debug, Default)]
pub(super) struct Requests {
    states: HashMap<RequestId, RequestState>,
    /// Requests received since the start.
    arrivals: u64,
}

const EXPECT_REQUEST: &str = "a request outlives its sequences";

impl Requests {
    /// Adds a request. It stays until each of its sequences is released.
    pub(super) fn add(&mut self, answer: Answer) -> RequestId {
        self.arrivals += 1;
        let id = RequestId(self.arrivals);
        self.states.insert(id, RequestState::new(answer));
        id
    }

    /// Returns the state of a request that has a sequence.
    pub(super) fn get(&self, id: RequestId) -> &RequestState {
        self.states.get(&id).expect(EXPECT_REQUEST)
    }

    /// Returns the state of a request that has a sequence, to be changed.
    pub(super) fn get_mut(&mut self, id: RequestId) -> &mut RequestState {
        self.states.get_mut(&id).expect(EXPECT_REQUEST)
    }

    /// Releases one sequence of a request. The last one drops the state and with it the response
    /// channel.
    pub(super) fn release_sequence(&mut self, id: RequestId) {
        let state = self.get_mut(id);
        state.sequences = state.sequences.saturating_sub(1);
        if state.sequences == 0 {
            self.states.remove(&id);
        }
    }

    /// Drops all states, also of requests whose sequences were lost in a panic.
    pub(super) fn clear(&mut self) {
        self.states.clear();
    }
}

/// The state that all outputs of a request share.
#[derive(Debug)]
pub(super) struct RequestState {
    pub(super) answer: Answer,
    /// Sequences that refer to this state.
    sequences: usize,
    /// True once the prompt is computed: the other outputs then find it in the prefix cache.
    is_prefilled: bool,
    /// The features of each image of the prompt, once they are computed.
    features: Vec<Option<Arc<Features>>>,
}

impl RequestState {
    fn new(answer: Answer) -> Self {
        let request = answer.request();
        Self {
            sequences: request.sampling.n as usize,
            is_prefilled: false,
            features: vec![None; request.media.as_ref().map_or(0, |media| media.images.len())],
            answer,
        }
    }

    /// Returns the features of an image of the prompt, if they are computed.
    pub(super) fn features(&self, image: usize) -> Option<&Features> {
        self.features[image].as_deref()
    }

    /// Stores the features of an image of the prompt.
    pub(super) fn set_features(&mut self, image: usize, features: Arc<Features>) {
        self.features[image] = Some(features);
    }

    /// Returns true if the prompt is computed.
    pub(super) fn is_prefilled(&self) -> bool {
        self.is_prefilled
    }

    /// Records that the prompt is computed, or that its output has ended.
    pub(super) fn set_prefilled(&mut self) {
        self.is_prefilled = true;
    }
}
