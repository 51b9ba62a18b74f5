//! A management server that is polled in JSON, used in place of a stream.
//!
//! To a view it is a SotW stream. The last request of a type is repeated as polls. A 200 is a response; a 304 shows that the server is alive. The
//! stream ends, and the server counts as unreachable, when no connection succeeds, or when a number of polls in a row fail in another way and no
//! type is answered any more. From then on one poll is repeated, and the first good answer opens the stream again.

pub(crate) mod inputs;
mod read;
mod subscriptions;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use weir_core::proto::{Request, Response, code};
use weir_core::protocol::members::MemberPace;
use weir_core::protocol::moment::Moment;
use weir_core::protocol::session::Variant;
use weir_core::protocol::upstream::{Backoff, PollFailure, ServerQuirks, ServerStatus};
use weir_core::xds::TypeTable;

use self::read::Read;
use self::subscriptions::{Accepted, Poll, PollSchedule, Polls};
use self::wire::{Failure, PollAnswer, PollConnection};
use super::AdsServer;
use super::connection_pool::Moves;
use super::dial::Dialer;
use super::error_chain::chain;
use crate::log_pace::LogPace;
use crate::random::random;
use crate::relay::{Connector, KeyHeaders, Link, LinkEvent, LinkReport};
use crate::transcode::{Descriptors, Transcoder};

/// A server that is polled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestServer {
    /// The server's address and connection settings. It has no variant.
    pub(crate) at: AdsServer,
    /// The delay between an answer and the next poll of the same type, plus up to the same again (REST-10).
    pub(crate) refresh_delay: Duration,
    /// The time limit for one answer.
    pub(crate) request_timeout: Duration,
}

impl RestServer {
    pub(crate) fn name(&self) -> String {
        format!("{} (REST)", self.at.name())
    }

    /// Each type has a liveness of its own, and the server remembers nothing between two polls.
    pub(super) fn rules(&self) -> ServerQuirks {
        let at = self.at.quirks.clone();
        let (per_type_liveness, node_in_every_request, tries_types_apart) = (true, true, false); // each type is polled apart
        ServerQuirks {
            per_type_liveness,
            node_in_every_request,
            tries_types_apart,
            max_request_bytes: usize::MAX,
            ..at
        }
    }
}

/// Polls a control plane over HTTP, in the place of streams.
#[derive(Clone)]
pub struct RestConnector {
    server: Arc<RestServer>,
    dialer: Arc<Dialer>,
    moves: Arc<Moves>,
    transcoder: Descriptors,
    table: Arc<TypeTable>,
    log: Arc<PollLog>,
    /// When views may show the server another client.
    member_pace: Arc<Mutex<MemberPace>>,
}

/// The pace of log lines that clients or the server could cause without limit.
struct PollLog {
    /// Clients may request any number of types.
    no_path: LogPace,
    rejected: LogPace,
    /// A refused poll is repeated a second later.
    failed: LogPace,
}

impl RestConnector {
    /// Prepares polls of a server; none is sent before a link is started.
    pub fn new(server: RestServer, transcoder: Descriptors, table: Arc<TypeTable>) -> Self {
        let pace = LogPace::of_client;
        let log = Arc::new(PollLog { no_path: pace(), rejected: pace(), failed: pace() });
        let dialer = Arc::<Dialer>::default();
        let moves = Arc::new(Moves::new(dialer.pause()));
        Self { server: Arc::new(server), dialer, moves, transcoder, table, log, member_pace: Arc::default() }
    }

    /// Uses the dialer of the process, which knows the state of addresses.
    pub(crate) fn dialing_by(self, dialer: Arc<Dialer>) -> Self {
        Self { dialer, ..self }
    }
}

impl Connector for RestConnector {
    fn start(&self, link: Link) -> JoinHandle<()> {
        let this = self.clone();
        tokio::spawn(async move { this.keep_asking(link).await })
    }

    fn describe(&self) -> String {
        self.server.name()
    }

    fn variant(&self) -> Option<Variant> {
        Some(Variant::Sotw)
    }

    fn member_turn(&self, now: Moment) -> Moment {
        self.member_pace.lock().unwrap_or_else(PoisonError::into_inner).turn(now)
    }
}

/// The view task has ended.
struct Gone;

impl RestConnector {
    fn wire(&self, headers: &KeyHeaders) -> PollConnection {
        PollConnection::new(self.server.clone(), self.dialer.clone(), self.moves.clone()).showing(headers)
    }

    /// Polls for something that no server has. Any answer shows that the server is there, except a server error, and a refusal of the relay. Each
    /// type is polled on a connection of its own, so this connection is not kept.
    pub(super) async fn first_answer(&self) -> Result<(), String> {
        let mut wire = self.wire(&KeyHeaders::default());
        let mut answer = wire.post(NOTHING, Bytes::from_static(b"{}")).await;
        if matches!(&answer, Err(Failure::Refused(reason)) if refuses_relay(reason)) {
            answer = wire.post(CLUSTERS, Bytes::from_static(b"{}")).await; // a gateway may refuse what it does not know
        }
        match answer {
            // A server that judges clients by headers may refuse this poll, which shows none.
            Err(Failure::Refused(reason)) if self.server.at.judges_clients || !refuses_relay(&reason) => Ok(()),
            answer => answer.map(drop).map_err(|failure| failure.to_string()),
        }
    }

