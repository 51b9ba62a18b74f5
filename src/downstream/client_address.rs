//! Determines whose connection it is: the peer's own, or that of a client whose address a balancer states in a PROXY protocol header.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::connections::End;
use super::listener::ListenOptions;
use super::proxy_header::{Header, HeaderError, Origin, is_header, parse};
use super::socket::Socket;
use crate::relay::ProxyFault;

/// Where the address of a client comes from.
#[derive(Debug, Clone, Copy)]
pub(super) enum AddressSource {
    /// The connection has it. A Unix socket has no address.
    Connection(Option<SocketAddr>),
    /// The connection has it, from a peer that is not a trusted balancer. A PROXY header is rejected.
    Stranger(SocketAddr),
    /// This trusted balancer states it in a PROXY header.
    Balancer(SocketAddr),
}

/// Why a connection is closed.
#[derive(Debug, thiserror::Error)]
pub(super) enum AddressError {
    #[error("{0}")]
    Header(HeaderError),
    #[error("no PROXY header within {0:?}")]
    Late(Duration),
    #[error("a PROXY header of a peer that is not in proxy_protocol_from")]
    Untrusted,
    /// Balancers check in this way whether the port is open.
    #[error("closed without a PROXY header")]
    Closed,
    #[error("{0}")]
    Socket(io::Error),
    #[error("its place is needed, or it is late")]
    Ended(End),
}

impl AddressError {
    /// Returns the error if an operator should know of it.
    pub(crate) fn fault(&self) -> Option<ProxyFault> {
        match self {
            Self::Header(HeaderError::Missing) => Some(ProxyFault::Missing),
            Self::Header(_) => Some(ProxyFault::Invalid),
            Self::Late(_) => Some(ProxyFault::Late),
            Self::Untrusted => Some(ProxyFault::Untrusted),
            Self::Closed | Self::Socket(_) | Self::Ended(_) => None,
        }
    }
}

impl AddressSource {
    pub(crate) fn of(options: &ListenOptions, peer: Option<SocketAddr>) -> Self {
        let trusted = &options.proxy_protocol_from;
        match peer {
            Some(peer) if trusted.iter().any(|network| network.contains(peer.ip())) => Self::Balancer(peer),
            Some(peer) if !trusted.is_empty() => Self::Stranger(peer),
            peer => Self::Connection(peer),
        }
    }

    /// Returns the address to which limits apply, if it is known before the client has sent anything.
    pub(crate) fn known(self) -> Option<SocketAddr> {
        match self {
            Self::Connection(peer) => peer,
            Self::Stranger(peer) => Some(peer),
            Self::Balancer(_) => None,
        }
    }

    /// Returns the other end of the connection itself.
    pub(crate) fn peer(self) -> Option<SocketAddr> {
        match self {
            Self::Connection(peer) => peer,
            Self::Stranger(peer) | Self::Balancer(peer) => Some(peer),
        }
    }

    /// Waits at most `limit` for the client's address.
    pub(crate) async fn find(self, socket: &mut Socket, limit: Duration) -> Result<Option<SocketAddr>, AddressError> {
        match (self, socket) {
            (Self::Balancer(balancer), Socket::Tcp(stream)) => stated_address(stream, balancer, limit).await.map(Some),
            (Self::Stranger(peer), Socket::Tcp(stream)) => states_nothing(stream, limit).await.map(|()| Some(peer)),
            (source, _) => Ok(source.known()),
        }
    }
}

/// Reads the header of a trusted balancer, and nothing after it. Returns the address in the header, or the balancer's own one.
async fn stated_address(
    stream: &mut TcpStream,
    balancer: SocketAddr,
    limit: Duration,
) -> Result<SocketAddr, AddressError> {
    match timeout(limit, read_header(stream)).await {
        Ok(Ok(Origin::Client(address))) => Ok(address),
        Ok(Ok(Origin::Balancer)) => Ok(balancer),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(AddressError::Late(limit)),
    }
}

async fn read_header(stream: &mut TcpStream) -> Result<Origin, AddressError> {
    let mut header = Vec::new();
    let mut ahead = [0; 256];
    loop {
        let peeked = stream.peek(&mut ahead).await.map_err(AddressError::Socket)?;
        let read = header.len();
        header.extend_from_slice(&ahead[..peeked]);
        let parsed = parse(&header).map_err(AddressError::Header)?;
        let own = match parsed {
            Header::Incomplete if peeked == 0 => return Err(AddressError::Closed),
            Header::Incomplete => peeked,
            Header::Complete { length, .. } => length - read,
        };
        stream.read_exact(&mut ahead[..own]).await.map_err(AddressError::Socket)?; // it has arrived already
        if let Header::Complete { origin, .. } = parsed {
            return Ok(origin);
        }
    }
}

