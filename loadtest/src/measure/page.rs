//! Pages of a relay for operators and probes.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Returns a page with its headers. `Err`: it does not come, or with another status than 200.
pub async fn page(address: SocketAddr, path: &str) -> anyhow::Result<String> {
    let mut socket = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await?;
    let mut response = Vec::new();
    socket.read_to_end(&mut response).await?;
    let response = String::from_utf8_lossy(&response).into_owned();
    let status = response.split_whitespace().nth(1).unwrap_or("nothing");
    anyhow::ensure!(status == "200", "status {status}");
    Ok(response)
}
