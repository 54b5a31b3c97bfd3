//! The times of both services that depend on one another. The contract promises an event of a stream every second,
//! and lets a client treat [`CLIENT_SILENCE`] without one as a stuck server. Each service between the engine and the
//! client therefore waits longer than the one before it, and in all less than the client:
//!
//! | | |
//! |---|---|
//! | [`PROGRESS_INTERVAL`] | gen-svc sends `progress` after this time without an event |
//! | [`EVENT_INTERVAL`] | the promise |
//! | [`TASK_SILENCE`] | render-svc itself sends `progress` after this time without an event of the replica |
//! | [`REPLICA_SILENCE`] | render-svc leaves a replica that has sent nothing for this time |
//! | [`CLIENT_SILENCE`] | a client leaves render-svc |

use std::time::Duration;

/// The longest time without an event that the contract promises.
pub const EVENT_INTERVAL: Duration = Duration::from_secs(1);
/// The time without an event after which gen-svc sends `progress`.
pub const PROGRESS_INTERVAL: Duration = Duration::from_millis(900);
/// The time without an event of a task after which render-svc sends `progress`.
pub const TASK_SILENCE: Duration = Duration::from_millis(1500);
/// The longest wait for the headers of a replica's response, and for each event after them.
pub const REPLICA_SILENCE: Duration = Duration::from_millis(2500);
/// The time without an event after which a client may treat a server as stuck.
pub const CLIENT_SILENCE: Duration = Duration::from_secs(3);

/// The age of an engine's running step from which gen-svc is not healthy, and a replica that still sends events is
/// left. The slowest step of a usable configuration takes a few seconds.
pub const SLOW_STEP: Duration = Duration::from_secs(30);
/// The age of a running step from which only a restart helps: `/livez` fails.
pub const ENDLESS_STEP: Duration = Duration::from_secs(120);
/// The time without an advance of an output after which render-svc leaves a replica that still reports steps. An honest
/// replica may report none for minutes: on a CPU, the tower of one image takes up to 40 s, and images of several tasks
/// are computed in turns. A preempted output has no place in the queue, and waits until outputs before it end.
pub const NO_ADVANCE: Duration = Duration::from_secs(600);

/// How long a caller may leave the events of a generation unread. Then its outputs end, with an event about it.
pub const READER_PATIENCE: Duration = Duration::from_secs(30);
/// How long a client may leave an answer unread, of any method. Then its connection closes.
pub const ANSWER_PATIENCE: Duration = Duration::from_secs(45);

const _: () = {
    assert!(PROGRESS_INTERVAL.as_millis() < EVENT_INTERVAL.as_millis());
    assert!(EVENT_INTERVAL.as_millis() < TASK_SILENCE.as_millis());
    assert!(TASK_SILENCE.as_millis() < REPLICA_SILENCE.as_millis());
    assert!(REPLICA_SILENCE.as_millis() < CLIENT_SILENCE.as_millis());
    assert!(CLIENT_SILENCE.as_millis() < SLOW_STEP.as_millis());
    assert!(SLOW_STEP.as_millis() < ENDLESS_STEP.as_millis());
    assert!(ENDLESS_STEP.as_millis() < NO_ADVANCE.as_millis());
    assert!(READER_PATIENCE.as_millis() < ANSWER_PATIENCE.as_millis());
};