/// Waits for the first bytes of a peer that is not a trusted balancer, and leaves them unread. An error if they begin a PROXY header.
async fn states_nothing(stream: &TcpStream, limit: Duration) -> Result<(), AddressError> {
    let looking = async {
        let mut first = [0; 16];
        loop {
            let peeked = stream.peek(&mut first).await.map_err(AddressError::Socket)?;
            match is_header(&first[..peeked]) {
                Some(true) => return Err(AddressError::Untrusted),
                None if peeked > 0 => sleep(MORE).await, // hardly any peer sends so few bytes at first
                _ => return Ok(()),
            }
        }
    };
    timeout(limit, looking).await.unwrap_or(Ok(())) // the handshake that follows has its own limit
}

/// How long to wait before the next peek: the system reports no further bytes while the first ones are unread.
const MORE: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    async fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        far.set_nodelay(true).unwrap();
        (listener.accept().await.unwrap().0, far)
    }

    fn balancer() -> SocketAddr {
        "10.9.9.9:1".parse().unwrap()
    }

    const LONG: Duration = Duration::from_secs(20);
    const SHORT: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn the_header_is_read_and_not_a_byte_more_however_it_arrives() {
        let line = b"PROXY TCP4 10.1.2.3 10.9.9.9 4711 18000\r\n".as_slice();
        let long =
            [b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x03\xe8\x0a\x01\x02\x03".as_slice(), &[0; 4], &[0x12, 0x67], &[0; 990]]
                .concat();
        for header in [line, &long] {
            for piece in [1, 7, 1000, header.len()] {
                let (mut near, mut far) = connected().await;
                let sent = [header, b"PRI * HTTP/2.0"].concat();
                let sending = tokio::spawn(async move {
                    for piece in sent.chunks(piece) {
                        far.write_all(piece).await.unwrap();
                        tokio::task::yield_now().await;
                    }
                    far
                });
                let address = stated_address(&mut near, balancer(), LONG).await.unwrap();
                assert_eq!(address, "10.1.2.3:4711".parse().unwrap(), "{piece} bytes at a time");
                let mut rest = [0; 14];
                near.read_exact(&mut rest).await.unwrap();
                assert_eq!(&rest, b"PRI * HTTP/2.0");
                drop(sending.await.unwrap());
            }
        }
    }

    #[tokio::test]
    async fn a_connection_of_the_balancer_itself_has_its_address() {
        let (mut near, mut far) = connected().await;
        far.write_all(b"PROXY UNKNOWN\r\n").await.unwrap();
        assert_eq!(stated_address(&mut near, balancer(), LONG).await.unwrap(), balancer());
    }

    #[tokio::test]
    async fn a_balancer_without_a_header_is_told_apart_from_one_that_only_looks_whether_the_port_is_open() {
        let of = async |sent: &[u8], ends: bool| {
            let (mut near, mut far) = connected().await;
            far.write_all(sent).await.unwrap();
            let far = (!ends).then_some(far);
            let fault = stated_address(&mut near, balancer(), SHORT).await.unwrap_err().fault();
            drop(far);
            fault
        };
        assert_eq!(of(b"PRI * HTTP/2.0", false).await, Some(ProxyFault::Missing));
        assert_eq!(of(b"PROXY TCP4\r\n", false).await, Some(ProxyFault::Invalid));
        assert_eq!(of(b"PROXY TCP4 10.", false).await, Some(ProxyFault::Late));
        assert_eq!(of(b"", false).await, Some(ProxyFault::Late));
        assert_eq!(of(b"", true).await, None);
        assert_eq!(of(b"PROXY TCP4 10.", true).await, None);
    }

    #[tokio::test]
    async fn what_others_send_stays_unread_and_must_not_be_a_header() {
        for (sent, is_fine) in
            [("POST / HTTP/1.1\r\n", true), ("P", true), ("PROXY TCP4 1.1.1.1", false), ("\r\n\r\n\0\r\nQUIT\n", false)]
        {
            let (near, mut far) = connected().await;
            far.write_all(sent.as_bytes()).await.unwrap();
            let found = states_nothing(&near, SHORT).await;
            assert_eq!(found.is_ok(), is_fine, "{sent:?}: {found:?}");
            let mut first = [0; 64];
            assert_eq!(near.peek(&mut first).await.unwrap(), sent.len(), "{sent:?}");
        }
        let (near, mut far) = connected().await;
        let sending = tokio::spawn(async move {
            for byte in b"PROXY UNKNOWN\r\n" {
                far.write_all(&[*byte]).await.unwrap();
                sleep(Duration::from_millis(1)).await;
            }
            far
        });
        assert_eq!(states_nothing(&near, LONG).await.unwrap_err().fault(), Some(ProxyFault::Untrusted));
        drop(sending.await.unwrap());
    }

    #[tokio::test]
    async fn a_client_that_closes_without_a_word_is_not_waited_for() {
        let (near, far) = connected().await;
        drop(far);
        let found = timeout(LONG / 2, states_nothing(&near, LONG)).await;
        assert!(matches!(found, Ok(Ok(()))), "{found:?}");
    }
}
