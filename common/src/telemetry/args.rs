//! The arguments of telemetry, from the command line and the environment.

use std::net::SocketAddr;

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
    /// OpenTelemetry's environment variables apply too: OTEL_EXPORTER_OTLP_CERTIFICATE, a PEM file of the
    /// authorities that may sign the collector's certificate, which https needs; OTEL_TRACES_SAMPLER_ARG,
    /// the share of the traces that start here, 0 to 1 (default 1), which are recorded; OTEL_SERVICE_NAME,
    /// OTEL_EXPORTER_OTLP_HEADERS, OTEL_BSP_*, OTEL_METRIC_EXPORT_INTERVAL, OTEL_RESOURCE_ATTRIBUTES.
    #[arg(
        long,
        env = "OTEL_EXPORTER_OTLP_ENDPOINT",
        value_name = "http[s]://HOST:PORT",
        value_parser = service_uri
    )]
    pub otlp_endpoint: Option<Uri>,
}

fn log_filter(text: &str) -> Result<String, String> {
    EnvFilter::builder().parse(text).map(|_| text.to_owned()).map_err(|_| {
        "expected a level (error, warn, info, debug, trace), or MODULE=LEVEL, or several of them with commas".to_owned()
    })
}
