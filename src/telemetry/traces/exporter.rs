//! The connection to the collector: OTLP over gRPC, with TLS as towards control planes.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Uri;
use hyper_util::rt::TokioIo;
use opentelemetry::KeyValue;
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig, WithTonicConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkError;
use opentelemetry_sdk::resource::{EnvResourceDetector, TelemetryResourceDetector};
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use rustls::pki_types::ServerName;
use tonic::codegen::Service;
use tonic::transport::Endpoint;

use super::variables::TraceSettings;
use crate::build_facts;
use crate::known_files::KnownFiles;
use crate::tls::OwnCertificate;
use crate::upstream::{DialError, DialLimits, Dialer, Socket, TlsFiles, TlsWords, read_tls};

#[derive(Debug)]
pub(super) struct Exporter {
    exporter: SpanExporter,
    /// The endpoint without user, password and path.
    address: String,
}

/// Opens the connections to the collector. Files for TLS are read each time.
#[derive(Debug, Clone)]
struct Dial {
    uri: Uri,
    tls: Option<TlsFiles>,
    limits: DialLimits,
    dialer: Arc<Dialer>,
    known_files: KnownFiles,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum ExporterError {
    #[error("invalid endpoint: expected http://HOST:PORT or https://HOST:PORT")]
    Endpoint,
    #[error(transparent)]
    Build(#[from] ExporterBuildError),
}

impl Exporter {
    /// Makes an exporter, which connects when there is something to export. The library reads the variables for headers and compression itself.
    pub(super) fn new(
        settings: &TraceSettings,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ExporterError> {
        let invalid = || ExporterError::Endpoint; // the variable may contain a password
        let uri: Uri = settings.endpoint.parse().map_err(|_| invalid())?;
        let tls = match (uri.scheme_str(), uri.host()) {
            (Some("http"), Some(_)) => None,
            (Some("https"), Some(host)) => Some(tls_files(host, variable).ok_or_else(invalid)?),
            _ => return Err(invalid()),
        };
        let (scheme, host) = (uri.scheme_str().unwrap_or_default(), uri.host().unwrap_or_default());
        let port = uri.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
        let address = format!("{scheme}://{host}{port}");
        let limits = DialLimits { connect: settings.timeout, first_words: settings.timeout };
        let (dialer, known_files) = Default::default();
        let dial = Dial { uri: uri.clone(), tls, limits, dialer, known_files };
        let endpoint = Endpoint::from(uri).timeout(settings.timeout).connect_timeout(settings.timeout);
        let channel = endpoint.connect_with_connector_lazy(dial);
        let builder = SpanExporter::builder().with_tonic().with_channel(channel).with_timeout(settings.timeout);
        let mut exporter = builder.build()?;
        exporter.set_resource(&resource(variable));
        Ok(Self { exporter, address })
    }

    /// Returns the collector's address, for the log.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    pub(super) async fn export(&self, spans: Vec<SpanData>) -> Result<(), OTelSdkError> {
        self.exporter.export(spans).await
    }
}

impl Service<Uri> for Dial {
    type Response = TokioIo<Box<dyn Socket>>;
    type Error = DialError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, DialError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let dial = self.clone();
        Box::pin(async move {
            let tls = read_tls(dial.tls.as_ref(), b"h2", &dial.known_files, dial.limits.connect).await?;
            Ok(TokioIo::new(dial.dialer.reach_host(&dial.uri, tls, dial.limits).await?))
        })
    }
}

/// Returns the attributes of all spans: the version of the relay, those of the SDK, those from the variables, and a service name if the variables
/// have none.
fn resource(variable: &dyn Fn(&str) -> Option<String>) -> Resource {
    let stated = |name: &str| variable(name).unwrap_or_default();
    let attributes = stated("OTEL_RESOURCE_ATTRIBUTES");
    let has_name = attributes.split(',').any(|of| of.trim().starts_with("service.name="));
    let builder = Resource::builder_empty()
        .with_attribute(KeyValue::new("service.version", build_facts::VERSION))
        .with_detectors(&[Box::new(TelemetryResourceDetector), Box::new(EnvResourceDetector::new())]);
    match stated("OTEL_SERVICE_NAME") {
        name if !name.is_empty() => builder.with_service_name(name).build(),
        _ if has_name => builder.build(),
        _ => builder.with_service_name("weir").build(),
    }
}

/// Returns the files for TLS: the system's roots, or those of a file. `None` if the host cannot be a name in a certificate.
fn tls_files(host: &str, variable: &dyn Fn(&str) -> Option<String>) -> Option<TlsFiles> {
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let file = |what: &str| {
        let names = [format!("OTEL_EXPORTER_OTLP_TRACES_{what}"), format!("OTEL_EXPORTER_OTLP_{what}")];
        names.iter().find_map(|name| variable(name).filter(|path| !path.is_empty())).map(Into::into)
    };
    let own = file("CLIENT_CERTIFICATE").zip(file("CLIENT_KEY"));
    let own = own.map(|(certificate, key)| OwnCertificate { certificate, key });
    Some(TlsFiles { ca: file("CERTIFICATE"), own, server_name: ServerName::try_from(host).ok()?, words: WORDS })
}

const WORDS: TlsWords = TlsWords {
    client: "the relay",
    no_ca: "OTEL_EXPORTER_OTLP_CERTIFICATE is not given",
    no_certificate: "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE is not given",
    server_name: "the host of the endpoint",
};