    async fn keep_asking(&self, link: Link) {
        let _in_use = link.headers.keep_in(&self.server.at.shown_values);
        let mut backoff = Backoff::new(self.server.at.backoff);
        let mut probes = Vec::new();
        loop {
            let reason = match self.reach(&link.headers, &probes).await {
                Err(failure) => failure.to_string(),
                Ok(()) => {
                    let Ok((reason, answered, next)) = self.poll(&link).await else { return };
                    if answered {
                        backoff.reset();
                    }
                    if !next.is_empty() {
                        probes = next;
                    }
                    reason
                }
            };
            // The server is unreachable even if it has answered before: the failed polls are the evidence.
            let ended = LinkEvent::Ended { reason, answered: false, is_lost: true, status: None };
            if link.reports.send(LinkReport { id: link.id, event: ended }).await.is_err() {
                return;
            }
            tokio::time::sleep(backoff.next(random())).await;
        }
    }

    /// Checks whether the server accepts a connection. If there is something to request, also checks whether it answers any of it.
    async fn reach(&self, headers: &KeyHeaders, probes: &[Poll]) -> Result<(), Failure> {
        let mut wire = self.wire(headers);
        if probes.is_empty() {
            return wire.connect().await.map(drop);
        }
        let mut silent = None;
        for question in probes {
            match self.ask(&mut wire, question).await {
                Ok(_) => return Ok(()), // whatever it is silent about
                Err(Failure::Refused(_)) => {}
                Err(failure @ Failure::Silent(_)) => silent = Some(failure),
                Err(failure @ Failure::Unreachable(_)) => return Err(failure),
            }
        }
        // A gateway may refuse what the server never has. So refusals count only if there is no silence.
        silent.map_or(Ok(()), Err)
    }

    /// Polls until the server is unreachable. Returns why it is, whether it has answered, and the polls to try next.
    async fn poll(&self, link: &Link) -> Result<(String, bool, Vec<Poll>), Gone> {
        let report = async |event| link.reports.send(LinkReport { id: link.id, event }).await.map_err(|_| Gone);
        let (sender, mut requests) = mpsc::channel(16);
        let life = Arc::default(); // polls show liveness themselves
        report(LinkEvent::Opened { variant: Variant::Sotw, requests: sender, life }).await?;
        let mut subscriptions = Polls::new(PollSchedule { refresh: self.server.refresh_delay, failures: FAILURES });
        let (mut wires, mut polls) = (HashMap::new(), JoinSet::new());
        let mut answered = false;
        loop {
            for question in subscriptions.due(Instant::now()) {
                let wire = wires.remove(&question.url).unwrap_or_else(|| self.wire(&link.headers));
                let this = self.clone();
                polls.spawn(async move { this.ask_over(wire, question).await });
            }
            let due = subscriptions.next_due();
            let (wire, question, answer) = tokio::select! {
                request = requests.recv() => {
                    if let Some((type_url, failure)) = self.take(&mut subscriptions, request.ok_or(Gone)?) {
                        report(LinkEvent::PollFailed { type_url, failure }).await?;
                    }
                    continue;
                }
                Some(polled) = polls.join_next() => match polled {
                    Ok(polled) => polled,
                    Err(error) => return Ok((format!("a poll came to no end: {error}"), answered, subscriptions.probes())),
                },
                () = sleep_until(due) => continue,
            };
            wires.insert(question.url.clone(), wire);
            match answer {
                Ok(news) => {
                    answered = true;
                    let has_ttl = news.as_ref().is_some_and(|read| read.has_ttl);
                    let number = subscriptions.answered(&question, has_ttl, Instant::now(), random());
                    let event = self.event(news, number, question.url, &link.headers);
                    report(event).await?;
                }
                Err(failure) => {
                    if let Some(unlogged) = self.log.failed.line(std::time::Instant::now()) {
                        let server = self.server.name();
                        tracing::warn!(server, path = question.path, error = %failure, unlogged, "poll failed");
                    }
                    match Word::of(&failure) {
                        Some(Word::Refuses(status)) if subscriptions.refused(&question) => {
                            report(LinkEvent::Refused(status)).await?;
                        }
                        Some(Word::Refuses(_)) => {}
                        word => {
                            subscriptions.not_refused(&question);
                            if word == Some(Word::RefusesOtherwise) {
                                report(LinkEvent::RefusedOtherwise).await?;
                            }
                        }
                    }
                    let silent = !matches!(failure, Failure::Refused(_));
                    let too_many = subscriptions.failed(&question, silent, Instant::now(), random());
                    let reported = if silent { PollFailure::Silent } else { PollFailure::Refused };
                    report(LinkEvent::PollFailed { type_url: question.url, failure: reported }).await?;
                    if too_many || matches!(failure, Failure::Unreachable(_)) {
                        return Ok((failure.to_string(), answered, subscriptions.probes()));
                    }
                }
            }
        }
    }

