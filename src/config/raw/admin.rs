//! Addresses for operators and for probes.

use super::listen::TrustDomain;
use crate::config::form::{AdminAddress, FilePath, HostName, Located, Name, Needed, NonEmpty, ProbesAddress, section};

section! {
    /// The address and the socket for operators. At least one of them is needed.
    Admin {
        /// Reads, and with tls also changes: IP address and port; `:19000` is that port on 127.0.0.1. Other machines reach it only with tls.
        address: Option<Located<AdminAddress>>;
        /// Reads and changes: path of a Unix socket for the relay's own user and root.
        socket: Option<Located<FilePath>>;
        /// Names in the Host header under which address may be asked, besides IP addresses and localhost.
        hosts: Option<Located<NonEmpty<HostName>>>;
        /// Certificates of address and of those who connect to it.
        tls: Option<Located<AdminTls>>;
    }
}

section! {
    /// TLS towards operators, who have to show a certificate. Files are read again when they change.
    AdminTls {
        /// PEM file of the certificate that operators are shown, with its chain.
        certificate: Needed<FilePath>;
        /// PEM file of its private key.
        key: Needed<FilePath>;
        /// PEM file of the CAs that sign operators' certificates with DNS and URI names.
        client_ca: Option<Located<FilePath>>;
        /// PEM file of revocation lists, one for each CA that has one.
        crl: Option<Located<FilePath>>;
        /// SPIFFE trust domains. With any, a certificate with a SPIFFE id counts by that id alone.
        trust_domains: Option<Located<NonEmpty<TrustDomain>>>;
        /// Who may read: any of these identities.
        may_read: Option<Located<NonEmpty<OperatorEntry>>>;
        /// Who may read and change: any of these identities.
        may_change: Option<Located<NonEmpty<OperatorEntry>>>;
    }
}

section! {
    /// What a certificate of an operator proves; exactly one key.
    OperatorEntry {
        /// SPIFFE ids; {name} matches one segment, a * at the end any rest.
        spiffe: Option<Located<Name>>;
        /// URIs, by the same patterns.
        uri: Option<Located<Name>>;
        /// DNS names; {name} matches one label.
        dns: Option<Located<Name>>;
    }
}

section! {
    /// The address for probes and metrics, in plain text: /healthz, /ready and /metrics.
    Probes {
        /// IP address and port; `:19001` is that port on all addresses.
        address: Needed<ProbesAddress>;
    }
}
