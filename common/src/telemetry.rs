//! What a service tells of itself: logs on standard error, so that standard output stays the program's own; traces, metrics and logs
//! over OTLP, if there is a collector; metrics for whoever scrapes them. None of it says anything of what callers send but how much
//! it is.

mod call;
mod lines;
mod otlp;
mod span;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use opentelemetry::global;
use opentelemetry::metrics::Meter;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge;
use opentelemetry_sdk::logs::SdkLoggerProvider;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::SdkTracerProvider;
use prometheus::Registry;
use tracing::Subscriber;
use tracing_subscriber::filter::{FilterExt as _, LevelFilter, ParseError, filter_fn};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer, fmt};

pub(crate) use call::Call;
pub use call::{Traced, traced};
pub use otlp::{ExportError, OtlpArgs};
pub use span::Span;

/// Libraries that tell everyone how they build their tables, or each step of an export, and how much of it is shown. Filters that name
/// them still count.
const QUIET: [(&str, LevelFilter); 3] =
    [("tk_encode", LevelFilter::WARN), ("ptr_hash", LevelFilter::ERROR), ("opentelemetry", LevelFilter::WARN)];
/// What an export does must not be exported.
const NOT_EXPORTED: &str = "opentelemetry=off,tonic=off,h2=off,hyper=off,hyper_util=off,tower=off";

/// How long the last of it may take to be told.
const END: Duration = Duration::from_secs(3);

/// How to log.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Logging")]
pub struct LogArgs {
    /// What to log: a level (error, warn, info, debug, trace), or directives such as `info,gen_svc=debug`.
    #[arg(long, env = "TANDEM_LOG", default_value = "info", value_name = "FILTER")]
    pub log: String,

    /// How log lines look: text for people, json for collectors.
    #[arg(long, env = "TANDEM_LOG_FORMAT", default_value = "text", value_name = "FORMAT")]
    pub log_format: LogFormat,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum LogFormat {
    /// One line for people.
    Text,
    /// One JSON object per line.
    Json,
}

/// What a service tells of itself.
#[derive(Debug, Clone, Args)]
pub struct TelemetryArgs {
    /// Logs.
    #[command(flatten)]
    pub log: LogArgs,

    /// A collector.
    #[command(flatten)]
    pub otlp: OtlpArgs,

    /// Where metrics can be scraped, as Prometheus does: http://ADDRESS/metrics. Secured as the service is: over https with its
    /// certificate, for those who have a token. Default: nowhere.
    #[arg(long, env = "TANDEM_METRICS_LISTEN", value_name = "ADDRESS", help_heading = "Telemetry")]
    pub metrics_listen: Option<SocketAddr>,
}

/// Starts logging for the whole process. A second call changes nothing.
///
/// # Errors
/// A filter that does not parse.
pub fn init(args: &LogArgs) -> Result<(), ParseError> {
    let _ = tracing_subscriber::registry().with(lines(args)?).try_init();
    Ok(())
}

/// What makes metrics. They count once [`Telemetry::start`] was called, if there is someone to tell.
#[must_use]
pub fn meter() -> Meter {
    global::meter("tandem")
}

/// A service's telemetry, under way.
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
    /// Starts it for the whole process, on a tokio runtime. Metrics that were made before do not count.
    ///
    /// # Errors
    /// A filter that does not parse, or a collector that cannot be called as configured.
    pub fn start(service: &'static str, args: &TelemetryArgs) -> Result<Self, ExportError> {
        let TelemetryArgs { log, otlp, metrics_listen } = args;
        let collector = otlp.collector(service)?;
        let traces = collector.traces()?;
        let logs = collector.logs()?;
        let page = metrics_listen.map(|address| MetricsPage { address, registry: Registry::new() });
        let metrics = collector.metrics(page.as_ref().map(|page| &page.registry))?;
        let exported = match &logs {
            Some(logs) => Some(OpenTelemetryTracingBridge::new(logs).with_filter(filter(log, NOT_EXPORTED)?)),
            None => None,
        };
        // The process has one, for all tests that start a service in it.
        let _ = tracing_subscriber::registry().with(lines(log)?).with(exported).try_init();
        span::tell(traces.as_ref().map(|traces| traces.tracer("tandem")), otlp.trace_ratio);
        if let Some(metrics) = &metrics {
            global::set_meter_provider(metrics.clone());
        }
        Ok(Self { traces, metrics, logs, page })
    }

    /// The metrics to serve over HTTP; None without `--metrics-listen`.
    pub(crate) fn metrics_page(&self) -> Option<&MetricsPage> {
        self.page.as_ref()
    }

    /// Tells what is still to be told, if the collector takes it within some seconds.
    pub async fn end(self) {
        let end = move || {
            // Side by side: each may take some seconds.
            std::thread::scope(|scope| {
                scope.spawn(|| self.traces.as_ref().map(|traces| traces.shutdown_with_timeout(END)));
                scope.spawn(|| self.metrics.as_ref().map(|metrics| metrics.shutdown_with_timeout(END)));
                scope.spawn(|| self.logs.as_ref().map(|logs| logs.shutdown_with_timeout(END)));
            });
        };
        let _ = tokio::task::spawn_blocking(end).await;
    }
}

fn filter(args: &LogArgs, more: &str) -> Result<EnvFilter, ParseError> {
    let directives = args.log.split(',').map(str::trim).filter(|directive| !directive.is_empty());
    let most = directives.rev().find_map(|directive| directive.parse().ok()).unwrap_or(LevelFilter::ERROR);
    let quiet = QUIET.map(|(library, level)| format!("{library}={}", level.min(most))).join(",");
    EnvFilter::builder().parse(format!("{quiet},{},{more}", args.log))
}

fn lines<S: Subscriber + for<'a> LookupSpan<'a>>(args: &LogArgs) -> Result<impl Layer<S>, ParseError> {
    let filter =
        filter(args, "")?.and(filter_fn(|metadata| metadata.is_event()).with_max_level_hint(LevelFilter::TRACE));
    Ok(fmt::layer()
        .event_format(lines::Lines(args.log_format))
        .with_writer(io::stderr)
        .with_ansi(false)
        .with_filter(filter))
}
