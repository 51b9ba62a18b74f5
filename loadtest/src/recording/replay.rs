//! Serves a recording: its responses in order, to each stream of its variant.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, ensure};
use bytes::Bytes;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::sleep_until;

use super::file::Reader;
use crate::content::message_name;
use crate::link::{Message, scan};
use crate::origin::{Call, serve};
use crate::wire::Variant;

/// A server that replays a recording. It serves until it is dropped.
pub struct Replay {
    pub address: SocketAddr,
    server: JoinHandle<()>,
}

/// The responses for each stream.
struct Recording {
    path: PathBuf,
    variant: Variant,
    /// A multiple of the recorded pace; 0 sends without pauses.
    speed: f64,
}

impl Replay {
    pub async fn start(listen: SocketAddr, path: PathBuf, speed: f64) -> anyhow::Result<Self> {
        ensure!(speed.is_finite() && speed >= 0.0, "invalid speed {speed}: expected 0 or more");
        let first = Reader::open(&path)?.read()?.with_context(|| format!("{} is empty", path.display()))?;
        let recording = Arc::new(Recording { path, variant: first.variant(), speed });
        let listener = TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
        let address = listener.local_addr()?;
        let server = tokio::spawn(serve(listener, move |call| stream(call, recording.clone())));
        Ok(Self { address, server })
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn stream(mut call: Call, recording: Arc<Recording>) {
    if call.variant != recording.variant {
        let reason = match recording.variant {
            Variant::Sotw => "the recording is SotW",
            Variant::Delta => "the recording is delta",
        };
        return call.replies.end(UNIMPLEMENTED, reason).await;
    }
    let Ok(mut reader) = Reader::open(&recording.path) else {
        return call.replies.end(INTERNAL, "the recording cannot be read").await;
    };
    let began = Instant::now();
    let mut subscribed = BTreeSet::new();
    loop {
        let recorded = match reader.read() {
            Ok(Some(recorded)) if recorded.is_request => continue,
            Ok(Some(recorded)) => recorded,
            Ok(None) => break,
            Err(_) => return call.replies.end(INTERNAL, "the recording cannot be read").await,
        };
        let url = type_of(&recorded.message, recording.variant);
        let due =
            began + if recording.speed > 0.0 { recorded.at().div_f64(recording.speed) } else { Default::default() };
        // A response is sent when its time has come and the client subscribes to its type.
        while Instant::now() < due || !subscribed.contains(&url) {
            tokio::select! {
                () = sleep_until(due.into()), if Instant::now() < due => {}
                requests = call.requests.next() => {
                    let Some(Ok(requests)) = requests else { return };
                    subscribed.extend(requests.iter().map(|request| message_name(request.type_url()).to_owned()));
                }
            }
        }
        if call.replies.send(&recorded.message, Bytes::new()).await.is_err() {
            return;
        }
    }
    while let Some(Ok(_)) = call.requests.next().await {} // the client keeps the last state while it stays connected
}

fn type_of(message: &Bytes, variant: Variant) -> String {
    let message = Message::from(message.clone());
    let seen = match variant {
        Variant::Sotw => scan::sotw(&message),
        Variant::Delta => scan::delta(&message),
    };
    let url = seen.unwrap_or_default().type_url;
    message_name(&String::from_utf8_lossy(&url)).to_owned()
}

const UNIMPLEMENTED: u16 = 12;
const INTERNAL: u16 = 13;
