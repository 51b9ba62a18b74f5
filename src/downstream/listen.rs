//! Opens the sockets for clients.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

use super::inherited::InheritedSockets;
use super::late_socket::{AwaitedAddress, LateSocket, OF_PORT};

/// Listens on an address: with the inherited socket that has it, or else with a new one. Returns whether it was inherited.
/// An address that another process has is opened later, if this process may follow that one.
pub(crate) fn listen(
    address: SocketAddr,
    inherited: &mut InheritedSockets,
) -> io::Result<(LateSocket<TcpListener>, bool)> {
    if let Some(socket) = inherited.take_tcp(address, BACKLOG)? {
        return Ok((LateSocket::open(TcpListener::from_std(socket.into())?), true));
    }
    match bind(address) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && inherited.follows_another() => {
            let late = LateSocket::unopened();
            let opened = late.clone();
            let open = move || {
                opened.set(bind(address)?);
                Ok(())
            };
            inherited.await_address(AwaitedAddress::new(address.to_string(), OF_PORT, open));
            Ok((late, false))
        }
        bound => Ok((LateSocket::open(bound?), false)),
    }
}

/// Listens with a queue that is long enough for a whole fleet that connects at once.
///
/// `TcpListener::bind` has a queue of 128: the kernel drops further connection attempts, which clients repeat after one second and then at
/// longer intervals.
fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG as u32)
}

/// Connections that wait to be accepted. The kernel lowers it to `net.core.somaxconn`, which is 4096 on Linux; with a higher value here,
/// operators need to raise only that.
pub(crate) const BACKLOG: i32 = 65_535;

/// Reports a kernel that lets fewer clients wait than it does by default.
pub(crate) fn short_queue() -> Option<String> {
    std::fs::read_to_string(SETTING_FILE).ok().and_then(|text| too_short(&text))
}

fn too_short(setting: &str) -> Option<String> {
    let queue: u32 = setting.trim().parse().ok()?;
    let short = queue < EXPECTED;
    short.then(|| {
        format!(
            "net.core.somaxconn is {queue}: expected {EXPECTED} or more, or clients that connect at once are delayed"
        )
    })
}

const SETTING_FILE: &str = "/proc/sys/net/core/somaxconn";
/// What Linux has by default.
const EXPECTED: u32 = 4096;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::net::TcpStream;
    use tokio::task::JoinSet;

    use super::*;

    /// As many clients as the kernel lets wait and this process may open, and no more than the test needs.
    fn crowd() -> usize {
        let number = |text: &str| text.trim().parse::<usize>().unwrap_or(usize::MAX);
        let queue = std::fs::read_to_string("/proc/sys/net/core/somaxconn").map_or(128, |text| number(&text));
        let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
        let files = limits.lines().find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().next());
        let files = files.map_or(1024, number);
        2_000.min(queue).min(files.saturating_sub(FILES_OF_OTHER_TESTS))
    }

    const FILES_OF_OTHER_TESTS: usize = 400;

    async fn connect_all(address: &str) {
        let listener = match bind(address.parse().unwrap()) {
            Ok(listener) => listener,
            Err(error) if address.contains("::1") => {
                println!("no IPv6 here: {error}");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        let address = listener.local_addr().unwrap();
        let mut clients = JoinSet::new();
        for _ in 0..crowd() {
            clients.spawn(TcpStream::connect(address));
        }
        // An attempt that the kernel dropped is repeated without success until a connection is accepted.
        let connected = tokio::time::timeout(Duration::from_secs(20), clients.join_all()).await;
        let connected = connected.expect("some clients are not connected before anybody accepts");
        assert!(connected.iter().all(Result::is_ok), "of {address}");
    }

    #[tokio::test]
    async fn a_fleet_connects_at_once_before_anybody_accepts() {
        connect_all("127.0.0.1:0").await;
        connect_all("[::1]:0").await;
    }

    #[test]
    fn a_queue_shorter_than_usual_is_reported_with_its_setting() {
        let short = too_short("128\n").unwrap();
        assert!(short.starts_with("net.core.somaxconn is 128: expected 4096 or more"), "{short}");
        assert!(["4096\n", "65535\n", "", "?"].iter().all(|text| too_short(text).is_none()));
    }

    #[tokio::test]
    async fn an_address_that_is_in_use_is_an_error_and_not_a_second_listener() {
        let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let again = bind(listener.local_addr().unwrap());
        assert_eq!(again.unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}
