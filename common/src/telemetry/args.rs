//! The arguments of telemetry, from the command line and the environment.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use tonic::transport::Uri;
use tracing_subscriber::EnvFilter;

use crate::address::listen_address;
use crate::call::service_uri;

/// The log filter and format.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Logging")]
pub struct LogArgs {
    /// Log filter: a level (error, warn, info, debug, trace) or directives such as
    /// `info,tandem_core=debug`
    #[arg(long, env = "TANDEM_LOG", default_value = "info", value_parser = log_filter, value_name = "FILTER")]
    pub log: String,

    /// Log format
    #[arg(long, env = "TANDEM_LOG_FORMAT", default_value = "text", value_name = "FORMAT")]
    pub log_format: LogFormat,

    /// Maximum number of log lines per second that the calls of one caller can cause; 0 for any
    ///
    /// Ten seconds' lines can come at once. Further lines are neither written nor exported: the
    /// caller's next line has their number as `unwritten_lines`. Errors have a separate limit of the
    /// same size. Metrics count every call.
    #[arg(long, env = "TANDEM_LOG_LINES_PER_CALLER", default_value_t = 100, value_name = "LINES")]
    pub log_lines_per_caller: u32,
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum LogFormat {
    /// One line of text per event.
    Text,
    /// One JSON object per event.
    Json,
}

/// Logs, export and metrics page of a service.
#[derive(Debug, Clone, Args)]
pub struct TelemetryArgs {
    /// The logs.
    #[command(flatten)]
    pub log: LogArgs,

    /// The export.
    #[command(flatten)]
    pub otlp: OtlpArgs,

    /// Address of the Prometheus page, http://ADDRESS/metrics [default: disabled]
    ///
    /// It has the same TLS certificate and the same bearer tokens as the service.
    #[arg(
        long,
        env = "TANDEM_METRICS_LISTEN",
        value_parser = listen_address,
        value_name = "ADDRESS",
        help_heading = "Telemetry"
    )]
    pub metrics_listen: Option<SocketAddr>,
}

/// The OpenTelemetry collector.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Telemetry")]
pub struct OtlpArgs {
    /// Address of an OTLP/gRPC collector for traces, metrics and logs [default: disabled]
    ///
    /// OpenTelemetry's other environment variables apply too: OTEL_EXPORTER_OTLP_HEADERS,
    /// OTEL_BSP_*, OTEL_METRIC_EXPORT_INTERVAL, OTEL_RESOURCE_ATTRIBUTES.
    #[arg(
        long,
        env = "OTEL_EXPORTER_OTLP_ENDPOINT",
        value_name = "http[s]://HOST:PORT",
        value_parser = service_uri
    )]
    pub otlp_endpoint: Option<Uri>,

    /// PEM file of the authorities that may sign the collector's certificate. Required for https
    #[arg(long, env = "OTEL_EXPORTER_OTLP_CERTIFICATE", value_name = "FILE")]
    pub otlp_ca: Option<PathBuf>,

    /// Service name in exported telemetry [default: the program's name]
    #[arg(long, env = "OTEL_SERVICE_NAME", value_name = "NAME")]
    pub service_name: Option<String>,

    /// Sampling ratio for traces started here, 0 to 1. Incoming trace context is honoured
    ///
    /// It applies without a collector too: the trace context propagates to services that may have
    /// one.
    #[arg(long, env = "TANDEM_TRACE_RATIO", default_value_t = 1.0, value_parser = ratio, value_name = "RATIO")]
    pub trace_ratio: f64,
}

fn log_filter(text: &str) -> Result<String, String> {
    EnvFilter::builder().parse(text).map(|_| text.to_owned()).map_err(|_| {
        "expected a level (error, warn, info, debug, trace), or MODULE=LEVEL, or several of them with commas".to_owned()
    })
}

fn ratio(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(ratio @ 0.0..=1.0) => Ok(ratio),
        _ => Err("expected a number from 0 to 1".to_owned()),
    }
}
