//! One connection with its clients: passes messages on, decides when to reconnect, and reports.

use std::collections::HashMap;
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, sleep_until, timeout};

use super::behaviour::Behaviour;
use super::client::{Action, Client, StreamKey};
use super::counters::Counters;
use crate::bodies::unix_nanos;
use crate::link::{Event, Link, LinkOptions, StreamId, Target};
use crate::observe::Observer;

/// What all connections do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Running,
    /// Nothing changes any more: clients behave, and report when they hold the same as the origin.
    Settling,
    /// The end, and whether clients that do not hold the same as the origin are reported.
    Stopping {
        judged: bool,
    },
}

/// What all connections share.
#[derive(Clone)]
pub struct Context {
    pub targets: Arc<[Target]>,
    pub link: LinkOptions,
    pub period: Duration,
    pub started: Instant,
    pub phase: watch::Receiver<Phase>,
    pub counters: Arc<Counters>,
    pub observer: Arc<dyn Observer>,
    /// Limits concurrent handshakes.
    pub handshakes: Arc<Semaphore>,
}

pub struct Runner {
    context: Context,
    behaviour: Behaviour,
    clients: Vec<Client>,
    progress: Vec<Progress>,
    /// Index of the server among the targets.
    target: usize,
    /// When its clients came, if that was after the others.
    joined: Option<Instant>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    is_synced: bool,
    is_converged: bool,
}

/// Why a connection ended.
enum End {
    Stop,
    Flap,
    Lost,
}

impl Runner {
    pub fn new(context: Context, behaviour: Behaviour, clients: Vec<Client>) -> Self {
        let progress = vec![Progress::default(); clients.len()];
        let target = clients.first().map_or(0, |client| client.number);
        Self { context, behaviour, clients, progress, target, joined: None }
    }

    /// Runs from this long after clients may join the others.
    pub async fn run_later(mut self, mut joined: watch::Receiver<bool>, delay: Duration) {
        let comes = async {
            let _ = joined.wait_for(|joined| *joined).await; // a fleet that was dropped has stopped too
            sleep(delay).await;
        };
        tokio::select! {
            () = comes => {}
            () = stopped(self.context.phase.clone()) => return,
        }
        self.joined = Some(Instant::now());
        self.run().await;
    }

    /// Runs until the phase is `Stopping`.
    pub async fn run(mut self) {
        let mut backoff = FIRST_BACKOFF;
        loop {
            let began = Instant::now();
            let link = tokio::select! {
                link = connect(&self.context, self.target) => link,
                () = stopped(self.context.phase.clone()) => break,
            };
            match link {
                Ok(link) => {
                    self.context.counters.connected.increase();
                    if self.joined.is_none() {
                        self.context.counters.connected_first.increase();
                    }
                    self.context.counters.connects.add(1);
                    self.context.observer.connected(Instant::now());
                    let (end, is_answered) = Attached::new(&mut self, link, began).drive().await;
                    self.context.counters.connected.decrease();
                    if self.joined.is_none() {
                        self.context.counters.connected_first.decrease();
                    }
                    self.context.observer.disconnected();
                    match end {
                        End::Stop => break,
                        End::Flap => continue,
                        End::Lost => {
                            self.context.counters.lost.add(1);
                            self.context.counters.unanswered.add(u64::from(!is_answered));
                        }
                    }
                    if began.elapsed() > MAX_BACKOFF {
                        backoff = FIRST_BACKOFF;
                    }
                }
                Err(reason) => {
                    self.context.counters.failed_connects.add(1);
                    let at = self.context.started.elapsed();
                    self.clients.iter_mut().for_each(|client| client.note_end(&reason, at));
                }
            }
            tokio::select! {
                () = sleep(jittered(backoff, self.clients.first().map_or(0, |client| client.number))) => {}
                () = stopped(self.context.phase.clone()) => break,
            }
            backoff = (backoff * 2).min(MAX_BACKOFF);
            self.target = self.target.wrapping_add(1);
            if self.context.targets.len() > 1 {
                self.clients.iter_mut().for_each(Client::change_server);
            }
        }
        self.finish();
    }

