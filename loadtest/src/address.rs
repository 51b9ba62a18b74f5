//! Server addresses on command lines and in files: `HOST:PORT`, `http://HOST:PORT`, `https://HOST:PORT` or `unix:PATH`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::link::{Target, Tls};

/// TLS towards a server with an `https://` address.
#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlsOptions {
    /// PEM file of CAs that may sign the server's certificate; required for https://.
    #[arg(long = "tls-ca")]
    pub ca: Option<PathBuf>,
    /// PEM file of the client's certificate.
    #[arg(long = "tls-certificate", alias = "tls-cert", requires = "key")]
    pub certificate: Option<PathBuf>,
    /// PEM file of the client's key.
    #[arg(long = "tls-key", id = "key", requires = "certificate")]
    pub key: Option<PathBuf>,
    /// Name expected in the server's certificate [default: the host of the address].
    #[arg(long = "tls-server-name")]
    pub server_name: Option<String>,
}

/// Resolves the address, and reads the TLS files if its scheme needs them.
pub async fn resolve(server: &str, tls: &TlsOptions) -> anyhow::Result<(Target, Option<Tls>)> {
    if let Some(path) = server.strip_prefix("unix:") {
        let path = path.strip_prefix("//").unwrap_or(path);
        return Ok((Target::Unix(Path::new(path).into()), None));
    }
    let (scheme, authority) = server.split_once("://").unwrap_or(("http", server));
    let authority = authority.trim_end_matches('/');
    let mut found = tokio::net::lookup_host(authority).await.with_context(|| {
        format!("invalid address {server:?}: expected HOST:PORT, http://HOST:PORT, https://HOST:PORT or unix:PATH")
    })?;
    let address: Target = found.next().with_context(|| format!("{server:?} has no address"))?.into();
    match scheme {
        "http" => Ok((address, None)),
        "https" => {
            let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
            Ok((address, Some(client_tls(tls, tls.server_name.as_deref().unwrap_or(host))?)))
        }
        _ => bail!("invalid scheme {scheme:?}: expected http, https or unix"),
    }
}

/// Reads the files of a client that connects to a server of this name.
pub fn client_tls(options: &TlsOptions, name: &str) -> anyhow::Result<Tls> {
    let ca = options.ca.as_ref().context("https:// requires the CAs of the server's certificate (--tls-ca, tls.ca)")?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates(ca)? {
        roots.add(certificate).with_context(|| format!("invalid CA in {}", ca.display()))?;
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let builder = builder.with_safe_default_protocol_versions()?.with_root_certificates(roots);
    let mut config = match (&options.certificate, &options.key) {
        (Some(certificate), Some(key)) => {
            let key = PrivateKeyDer::from_pem_file(key).with_context(|| format!("cannot read {}", key.display()))?;
            builder.with_client_auth_cert(certificates(certificate)?, key)?
        }
        _ => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    let server_name = ServerName::try_from(name.trim_matches(['[', ']']).to_owned());
    let server_name = server_name.with_context(|| format!("invalid server name {name:?}"))?;
    Ok(Tls { config: Arc::new(config), server_name })
}

fn certificates(path: &PathBuf) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    found.with_context(|| format!("cannot read certificates from {}", path.display()))
}
