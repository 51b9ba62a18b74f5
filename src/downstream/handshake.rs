//! The TLS handshake of one connection.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::coalesce::BUFFER;
use super::handshakes::Handshakes;
use crate::tls::{ClientChain, Failure, ListenerTls};
use crate::xds::CertificateNames;

/// A connection after its handshake.
pub(super) struct Secured<S> {
    pub(crate) stream: TlsStream<S>,
    pub(crate) client: Option<VerifiedClient>,
}

/// A client that has shown a certificate, which was verified.
pub(super) struct VerifiedClient {
    pub(crate) names: CertificateNames,
    pub(crate) chain: ClientChain,
}

/// Does the handshake. A client that is refused is told why by an alert, as far as TLS has one.
pub(super) async fn secure<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    address: Option<IpAddr>,
    tls: &Arc<ListenerTls>,
    handshakes: &Handshakes,
) -> Result<Secured<S>, Failure> {
    let _of_address = handshakes.enter(address).map_err(Failure::TooManyOfAddress)?;
    let accepting = tls.accept().map_err(|error| Failure::Other(error.to_string()))?;
    // The TLS library encrypts and sends no more at a time than it may buffer.
    let has_room_for_a_write = |session: &mut rustls::ServerConnection| session.set_buffer_limit(Some(BUFFER));
    let handshake = TlsAcceptor::from(accepting.config.clone()).accept_with(stream, has_room_for_a_write);
    let mut stream = match handshakes.run(handshake.into_fallible()).await {
        Some(Ok(stream)) => stream,
        Some(Err((error, stream))) => {
            let failure = match accepting.judgement() {
                Some(Err(rejection)) => Failure::Rejected(rejection),
                _ => Failure::of(&error),
            };
            let _ = tokio::time::timeout(LINGER, close(stream)).await;
            return Err(failure);
        }
        None => return Err(Failure::TimedOut),
    };
    let session = stream.get_mut().1;
    let client = match (session.peer_certificates(), accepting.judgement()) {
        (None, None) => None,
        (Some(chain), Some(Ok(names))) => {
            Some(VerifiedClient { names, chain: ClientChain::new(tls.clone(), chain, accepting.trust) })
        }
        // A chain that was not judged in this handshake.
        _ => return Err(Failure::Other("the client certificate was not verified".into())),
    };
    Ok(Secured { stream, client })
}

/// Ends a connection so that its last bytes arrive: with bytes unread, the system would drop those on their way.
async fn close<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) {
    let _ = stream.shutdown().await;
    let mut unread = [0; 1024];
    while matches!(stream.read(&mut unread).await, Ok(bytes) if bytes > 0) {}
}

/// How long a client that is refused has to read why.
const LINGER: Duration = Duration::from_secs(1);
