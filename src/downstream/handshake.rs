//! The TLS handshake of one connection.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use weir_core::xds::{CertificateNames, Peer};

use super::coalesce::BUFFER;
use super::handshakes::Handshakes;
use crate::tls::{ClientChain, Failure, ListenerTls};

/// A connection after its handshake.
pub(crate) struct Secured<S> {
    pub(crate) stream: TlsStream<S>,
    /// What the client's certificate proves, if it has shown one.
    pub(crate) names: Option<CertificateNames>,
    pub(crate) chain: ClientChain,
}

/// Does the handshake. A client that is refused is told why by an alert, as far as TLS has one; the whole reason is logged.
pub(crate) async fn secure<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    peer: &Peer,
    tls: &Arc<ListenerTls>,
    handshakes: &Handshakes,
) -> Option<Secured<S>> {
    let failed = |failure| tls.failed(peer, &failure);
    let _of_address = handshakes.enter(peer.ip()).map_err(|limit| failed(Failure::TooManyOfAddress(limit))).ok()?;
    let accepting = tls.accept().map_err(|error| failed(Failure::Other(error.to_string()))).ok()?;
    // The TLS library encrypts and sends no more at a time than it may buffer.
    let has_room_for_a_write = |session: &mut rustls::ServerConnection| session.set_buffer_limit(Some(BUFFER));
    let handshake = TlsAcceptor::from(accepting.config.clone()).accept_with(stream, has_room_for_a_write);
    let mut stream = match handshakes.run(handshake.into_fallible()).await {
        Some(Ok(stream)) => stream,
        Some(Err((error, stream))) => {
            failed(match accepting.judgement() {
                Some(Err(rejection)) => Failure::Rejected(rejection),
                _ => Failure::of(&error),
            });
            let _ = tokio::time::timeout(LINGER, close(stream)).await;
            return None;
        }
        None => {
            failed(Failure::TimedOut);
            return None;
        }
    };
    let session = stream.get_mut().1;
    let (chain, names) = match (session.peer_certificates(), accepting.judgement()) {
        (None, None) => (&[][..], None),
        (Some(chain), Some(Ok(names))) => (chain, Some(names)),
        // A chain that was not judged in this handshake.
        _ => {
            failed(Failure::Other("the client certificate was not verified".into()));
            return None;
        }
    };
    let chain = ClientChain::new(tls.clone(), chain, accepting.trust, names.clone());
    Some(Secured { stream, names, chain })
}

/// Ends a connection so that its last bytes arrive: with bytes unread, the system would drop those on their way.
async fn close<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) {
    let _ = stream.shutdown().await;
    let mut unread = [0; 1024];
    while matches!(stream.read(&mut unread).await, Ok(bytes) if bytes > 0) {}
}

