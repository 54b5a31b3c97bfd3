//! Traces, metrics and logs for a collector, over OTLP (the OpenTelemetry protocol) on gRPC.

use std::path::PathBuf;

use clap::Args;
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
use tonic::transport::{Certificate, ClientTlsConfig, Uri};
use tracing_subscriber::filter::ParseError;

/// A collector, and what it gets.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Telemetry")]
pub struct OtlpArgs {
    /// Where traces, metrics and logs go: a collector that takes OTLP over gRPC. Default: nowhere. The environment variables of
    /// OpenTelemetry that say how (OTEL_EXPORTER_OTLP_HEADERS, OTEL_BSP_*, OTEL_METRIC_EXPORT_INTERVAL, OTEL_RESOURCE_ATTRIBUTES) count.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_name = "http[s]://HOST:PORT")]
    pub otlp_endpoint: Option<Uri>,

    /// Who signs the collector's certificate, PEM. Needed for https.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_CERTIFICATE", value_name = "FILE")]
    pub otlp_ca: Option<PathBuf>,

    /// What collectors call this service. Default: its own name.
    #[arg(long, env = "OTEL_SERVICE_NAME", value_name = "NAME")]
    pub service_name: Option<String>,

    /// Of the traces that begin here, the share that is told of, from 0 to 1. Whether others are, is for who began them. It counts without
    /// a collector too: the services that are called from here may have one.
    #[arg(long, env = "TANDEM_TRACE_RATIO", default_value_t = 1.0, value_parser = share, value_name = "SHARE")]
    pub trace_ratio: f64,
}

/// Why telemetry cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// `--log` makes no sense.
    #[error("--log cannot be used")]
    Filter(#[from] ParseError),
    /// The collector cannot be called.
    #[error("--otlp-endpoint cannot be used")]
    Exporter(#[from] ExporterBuildError),
    /// The collector's authority cannot be read.
    #[error("--otlp-ca {} cannot be read", path.display())]
    Authority {
        /// What was asked for.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// https without an authority.
    #[error("--otlp-endpoint is https: give --otlp-ca, who signs its certificate")]
    NoAuthority,
    /// Metrics cannot be made ready to be scraped.
    #[error("metrics cannot be scraped")]
    Scraping(#[from] opentelemetry_sdk::error::OTelSdkError),
}

impl OtlpArgs {
    pub(super) fn collector(&self, service: &'static str) -> Result<Collector, ExportError> {
        let is_secured = self.otlp_endpoint.as_ref().is_some_and(|uri| uri.scheme_str() == Some("https"));
        let tls = match &self.otlp_ca {
            None if is_secured => return Err(ExportError::NoAuthority),
            Some(path) if is_secured => {
                let pem =
                    std::fs::read(path).map_err(|source| ExportError::Authority { path: path.clone(), source })?;
                Some(ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem)))
            }
            _ => None,
        };
        let name = self.service_name.clone().unwrap_or_else(|| service.to_owned());
        let instance = format!("{:016x}", rand());
        let resource = Resource::builder_empty()
            .with_attributes([
                KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
                KeyValue::new("service.instance.id", instance),
            ])
            .with_detector(Box::new(TelemetryResourceDetector))
            .with_detector(Box::new(EnvResourceDetector::new()))
            .with_attributes([KeyValue::new("service.name", name)])
            .build();
        let endpoint = self.otlp_endpoint.as_ref().map(ToString::to_string);
        Ok(Collector { endpoint, tls, ratio: self.trace_ratio, resource })
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share @ 0.0..=1.0) => Ok(share),
        _ => Err("give a number from 0 to 1".to_owned()),
    }
}

/// A number that no other process is likely to have drawn.
fn rand() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(std::process::id())
}

/// Where telemetry goes, if anywhere.
#[derive(Debug)]
pub(super) struct Collector {
    endpoint: Option<String>,
    tls: Option<ClientTlsConfig>,
    ratio: f64,
    resource: Resource,
}

/// An exporter of a kind, to the collector.
macro_rules! exporter {
    ($kind:ident, $collector:expr, $endpoint:expr) => {{
        let builder =
            $kind::builder().with_tonic().with_endpoint($endpoint.clone()).with_compression(Compression::Gzip);
        match &$collector.tls {
            Some(tls) => builder.with_tls_config(tls.clone()).build()?,
            None => builder.build()?,
        }
    }};
}

impl Collector {
    /// None if nobody is to be told.
    pub(super) fn traces(&self) -> Result<Option<SdkTracerProvider>, ExportError> {
        let Some(endpoint) = &self.endpoint else { return Ok(None) };
        let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(self.ratio)));
        let builder = SdkTracerProvider::builder().with_resource(self.resource.clone()).with_sampler(sampler);
        Ok(Some(builder.with_batch_exporter(exporter!(SpanExporter, self, endpoint)).build()))
    }

    /// None if nobody is to be told.
    pub(super) fn metrics(&self, scraped: Option<&Registry>) -> Result<Option<SdkMeterProvider>, ExportError> {
        if self.endpoint.is_none() && scraped.is_none() {
            return Ok(None);
        }
        let mut builder = SdkMeterProvider::builder().with_resource(self.resource.clone());
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_reader(PeriodicReader::builder(exporter!(MetricExporter, self, endpoint)).build());
        }
        if let Some(registry) = scraped {
            let exporter =
                opentelemetry_prometheus::exporter().scope_info_enabled(false).with_registry(registry.clone());
            builder = builder.with_reader(exporter.build()?);
        }
        Ok(Some(builder.build()))
    }

    /// None if nobody is to be told.
    pub(super) fn logs(&self) -> Result<Option<SdkLoggerProvider>, ExportError> {
        let Some(endpoint) = &self.endpoint else { return Ok(None) };
        let builder = SdkLoggerProvider::builder().with_resource(self.resource.clone());
        Ok(Some(builder.with_batch_exporter(exporter!(LogExporter, self, endpoint)).build()))
    }
}
