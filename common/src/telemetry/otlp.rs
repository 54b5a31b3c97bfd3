//! Export of traces, metrics and logs to a collector, over OTLP (the OpenTelemetry protocol) on
//! gRPC.

use std::path::PathBuf;

use opentelemetry::KeyValue;
use opentelemetry_otlp::{
    Compression, ExporterBuildError, LogExporter, MetricExporter, SpanExporter, WithExportConfig as _,
    WithTonicConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::logs::SdkLoggerProvider;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};
use opentelemetry_sdk::resource::{EnvResourceDetector, TelemetryResourceDetector};
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use prometheus::Registry;
use tonic::transport::{Certificate, ClientTlsConfig};
use tracing_subscriber::filter::ParseError;

use super::args::OtlpArgs;
use super::reported::Reported;
use crate::program::Build;
use crate::random::random_u64;

/// Why telemetry cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// `--log` is not a valid filter.
    #[error("cannot use --log")]
    Filter(#[from] ParseError),
    /// An exporter cannot be built.
    #[error("cannot use --otlp-endpoint")]
    Exporter(#[from] ExporterBuildError),
    /// The file of the collector's authorities cannot be read.
    #[error("cannot read OTEL_EXPORTER_OTLP_CERTIFICATE {}", path.display())]
    Authority {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The endpoint is https, without an authority.
    #[error("--otlp-endpoint is https: set OTEL_EXPORTER_OTLP_CERTIFICATE")]
    NoAuthority,
    /// The sampling ratio is none.
    #[error("OTEL_TRACES_SAMPLER_ARG must be a number from 0 to 1, is {0:?}")]
    Ratio(String),
    /// The reader of the metrics page cannot be built.
    #[error("cannot export metrics to Prometheus")]
    Scraping(#[from] opentelemetry_sdk::error::OTelSdkError),
}

impl OtlpArgs {
    /// Returns the collector for a program, with the settings of OpenTelemetry's environment variables.
    pub(super) fn collector(&self, build: &Build) -> Result<Collector, ExportError> {
        let is_secured = self.otlp_endpoint.as_ref().is_some_and(|uri| uri.scheme_str() == Some("https"));
        let tls = match variable("OTEL_EXPORTER_OTLP_CERTIFICATE") {
            None if is_secured => return Err(ExportError::NoAuthority),
            Some(path) if is_secured => {
                let path = PathBuf::from(path);
                let pem = std::fs::read(&path).map_err(|source| ExportError::Authority { path, source })?;
                Some(ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem)))
            }
            _ => None,
        };
        let name = variable("OTEL_SERVICE_NAME").unwrap_or_else(|| build.name.to_owned());
        let instance = format!("{:016x}", random_u64());
        let resource = Resource::builder_empty()
            .with_attributes([
                KeyValue::new("service.version", Build::VERSION),
                KeyValue::new("vcs.ref.head.revision", build.commit()),
                KeyValue::new("service.instance.id", instance),
            ])
            .with_detector(Box::new(TelemetryResourceDetector))
            .with_detector(Box::new(EnvResourceDetector::new()))
            .with_attributes([KeyValue::new("service.name", name)])
            .build();
        let endpoint = self.otlp_endpoint.as_ref().map(ToString::to_string);
        Ok(Collector { endpoint, tls, ratio: sampling_ratio(variable("OTEL_TRACES_SAMPLER_ARG"))?, resource })
    }
}

/// Returns the value of an environment variable. An empty one counts as unset, as OpenTelemetry defines.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Reads the share of the traces starting in this process that are recorded: 0 to 1, by default all.
fn sampling_ratio(value: Option<String>) -> Result<f64, ExportError> {
    let Some(text) = value else { return Ok(1.0) };
    match text.parse() {
        Ok(ratio @ 0.0..=1.0) => Ok(ratio),
        _ => Err(ExportError::Ratio(text)),
    }
}

/// The destination of exports. Without an endpoint nothing is exported.
#[derive(Debug)]
pub(super) struct Collector {
    endpoint: Option<String>,
    tls: Option<ClientTlsConfig>,
    /// The share of the traces starting in this process that are recorded.
    pub(super) ratio: f64,
    resource: Resource,
}

/// Builds an exporter for one signal.
macro_rules! exporter {
    ($kind:ident, $signal:literal, $collector:expr, $endpoint:expr) => {{
        let builder =
            $kind::builder().with_tonic().with_endpoint($endpoint.clone()).with_compression(Compression::Gzip);
        let exporter = match &$collector.tls {
            Some(tls) => builder.with_tls_config(tls.clone()).build()?,
            None => builder.build()?,
        };
        Reported { exporter, signal: $signal, endpoint: $endpoint.clone() }
    }};
}

impl Collector {
    /// Returns the trace exporter, or None without an endpoint.
    pub(super) fn traces(&self) -> Result<Option<SdkTracerProvider>, ExportError> {
        let Some(endpoint) = &self.endpoint else { return Ok(None) };
        let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(self.ratio)));
        let builder = SdkTracerProvider::builder().with_resource(self.resource.clone()).with_sampler(sampler);
        Ok(Some(builder.with_batch_exporter(exporter!(SpanExporter, "traces", self, endpoint)).build()))
    }

    /// Returns the metric exporters: to the collector, and to the registry of the metrics page.
    /// None without both.
    pub(super) fn metrics(&self, page: Option<&Registry>) -> Result<Option<SdkMeterProvider>, ExportError> {
        if self.endpoint.is_none() && page.is_none() {
            return Ok(None);
        }
        let mut builder = SdkMeterProvider::builder().with_resource(self.resource.clone());
        if let Some(endpoint) = &self.endpoint {
            builder = builder
                .with_reader(PeriodicReader::builder(exporter!(MetricExporter, "metrics", self, endpoint)).build());
        }
        if let Some(registry) = page {
            let exporter =
                opentelemetry_prometheus::exporter().scope_info_enabled(false).with_registry(registry.clone());
            builder = builder.with_reader(exporter.build()?);
        }
        Ok(Some(builder.build()))
    }

    /// Returns the log exporter, or None without an endpoint.
    pub(super) fn logs(&self) -> Result<Option<SdkLoggerProvider>, ExportError> {
        let Some(endpoint) = &self.endpoint else { return Ok(None) };
        let builder = SdkLoggerProvider::builder().with_resource(self.resource.clone());
        Ok(Some(builder.with_batch_exporter(exporter!(LogExporter, "logs", self, endpoint)).build()))
    }
}
