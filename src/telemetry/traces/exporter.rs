//! The connection to the collector: OTLP over gRPC.

use std::path::Path;

use opentelemetry::KeyValue;
use opentelemetry_otlp::tonic_types::transport::{Certificate, ClientTlsConfig, Identity};
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig, WithTonicConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkError;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};

use super::variables::TraceSettings;
use crate::build_facts;

#[derive(Debug)]
pub(super) struct Exporter(SpanExporter);

#[derive(Debug, thiserror::Error)]
pub(super) enum ExporterError {
    #[error(transparent)]
    Build(#[from] ExporterBuildError),
    #[error("cannot read {path}: {source}")]
    Read { path: String, source: std::io::Error },
}

impl Exporter {
    /// Connects when there is something to export. Headers and compression are read by the exporter itself.
    pub(super) fn new(
        settings: &TraceSettings,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ExporterError> {
        let builder =
            SpanExporter::builder().with_tonic().with_endpoint(&settings.endpoint).with_timeout(settings.timeout);
        let builder = match settings.endpoint.starts_with("http://") {
            true => builder,
            false => builder.with_tls_config(tls(variable)?),
        };
        let mut exporter = builder.build()?;
        exporter.set_resource(&resource(variable));
        Ok(Self(exporter))
    }

    pub(super) async fn export(&self, spans: Vec<SpanData>) -> Result<(), OTelSdkError> {
        self.0.export(spans).await
    }
}

/// Returns the attributes of all spans: the variables', and the name of the service if they have none.
fn resource(variable: &dyn Fn(&str) -> Option<String>) -> Resource {
    let version = KeyValue::new("service.version", build_facts::VERSION);
    let stated = |name: &str| variable(name).unwrap_or_default();
    let attributes = stated("OTEL_RESOURCE_ATTRIBUTES");
    let has_name = attributes.split(',').any(|of| of.trim().starts_with("service.name="));
    let builder = Resource::builder_empty().with_attribute(version);
    let builder = builder.with_detectors(&[
        Box::new(opentelemetry_sdk::resource::TelemetryResourceDetector),
        Box::new(opentelemetry_sdk::resource::EnvResourceDetector::new()),
    ]);
    match stated("OTEL_SERVICE_NAME") {
        name if !name.is_empty() => builder.with_service_name(name).build(),
        _ if has_name => builder.build(),
        _ => builder.with_service_name("weir").build(),
    }
}

/// Trusts the roots of the system, or those of a file, which is the exporter's part of the specification that it leaves to others.
fn tls(variable: &dyn Fn(&str) -> Option<String>) -> Result<ClientTlsConfig, ExporterError> {
    let file = |what: &str| {
        let names = [format!("OTEL_EXPORTER_OTLP_TRACES_{what}"), format!("OTEL_EXPORTER_OTLP_{what}")];
        names.iter().find_map(|name| variable(name).filter(|path| !path.is_empty())).map(read).transpose()
    };
    let roots = file("CERTIFICATE")?;
    let tls = match roots {
        Some(roots) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(roots)),
        None => ClientTlsConfig::new().with_native_roots(),
    };
    Ok(match (file("CLIENT_CERTIFICATE")?, file("CLIENT_KEY")?) {
        (Some(certificate), Some(key)) => tls.identity(Identity::from_pem(certificate, key)),
        _ => tls,
    })
}

fn read(path: String) -> Result<Vec<u8>, ExporterError> {
    std::fs::read(Path::new(&path)).map_err(|source| ExporterError::Read { path, source })
}
