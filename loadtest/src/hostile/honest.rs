//! Honest clients: one that stays connected, and new ones, one after another. A client of the control plane itself gets the same changes as the
//! first, since the control plane delays changes too: it answers the hostile clients' requests for names on one thread.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use prost::Message;
use tokio::task::JoinHandle;
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

/// A client of the control plane itself. It never delays the established client for longer than a time limit.
#[derive(Default)]
enum Direct {
    #[default]
    Closed,
    Opening(JoinHandle<anyhow::Result<Stream>>),
    Open(Box<Stream>),
}

/// The endpoints of a response: a name, and the update of the origin from which the endpoints are.
type Received = Vec<(String, u64)>;

impl Honest {
    /// Stays connected, and receives and ACKs changes, until the future is dropped.
    pub async fn stay(self) {
        let (mut stream, mut direct) = (None, Direct::default());
        loop {
            let phase = self.phases.current();
            match self.round(&mut stream, &mut direct, &phase).await {
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
    async fn round(&self, stream: &mut Option<Stream>, direct: &mut Direct, phase: &Phase) -> anyhow::Result<()> {
        let stream = match stream {
            Some(stream) => stream,
            None => {
                let connecting = timeout(CONNECT, self.connect(self.target, &self.names[0])).await;
                stream.insert(connecting.context("cannot connect again in 30 s")??)
            }
        };
        direct.open(self).await;
        let change = Change::Touch(Kind::Endpoints, self.names[0].clone());
        let origin = self.origin.clone();
        // On another thread and not timed: the state of the control plane may be locked because of the hostile clients.
        let stamp = tokio::task::spawn_blocking(move || origin.update(|_| vec![change])).await?;
        let start = Instant::now();
        let has_change = |received: &Received| {
            received.iter().any(|(name, update)| **name == *self.names[0] && *update >= stamp.update)
        };
        let time = stream.until(&has_change, start, phase, "change");
        let of_direct = async { Ok::<_, anyhow::Error>(direct.time(&has_change, start).await) };
        let (time, of_direct) = tokio::try_join!(time, of_direct)?; // an error of the established client does not wait
        phase.record_change(time, of_direct);
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
            match self.connect(self.target, &self.names[2]).await {
                Err(_) if self.has_own_keys => sleep(AGAIN).await,
                connected => return connected,
            }
        }
    }

    /// Connects to the control plane itself, for the changes of the established client.
    async fn connect_directly(self) -> anyhow::Result<Stream> {
        timeout(CONNECT, self.connect(self.origin.address, &self.names[0])).await?
    }

    /// Connects and waits for the first response with this name.
    async fn connect(&self, address: SocketAddr, name: &Name) -> anyhow::Result<Stream> {
        let link = Link::open(address, &LinkOptions::default()).await?;
        let mut stream = Stream { link, id: 0 };
        stream.id = stream.link.start(ADS_DELTA);
        stream.link.send(stream.id, scan::delta_subscribe(EDS, Some(&self.node), &[name]));
        stream.wait_for(|received| received.iter().any(|(received, _)| **received == **name)).await?;
        Ok(stream)
    }
}

impl Direct {
    /// Begins to open the stream in the background, unless it is open or being opened.
    async fn open(&mut self, honest: &Honest) {
        *self = match std::mem::take(self) {
            Self::Closed => Self::Opening(tokio::spawn(honest.clone().connect_directly())),
            Self::Opening(task) if task.is_finished() => match task.await {
                Ok(Ok(stream)) => Self::Open(Box::new(stream)),
                _ => Self::Closed, // the next round tries again
            },
            other => other,
        };
    }

    /// Waits for a response that satisfies the condition, and returns its time. Without a time, the stream is opened again.
    async fn time(&mut self, has: impl Fn(&Received) -> bool, start: Instant) -> Option<Duration> {
        let Self::Open(stream) = self else { return None };
        let waited = timeout(DIRECT.saturating_sub(start.elapsed()), stream.wait_for(has)).await;
        if matches!(waited, Ok(Ok(()))) {
            return Some(start.elapsed());
        }
        *self = Self::Closed;
        None
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

    async fn wait_for(&mut self, has: impl Fn(&Received) -> bool) -> anyhow::Result<()> {
        while !has(&self.next().await?) {}
        Ok(())
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
/// The time limit for a change at the client of the control plane itself.
const DIRECT: Duration = Duration::from_secs(1);
/// The time limit for a new client's first resource.
const SERVED: Duration = Duration::from_secs(5);
const CONNECT: Duration = Duration::from_secs(30);
const BETWEEN: Duration = Duration::from_millis(20);
const BETWEEN_NEW: Duration = Duration::from_millis(100);
const AGAIN: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::origin::Counts;

    async fn origin() -> Origin {
        let counts = Counts { clusters: 10, routes: 1, listeners: 1, size: 1 << 10 };
        Origin::start(SocketAddr::from(([127, 0, 0, 1], 0)), counts, None).await.unwrap()
    }

    /// Returns an honest client of a control plane, with no relay between them.
    async fn honest() -> Honest {
        let origin = Arc::new(origin().await);
        let names: Vec<_> = origin.shared().world().set(Kind::Endpoints).keys().cloned().collect();
        Honest {
            target: origin.address,
            origin,
            node: scan::node("honest", "test"),
            has_own_keys: false,
            names: [names[0].clone(), names[1].clone(), names[2].clone()],
            phases: Phases::default(),
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_change_is_timed_at_the_control_plane_too() {
        let honest = honest().await;
        let phase = honest.phases.current();
        let (mut stream, mut direct) = (None, Direct::default());
        let rounds = async {
            while phase.figures().direct.is_none() {
                honest.round(&mut stream, &mut direct, &phase).await.unwrap();
            }
        };
        timeout(GIVE_UP, rounds).await.unwrap();
        let figures = phase.figures();
        let [received, of_direct] = [figures.received, figures.direct].map(|times| times.unwrap().count);
        assert_eq!(of_direct, 1);
        assert!(received > 1, "the first change does not wait for the other client");
        assert_eq!(figures.later.unwrap().count, received);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_silent_client_of_the_control_plane_loses_no_change() {
        let honest = honest().await;
        let phase = honest.phases.current();
        let silent = origin().await; // nothing changes there
        let connected = honest.connect(silent.address, &honest.names[0]).await.unwrap();
        let (mut stream, mut direct) = (None, Direct::Open(Box::new(connected)));
        honest.round(&mut stream, &mut direct, &phase).await.unwrap();
        let figures = phase.figures();
        assert_eq!(figures.received.unwrap().count, 1);
        assert!(figures.direct.is_none());
        assert_eq!(figures.later.unwrap().max, figures.received.unwrap().max);
        assert!(matches!(direct, Direct::Closed), "it is opened again");
    }
}
