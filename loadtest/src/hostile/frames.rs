//! HTTP/2 frames that no client library sends, over a plain socket.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use super::offender::Offender;
use crate::link::{ADS_DELTA, LinkOptions, connect};

/// A connection that sends any bytes.
pub struct Raw {
    offender: Arc<Offender>,
    out: OwnedWriteHalf,
    /// A task reads it; or nothing does.
    input: Option<OwnedReadHalf>,
}

impl Raw {
    /// Connects, and sends no byte.
    pub async fn connect(offender: &Arc<Offender>) -> Option<Self> {
        Self::connect_to(offender, offender.target).await
    }

    /// Connects to another address of the server, and sends no byte.
    pub async fn connect_to(offender: &Arc<Offender>, address: SocketAddr) -> Option<Self> {
        let options = LinkOptions { local: offender.sources.next(), ..LinkOptions::default() };
        let socket = match timeout(CONNECT, connect(address, &options)).await {
            Ok(Ok(socket)) => socket,
            Ok(Err(error)) => {
                offender.did.ended(&error.kind().to_string());
                return None;
            }
            Err(_) => {
                offender.did.ended("not accepted in time");
                return None;
            }
        };
        offender.did.connections.fetch_add(1, Ordering::Relaxed);
        let (input, out) = socket.into_split();
        Some(Self { offender: offender.clone(), out, input: Some(input) })
    }

    /// Connects, and sends the start of HTTP/2.
    pub async fn http2(offender: &Arc<Offender>) -> Option<Self> {
        let mut raw = Self::connect(offender).await?;
        let mut first = PREFACE.to_vec();
        first.extend(frame(SETTINGS, 0, 0, &[]));
        raw.write(&first, 1).await.then_some(raw)
    }

    /// Reads and drops everything that the server sends, so that the server is never blocked.
    pub fn drain_input(&mut self) {
        let Some(mut input) = self.input.take() else { return };
        tokio::spawn(async move {
            let mut buffer = vec![0; 64 << 10];
            while matches!(input.read(&mut buffer).await, Ok(count) if count > 0) {}
        });
    }

    /// Writes, and returns whether the connection is still open.
    pub async fn write(&mut self, bytes: &[u8], frames: usize) -> bool {
        match self.out.write_all(bytes).await {
            Ok(()) => {
                self.offender.did.sent(frames, bytes.len());
                true
            }
            Err(error) => {
                self.offender.did.ended(&error.kind().to_string());
                false
            }
        }
    }

    /// Waits until the server closes the connection.
    pub async fn closed(&mut self) {
        let Some(input) = &mut self.input else { return };
        let mut buffer = vec![0; 16 << 10];
        while matches!(input.read(&mut buffer).await, Ok(count) if count > 0) {}
        self.offender.did.ended("closed by the server");
    }
}

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(9 + payload.len());
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
    out
}

/// Returns the header block of a delta stream, without compression.
pub fn request_headers() -> Vec<u8> {
    let mut block = vec![0x83, 0x86]; // :method: POST, :scheme: http
    let mut literal = |name: &[u8], value: &str| {
        block.extend_from_slice(name);
        block.push(value.len() as u8);
        block.extend_from_slice(value.as_bytes());
    };
    literal(&[0x04], ADS_DELTA); // :path
    literal(&[0x01], "weir"); // :authority
    literal(&[0x0f, 0x10], "application/grpc"); // content-type
    literal(b"\x00\x02te", "trailers");
    block
}

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const CONTINUATION: u8 = 9;
pub const END_HEADERS: u8 = 4;
const CONNECT: Duration = Duration::from_secs(5);
