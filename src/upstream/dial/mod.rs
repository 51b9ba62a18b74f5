//! Connects to servers by their names. Tries all addresses of a name until a server at one of them sends its first bytes.

mod address_book;
mod attempt;
mod names;
mod presence;
mod race;
mod tunnel;

use std::future::{Future, ready};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use tokio::net::UnixStream;
use tokio::time::timeout;

use self::address_book::AddressBook;
pub(in crate::upstream) use self::address_book::TriedAddress;
use self::attempt::attempt;
pub(crate) use self::attempt::{AttemptError, DialLimits};
pub(in crate::upstream) use self::names::Lookup;
use self::names::Names;
use self::race::Race;
use self::tunnel::Tunnel;
use super::AdsServer;
use super::observed_socket::Socket;
use super::proxy::{Proxy, ProxyCredentialsError};
use super::tls::{ReadTls, TlsFiles};
use crate::known_files::KnownFiles;
use crate::tls::TlsFileError;

/// Connects to all servers of the process, and keeps the state of their addresses.
#[derive(Debug)]
pub(crate) struct Dialer {
    names: Arc<Names>,
    book: Arc<AddressBook>,
    /// The least time between leaving two connections to one server.
    pause: Duration,
}

/// A socket to a server, before anything was sent above TLS.
pub(in crate::upstream) struct Reached {
    pub(in crate::upstream) socket: Box<dyn Socket>,
    /// The address as it is shown in errors.
    pub(in crate::upstream) address: String,
    /// `None` for a Unix socket.
    pub(in crate::upstream) tried: Option<Arc<TriedAddress>>,
    pub(in crate::upstream) is_encrypted: bool,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    #[error("{0} names no host")]
    NoHost(Uri),
    #[error("{}: {error}", path.display())]
    Unix { path: PathBuf, error: io::Error },
    #[error("cannot find an address of {host}")]
    Resolve {
        host: String,
        #[source]
        source: Arc<io::Error>,
    },
    #[error("{host} has no address")]
    NoAddress { host: String },
    #[error(transparent)]
    Files(#[from] TlsFileError),
    #[error(transparent)]
    Proxy(#[from] ProxyCredentialsError),
    #[error("{}", failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Failed { failures: Vec<AttemptError> },
    #[error("no connection to {server} within {}", humantime::format_duration(*limit))]
    Late { server: String, limit: Duration },
}

impl Default for Dialer {
    fn default() -> Self {
        Self { names: Names::of_system(), book: Arc::default(), pause: PAUSE }
    }
}

impl Dialer {
    /// Uses the addresses that `lookup` returns. `pace` is the time between look-ups, and between two connections that are left.
    pub(in crate::upstream) fn by(lookup: impl Lookup + 'static, pace: Duration) -> Arc<Self> {
        Arc::new(Self { names: Names::new(Box::new(lookup), pace), book: Arc::default(), pause: pace })
    }

    /// Connects to a server. An address counts as good once `above` has succeeded over its socket. The sockets of other addresses are closed.
    pub(in crate::upstream) async fn connect<T, F>(
        &self,
        server: &AdsServer,
        alpn: &[u8],
        above: impl Fn(Reached) -> F + Clone + Send + Sync + 'static,
    ) -> Result<T, DialError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, AttemptError>> + Send + 'static,
    {
        let limits = server.dial_limits();
        let limit = limits.connect + limits.first_words;
        // Reading the files has its own time limit, before that of the connection.
        let tls = read_tls(server.tls.as_ref(), alpn, &server.known_files, limits.connect).await?;
        let tunnel = match server.proxy.as_ref().filter(|_| server.socket.is_none()) {
            Some(proxy) => Some(Arc::new(tunnel(proxy, server, limits.connect).await?)),
            None => None,
        };
        let connecting = async {
            let Some(path) = &server.socket else {
                return self.connect_to_host(dialed(server), tunnel, tls, limits, above).await;
            };
            let stream =
                timeout(limits.connect, UnixStream::connect(path)).await.unwrap_or_else(|late| Err(late.into()));
            let socket = Box::new(stream.map_err(|error| DialError::Unix { path: path.clone(), error })?);
            let reached = Reached { socket, address: server.name(), tried: None, is_encrypted: false };
            above(reached).await.map_err(|failure| DialError::Failed { failures: vec![failure] })
        };
        let late = || DialError::Late { server: server.name(), limit };
        timeout(limit, connecting).await.map_err(|_| late())?
    }

    /// Whether the addresses of a server may change.
    pub(in crate::upstream) fn has_name(server: &AdsServer) -> bool {
        server.socket.is_none() && host_of(dialed(server).0).is_some_and(|host| host.parse::<IpAddr>().is_err())
    }

    /// Looks the server's name up again, without waiting, if connections to its addresses may be left and the last answer is old.
    pub(in crate::upstream) fn look_up(&self, server: &AdsServer) {
        if server.ages.drain.is_some()
            && Self::has_name(server)
            && let Some((host, port)) = place_of_server(server)
        {
            self.names.refresh(host, port);
        }
    }

    /// Whether connections to an address of a server are to be left, because its name no longer has the address.
    pub(in crate::upstream) fn has_left(&self, server: &AdsServer, address: SocketAddr) -> bool {
        let (Some(drain), Some((host, port))) = (server.ages.drain, place_of_server(server)) else {
            return false;
        };
        self.names.has_left(host, port, address, drain)
    }

    pub(in crate::upstream) fn pause(&self) -> Duration {
        self.pause
    }

    /// Opens a socket to a server, for a protocol in which the client speaks first.
    pub(in crate::upstream) async fn reach(&self, server: &AdsServer, alpn: &[u8]) -> Result<Reached, DialError> {
        self.connect(server, alpn, |reached| ready(Ok(reached))).await
    }

    /// Opens a socket to a host.
    pub(crate) async fn reach_host(
        &self,
        uri: &Uri,
        tls: Option<ReadTls>,
        limits: DialLimits,
    ) -> Result<Box<dyn Socket>, DialError> {
        let above = |reached: Reached| {
            reached.tried.inspect(|tried| tried.worked()); // the caller reports nothing later
            ready(Ok(reached.socket))
        };
        self.connect_to_host((uri, tls.is_some()), None, tls, limits, above).await
    }

    async fn connect_to_host<T, F>(
        &self,
        (uri, is_encrypted): (&Uri, bool),
        tunnel: Option<Arc<Tunnel>>,
        tls: Option<ReadTls>,
        limits: DialLimits,
        above: impl Fn(Reached) -> F + Clone + Send + Sync + 'static,
    ) -> Result<T, DialError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, AttemptError>> + Send + 'static,
    {
        let (host, port) = place_of(uri, is_encrypted).ok_or_else(|| DialError::NoHost(uri.clone()))?;
        let found = self.names.addresses(host, port, limits.connect).await?;
        // Streams wait for the next look-up while a stale address is dialed, so the dial is short.
        let connect = if found.is_old { limits.connect.min(OLD_ADDRESS) } else { limits.connect };
        let limits = DialLimits { connect, ..limits };
        let raced = Race::run(&self.book, found.addresses, |tried, connected| {
            let (tunnel, tls, above) = (tunnel.clone(), tls.clone(), above.clone());
            let is_encrypted = tls.is_some();
            async move {
                let address = tried.address();
                let socket = attempt(address, tunnel, tls, limits, connected).await?;
                above(Reached { socket, address: address.to_string(), tried: Some(tried), is_encrypted }).await
            }
        });
        raced.await.map_err(|failures| {
            self.names.doubt(host, port);
            DialError::Failed { failures }
        })
    }
}

/// Returns the address to dial, and whether TLS is spoken there: those of the proxy, if the server has one.
fn dialed(server: &AdsServer) -> (&Uri, bool) {
    match &server.proxy {
        Some(proxy) => (&proxy.uri, proxy.tls.is_some()),
        None => (&server.uri, server.tls.is_some()),
    }
}

fn place_of_server(server: &AdsServer) -> Option<(&str, u16)> {
    let (uri, is_encrypted) = dialed(server);
    place_of(uri, is_encrypted)
}

/// Returns the request to the proxy of a server, with the present contents of the proxy's files.
async fn tunnel(proxy: &Proxy, server: &AdsServer, limit: Duration) -> Result<Tunnel, DialError> {
    let no_host = || DialError::NoHost(server.uri.clone());
    let (host, (_, port)) = server.uri.host().zip(place_of(&server.uri, server.tls.is_some())).ok_or_else(no_host)?;
    let tls = read_tls(proxy.tls.as_ref(), b"http/1.1", &server.known_files, limit).await?;
    let authorization = proxy.authorization(&server.known_files, limit).await?;
    Ok(Tunnel { target: format!("{host}:{port}"), authorization, tls })
}

fn host_of(uri: &Uri) -> Option<&str> {
    Some(uri.host()?.trim_start_matches('[').trim_end_matches(']'))
}

/// Returns the host and the port of a URI.
fn place_of(uri: &Uri, is_encrypted: bool) -> Option<(&str, u16)> {
    Some((host_of(uri)?, uri.port_u16().unwrap_or(if is_encrypted { 443 } else { 80 })))
}

/// Reads the files for TLS, if there are any, for this ALPN protocol.
pub(crate) async fn read_tls(
    files: Option<&TlsFiles>,
    alpn: &[u8],
    known: &KnownFiles,
    limit: Duration,
) -> Result<Option<ReadTls>, DialError> {
    let Some(files) = files else { return Ok(None) };
    Ok(Some((files.clone(), Arc::new(files.read(alpn, known, limit).await?))))
}

/// Opens a socket to a server with which the process has one connection.
pub(crate) async fn dial(server: &AdsServer, alpn: &[u8]) -> Result<Box<dyn Socket>, DialError> {
    Ok(Dialer::default().reach(server, alpn).await?.socket)
}

/// How long an address has to accept a connection if its name can no longer be looked up.
const OLD_ADDRESS: Duration = Duration::from_secs(5);
/// The least time between leaving two connections to one server. A server that sends a complete set on each stream has time for it.
const PAUSE: Duration = Duration::from_secs(5);

#[cfg(test)]
pub(in crate::upstream) mod tests;
