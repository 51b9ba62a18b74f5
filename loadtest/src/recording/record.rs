//! Records what a control plane sends to one client.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bytes::Bytes;

use super::file::{Recorded, Writer};
use crate::fleet::{Action, Client, Shared};
use crate::link::{Event, Link, LinkOptions, StreamId, Target, Tls};
use crate::subscription::Names;
use crate::wire::Variant;

/// Connects a client, and writes everything that it sends and receives until the time is over or the stream ends. Returns the number of
/// responses.
pub async fn record(
    target: (Target, Option<Tls>),
    mut client: Client,
    variant: Variant,
    duration: Duration,
    mut writer: Writer,
) -> anyhow::Result<u64> {
    let (address, tls) = target;
    let mut link = Link::open(address, &LinkOptions { tls, ..LinkOptions::default() }).await?;
    let began = Instant::now();
    let recorded = |is_request, message: Bytes| {
        let nanos = began.elapsed().as_nanos() as u64;
        Recorded { nanos, is_request, is_delta: variant == Variant::Delta, message }
    };
    let mut stream = None;
    let mut actions = client.connect(Duration::ZERO);
    let mut responses = 0;
    loop {
        for action in actions.drain(..) {
            match action {
                Action::Open(_, path) => stream = Some(link.start(path)),
                Action::Send(_, request) => {
                    writer.write(&recorded(true, request.clone().into()))?;
                    link.send(stream.context("no stream")?, request);
                }
                Action::Cancel(_) => {}
            }
        }
        let left = duration.saturating_sub(began.elapsed());
        tokio::select! {
            event = next(&mut link, stream) => {
                let message = event?;
                writer.write(&recorded(false, message.clone()))?;
                responses += 1;
                actions = client.on_message(0, message, began.elapsed()).actions;
            }
            () = tokio::time::sleep(left) => break,
            interrupted = tokio::signal::ctrl_c() => {
                interrupted?;
                break;
            }
        }
    }
    writer.finish()?;
    Ok(responses)
}

async fn next(link: &mut Link, wanted: Option<StreamId>) -> anyhow::Result<Bytes> {
    loop {
        match link.next().await {
            Event::Message(stream, message) if Some(stream) == wanted => return Ok(message.into_bytes()),
            Event::Message(..) => {}
            Event::Ended(_, status) => bail!("the stream ended: {status}"),
            Event::Closed(reason) => bail!("the connection ended: {reason}"),
        }
    }
}

/// Returns the shared state for a single client without checks.
pub fn alone() -> Shared {
    Shared { names: Arc::new(Names::default()), truth: None, checks: Arc::default() }
}
