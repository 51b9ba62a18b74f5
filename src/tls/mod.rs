//! TLS of both sides: certificates, keys and trust, from files. `upstream` has what only connections to servers need; the rest is for clients.

mod accept;
mod by_name;
mod certificate;
mod client_chain;
mod described;
mod failures;
mod files;
mod listener;
mod lists;
mod options;
mod pem;
mod server_names;
mod spiffe;
mod trust;
mod watched;

#[cfg(test)]
mod tests;

pub(crate) use certificate::{Validity, of_chain};
pub(crate) use client_chain::ClientChain;
pub(crate) use described::{CertificateReport, ShownCertificate, describe};
pub(crate) use failures::Failure;
pub(crate) use listener::{ListenerTls, ReadTls, TlsReport};
pub(crate) use lists::check_lists;
pub(crate) use options::{ClientAuth, ListenTls, TrustDomain, TrustFiles};
pub(crate) use pem::{OwnCertificate, TlsFileError, certificates, private_key, roots};
pub(crate) use server_names::server_names;
pub(crate) use spiffe::is_trust_domain;
