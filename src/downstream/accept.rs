//! Accepts connections.

use std::future::Future;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;

use super::connections::Connections;
use super::drain::Drain;
use super::listener::{ListenOptions, Listener};
use super::socket::Socket;

/// A new connection, with the spare place that it has so far.
pub(super) struct Accepted {
    pub(crate) socket: Socket,
    /// Its address, if it has one.
    pub(crate) address: Option<SocketAddr>,
    pub(crate) spare: OwnedSemaphorePermit,
    /// What the listener expects.
    pub(crate) options: Arc<ListenOptions>,
}

/// Accepts connections until the relay drains, and returns when the last one is closed. Dropping the future closes the listener and every
/// connection.
pub(super) async fn accept<F>(
    listener: Listener,
    connections: &Connections,
    mut drain: Drain,
    serve: impl Fn(Accepted) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let mut open = JoinSet::new();
    loop {
        let mut next = pin!(next(&listener, connections));
        let accepted = loop {
            tokio::select! {
                () = drain.begins() => break None,
                accepted = &mut next => break Some(accepted),
                Some(_) = open.join_next() => {}
            }
        };
        let Some(accepted) = accepted else { break };
        open.spawn(serve(accepted));
    }
    drop(listener); // new clients are refused, and connect to another relay
    while open.join_next().await.is_some() {}
}

async fn next(listener: &Listener, connections: &Connections) -> Accepted {
    let spare = connections.spare_place().await;
    loop {
        match listener.accept().await {
            Ok((socket, address)) => {
                connections.keep_pace().await;
                return Accepted { socket, address, spare, options: listener.options.clone() };
            }
            // The client is gone already.
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset) => {}
            Err(error) => connections.not_accepted(&error).await,
        }
    }
}