    /// Handles a request. Returns its type if no poll follows now, and why.
    fn take(&self, subscriptions: &mut Polls, request: Request) -> Option<(String, PollFailure)> {
        let Request::Sotw(request) = request else { return None };
        let url = request.type_url.clone();
        let known = (self.transcoder)().knows(self.table.resolve(&url).name());
        let taken = if known { subscriptions.take(request, &self.table, Instant::now()) } else { Accepted::NoPath };
        if taken == Accepted::NoPath
            && let Some(unlogged) = self.log.no_path.line(std::time::Instant::now())
        {
            let why = if known { "REST has no path for this type" } else { "there is no descriptor of this type" };
            tracing::warn!(
                server = self.server.name(),
                kind = url,
                why,
                unlogged,
                "type has no REST path; it stays unknown"
            );
        }
        match taken {
            Accepted::Now => None,
            Accepted::Later => Some((url, PollFailure::Waits)),
            Accepted::NoPath => Some((url, PollFailure::NoPath)),
        }
    }

    fn event(&self, news: Option<Read>, number: u64, type_url: String, headers: &KeyHeaders) -> LinkEvent {
        let Some(Read { mut response, rejected, .. }) = news else { return LinkEvent::Unchanged { type_url } };
        let redaction = || headers.redaction(&self.server.at.shown_values);
        if let Some(first) = rejected.first()
            && let Some(unlogged) = self.log.rejected.line(std::time::Instant::now())
        {
            let (server, kind) = (self.server.name(), &response.type_url);
            let first = redaction().apply(first.clone());
            tracing::warn!(
                server,
                kind,
                bad = rejected.len(),
                first,
                unlogged,
                "resources rejected; their last good versions are served"
            );
        }
        response.nonce = number.to_string(); // which the view's ACK repeats
        LinkEvent::Response(Box::new(Response::Sotw(response))).without_values(redaction)
    }

    async fn ask_over(
        self,
        mut wire: PollConnection,
        question: Poll,
    ) -> (PollConnection, Poll, Result<Option<Read>, Failure>) {
        let answer = self.ask(&mut wire, &question).await;
        (wire, question, answer)
    }

    /// Polls once. Returns None if nothing has changed.
    async fn ask(&self, wire: &mut PollConnection, question: &Poll) -> Result<Option<Read>, Failure> {
        let transcoder = (self.transcoder)();
        let body = read::write(&question.request, &transcoder).map_err(|error| Failure::Refused(chain(&error)))?;
        match wire.post(&question.path, body.into()).await? {
            PollAnswer::Unchanged if question.request.version_info.is_empty() => {
                Err(Failure::Refused("nothing new, to who has stated no version".into()))
            }
            PollAnswer::Unchanged => Ok(None),
            PollAnswer::Content(body) => {
                let read = read_beside(body, question.url.clone(), transcoder).await;
                // The error may quote values that the server was shown.
                read.map(Some).map_err(|failure| Failure::Refused(wire.redaction().apply(failure.to_string())))
            }
        }
    }
}

/// Parses large answers on the blocking pool, not on the threads that serve.
async fn read_beside(body: Bytes, url: String, transcoder: Arc<Transcoder>) -> Result<Read, Failure> {
    let large = body.len() > LARGE;
    let reading = move || read::read(&body, &url, &transcoder).map_err(|error| Failure::Refused(chain(&error)));
    if !large {
        return reading();
    }
    let read = tokio::task::spawn_blocking(reading).await;
    read.unwrap_or_else(|_| Err(Failure::Refused("the relay is stopping".into())))
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// How many polls in a row fail on an open connection before the server counts as unreachable. Neither a single 500 or late answer nor a type that
/// fails alone causes a fallback.
const FAILURES: u32 = 3;
/// Answers above this size, in bytes, are parsed on the blocking pool.
const LARGE: usize = 64 << 10;

/// Whether a reason begins with a status by which a server refuses the relay, rather than the path.
fn refuses_relay(reason: &str) -> bool {
    matches!(status_of(reason), Some(401 | 403 | 407))
}

fn status_of(reason: &str) -> Option<u16> {
    reason.split_once(' ').and_then(|(status, _)| status.parse().ok())
}

/// What the server refuses by the answer to a poll.
#[derive(Debug, PartialEq)]
enum Word {
    /// The server refuses the poller, by this gRPC status.
    Refuses(ServerStatus),
    /// The request itself is refused.
    RefusesOtherwise,
}

impl Word {
    /// Returns `None` if it is not known who has answered, or what was refused.
    fn of(failure: &Failure) -> Option<Self> {
        let Failure::Refused(reason) = failure else { return None };
        let code = match status_of(reason)? {
            401 => code::UNAUTHENTICATED,
            403 => code::PERMISSION_DENIED,
            407 | 429 => return None, // of a proxy, or of a limit
            _ => return Some(Self::RefusesOtherwise),
        };
        Some(Self::Refuses(ServerStatus { code, message: reason.clone() }))
    }
}

/// A path without resources.
const NOTHING: &str = "/v3/discovery:nothing";
const CLUSTERS: &str = "/v3/discovery:clusters";