    /// Reports the clients that do not hold what they should, if that was checked.
    fn finish(&mut self) {
        let judged = *self.context.phase.borrow() == Phase::Stopping { judged: true };
        for (client, progress) in self.clients.iter_mut().zip(&self.progress) {
            if judged
                && self.behaviour.converges()
                && !progress.is_converged
                && let Some(what) = client.difference()
            {
                client.violate_convergence(what);
            }
        }
        self.report_violations();
    }

    fn report_violations(&mut self) {
        for client in &mut self.clients {
            for violation in client.take_violations() {
                self.context.observer.violation(client.number, violation.check.name());
                self.context.counters.violate(violation);
            }
        }
    }

    fn check_convergence(&mut self) {
        for (client, progress) in self.clients.iter().zip(&mut self.progress) {
            if self.behaviour.converges() && !progress.is_converged && client.difference().is_none() {
                progress.is_converged = true;
                self.context.counters.converged.increase();
            }
        }
    }

    fn is_converged(&self) -> bool {
        self.progress.iter().all(|progress| progress.is_converged)
    }
}

async fn connect(context: &Context, target: usize) -> Result<Link, String> {
    let target = target.checked_rem(context.targets.len()).and_then(|place| context.targets.get(place));
    let target = target.ok_or("no server")?;
    let _permit = context.handshakes.acquire().await;
    match timeout(CONNECT_TIMEOUT, Link::open(target.clone(), &context.link)).await {
        Ok(Ok(link)) => Ok(link),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("connect timed out".into()),
    }
}

async fn stopped(mut phase: watch::Receiver<Phase>) {
    let _ = phase.wait_for(|phase| matches!(phase, Phase::Stopping { .. })).await; // a fleet that was dropped has stopped too
}

/// A runner with its connection.
struct Attached<'a> {
    runner: &'a mut Runner,
    link: Link,
    began: Instant,
    /// A response has arrived.
    is_answered: bool,
    /// The client and stream to which each stream of the connection belongs.
    owners: Vec<Option<(usize, StreamKey)>>,
    streams: HashMap<(usize, StreamKey), StreamId>,
}

impl<'a> Attached<'a> {
    fn new(runner: &'a mut Runner, link: Link, began: Instant) -> Self {
        Self { runner, link, began, is_answered: false, owners: Vec::new(), streams: HashMap::new() }
    }

    /// Returns why the connection has ended, and whether it had a response.
    async fn drive(mut self) -> (End, bool) {
        let end = self.converse().await;
        (end, self.is_answered)
    }

    async fn converse(&mut self) -> End {
        let at = self.at();
        for place in 0..self.runner.clients.len() {
            let actions = self.runner.clients[place].connect(at);
            self.perform(place, actions);
        }
        let mut phases = self.runner.context.phase.clone();
        let mut phase = *phases.borrow_and_update();
        let mut next_period = Instant::now() + self.runner.context.period;
        let mut look = FIRST_LOOK;
        let mut next_look = Instant::now() + look;
        loop {
            let is_running = phase == Phase::Running;
            let has_periods = matches!(self.runner.behaviour, Behaviour::Flapper | Behaviour::SubscriptionChurn);
            let looks = phase == Phase::Settling && !self.runner.is_converged();
            tokio::select! {
                event = self.link.next() => {
                    if let Some(end) = self.on_event(event) {
                        return end;
                    }
                    if self.runner.behaviour == Behaviour::SlowReader && is_running {
                        let mut other = phases.clone(); // the change of phase still has to be seen
                        tokio::select! {
                            () = sleep(SLOW_READ) => {}
                            _ = other.wait_for(|phase| *phase != Phase::Running) => {}
                        }
                    }
                }
                changed = phases.changed() => {
                    phase = if changed.is_ok() { *phases.borrow_and_update() } else { Phase::Stopping { judged: false } };
                    if matches!(phase, Phase::Stopping { .. }) {
                        return End::Stop;
                    }
                    next_look = Instant::now();
                    self.churn(false);
                }
                () = at_time(next_period), if has_periods && is_running => {
                    next_period = Instant::now() + self.runner.context.period;
                    if self.runner.behaviour == Behaviour::Flapper {
                        return End::Flap;
                    }
                    self.churn(true);
                }
                () = at_time(next_look), if looks => {
                    self.churn(false);
                    self.runner.check_convergence();
                    look = (look * 2).min(MAX_LOOK);
                    next_look = Instant::now() + look;
                }
            }
        }
    }

