//! Accepts connections.

use std::future::Future;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use tokio::task::JoinSet;

use super::connections::{Connections, TakenPlace};
use super::drain::Drain;
use super::listener::{ListenOptions, Listener};
use super::socket::Socket;

/// A new connection, with the spare place that it has so far.
pub(super) struct Accepted {
    pub(crate) socket: Socket,
    /// Its address, if it has one.
    pub(crate) address: Option<SocketAddr>,
    pub(crate) spare: TakenPlace,
    /// What the listener expects.
    pub(crate) options: Arc<ListenOptions>,
}

/// Accepts connections until the relay drains or hands the socket over, and returns when the last one is closed. Dropping the future closes
/// the listener and every connection.
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
        let mut next = pin!(next(&listener, connections, &mut drain));
        let accepted = loop {
            tokio::select! {
                accepted = &mut next => break accepted,
                Some(_) = open.join_next() => {}
            }
        };
        let Some(accepted) = accepted else { break };
        open.spawn(serve(accepted));
    }
    drop(listener); // new clients are refused, and connect to another relay; at an inherited socket they wait for the next process
    while open.join_next().await.is_some() {}
}

/// Returns the next connection, or `None` if this process accepts no more. One that was accepted is served in any case.
async fn next(listener: &Listener, connections: &Connections, drain: &mut Drain) -> Option<Accepted> {
    let accepted = tokio::select! {
        biased;
        () = listener.is_handed_over() => return None,
        () = drain.begins() => return None,
        accepted = accept_one(listener, connections) => accepted,
    };
    connections.keep_pace().await;
    Some(accepted)
}

async fn accept_one(listener: &Listener, connections: &Connections) -> Accepted {
    let spare = connections.spare_place().await;
    loop {
        match listener.accept().await {
            Ok((socket, address)) => {
                return Accepted { socket, address, spare, options: listener.options().clone() };
            }
            // The client is gone already.
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset) => {}
            Err(error) => connections.not_accepted(&error).await,
        }
    }
}
