//! The bytes of one client, with or without TLS.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::server::TlsStream;

use super::delegate_io::delegate_io;
use super::socket::Socket;

pub(super) enum ClientStream {
    Plain(Socket),
    Tls(Box<TlsStream<Socket>>),
}

delegate_io!(ClientStream { Plain, Tls });
