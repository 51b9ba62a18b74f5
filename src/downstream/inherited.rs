//! Listening sockets that are older than the process: a service manager such as systemd, or another parent, keeps them open while one relay
//! follows another, so that clients who connect meanwhile wait and are not refused.
//!
//! Owns what has been handed to the process until a listener takes it. What comes by the environment is described in `sd_listen_fds(3)`.

use std::env;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use listenfd::ListenFd;
use socket2::Socket;
use tokio::sync::SetOnce;

use super::late_socket::AwaitedAddress;

/// The listening sockets that the process was started with. Each is used for the configured address that it has.
#[derive(Debug, Default)]
pub struct InheritedSockets {
    sockets: Vec<InheritedSocket>,
    handover: Handover,
    /// Whether the process was started with at least one socket. Then another process may still be serving.
    follows_another: bool,
    awaited: Vec<AwaitedAddress>,
}

#[derive(Debug)]
struct InheritedSocket {
    socket: Socket,
    address: SocketPlace,
    /// Given by the service manager, for messages. May be empty.
    name: String,
}

/// Where a socket listens.
#[derive(Debug, PartialEq, Eq)]
enum SocketPlace {
    Tcp(SocketAddr),
    Unix(PathBuf),
    /// A Unix socket without a path.
    Unnamed,
}

/// The moment from which this process leaves new connections of inherited sockets to the next one. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Handover(Arc<SetOnce<()>>);

/// Why inherited sockets cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InheritError {
    /// It is a file, a datagram socket, or one connection.
    #[error("inherited file descriptor {number}{} is not a listening TCP or Unix socket", in_brackets(.name))]
    NoListener {
        /// The file descriptor.
        number: usize,
        /// Its name, if it has one.
        name: String,
    },
    /// The configuration does not have its address.
    #[error(
        "inherited socket {address}{} is not configured: expected the address of an entry of listen, admin.address, admin.socket or \
         probes.address",
        in_brackets(.name)
    )]
    Unused {
        /// Where it listens.
        address: String,
        /// Its name, if it has one.
        name: String,
    },
}

impl InheritedSockets {
    /// Takes the sockets that the environment describes, and removes `LISTEN_FDS` and `LISTEN_PID` from it. So this must be called before a
    /// thread is started. `LISTEN_FDNAMES` stays, and means nothing without the others.
    pub fn from_environment() -> Result<Self, InheritError> {
        let is_own = env::var("LISTEN_PID").is_ok_and(|pid| pid.parse() == Ok(std::process::id()));
        let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
        let files = ListenFd::from_env();
        // The library also takes sockets without LISTEN_PID, which may be for a parent of this process.
        if is_own { Self::of(files, &names) } else { Ok(Self::default()) }
    }

    fn of(mut files: ListenFd, names: &str) -> Result<Self, InheritError> {
        let mut names = names.split(':').map(str::to_owned);
        let mut sockets = Vec::new();
        for index in 0..files.len() {
            let name = names.next().unwrap_or_default();
            let listener = listener_of(&mut files, index).and_then(|socket| {
                let address = SocketPlace::of(&socket).ok()?;
                Some((socket, address))
            });
            match listener {
                Some((socket, address)) => sockets.push(InheritedSocket { socket, address, name }),
                None => return Err(InheritError::NoListener { number: FIRST_FILE + index, name }),
            }
        }
        let follows_another = !sockets.is_empty();
        Ok(Self { sockets, follows_another, ..Self::default() })
    }

    /// Returns the socket of an address, if it was inherited, with a queue of this length. No socket has port 0.
    pub(crate) fn take_tcp(&mut self, address: SocketAddr, backlog: i32) -> io::Result<Option<Socket>> {
        self.take(backlog, |place| *place == SocketPlace::Tcp(address))
    }

    /// Returns the Unix socket at a path, if it was inherited, with a queue of this length.
    pub(crate) fn take_unix(&mut self, path: &Path, backlog: i32) -> io::Result<Option<Socket>> {
        self.take(backlog, |place| matches!(place, SocketPlace::Unix(own) if own == path))
    }

    fn take(&mut self, backlog: i32, is_wanted: impl Fn(&SocketPlace) -> bool) -> io::Result<Option<Socket>> {
        let Some(index) = self.sockets.iter().position(|of| is_wanted(&of.address)) else { return Ok(None) };
        let InheritedSocket { socket, address, name } = self.sockets.remove(index);
        socket.set_nonblocking(true)?;
        socket.listen(backlog)?; // changes only its queue
        tracing::info!(%address, name, "inherited socket used");
        Ok(Some(socket))
    }

