//! Addresses for clients.

use weir_core::xds::Network;

use crate::config::form::Applies::AtOnce;
use crate::config::form::{
    FileMode, FilePath, ListenPlace, Located, Needed, NonEmpty, TrustDomainName, section, words,
};
use crate::downstream::Account;

section! {
    /// One address for clients.
    Listen {
        /// IP address and port; `:18000` is that port on all addresses. Or a Unix socket, such as unix:/run/weir/weir.sock.
        ///
        /// See [Unix sockets](#unix-sockets). Without `tls`, an address that is not of this machine is a
        /// [warning](security.md#from-open-to-closed).
        address: Needed<ListenPlace>, written("127.0.0.1:18000");
        /// Permissions of a Unix socket, octal: who may write may connect. Without it 0600: the relay's own user.
        mode: Option<Located<FileMode>>, absent("`\"0600\"`"), example("\"0660\"");
        /// User that a Unix socket belongs to, by name or number. Without it the relay's own.
        owner: Option<Located<Account>>, absent("the relay's own"), example("weir");
        /// Group that a Unix socket belongs to, by name or number. Without it the relay's own.
        group: Option<Located<Account>>, absent("the relay's own"), example("envoy");
        /// Balancers that send a PROXY header with the client's address. Connections of others must not have one.
        ///
        /// See [balancers](#balancers).
        proxy_protocol_from: Option<Located<NonEmpty<Network>>>, example("[10.0.0.0/8]");
        /// Certificates. Without it, connections are in plain text.
        ///
        /// See [TLS towards clients](#tls-towards-clients).
        tls: Option<Located<ListenTls>>, applies(AtOnce);
    }
}

section! {
    /// TLS towards clients. Files are read again when they change.
    ListenTls {
        /// PEM file of the certificate that clients are shown, with its chain.
        ///
        /// It needs `key`.
        certificate: Option<Located<FilePath>>, absent("needed, or certificates"), written("server.pem");
        /// PEM file of its private key.
        key: Option<Located<FilePath>>, absent("needed, or certificates"), written("server.key");
        /// Several certificates instead. Clients are shown the one for the server name that they ask for, by its DNS names.
        ///
        /// See [several certificates](#several-certificates).
        certificates: Option<Located<NonEmpty<ShownCertificate>>>, example("");
        /// Whether clients show a certificate. One that is not valid is refused also where it is optional. The default is required where
        /// there is client_ca or trust_domains, and none elsewhere.
        client_auth: Option<Located<ClientAuth>>, absent("required with client_ca or trust_domains, else none"), example("required");
        /// PEM file of the CAs that sign clients' certificates with DNS and URI names.
        ///
        /// The certificates count by these names; names with a wildcard and SPIFFE ids do not count.
        client_ca: Option<Located<FilePath>>, example("clients.pem");
        /// PEM file of revocation lists, one for each CA that has one.
        ///
        /// A list counts for every certificate of its CA, also within a chain; a CA without a list has revoked nothing. An expired list
        /// stays in use, and is an error in the log each day.
        crl: Option<Located<FilePath>>, example("clients.crl");
        /// SPIFFE trust domains. With any, a certificate with a SPIFFE id counts by that id alone.
        trust_domains: Option<Located<NonEmpty<TrustDomain>>>, example("");
    }
}

section! {
    /// One of several certificates. The first is also for clients that ask for another name, or for none.
    ShownCertificate {
        /// PEM file of the certificate, with its chain.
        certificate: Needed<FilePath>, written("one.pem");
        /// PEM file of its private key.
        key: Needed<FilePath>, written("one.key");
    }
}

section! {
    /// A SPIFFE trust domain, whose ids only its own CAs can vouch for.
    TrustDomain {
        /// Its name, such as prod.example.
        name: Needed<TrustDomainName>, written("prod.example");
        /// PEM file of its CAs.
        ///
        /// They can vouch for ids of this domain alone, and no others can.
        bundle: Needed<FilePath>, written("prod.pem");
    }
}

words! {
    /// Whether clients show a certificate.
    ClientAuth { None = "none", Optional = "optional", Required = "required" }
}
