//! Commands to a running origin, as lines over TCP: one line in, one line out.
//!
//! | Line | Does |
//! |---|---|
//! | `touch KIND COUNT` | changes the next COUNT of `clusters`, `endpoints`, `listeners` or `routes` |
//! | `replace COUNT` | replaces COUNT clusters, and changes the routes to them |
//! | `flip` | changes every resource |
//! | `outage`, `resume` | closes all connections and rejects new ones; accepts them again |
//! | `state` | nothing |
//!
//! The answer to a change is `update NUMBER UNIX_NANOSECONDS`, to the others `state UPDATE CLUSTERS ENDPOINTS LISTENERS ROUTES STREAMS`,
//! and to anything else `error REASON`.

use std::sync::Arc;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::Origin;
use crate::bodies::Stamp;
use crate::kind::Kind;

/// Accepts commands until it is dropped.
pub async fn control(listener: TcpListener, origin: Arc<Origin>) {
    let mut peers = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((socket, _)) => drop(peers.spawn(serve(socket, origin.clone()))),
                Err(_) => tokio::task::yield_now().await, // the next attempt may succeed
            },
            Some(_) = peers.join_next(), if !peers.is_empty() => {}
        }
    }
}

async fn serve(mut socket: TcpStream, origin: Arc<Origin>) {
    let (read, mut write) = socket.split();
    let mut read = BufReader::new(read);
    let mut line = String::new();
    loop {
        line.clear();
        match (&mut read).take(MAX_LINE).read_line(&mut line).await {
            Ok(count) if count > 0 => {}
            _ => return,
        }
        let answer = match answer(&line, &origin).await {
            Ok(answer) => answer,
            Err(reason) => format!("error {reason}"),
        };
        if write.write_all(format!("{answer}\n").as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn answer(line: &str, origin: &Origin) -> Result<String, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match *words {
        ["touch", kind, count] => {
            let kind = Kind::of_word(kind).ok_or_else(|| format!("unknown type {kind:?}"))?;
            Ok(updated(origin.touch(kind, number(count)?)))
        }
        ["replace", count] => {
            let count = number(count)?;
            Ok(updated(origin.update(|layout| layout.replace(count))))
        }
        ["flip"] => Ok(updated(origin.update(|layout| layout.flip()))),
        ["outage"] => {
            origin.stop_listening().await;
            Ok(state(origin))
        }
        ["resume"] => {
            origin.listen().await.map_err(|error| format!("{error:#}"))?;
            Ok(state(origin))
        }
        ["state"] => Ok(state(origin)),
        _ => Err("unknown command; commands are touch, replace, flip, outage, resume and state".into()),
    }
}

fn number(word: &str) -> Result<usize, String> {
    word.parse().map_err(|_| format!("invalid number {word:?}"))
}

fn updated(stamp: Stamp) -> String {
    format!("update {} {}", stamp.update, stamp.unix_nanos)
}

fn state(origin: &Origin) -> String {
    let shared = origin.shared();
    let world = shared.world();
    let counts = Kind::ALL.map(|kind| world.set(kind).len().to_string()).join(" ");
    format!("state {} {counts} {}", world.update(), origin.open_streams())
}

const MAX_LINE: u64 = 1000;
