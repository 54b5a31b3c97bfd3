//! Checks that the events of a replica have the order and values that the contract states for one
//! output.

use tandem_common::pb::generate::v1::FinishReason;
use tandem_common::pb::generate::v1::generate_response::Event;

/// The part of the stream that was received.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum EventOrder {
    /// No event but `progress`.
    #[default]
    Empty,
    Accepted,
    /// The output has ended.
    Finished,
    /// The summary.
    Ended,
}

impl EventOrder {
    /// Adds an event. `is_late` is true if the deadline has passed.
    ///
    /// # Errors
    /// Describes how the event breaks the contract.
    pub(super) fn add(&mut self, event: &Event, is_late: bool) -> Result<(), String> {
        let name = name(event);
        *self = match (*self, event) {
            (Self::Ended, _) => return Err(format!("sent `{name}` after `summary`")),
            (order, Event::Progress(_)) => order,
            (Self::Empty, Event::Accepted(_)) => Self::Accepted,
            (Self::Empty, _) => return Err(format!("sent `{name}` before `accepted`")),
            (_, Event::Accepted(_)) => return Err("sent a second `accepted`".to_owned()),
            (Self::Accepted, Event::Summary(_)) => return Err("sent `summary` before `finished`".to_owned()),
            (Self::Finished, Event::Summary(_)) => Self::Ended,
            (Self::Finished, Event::Finished(_)) => return Err("sent a second `finished`".to_owned()),
            (Self::Finished, _) => return Err(format!("sent `{name}` after `finished`")),
            (Self::Accepted, Event::Finished(finished)) => {
                check_index(finished.output_index)?;
                check_reason(finished.reason, is_late)?;
                Self::Finished
            }
            (Self::Accepted, Event::Delta(delta)) => {
                check_index(delta.output_index)?;
                Self::Accepted
            }
            (Self::Accepted, Event::PromptLogprobs(_)) => Self::Accepted,
        };
        Ok(())
    }
}

fn name(event: &Event) -> &'static str {
    match event {
        Event::Accepted(_) => "accepted",
        Event::Delta(_) => "delta",
        Event::Finished(_) => "finished",
        Event::Summary(_) => "summary",
        Event::PromptLogprobs(_) => "prompt_logprobs",
        Event::Progress(_) => "progress",
    }
}

/// A task has one output.
fn check_index(output_index: u32) -> Result<(), String> {
    if output_index == 0 { Ok(()) } else { Err(format!("sent output_index {output_index} for the only output")) }
}

fn check_reason(reason: i32, is_late: bool) -> Result<(), String> {
    match FinishReason::try_from(reason) {
        Ok(FinishReason::Unspecified) | Err(_) => Err(format!("ended the output with the finish reason {reason}")),
        Ok(FinishReason::Deadline) if !is_late => Err("ended the output with DEADLINE before the deadline".to_owned()),
        Ok(_) => Ok(()),
    }
}
