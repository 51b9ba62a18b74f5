//! A connection through a proxy: the `CONNECT` request, and the head of its answer.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::upstream::observed_socket::Socket;
use crate::upstream::tls::ReadTls;

/// The request to a proxy.
#[derive(Clone)]
pub(super) struct Tunnel {
    /// The host of the server, which the proxy looks up, and the port.
    pub(super) target: String,
    pub(super) authorization: Option<String>,
    /// TLS to the proxy.
    pub(super) tls: Option<ReadTls>,
}

/// Why a proxy gives no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TunnelError {
    #[error("the proxy answers {status}{}", hint(*code))]
    Status { code: u16, status: String },
    #[error("the proxy does not answer in HTTP")]
    NoHttp,
    #[error("the proxy answers with a head of more than {LONGEST_HEAD} bytes")]
    LongHead,
    #[error("the proxy ends the connection: {0}")]
    Ended(#[from] io::Error),
}

impl Tunnel {
    /// Requests the connection. Bytes after the head of the answer belong to the server, and stay unread.
    pub(super) async fn open(&self, socket: &mut Box<dyn Socket>) -> Result<(), TunnelError> {
        let Self { target, authorization, .. } = self;
        let mut request = format!("CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n");
        if let Some(authorization) = authorization {
            request.push_str(&format!("proxy-authorization: {authorization}\r\n"));
        }
        request.push_str("\r\n");
        socket.write_all(request.as_bytes()).await?;
        socket.flush().await?;
        let mut head = Vec::new();
        while !(head.ends_with(b"\r\n\r\n") || head.ends_with(b"\n\n")) {
            if head.len() == LONGEST_HEAD {
                return Err(TunnelError::LongHead);
            }
            head.push(socket.read_u8().await?); // no byte of the server's
            if head.len() == HTTP.len() && head != HTTP {
                return Err(TunnelError::NoHttp);
            }
        }
        judge(&head)
    }
}

/// Reads the status of an answer.
fn judge(head: &[u8]) -> Result<(), TunnelError> {
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii();
    let line = String::from_utf8_lossy(line);
    let (_, status) = line.split_once(' ').ok_or(TunnelError::NoHttp)?;
    let code = status.split(' ').next().filter(|code| code.len() == 3).and_then(|code| code.parse().ok());
    let code: u16 = code.ok_or(TunnelError::NoHttp)?;
    if (200..300).contains(&code) {
        return Ok(());
    }
    let printable = |character: &char| !character.is_control();
    Err(TunnelError::Status { code, status: status.chars().filter(printable).take(LONGEST_STATUS).collect() })
}

fn hint(code: u16) -> &'static str {
    match code {
        407 => "; it wants other credentials (proxy.credentials_file)",
        403 => "; it does not permit connections to the server",
        _ => "",
    }
}

const HTTP: &[u8] = b"HTTP/1.";
const LONGEST_HEAD: usize = 8 << 10;
/// How much of a status is reported, in characters.
const LONGEST_STATUS: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    async fn answered(answer: &[u8]) -> (Result<(), String>, String, Vec<u8>) {
        let (socket, mut proxy) = tokio::io::duplex(64 << 10);
        proxy.write_all(answer).await.unwrap();
        let authorization = Some("Basic dTpw".into());
        let tunnel = Tunnel { target: "cp.example:443".into(), authorization, tls: None };
        let mut socket: Box<dyn Socket> = Box::new(socket);
        let opened = tunnel.open(&mut socket).await.map_err(|error| error.to_string());
        let mut request = vec![0; 1024];
        let length = proxy.read(&mut request).await.unwrap();
        drop(proxy);
        let mut rest = Vec::new();
        socket.read_to_end(&mut rest).await.unwrap();
        request.truncate(length);
        (opened, String::from_utf8(request).unwrap(), rest)
    }

    #[tokio::test]
    async fn bytes_that_follow_the_answer_of_a_proxy_are_the_servers() {
        let expected =
            "CONNECT cp.example:443 HTTP/1.1\r\nhost: cp.example:443\r\nproxy-authorization: Basic dTpw\r\n\r\n";
        for head in ["HTTP/1.1 200 OK\r\nvia: a\r\n\r\n", "HTTP/1.0 200\n\n"] {
            let (opened, request, rest) = answered(format!("{head}settings").as_bytes()).await;
            assert_eq!((opened, request.as_str(), rest.as_slice()), (Ok(()), expected, b"settings".as_slice()));
        }
    }

    #[tokio::test]
    async fn an_answer_that_gives_no_connection_is_named_and_bounded() {
        let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "a".repeat(LONGEST_HEAD));
        for (answer, expected) in [
            (
                "HTTP/1.1 403 Forbidden\r\n\r\n",
                "the proxy answers 403 Forbidden; it does not permit connections to the server",
            ),
            (
                "HTTP/1.1 407 Proxy \x1bAuthentication\r\n\r\n",
                "the proxy answers 407 Proxy Authentication; it wants other credentials (proxy.credentials_file)",
            ),
            ("HTTP/1.1 502 Bad Gateway\r\n\r\n", "the proxy answers 502 Bad Gateway"),
            ("HTTP/1.1 100 Continue\r\n\r\n", "the proxy answers 100 Continue"),
            ("SSH-2.0-OpenSSH", "the proxy does not answer in HTTP"),
            ("HTTP/1.1 OK\r\n\r\n", "the proxy does not answer in HTTP"),
            ("HTTP/1.1 2000 OK\r\n\r\n", "the proxy does not answer in HTTP"),
            (long.as_str(), "the proxy answers with a head of more than 8192 bytes"),
        ] {
            assert_eq!(answered(answer.as_bytes()).await.0, Err(expected.into()));
        }
    }
}