/// How long a client that is refused has to read why.
const LINGER: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::io::{self, IoSlice};
    use std::pin::{Pin, pin};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll};

    use rcgen::generate_simple_self_signed;
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;
    use rustls::{ClientConfig, RootCertStore};
    use tokio::io::{DuplexStream, ReadBuf};
    use tokio_rustls::TlsConnector;

    use super::*;
    use crate::downstream::coalesce::Coalesced;
    use crate::downstream::handshakes::HandshakeLimits;
    use crate::tls::{ClientAuth, ListenTls, OwnCertificate};

    /// Counts the calls that write, and keeps what they have written.
    struct Counting {
        socket: DuplexStream,
        writes: usize,
        sent: Vec<u8>,
    }

    impl Counting {
        fn keep(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            self.writes += 1;
            let written = Pin::new(&mut self.socket).poll_write(cx, bytes);
            if let Poll::Ready(Ok(count)) = written {
                self.sent.extend_from_slice(&bytes[..count]);
            }
            written
        }
    }

    impl AsyncRead for Counting {
        fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.socket).poll_read(cx, buffer)
        }
    }

    impl AsyncWrite for Counting {
        fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            self.keep(cx, bytes)
        }

        /// Takes all pieces, as a socket does.
        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            pieces: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let all = pieces.iter().flat_map(|piece| piece.iter().copied()).collect::<Vec<_>>();
            self.keep(cx, &all)
        }

        fn is_write_vectored(&self) -> bool {
            true
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.socket).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.socket).poll_shutdown(cx)
        }
    }

    /// Sends frames over TLS through a connection that keeps so many bytes. Returns the server's end.
    async fn send(room: usize, frames: usize, length: usize) -> Counting {
        static FOLDERS: AtomicUsize = AtomicUsize::new(0);
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("weir-handshake-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let made = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let own = OwnCertificate { certificate: folder.join("c.pem"), key: folder.join("k.pem") };
        std::fs::write(&own.certificate, made.cert.pem()).unwrap();
        std::fs::write(&own.key, made.signing_key.serialize_pem()).unwrap();
        let options = ListenTls { own: vec![own], client_auth: ClientAuth::None };
        let tls = Arc::new(ListenerTls::load("test".into(), &options).ok().unwrap());
        std::fs::remove_dir_all(folder).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(made.cert.pem().as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(roots).with_no_client_auth();
        let (near, far) = tokio::io::duplex(room);
        let reading = tokio::spawn(async move {
            let connector = TlsConnector::from(Arc::new(config));
            let mut far = connector.connect("localhost".try_into().unwrap(), far).await.unwrap();
            let mut read = vec![0; frames * length];
            far.read_exact(&mut read).await.unwrap();
            read
        });
        let limits = HandshakeLimits { at_a_time: 1, timeout: Duration::from_secs(20), per_address: 0 };
        let handshakes = Handshakes::new(limits, Arc::default());
        let near = Counting { socket: near, writes: 0, sent: Vec::new() };
        let mut stream = secure(near, &Peer::at(([127, 0, 0, 1], 1).into()), &tls, &handshakes).await.unwrap().stream;
        let of_handshake = stream.get_mut().0;
        (of_handshake.writes, of_handshake.sent) = (0, Vec::new());
        let io = Coalesced::new(stream);
        {
            let mut writer = io.share();
            let frames = pin!(async {
                for _ in 0..frames {
                    writer.write_all(&vec![7; length]).await.unwrap();
                    writer.flush().await.unwrap();
                }
            });
            io.drive(frames).await;
            let mut rest = io.share();
            io.drive(pin!(async { rest.flush().await.unwrap() })).await;
        }
        assert!(reading.await.unwrap().iter().all(|byte| *byte == 7));
        io.into_inner().unwrap().into_inner().0
    }

    /// Returns the lengths of TLS records, without their heads.
    fn records(mut bytes: &[u8]) -> Vec<usize> {
        let mut lengths = Vec::new();
        while let [_, _, _, high, low, rest @ ..] = bytes {
            lengths.push(usize::from(u16::from_be_bytes([*high, *low])));
            bytes = &rest[lengths[lengths.len() - 1]..];
        }
        lengths
    }

    #[tokio::test]
    async fn what_a_poll_writes_leaves_in_one_call_also_over_tls() {
        assert_eq!(send(1 << 20, BUFFER >> 14, 16 << 10).await.writes, 1);
    }

    /// Each record costs the client a decryption of its own. HTTP/2 writes frames of 16 KiB and a head.
    #[tokio::test]
    async fn a_large_reply_has_records_of_full_length_whether_or_not_its_client_keeps_up() {
        for room in [4 << 20, 100_000] {
            let frames = 64;
            let sent = send(room, frames, HEAD_OF_FRAME + (16 << 10)).await.sent;
            let records = records(&sent);
            let mean = (frames * (HEAD_OF_FRAME + (16 << 10))) / records.len();
            assert!(mean >= 15 << 10, "{mean} bytes in each of {} records: {records:?}", records.len());
        }
    }

    const HEAD_OF_FRAME: usize = 9;
}
