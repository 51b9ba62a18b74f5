//! Addresses of scripted servers: the kernel chooses their ports.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use tokio::net::TcpListener;

use crate::wait::PATIENCE;

/// Returns an address with any port to listen at, whose IP no other test uses, also none of another program: 12 of its bits are from the process ID. So
/// while a server is down, no other one takes its port, and no relay of another test connects to it when it is up again.
pub fn own_address() -> SocketAddr {
    static NUMBER: AtomicU16 = AtomicU16::new(0);
    if !cfg!(target_os = "linux") {
        return ([127, 0, 0, 1], 0).into(); // the only loopback address of this system
    }
    let number = u32::from(NUMBER.fetch_add(1, Ordering::Relaxed)) % (1 << 11);
    let own = std::process::id() % (1 << 12);
    let [_, second, third, fourth] = ((own << 11) | number).to_be_bytes();
    ([127, 64 + second, third, fourth], 0).into()
}

/// Listens at an address once it is free: a program that another test is starting may have a copy of an earlier socket for a moment.
pub async fn listen_at(address: SocketAddr) -> TcpListener {
    let listens = async {
        loop {
            match TcpListener::bind(address).await {
                Err(error) if error.kind() == ErrorKind::AddrInUse => tokio::time::sleep(RETRY).await,
                bound => return bound.unwrap(),
            }
        }
    };
    tokio::time::timeout(PATIENCE, listens).await.unwrap_or_else(|_| panic!("{address} remains in use"))
}

const RETRY: Duration = Duration::from_millis(5);

/// Returns an address at which no server listens, until the test starts one there.
pub async fn any_address() -> SocketAddr {
    TcpListener::bind(own_address()).await.unwrap().local_addr().unwrap()
}
