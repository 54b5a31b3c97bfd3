//! Exporters whose failures are logged.

use std::fmt::Display;
use std::time::Duration;

use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::logs::{LogBatch, LogExporter};
use opentelemetry_sdk::metrics::Temporality;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};

use crate::log_limit::LogLimit;

/// The limit of the warnings, in the whole process.
static LOG_LIMIT: LogLimit = LogLimit::new(Duration::from_secs(60));

/// An exporter that warns of failed exports, at most once a minute in the whole process.
#[derive(Debug)]
pub(super) struct Reported<E> {
    pub(super) exporter: E,
    /// The exported data: traces, metrics or logs.
    pub(super) signal: &'static str,
    pub(super) endpoint: String,
}

impl<E> Reported<E> {
    fn report(&self, result: OTelSdkResult) -> OTelSdkResult {
        result.inspect_err(|error| self.warn(error))
    }

    fn warn(&self, error: impl Display) {
        if LOG_LIMIT.permit().is_none() {
            return;
        }
        let Self { signal, endpoint, .. } = self;
        tracing::warn!(signal, endpoint, %error, "telemetry is not exported; next report in a minute");
    }
}

impl<E: SpanExporter> SpanExporter for Reported<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.report(self.exporter.export(batch).await)
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

impl<E: LogExporter> LogExporter for Reported<E> {
    async fn export(&self, batch: LogBatch<'_>) -> OTelSdkResult {
        self.report(self.exporter.export(batch).await)
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

impl<E: PushMetricExporter> PushMetricExporter for Reported<E> {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        self.report(self.exporter.export(metrics).await)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn temporality(&self) -> Temporality {
        self.exporter.temporality()
    }
}
