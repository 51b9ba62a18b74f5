//! The bytes of one client, with or without TLS.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::server::TlsStream;

use super::client_socket::ClientSocket;
use super::delegate_io::delegate_io;
use super::socket::Socket;

pub(super) enum ClientStream {
    Plain(ClientSocket),
    Tls(Box<TlsStream<ClientSocket>>),
}

impl ClientStream {
    /// Takes its socket from the runtime that it is on. A TLS session stays around it.
    pub(super) fn leave_runtime(&mut self) -> io::Result<()> {
        self.socket().leave_runtime()
    }

    /// Puts its socket, which has left its runtime, on the current one.
    pub(super) fn enter_runtime(&mut self) -> io::Result<()> {
        self.socket().enter_runtime()
    }

    fn socket(&mut self) -> &mut Socket {
        match self {
            Self::Plain(counted) => counted.socket(),
            Self::Tls(stream) => stream.get_mut().0.socket(),
        }
    }
}

delegate_io!(ClientStream { Plain, Tls });
