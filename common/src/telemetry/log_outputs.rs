//! The outputs of logs: lines, and records for the collector. No output gets an event that exceeds
//! its caller's limit.

use opentelemetry::Context;
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer;

use super::identity::Identity;
use super::line_limit::CallerLimit;
use super::lines::set_unwritten;

/// The starts of targets whose events are not exported: the exporter's own.
const NOT_EXPORTED: [&str; 6] = ["opentelemetry", "tonic", "h2", "hyper", "hyper_util", "tower"];

/// Passes each event on to all outputs, or to none.
#[derive(Debug)]
pub(super) struct LogOutputs<L, E> {
    pub(super) lines: L,
    /// None without a collector.
    pub(super) exported: Option<E>,
    pub(super) limit: CallerLimit,
}

impl<S, L, E> Layer<S> for LogOutputs<L, E>
where
    S: Subscriber,
    L: Layer<S>,
    E: Layer<S>,
{
    fn on_event(&self, event: &Event<'_>, context: layer::Context<'_, S>) {
        let metadata = event.metadata();
        let caller = Context::map_current(|context| context.get::<Identity>().map(|it| it.caller_id().clone()));
        let permitted = caller.map_or(Some(0), |caller| self.limit.permit(*metadata.level(), &caller));
        let Some(unwritten) = permitted else { return };
        set_unwritten(unwritten);
        self.lines.on_event(event, context.clone());
        if let Some(exported) = self.exported.as_ref().filter(|_| is_exported(metadata.target())) {
            exported.on_event(event, context);
        }
    }
}

fn is_exported(target: &str) -> bool {
    !NOT_EXPORTED.iter().any(|start| target.starts_with(start))
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::HeaderMap;
    use opentelemetry::Context;
    use parking_lot::Mutex;
    use tracing::{Event, Subscriber};
    use tracing_subscriber::layer::{self, SubscriberExt as _};
    use tracing_subscriber::{Layer, fmt};

    use super::LogOutputs;
    use crate::telemetry::args::LogFormat;
    use crate::telemetry::identity::Identity;
    use crate::telemetry::line_limit::CallerLimit;
    use crate::telemetry::lines::Lines;

    const EVENTS: usize = 10_000;

    #[derive(Clone, Default)]
    struct Text(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Text {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[derive(Clone, Default)]
    struct Records(Arc<AtomicUsize>);

    impl<S: Subscriber> Layer<S> for Records {
        fn on_event(&self, _: &Event<'_>, _: layer::Context<'_, S>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the lines and the number of records of what `log` logs.
    fn logged(log: impl FnOnce()) -> (Vec<String>, usize) {
        let (text, records) = (Text::default(), Records::default());
        let writer = text.clone();
        let lines = fmt::layer()
            .event_format(Lines { format: LogFormat::Text })
            .with_writer(move || writer.clone())
            .with_ansi(false);
        let outputs = LogOutputs { lines, exported: Some(records.clone()), limit: CallerLimit::new(1.0) };
        tracing::subscriber::with_default(tracing_subscriber::registry().with(outputs), log);
        let text = String::from_utf8(std::mem::take(&mut text.0.lock())).expect("text");
        (text.lines().map(str::to_owned).collect(), records.0.load(Ordering::Relaxed))
    }

    #[test]
    fn lines_and_records_of_one_caller_have_one_limit() {
        let identity = || Context::current_with_value(Identity::new(&HeaderMap::new(), "a".into())).attach();
        let (lines, records) = logged(|| {
            let _caller = identity();
            (0..EVENTS).for_each(|_| tracing::info!("call"));
        });
        assert!((10..EVENTS).contains(&lines.len()), "{} lines", lines.len());
        assert_eq!(records, lines.len());
        let (errors, records) = logged(|| {
            let _caller = identity();
            (0..EVENTS).for_each(|_| tracing::error!("request failed"));
        });
        assert!((10..EVENTS).contains(&errors.len()), "{} lines", errors.len());
        assert_eq!(records, errors.len());
    }

    #[test]
    fn events_without_a_caller_have_no_limit() {
        let (lines, records) = logged(|| (0..100).for_each(|_| tracing::error!("step failed")));
        assert_eq!((lines.len(), records), (100, 100));
        let (lines, records) = logged(|| tracing::warn!(target: "hyper_util::client", "reconnecting"));
        assert_eq!((lines.len(), records), (1, 0), "the exporter's own events are not exported");
    }
}
