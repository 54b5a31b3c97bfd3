//! The response channel of a request, and its back-pressure.

use std::time::{Duration, Instant};

use tokio::sync::mpsc::Sender;

use super::event::Event;

/// The response channel of a request.
///
/// A step sends at most one event about the prompt and one about each output. It runs only while
/// that leaves a slot for the end of each output and one for the summary. So the last events always
/// fit.
#[derive(Debug)]
pub(super) struct EventSink {
    events: Sender<Event>,
    /// Since when a step's events do not fit.
    full_since: Option<Instant>,
}

impl EventSink {
    pub(super) fn new(events: Sender<Event>) -> Self {
        Self { events, full_since: None }
    }

    /// Sends an event. The channel has a slot for it, or the caller has cancelled.
    pub(super) fn send(&self, event: Event) {
        // A closed channel is noticed before the next step.
        let _ = self.events.try_send(event);
    }

    /// Returns true if the caller has cancelled the request.
    pub(super) fn is_closed(&self) -> bool {
        self.events.is_closed()
    }

    /// Measures the back-pressure of a request with `unfinished` outputs. Launched steps will send
    /// `awaited` more events.
    pub(super) fn measure(&mut self, unfinished: usize, awaited: usize, now: Instant) {
        let is_full = self.events.capacity() <= 2 * unfinished + 1 + awaited;
        self.full_since = if is_full { self.full_since.or(Some(now)) } else { None };
    }

    /// Returns true if the events of a step did not fit when last measured.
    pub(super) fn is_full(&self) -> bool {
        self.full_since.is_some()
    }

    /// Returns how long the channel has been full.
    pub(super) fn unread(&self, now: Instant) -> Duration {
        self.full_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}
