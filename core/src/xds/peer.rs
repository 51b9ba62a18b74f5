//! A client by its connection: where it comes from, and what it has proved.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// The other end of one connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// The number of the connection in this process.
    pub connection: u64,
    /// The client's address, or the one that a trusted balancer states for it. `None` on a Unix socket.
    pub address: Option<SocketAddr>,
    /// What the client has proved, if anything.
    pub proven: Option<PeerProof>,
}

/// What a peer has proved about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerProof {
    /// The peer has the key of a certificate that was verified.
    Certificate(CertificateNames),
    /// The peer is a process of this machine on a Unix socket.
    Process {
        /// The user.
        uid: u32,
        /// The group.
        gid: u32,
    },
}

/// The names in a verified certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CertificateNames {
    /// The SPIFFE id, if the bundle of its own trust domain verified it.
    pub spiffe: Option<Box<str>>,
    /// URIs other than SPIFFE ids.
    pub uris: Vec<Box<str>>,
    /// DNS names.
    pub dns: Vec<Box<str>>,
}

impl Peer {
    /// Returns a peer that has proved nothing.
    pub fn at(address: SocketAddr) -> Self {
        Self { connection: 0, address: Some(address), proven: None }
    }

    /// Returns the peer's IP address, in IPv4 form if it has one.
    pub fn ip(&self) -> Option<IpAddr> {
        self.address.map(|address| address.ip().to_canonical())
    }

    /// Returns the peer's identity as text, by which limits count: the first name of its certificate, or its user. Different kinds of identity have different texts.
    pub fn identity(&self) -> Option<String> {
        match self.proven.as_ref()? {
            PeerProof::Certificate(names) => {
                let CertificateNames { spiffe, uris, dns } = names;
                let uri = || uris.first().map(|uri| format!("uri:{uri}"));
                let name = || dns.first().map(|name| format!("dns:{name}"));
                spiffe.as_ref().map(|id| id.to_string()).or_else(uri).or_else(name)
            }
            PeerProof::Process { uid, .. } => Some(format!("uid:{uid}")),
        }
    }
}

impl fmt::Display for Peer {
    /// Writes the peer as logs and reports show it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => address.fmt(f)?,
            None => f.write_str("unix")?,
        }
        match self.identity() {
            Some(identity) => write!(f, " ({identity})"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_shown_with_what_it_has_proved() {
        let address: SocketAddr = "10.0.0.1:4711".parse().unwrap();
        let shown = |address, proven| Peer { connection: 1, address, proven }.to_string();
        let names = |spiffe: Option<&str>, dns: &[&str]| CertificateNames {
            spiffe: spiffe.map(Into::into),
            uris: Vec::new(),
            dns: dns.iter().map(|name| (*name).into()).collect(),
        };
        assert_eq!(shown(Some(address), None), "10.0.0.1:4711");
        let spiffe = PeerProof::Certificate(names(Some("spiffe://prod.example/ns/pay"), &["a.example"]));
        assert_eq!(shown(Some(address), Some(spiffe)), "10.0.0.1:4711 (spiffe://prod.example/ns/pay)");
        let dns = PeerProof::Certificate(names(None, &["a.example", "b.example"]));
        assert_eq!(shown(Some(address), Some(dns)), "10.0.0.1:4711 (dns:a.example)");
        assert_eq!(shown(None, Some(PeerProof::Process { uid: 1000, gid: 7 })), "unix (uid:1000)");
        assert_eq!(shown(Some(address), Some(PeerProof::Certificate(names(None, &[])))), "10.0.0.1:4711");
    }

    #[test]
    fn the_identity_of_a_certificate_is_its_spiffe_id_or_else_its_first_uri_or_else_its_first_dns_name() {
        let [one, other, host] = ["https://a.example/x", "https://b.example/x", "a.example"].map(Box::<str>::from);
        let of = |names: CertificateNames| {
            Peer { connection: 1, address: None, proven: Some(PeerProof::Certificate(names)) }.identity().unwrap()
        };
        let dns = CertificateNames { dns: vec![host], ..CertificateNames::default() };
        let uris = CertificateNames { uris: vec![one, other], ..dns.clone() };
        let spiffe = CertificateNames { spiffe: Some("spiffe://prod/a".into()), ..uris.clone() };
        assert_eq!([dns, uris, spiffe].map(of), ["dns:a.example", "uri:https://a.example/x", "spiffe://prod/a"]);
        let own =
            |uid, gid| Peer { connection: 1, address: None, proven: Some(PeerProof::Process { uid, gid }) }.identity();
        assert!(own(1, 7) != own(2, 7) && own(1, 7) == own(1, 8), "a process is its user, whatever its group");
    }
}
