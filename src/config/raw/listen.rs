//! Addresses for clients.

use weir_core::xds::Network;

use crate::config::form::{
    FileMode, FilePath, ListenPlace, Located, Needed, NonEmpty, TrustDomainName, section, words,
};
use crate::downstream::Account;

section! {
    /// One address for clients.
    Listen {
        /// IP address and port; `:18000` is that port on all addresses. Or unix: and the path of a Unix socket.
        address: Needed<ListenPlace>;
        /// Permissions of a Unix socket, octal: who may write may connect. Without it 0600: the relay's own user.
        mode: Option<Located<FileMode>>;
        /// User that a Unix socket belongs to, by name or number. Without it the relay's own.
        owner: Option<Located<Account>>;
        /// Group that a Unix socket belongs to, by name or number. Without it the relay's own.
        group: Option<Located<Account>>;
        /// Balancers that send a PROXY header with the client's address. Connections of others must not have one.
        proxy_protocol_from: Option<Located<NonEmpty<Network>>>;
        /// Certificates. Without it, connections are in plain text.
        tls: Option<Located<ListenTls>>;
    }
}

section! {
    /// TLS towards clients. Files are read again when they change.
    ListenTls {
        /// PEM file of the certificate that clients are shown, with its chain.
        certificate: Needed<FilePath>;
        /// PEM file of its private key.
        key: Needed<FilePath>;
        /// Whether clients show a certificate. One that is not valid is refused also where it is optional. The default is required where
        /// there is client_ca or trust_domains, and none elsewhere.
        client_auth: Option<Located<ClientAuth>>;
        /// PEM file of the CAs that sign clients' certificates with DNS and URI names.
        client_ca: Option<Located<FilePath>>;
        /// PEM file of revocation lists, one for each CA that has one.
        crl: Option<Located<FilePath>>;
        /// SPIFFE trust domains. With any, a certificate with a SPIFFE id counts by that id alone.
        trust_domains: Option<Located<NonEmpty<TrustDomain>>>;
    }
}

section! {
    /// A SPIFFE trust domain, whose ids only its own CAs can vouch for.
    TrustDomain {
        /// Its name, such as prod.example.
        name: Needed<TrustDomainName>;
        /// PEM file of its CAs.
        bundle: Needed<FilePath>;
    }
}

words! {
    /// Whether clients show a certificate.
    ClientAuth { None = "none", Optional = "optional", Required = "required" }
}
