//! One connection with its streams, in one task.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::{anyhow, bail};
use tokio::sync::{Semaphore, watch};

use super::super::{Kind, arrival};
use super::{Order, Shared};
use crate::link::scan::{self, Scan};
use crate::link::{Event, Link, LinkOptions, Message, StreamId};
use crate::wire::Variant;

/// One stream: its names, and its progress towards a goal.
#[derive(Default)]
struct Stream {
    names: Vec<String>,
    goal: u64,
    resources: usize,
    has_reached: bool,
    /// Whether the stream has reached any goal yet.
    is_synced: bool,
}

pub async fn run(
    shared: &Shared,
    connection: usize,
    mut orders: watch::Receiver<Order>,
    connecting: &Semaphore,
    syncing: Arc<Semaphore>,
) -> anyhow::Result<()> {
    let mut unsynced = Some(syncing.acquire_owned().await?);
    let permit = connecting.acquire().await?;
    let receive_buffer = (connection < shared.options.small).then_some(SMALL_BUFFER);
    let tls = shared.options.tls.clone();
    let options = LinkOptions { max_message: 1 << 30, receive_buffer, tls, ..LinkOptions::default() };
    let mut link = Link::open(shared.options.target.clone(), &options).await?;
    drop(permit);
    {
        let mut progress = shared.lock();
        progress.connected += 1;
        if progress.connected == shared.options.connections {
            shared.reached.notify_one();
        }
    }
    while *orders.borrow_and_update() != Order::Subscribe {
        tokio::select! {
            changed = orders.changed() => changed?,
            event = link.next() => bail!("before a stream was opened: {event:?}"),
        }
    }
    let mut streams = subscribe(shared, connection, &mut link);
    loop {
        if unsynced.is_some() && streams.iter().all(|stream| stream.is_synced) {
            unsynced = None;
        }
        tokio::select! {
            changed = orders.changed() => {
                changed?;
                loop {
                    let order = *orders.borrow_and_update();
                    match order {
                        // The connection stays open and is not read.
                        Order::Stall { connections, after: 0 } if connection < connections => orders.changed().await?,
                        Order::Stall { connections, after } if connection < connections => {
                            break link.limit_reading(Some(after));
                        }
                        _ => break link.limit_reading(None),
                    }
                }
            }
            event = link.next() => match event {
                Event::Message(id, message) => {
                    let stream = streams.get_mut(id).ok_or_else(|| anyhow!("a message on a stream that is not there"))?;
                    shared.messages[connection].fetch_add(1, Ordering::Relaxed);
                    take(shared, stream, id, &message, &mut link)?;
                }
                Event::Ended(_, status) => bail!("the server ended a stream: {status}"),
                Event::Closed(reason) => bail!("the server closed the connection: {reason}"),
            },
        }
    }
}

fn subscribe(shared: &Shared, connection: usize, link: &mut Link) -> Vec<Stream> {
    let options = &shared.options;
    let open = |place: usize| {
        let number = connection * options.streams + place;
        let names = (options.names)(number);
        let (path, request) = options.first_request(number, &names);
        let stream = link.start(path);
        link.send(stream, request);
        Stream { names, ..Stream::default() }
    };
    (0..options.streams).map(open).collect()
}

fn take(shared: &Shared, stream: &mut Stream, id: StreamId, message: &Message, link: &mut Link) -> anyhow::Result<()> {
    let variant = shared.options.variant;
    let goal = shared.lock().goal;
    if stream.goal != goal.number {
        (stream.goal, stream.resources, stream.has_reached) = (goal.number, 0, false);
    }
    if variant == Variant::Sotw && shared.options.kind == Kind::Clusters {
        stream.resources = 0; // each response is a complete set
    }
    let mut all = 0;
    let is_followed = !shared.rounds().is_empty();
    let mut changes = Vec::new();
    let scanned = arrival::read(message, variant, |round| {
        all += 1;
        stream.resources += usize::from(round >= goal.since);
        if is_followed {
            changes.push(round);
        }
    });
    let received = Instant::now();
    let scanned = scanned.ok_or_else(|| anyhow!("a malformed response of {} bytes", message.len()))?;
    link.send(id, ack(variant, &scanned, &stream.names));
    shared.removed.fetch_add(scanned.removed.into(), Ordering::Relaxed);
    shared.bytes.fetch_add(message.len() as u64, Ordering::Relaxed);
    shared.resources.fetch_add(all, Ordering::Relaxed);
    if is_followed {
        let rounds = shared.rounds();
        let starts = changes.iter().filter_map(|round| rounds.get((*round as usize).checked_sub(1)?));
        let mut progress = shared.lock();
        starts.for_each(|start| {
            progress.received.record(received.saturating_duration_since(*start));
            progress.acked.record(start.elapsed());
        });
    }
    if !stream.has_reached && stream.resources >= goal.resources {
        (stream.has_reached, stream.is_synced) = (true, true);
        let mut progress = shared.lock();
        let start = progress.goal.start;
        if !is_followed {
            progress.received.record(received.saturating_duration_since(start));
            progress.acked.record(start.elapsed());
        }
        progress.last = progress.last.max(received);
        progress.remaining = progress.remaining.saturating_sub(1);
        if progress.remaining == 0 {
            shared.reached.notify_one();
        }
    }
    Ok(())
}

fn ack(variant: Variant, scanned: &Scan, names: &[String]) -> Vec<u8> {
    match variant {
        Variant::Sotw => scan::sotw_ack(scanned, &names.iter().map(String::as_str).collect::<Vec<_>>()),
        Variant::Delta => scan::delta_ack(scanned),
    }
}

/// The receive buffer of clients that will stall: the client's kernel must not hold bytes that the server's kernel would have to hold.
const SMALL_BUFFER: u32 = 64 << 10;
