//! Honest clients: one that stays connected, and new ones, one after another.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use prost::Message;
use tokio::time::{sleep, timeout};
use weir_core::proto::discovery::DeltaDiscoveryResponse;

use super::times::{Phase, Phases, Time};
use crate::bodies;
use crate::content::EDS;
use crate::kind::Kind;
use crate::link::{ADS_DELTA, Event, Link, LinkOptions, StreamId, scan};
use crate::origin::{Change, Name, Origin};

/// What all honest clients need.
#[derive(Clone)]
pub struct Honest {
    pub target: SocketAddr,
    pub origin: Arc<Origin>,
    pub node: Vec<u8>,
    /// Whether each new client has a sharing key of its own.
    pub has_own_keys: bool,
    /// The endpoints that change, those that the established client requests again and again, and those that new clients request.
    pub names: [Name; 3],
    pub phases: Phases,
}

/// A stream with some endpoints.
struct Stream {
    link: Link,
    id: StreamId,
}

/// The endpoints of a response: a name, and the update of the origin from which the endpoints are.
type Received = Vec<(String, u64)>;

impl Honest {
    /// Stays connected, and receives and ACKs changes, until the future is dropped.
    pub async fn stay(self) {
        let mut stream = None;
        loop {
            let phase = self.phases.current();
            match self.round(&mut stream, &phase).await {
                Ok(()) => {}
                Err(error) => {
                    phase.problem(format!("established client: {error:#}"));
                    stream = None;
                    sleep(AGAIN).await;
                }
            }
        }
    }

    /// Connects as a new client again and again, until the future is dropped.
    pub async fn come(mut self) {
        for number in 0u64.. {
            if self.has_own_keys {
                self.node = scan::node("honest", &format!("honest-{number}"));
            }
            let phase = self.phases.current();
            let start = Instant::now();
            match timeout(SERVED, self.be_served()).await {
                Ok(Ok(_)) => phase.record(Time::Served, start.elapsed()),
                Ok(Err(error)) => phase.problem(format!("new client: {error:#}")),
                Err(_) => phase.problem(format!("new client: nothing in {SERVED:?}")),
            }
            sleep(BETWEEN_NEW).await;
        }
    }

    /// Makes one change, waits for it, ACKs it, and makes one request after that.
    async fn round(&self, stream: &mut Option<Stream>, phase: &Phase) -> anyhow::Result<()> {
        let stream = match stream {
            Some(stream) => stream,
            None => {
                let connecting = timeout(CONNECT, self.connect(&self.names[0])).await;
                stream.insert(connecting.context("cannot connect again in 30 s")??)
            }
        };
        let change = Change::Touch(Kind::Endpoints, self.names[0].clone());
        let origin = self.origin.clone();
        // On another thread and not timed: the state of the control plane may be locked because of the hostile clients.
        let stamp = tokio::task::spawn_blocking(move || origin.update(|_| vec![change])).await?;
        let start = Instant::now();
        let has_change = |received: &Received| {
            received.iter().any(|(name, update)| **name == *self.names[0] && *update >= stamp.update)
        };
        let time = stream.until(has_change, start, phase, "change").await?;
        phase.record(Time::Received, time);
        // The ACK was sent. The server has to answer a repeated subscription to a name, which shows that it has read the ACK.
        let start = Instant::now();
        stream.link.send(stream.id, scan::delta_subscribe(EDS, None, &[&self.names[1]]));
        let has_name = |received: &Received| received.iter().any(|(name, _)| **name == *self.names[1]);
        let time = stream.until(has_name, start, phase, "response to a request").await?;
        phase.record(Time::Answered, time);
        let _ = timeout(BETWEEN, stream.next()).await; // nothing is expected
        Ok(())
    }

    /// Connects as a new client. A client with its own key may be rejected, and then tries again until the time limit.
    async fn be_served(&self) -> anyhow::Result<Stream> {
        loop {
            match self.connect(&self.names[2]).await {
                Err(_) if self.has_own_keys => sleep(AGAIN).await,
                connected => return connected,
            }
        }
    }

    /// Connects and waits for the first response with this name.
    async fn connect(&self, name: &Name) -> anyhow::Result<Stream> {
        let link = Link::open(self.target, &LinkOptions::default()).await?;
        let mut stream = Stream { link, id: 0 };
        stream.id = stream.link.start(ADS_DELTA);
        stream.link.send(stream.id, scan::delta_subscribe(EDS, Some(&self.node), &[name]));
        while !stream.next().await?.iter().any(|(received, _)| **received == **name) {}
        Ok(stream)
    }
}

impl Stream {
    /// Reads until a response satisfies the condition. A late response is recorded as a problem; none within the time limit is an error.
    async fn until(
        &mut self,
        has: impl Fn(&Received) -> bool,
        start: Instant,
        phase: &Phase,
        what: &str,
    ) -> anyhow::Result<Duration> {
        let mut is_late = false;
        loop {
            let limit = if is_late { GIVE_UP } else { LATE };
            match timeout(limit.saturating_sub(start.elapsed()), self.next()).await {
                Ok(received) => {
                    if has(&received?) {
                        return Ok(start.elapsed());
                    }
                }
                Err(_) if is_late => bail!("no {what} in {GIVE_UP:?}"),
                Err(_) => {
                    is_late = true;
                    phase.problem(format!("established client: no {what} in {LATE:?}"));
                }
            }
        }
    }

    /// Waits for a response, and ACKs it.
    async fn next(&mut self) -> anyhow::Result<Received> {
        match self.link.next().await {
            Event::Closed(why) => bail!("the connection ended: {why}"),
            Event::Ended(_, status) => bail!("the stream ended: {status}"),
            Event::Message(stream, message) => {
                let seen = scan::delta(&message).context("a response cannot be read")?;
                self.link.send(stream, scan::delta_ack(&seen));
                let response = DeltaDiscoveryResponse::decode(message.into_bytes())?;
                ensure!(response.type_url == EDS, "a response of {}", response.type_url);
                let resources = response.resources.into_iter().filter_map(|resource| {
                    let body = bodies::read(Kind::Endpoints, resource.resource?.value)?;
                    Some((resource.name, body.stamp?.update))
                });
                Ok(resources.collect())
            }
        }
    }
}

/// A change, or the response to a request, is late after this time.
const LATE: Duration = Duration::from_secs(1);
const GIVE_UP: Duration = Duration::from_secs(10);
/// The time limit for a new client's first resource.
const SERVED: Duration = Duration::from_secs(5);
const CONNECT: Duration = Duration::from_secs(30);
const BETWEEN: Duration = Duration::from_millis(20);
const BETWEEN_NEW: Duration = Duration::from_millis(100);
const AGAIN: Duration = Duration::from_millis(100);