    /// Checks that each socket was taken: clients of one that nobody uses would wait for ever.
    pub(crate) fn check_used(&self) -> Result<(), InheritError> {
        match self.sockets.first() {
            None => Ok(()),
            Some(of) => Err(InheritError::Unused { address: of.address.to_string(), name: of.name.clone() }),
        }
    }

    /// Whether another process may still have an address.
    pub(super) fn follows_another(&self) -> bool {
        self.follows_another
    }

    /// Has an address opened later.
    pub(super) fn await_address(&mut self, address: AwaitedAddress) {
        self.awaited.push(address);
    }

    /// Returns the addresses that another process still has.
    pub(crate) fn awaited(self) -> Vec<AwaitedAddress> {
        self.awaited
    }

    pub(crate) fn handover(&self) -> Handover {
        self.handover.clone()
    }
}

/// Takes one socket, with close-on-exec, unless it is something else than a listener.
fn listener_of(files: &mut ListenFd, index: usize) -> Option<Socket> {
    let tcp = files.take_tcp_listener(index).map(|listener| listener.map(Socket::from));
    let socket = tcp.or_else(|_| files.take_unix_listener(index).map(|listener| listener.map(Socket::from)));
    socket.ok().flatten().filter(|socket| socket.is_listener().unwrap_or(true))
}

impl SocketPlace {
    fn of(socket: &Socket) -> io::Result<Self> {
        let address = socket.local_addr()?;
        let tcp = address.as_socket().map(Self::Tcp);
        Ok(tcp.or_else(|| address.as_pathname().map(|path| Self::Unix(path.into()))).unwrap_or(Self::Unnamed))
    }
}

impl fmt::Display for SocketPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Unnamed => f.write_str("unix: (without a path)"),
        }
    }
}

impl Handover {
    /// Leaves new connections to the next process.
    pub(crate) fn begin(&self) {
        let _ = self.0.set(()); // once for each process
    }

    pub(super) async fn begins(&self) {
        self.0.wait().await;
    }
}

fn in_brackets(name: &str) -> String {
    if name.is_empty() { String::new() } else { format!(" ({name})") }
}

/// The first file descriptor that a service manager passes on.
const FIRST_FILE: usize = 3;

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    use super::*;

    /// Sockets as if the process had been started with them.
    fn inherited(sockets: Vec<Socket>) -> InheritedSockets {
        let of = |socket: Socket| {
            let address = SocketPlace::of(&socket).unwrap();
            InheritedSocket { socket, address, name: "weir.socket".into() }
        };
        InheritedSockets { sockets: sockets.into_iter().map(of).collect(), ..InheritedSockets::default() }
    }

    #[test]
    fn a_socket_is_taken_once_and_by_its_address_alone() {
        let [one, other] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let (first, second) = (one.local_addr().unwrap(), other.local_addr().unwrap());
        let mut sockets = inherited(vec![one.into(), other.into()]);
        for address in ["127.0.0.1:0".to_owned(), format!("0.0.0.0:{}", first.port()), format!("[::]:{}", first.port())]
        {
            assert!(sockets.take_tcp(address.parse().unwrap(), 16).unwrap().is_none(), "{address}");
        }
        let taken = sockets.take_tcp(second, 16).unwrap().expect("it is there");
        assert_eq!(taken.local_addr().unwrap().as_socket(), Some(second));
        assert!(taken.nonblocking().unwrap());
        assert!(sockets.take_tcp(second, 16).unwrap().is_none(), "it was taken");
        let unused = sockets.check_used().unwrap_err().to_string();
        assert!(unused.starts_with(&format!("inherited socket {first} (weir.socket) is not configured: ")), "{unused}");
        sockets.take_tcp(first, 16).unwrap().expect("it is there");
        sockets.check_used().unwrap();
    }

    #[test]
    fn a_unix_socket_is_taken_by_its_path() {
        let path = env::temp_dir().join(format!("weir-inherited-{}.sock", std::process::id()));
        let _ = std::fs::remove_file(&path); // of an earlier run
        let mut sockets = inherited(vec![UnixListener::bind(&path).unwrap().into()]);
        assert!(sockets.take_unix(&path.with_extension("other"), 16).unwrap().is_none());
        let unused = sockets.check_used().unwrap_err().to_string();
        assert!(unused.contains(&format!("unix:{}", path.display())), "{unused}");
        assert!(sockets.take_unix(&path, 16).unwrap().is_some());
        std::fs::remove_file(path).unwrap();
    }
}
