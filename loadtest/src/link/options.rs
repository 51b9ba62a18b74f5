//! The options of a connection.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, AlertDescription, CertificateError, ClientConfig};

#[derive(Debug, Clone)]
pub struct LinkOptions {
    /// HTTP/2 windows of the connection and of each stream, in bytes.
    pub window: u32,
    /// Largest DATA frame that the server may send.
    pub max_frame_size: u32,
    /// Largest message that is accepted; a larger one ends its stream.
    pub max_message: usize,
    /// The socket's receive buffer, instead of the system's default.
    pub receive_buffer: Option<u32>,
    /// Local address to connect from: one address has at most 28,000 ports for each server.
    pub local: Option<IpAddr>,
    pub tls: Option<Tls>,
}

impl Default for LinkOptions {
    fn default() -> Self {
        Self {
            window: MAX_WINDOW,
            max_frame_size: 16 * 1024,
            max_message: 256 << 20,
            receive_buffer: None,
            local: None,
            tls: None,
        }
    }
}

#[derive(Debug, Clone)]
pub struct Tls {
    /// The TLS configuration. Its ALPN protocols have to contain `h2`.
    pub config: Arc<ClientConfig>,
    pub server_name: ServerName<'static>,
}

#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    #[error("TLS handshake failed: {}", explained(.0))]
    Tls(io::Error),
    #[error("HTTP/2 handshake failed: {0}")]
    Http2(h2::Error),
}

/// Returns the text of an error, and a remedy if the cause is known.
fn explained(error: &io::Error) -> String {
    let cause = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match cause {
        Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature)) => {
            "the server's certificate is not signed by a CA of --tls-ca".into()
        }
        Some(rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        )) => format!("{error}; --tls-server-name gives another name"),
        Some(rustls::Error::AlertReceived(AlertDescription::CertificateRequired)) => {
            "the server requires a client certificate (--tls-certificate, --tls-key)".into()
        }
        Some(rustls::Error::InvalidMessage(_)) => {
            "the server does not speak TLS here: use http:// instead of https://".into()
        }
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            "the server closed the connection; does it speak TLS here? http:// connects without".into()
        }
        Some(rustls::Error::AlertReceived(alert)) => format!("the server refuses ({alert:?})"),
        _ => error.to_string(),
    }
}

pub const MAX_WINDOW: u32 = (1 << 31) - 1;
