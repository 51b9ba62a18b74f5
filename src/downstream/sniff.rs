//! Detects a client's HTTP version from its first bytes.

use std::io::{self, Cursor, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HttpVersion {
    Http1,
    Http2,
}

/// Reads what the decision needs, and what has come with it. Returns these bytes too.
pub(crate) async fn first_word(from: &mut (impl AsyncRead + Unpin)) -> io::Result<(HttpVersion, Vec<u8>)> {
    let mut read = Vec::with_capacity(FIRST_READ);
    loop {
        let more = from.read_buf(&mut read).await?;
        let begins = PREFACE.starts_with(&read[..read.len().min(PREFACE.len())]) && more > 0;
        if begins && read.len() < PREFACE.len() {
            continue;
        }
        return Ok((if begins { HttpVersion::Http2 } else { HttpVersion::Http1 }, read));
    }
}

/// A connection with its first bytes put back.
pub(crate) struct Rewound<S> {
    first: Cursor<Vec<u8>>,
    stream: S,
}

impl<S> Rewound<S> {
    pub(crate) fn new(first: Vec<u8>, stream: S) -> Self {
        Self { first: Cursor::new(first), stream }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Rewound<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if (self.first.position() as usize) < self.first.get_ref().len() {
            let read = Pin::new(&mut self.first).poll_read(cx, buffer);
            if self.first.position() as usize == self.first.get_ref().len() {
                self.first = Cursor::default(); // its memory
            }
            return read;
        }
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Rewound<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Room for the preface of a client, its settings and its first request.
const FIRST_READ: usize = 1 << 10;
/// The first bytes of each HTTP/2 connection (RFC 9113, 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    async fn of(pieces: &[&[u8]]) -> (HttpVersion, Vec<u8>) {
        let mut from = script(pieces);
        first_word(&mut from).await.unwrap()
    }

    /// Returns one piece for each read, and then the end.
    fn script(pieces: &[&[u8]]) -> impl AsyncRead + Unpin {
        pieces.iter().fold(Box::new(tokio::io::empty()) as Box<dyn AsyncRead + Unpin>, |before, piece| {
            Box::new(before.chain(Cursor::new(piece.to_vec())))
        })
    }

    #[tokio::test]
    async fn the_preface_is_known_in_pieces_and_everything_else_is_not_it() {
        assert_eq!(of(&[PREFACE]).await.0, HttpVersion::Http2);
        let with_more = [PREFACE.as_slice(), b"\0\0\0\x04\0\0\0\0\0"].concat();
        assert_eq!(of(&[&with_more]).await, (HttpVersion::Http2, with_more.clone()));
        assert_eq!(
            of(&[b"P", b"RI * HTTP", b"/2.0\r\n\r\nSM\r\n\r\nmore"]).await,
            (HttpVersion::Http2, [PREFACE.as_slice(), b"more"].concat())
        );
        for other in
            [b"POST /v3/discovery:clusters HTTP/1.1\r\n".as_slice(), b"PRI * HTTP/1.1\r\n\r\nSM\r\n\r\n", b"", b"PR"]
        {
            let (spoken, read) = of(&[other]).await;
            assert_eq!((spoken, read.as_slice()), (HttpVersion::Http1, other));
        }
    }
}
