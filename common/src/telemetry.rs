//! Telemetry: logs on standard error, traces, metrics and logs exported over OTLP, and the registry
//! of the metrics page.
//!
//! None of it contains prompt or answer text, only sizes and counts.

mod args;
mod call;
mod identity;
mod line_limit;
mod lines;
mod log_outputs;
mod meter;
mod otlp;
mod reported;
mod span;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use opentelemetry::global;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge;
use opentelemetry_sdk::logs::SdkLoggerProvider;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::SdkTracerProvider;
use prometheus::Registry;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tracing::Subscriber;
use tracing_subscriber::filter::{FilterExt as _, LevelFilter, ParseError, filter_fn};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer, fmt, layer};

use crate::program::Build;
use line_limit::{CallerLimit, LINES_PER_SECOND};
use log_outputs::LogOutputs;

pub use args::{LogArgs, LogFormat, OtlpArgs, TelemetryArgs};
pub(crate) use call::Call;
pub use call::{Traced, traced};
pub(crate) use identity::Identity;
pub use meter::{meter, record_service};
pub use otlp::ExportError;
pub use span::Span;

/// Verbose libraries and their highest level, unless `--log` names them.
const QUIET_LIBRARIES: [(&str, LevelFilter); 4] = [
    ("tk_encode", LevelFilter::WARN),
    ("ptr_hash", LevelFilter::ERROR),
    ("opentelemetry", LevelFilter::WARN),
    // It warns of each wrong frame of a client.
    ("h2", LevelFilter::ERROR),
];
/// The time for the last export.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);

/// Starts logging for the whole process. Later calls have no effect.
///
/// # Errors
/// Fails if the filter is invalid.
pub fn init(args: &LogArgs) -> Result<(), ParseError> {
    let _ = tracing_subscriber::registry().with(outputs(args, None::<layer::Identity>)?).try_init();
    Ok(())
}

/// Starts logging for the whole process, and reads the files of the export. Nothing is exported.
///
/// # Errors
/// Fails as [`Telemetry::start`] does.
pub fn check(build: &Build, args: &TelemetryArgs) -> Result<(), ExportError> {
    init(&args.log)?;
    args.otlp.collector(build)?.traces().map(drop)
}

/// The running telemetry of a service.
#[derive(Debug)]
pub struct Telemetry {
    traces: Option<SdkTracerProvider>,
    metrics: Option<SdkMeterProvider>,
    logs: Option<SdkLoggerProvider>,
    page: Option<MetricsPage>,
}

/// Metrics that are served over HTTP, as Prometheus scrapes them.
#[derive(Debug)]
pub(crate) struct MetricsPage {
    /// The address to listen on.
    pub(crate) address: SocketAddr,
    /// The source of the metrics.
    pub(crate) registry: Registry,
}

impl Telemetry {
    /// Starts telemetry for the whole process, on a tokio runtime. Metrics created before are not
    /// recorded.
    ///
    /// # Errors
    /// Fails if the log filter is invalid or an exporter cannot be built.
    pub fn start(build: &Build, args: &TelemetryArgs) -> Result<Self, ExportError> {
        let TelemetryArgs { log, otlp, metrics_listen } = args;
        let collector = otlp.collector(build)?;
        let traces = collector.traces()?;
        let logs = collector.logs()?;
        let page = metrics_listen.map(|address| MetricsPage { address, registry: process_registry() });
        let metrics = collector.metrics(page.as_ref().map(|page| &page.registry))?;
        let exported = logs.as_ref().map(OpenTelemetryTracingBridge::new);
        // Fails for the second service in a process, as in tests, which then shares the first one's
        // subscriber.
        let _ = tracing_subscriber::registry().with(outputs(log, exported)?).try_init();
        tracing::info!(program = build.name, version = Build::VERSION, commit = build.commit(), "starting");
        span::install(traces.as_ref().map(|traces| traces.tracer("tandem")), collector.ratio);
        if let Some(metrics) = &metrics {
            global::set_meter_provider(metrics.clone());
        }
        if let Some(metrics) = metrics.clone().filter(|_| otlp.otlp_endpoint.is_some()) {
            // The first export shows at once whether the collector can be reached.
            // A separate thread, because the runtime waits for its own threads when it ends.
            let _ = std::thread::Builder::new().name("telemetry-start".to_owned()).spawn(move || metrics.force_flush());
        }
        Ok(Self { traces, metrics, logs, page })
    }

    /// Returns the metrics to serve over HTTP, or None without `--metrics-listen`.
    pub(crate) fn metrics_page(&self) -> Option<&MetricsPage> {
        self.page.as_ref()
    }

    /// Flushes pending telemetry, waiting at most [`FLUSH_TIMEOUT`].
    pub async fn end(self) {
        let end = move || {
            // In parallel, because each waits up to the timeout.
            std::thread::scope(|scope| {
                scope.spawn(|| self.traces.as_ref().map(|traces| traces.shutdown_with_timeout(FLUSH_TIMEOUT)));
                scope.spawn(|| self.metrics.as_ref().map(|metrics| metrics.shutdown_with_timeout(FLUSH_TIMEOUT)));
                scope.spawn(|| self.logs.as_ref().map(|logs| logs.shutdown_with_timeout(FLUSH_TIMEOUT)));
            });
        };
        let (ended, end_reached) = oneshot::channel();
        // A separate thread, because the runtime waits for its own threads, and the shutdown of
        // metrics ignores its timeout while an export hangs.
        let thread = std::thread::Builder::new().name("telemetry-end".to_owned());
        let spawned = thread.spawn(move || {
            end();
            let _ = ended.send(());
        });
        if spawned.is_err() || timeout(FLUSH_TIMEOUT, end_reached).await.is_err() {
            tracing::warn!(seconds = FLUSH_TIMEOUT.as_secs(), "telemetry not flushed");
        }
    }
}

/// Returns a registry with the metrics of the process: CPU time, memory, open files and start time.
fn process_registry() -> Registry {
    let registry = Registry::new();
    // Fails only for a second collector, and on systems without /proc there is none.
    #[cfg(target_os = "linux")]
    let _ = registry.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()));
    registry
}

/// Builds the filter of `--log`, with the quiet libraries before it.
fn filter(args: &LogArgs) -> Result<EnvFilter, ParseError> {
    let directives = args.log.split(',').map(str::trim).filter(|directive| !directive.is_empty());
    let most = directives.rev().find_map(|directive| directive.parse().ok()).unwrap_or(LevelFilter::ERROR);
    let quiet = QUIET_LIBRARIES.map(|(library, level)| format!("{library}={}", level.min(most))).join(",");
    EnvFilter::builder().parse(format!("{quiet},{}", args.log))
}

/// Returns the outputs of logs: lines on standard error, and what `exported` does with events.
fn outputs<S, E>(args: &LogArgs, exported: Option<E>) -> Result<impl Layer<S>, ParseError>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    E: Layer<S>,
{
    let filter = filter(args)?.and(filter_fn(|metadata| metadata.is_event()).with_max_level_hint(LevelFilter::TRACE));
    let format = lines::Lines { format: args.log_format };
    let lines = fmt::layer().event_format(format).with_writer(io::stderr).with_ansi(false);
    let limit = CallerLimit::new(LINES_PER_SECOND);
    Ok(LogOutputs { lines, exported, limit }.with_filter(filter))
}
