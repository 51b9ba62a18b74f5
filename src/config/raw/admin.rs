//! Addresses for operators and for probes.

use super::listen::{ShownCertificate, TrustDomain};
use crate::config::form::{AdminAddress, FilePath, HostName, Located, Name, Needed, NonEmpty, ProbesAddress, section};

section! {
    /// The address and the socket for operators. At least one of them is needed.
    Admin {
        /// Reads, and with tls also changes: IP address and port; `:19000` is that port on 127.0.0.1. Other machines reach it only with
        /// tls.
        address: Option<Located<AdminAddress>>, written("127.0.0.1:19000");
        /// Reads and changes: path of a Unix socket for the relay's own user and root.
        socket: Option<Located<FilePath>>, example("/run/weir/admin.sock");
        /// Names in the Host header under which address may be asked, besides IP addresses and localhost.
        ///
        /// Requests with another name get 421.
        hosts: Option<Located<NonEmpty<HostName>>>, example("[weir.monitoring.svc]");
        /// Certificates of address and of those who connect to it.
        ///
        /// See [TLS towards operators](#tls-towards-operators).
        tls: Option<Located<AdminTls>>;
    }
}

section! {
    /// TLS towards operators, who have to show a certificate. Files are read again when they change.
    AdminTls {
        /// PEM file of the certificate that operators are shown, with its chain.
        ///
        /// It needs `key`.
        certificate: Option<Located<FilePath>>, absent("needed, or certificates"), written("admin.pem");
        /// PEM file of its private key.
        key: Option<Located<FilePath>>, absent("needed, or certificates"), written("admin.key");
        /// Several certificates instead. Operators are shown the one for the server name that they ask for, by its DNS names.
        ///
        /// As for [clients](#several-certificates).
        certificates: Option<Located<NonEmpty<ShownCertificate>>>, example("");
        /// PEM file of the CAs that sign operators' certificates with DNS and URI names.
        ///
        /// The certificates count by these names.
        client_ca: Option<Located<FilePath>>, example("operators.pem");
        /// PEM file of revocation lists, one for each CA that has one.
        crl: Option<Located<FilePath>>, example("operators.crl");
        /// SPIFFE trust domains. With any, a certificate with a SPIFFE id counts by that id alone.
        trust_domains: Option<Located<NonEmpty<TrustDomain>>>, written("");
        /// Who may read: any of these identities.
        may_read: Option<Located<NonEmpty<OperatorEntry>>>, written("");
        /// Who may read and change: any of these identities.
        may_change: Option<Located<NonEmpty<OperatorEntry>>>, example("");
        /// Who may tap clients: any of these identities. It is a right beside the others.
        ///
        /// See [`/tap`](admin-api.md#tap).
        may_tap: Option<Located<NonEmpty<OperatorEntry>>>, example("");
    }
}

section! {
    /// What a certificate of an operator proves; exactly one key.
    OperatorEntry {
        /// SPIFFE ids; {name} matches one segment, a * at the end any rest.
        spiffe: Option<Located<Name>>, written("\"spiffe://prod.example/ops/*\"");
        /// URIs, by the same patterns.
        uri: Option<Located<Name>>, example("\"https://id.example/ops/*\"");
        /// DNS names; {name} matches one label.
        dns: Option<Located<Name>>, example("oncall.example");
    }
}

section! {
    /// The address for probes and metrics, in plain text: /healthz, /ready and /metrics.
    Probes {
        /// IP address and port; `:19001` is that port on all addresses.
        ///
        /// `admin.address` and `admin.socket` have the same paths.
        address: Needed<ProbesAddress>, written(":19001");
    }
}