    fn on_event(&mut self, event: Event) -> Option<End> {
        match event {
            Event::Message(stream, message) => {
                let (place, key) = self.owner(stream)?;
                let context = &self.runner.context;
                context.counters.messages.add(1);
                self.is_answered = true;
                context.counters.bytes.add(message.len() as u64);
                context.observer.bytes(message.len() as u64);
                let at = self.at();
                let outcome = self.runner.clients[place].on_message(key, message.into_bytes(), at);
                self.perform(place, outcome.actions);
                let progress = &mut self.runner.progress[place];
                let (counters, observer) = (&self.runner.context.counters, &self.runner.context.observer);
                if let Some(stamp) = outcome.change.filter(|_| progress.is_synced) {
                    counters.changes.add(1);
                    let lag = Duration::from_nanos(unix_nanos().saturating_sub(stamp.unix_nanos));
                    observer.change_received(lag);
                    if outcome.is_acked {
                        observer.change_acked(lag);
                    }
                }
                if !progress.is_synced && self.runner.clients[place].is_synced() {
                    progress.is_synced = true;
                    counters.synced.increase();
                    observer.first_sync(self.runner.clients[place].number, self.began.elapsed());
                    if let Some(joined) = self.runner.joined {
                        counters.newcomer_waited(joined.elapsed());
                    }
                }
                self.runner.report_violations();
                None
            }
            Event::Ended(stream, status) => {
                let (place, key) = self.owner(stream)?;
                self.owners[stream] = None;
                self.streams.remove(&(place, key));
                self.runner.context.counters.ended_streams.add(1);
                let at = self.at();
                self.runner.clients[place].note_end(&status.to_string(), at);
                Some(End::Lost) // all streams of the connection are opened again, after a pause
            }
            Event::Closed(reason) => {
                let at = self.at();
                self.runner.clients.iter_mut().for_each(|client| client.note_end(&reason, at));
                Some(End::Lost)
            }
        }
    }

    fn churn(&mut self, reduce: bool) {
        let at = self.at();
        for place in 0..self.runner.clients.len() {
            let actions = self.runner.clients[place].churn(reduce, at);
            self.perform(place, actions);
        }
    }

    fn perform(&mut self, place: usize, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Open(key, path) => {
                    let stream = self.link.start(path);
                    self.owners.resize(self.owners.len().max(stream + 1), None);
                    self.owners[stream] = Some((place, key));
                    self.streams.insert((place, key), stream);
                }
                Action::Send(key, request) => {
                    if let Some(stream) = self.streams.get(&(place, key)) {
                        self.link.send(*stream, request);
                    }
                }
                Action::Cancel(key) => {
                    if let Some(stream) = self.streams.remove(&(place, key)) {
                        self.owners[stream] = None;
                        self.link.cancel(stream);
                    }
                }
            }
        }
    }

    fn owner(&self, stream: StreamId) -> Option<(usize, StreamKey)> {
        self.owners.get(stream).copied().flatten()
    }

    fn at(&self) -> Duration {
        self.runner.context.started.elapsed()
    }
}

async fn at_time(time: Instant) {
    match Instant::now().checked_add(FAR) {
        Some(far) if time > far => pending().await,
        _ => sleep_until(time.into()).await,
    }
}

/// From half of the backoff to all of it, different for each client.
fn jittered(backoff: Duration, number: usize) -> Duration {
    backoff.mul_f64(0.5 + (number.wrapping_mul(7919) % 1000) as f64 / 2000.0)
}

const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(5);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
const SLOW_READ: Duration = Duration::from_millis(500);
/// The pause between two comparisons of a client with the origin.
const FIRST_LOOK: Duration = Duration::from_millis(20);
const MAX_LOOK: Duration = Duration::from_secs(1);
const FAR: Duration = Duration::from_secs(1 << 30);
