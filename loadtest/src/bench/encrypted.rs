//! Mutual TLS between the clients and the relay: certificates for one run.

use std::path::Path;

use anyhow::Context;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use crate::address::{TlsOptions, client_tls};
use crate::link::Tls;

/// Writes certificates to a folder. Returns the configuration of the relay's listener, and the TLS settings of the clients.
pub fn certificates(folder: &Path) -> anyhow::Result<(String, Tls)> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new([])?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = params.self_signed(&key)?.pem();
    let issuer = Issuer::new(params, key);
    write(folder, "ca.pem", &ca)?;
    for who in ["server", "client"] {
        let key = KeyPair::generate()?;
        let signed = CertificateParams::new([format!("{who}.bench.example")])?.signed_by(&key, &issuer)?;
        write(folder, &format!("{who}.pem"), &signed.pem())?;
        write(folder, &format!("{who}.key"), &key.serialize_pem())?;
    }
    let options = TlsOptions {
        ca: Some(folder.join("ca.pem")),
        certificate: Some(folder.join("client.pem")),
        key: Some(folder.join("client.key")),
        server_name: None,
    };
    let listener = "tls: {certificate: server.pem, key: server.key, client_ca: ca.pem, client_auth: required}";
    Ok((listener.into(), client_tls(&options, "server.bench.example")?))
}

fn write(folder: &Path, name: &str, pem: &str) -> anyhow::Result<()> {
    std::fs::write(folder.join(name), pem).with_context(|| format!("cannot write {name}"))
}
