//! Servers for comparison with a relay, each in its own process: subcommands of this program.

mod floor;
mod frames;
mod plain_tonic;
mod reader;

use std::net::SocketAddr;

use clap::Subcommand;

use crate::output;

pub use floor::Floor;
pub use plain_tonic::PlainTonic;
pub use reader::Reader;

/// Prints `listening ADDRESS` when it is ready, and serves until it is killed.
#[derive(Debug, Subcommand)]
pub enum Baseline {
    /// Sends frames that were made before, without the logic of HTTP/2.
    Floor(Floor),
    /// What most programs begin with: tonic, and a message encoded for each client.
    PlainTonic(PlainTonic),
    /// Receives complete sets and hashes their bodies.
    Reader(Reader),
}

impl Baseline {
    pub async fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Floor(floor) => floor.run(),
            Self::PlainTonic(plain) => plain.run().await,
            Self::Reader(reader) => reader.run().await,
        }
    }
}

/// Listens on a free port, with a queue for all clients that connect at once.
fn listen() -> anyhow::Result<tokio::net::TcpListener> {
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    Ok(socket.listen(BACKLOG)?)
}

fn print_address(address: SocketAddr) {
    output::line(format!("listening {address}"));
}

const BACKLOG: u32 = 4096;
