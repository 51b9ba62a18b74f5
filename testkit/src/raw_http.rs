//! HTTP without a client library: a request as text, and everything that comes until the connection ends.

use std::io::{self, Read, Write};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Any byte stream that can be a connection.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Io for T {}

/// Returns a request without a body, from its method and path. The connection ends with the response.
pub fn request(line: &str) -> String {
    format!("{line} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
}

/// Sends a request, reads until the connection ends, and returns status and body of the response.
pub async fn exchange(mut socket: impl Io, request: &str) -> (u16, String) {
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    socket.read_to_string(&mut response).await.unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// The same for tests without a runtime. Returns the whole response.
pub fn ask(mut stream: impl Read + Write, request: &str) -> io::Result<String> {
    stream.write_all(request.as_bytes())?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    Ok(response)
}
