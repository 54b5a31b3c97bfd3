//! The format of log lines, with the ids of their trace and of their request.

use std::cell::Cell;
use std::fmt;

use opentelemetry::Context;
use opentelemetry::trace::TraceContextExt as _;
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer, json};
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::registry::LookupSpan;

use super::args::LogFormat;
use super::identity::Identity;

thread_local! {
    static UNWRITTEN: Cell<u64> = const { Cell::new(0) };
}

/// Sets the number of lines that the caller of this thread's next line had before it without being
/// written.
pub(super) fn set_unwritten(lines: u64) {
    UNWRITTEN.set(lines);
}

/// Formats events as lines.
#[derive(Debug)]
pub(super) struct Lines {
    pub(super) format: LogFormat,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let span = Context::map_current(|context| context.span().span_context().clone());
        let span = span.is_valid().then_some(span);
        let identity = Context::map_current(|context| context.get::<Identity>().cloned());
        let unwritten = UNWRITTEN.take();
        match self.format {
            LogFormat::Text => {
                SystemTime.format_time(&mut writer)?;
                let metadata = event.metadata();
                write!(writer, " {:>5} {}: ", metadata.level(), metadata.target())?;
                context.format_fields(writer.by_ref(), event)?;
                if let Some(span) = span {
                    write!(writer, " trace_id={}", span.trace_id())?;
                }
                write!(writer, "{}", identity.map(|identity| identity.to_text()).unwrap_or_default())?;
                if unwritten > 0 {
                    write!(writer, " unwritten_lines={unwritten}")?;
                }
                writeln!(writer)
            }
            LogFormat::Json => {
                let mut line = String::new();
                let format = json().flatten_event(true).with_current_span(false).with_span_list(false);
                format.format_event(context, Writer::new(&mut line), event)?;
                let fields = line.trim_ascii_end().strip_suffix('}').ok_or(fmt::Error)?;
                write!(writer, "{fields}")?;
                if let Some(span) = span {
                    write!(writer, r#","trace_id":"{}","span_id":"{}""#, span.trace_id(), span.span_id())?;
                }
                write!(writer, "{}", identity.map(|identity| identity.to_json()).unwrap_or_default())?;
                if unwritten > 0 {
                    write!(writer, r#","unwritten_lines":{unwritten}"#)?;
                }
                writeln!(writer, "}}")
            }
        }
    }
}
