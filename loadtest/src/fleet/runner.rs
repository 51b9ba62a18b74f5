//! One connection with its clients: it passes messages on, decides when to reconnect, and reports.

use std::collections::HashMap;
use std::future::pending;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::{sleep, sleep_until};

use super::behaviour::Behaviour;
use super::client::{Action, Client, StreamKey};
use super::context::{Context, Phase};
use crate::bodies::unix_nanos;
use crate::link::{Event, Link, StreamId};

pub struct Runner {
    context: Context,
    behaviour: Behaviour,
    clients: Vec<Client>,
    progress: Vec<Progress>,
    /// Index of the server among the targets.
    target: usize,
    /// When the clients joined, if that was after the start.
    joined: Option<Instant>,
    /// Whether the connection was open when the fleet stopped.
    is_connected: bool,
    has_connected: bool,
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
        Self { context, behaviour, clients, progress, target, joined: None, is_connected: false, has_connected: false }
    }

    /// Waits for the step `join`, then for this long, and runs.
    pub async fn run_later(mut self, mut joined: watch::Receiver<bool>, delay: Duration) {
        let comes = async {
            let _ = joined.wait_for(|joined| *joined).await; // a fleet that was dropped has stopped too
            sleep(delay).await;
        };
        tokio::select! {
            () = comes => {}
            () = self.context.stopped() => return,
        }
        self.joined = Some(Instant::now());
        self.run().await;
    }

    /// Runs until the phase is `Stopping`.
    pub async fn run(mut self) {
        let mut backoff = FIRST_BACKOFF;
        let wanted = Instant::now();
        loop {
            let began = Instant::now();
            let link = tokio::select! {
                link = self.context.connect(self.target) => link,
                () = self.context.stopped() => {
                    self.count_unconnected(began.elapsed());
                    break;
                }
            };
            match link {
                Ok(link) => {
                    self.context.counters.connected.increase();
                    if self.joined.is_none() {
                        self.context.counters.connected_first.increase();
                    }
                    self.context.counters.connects.add(1);
                    self.context.observer.connected(Instant::now());
                    self.has_connected = true;
                    let (end, is_answered) = Attached::new(&mut self, link, wanted).drive().await;
                    self.context.counters.connected.decrease();
                    if self.joined.is_none() {
                        self.context.counters.connected_first.decrease();
                    }
                    self.context.observer.disconnected();
                    match end {
                        End::Stop => {
                            self.is_connected = true;
                            break;
                        }
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
                    self.context.count_error(self.target, &reason);
                    let at = self.context.started.elapsed();
                    self.clients.iter_mut().for_each(|client| client.note_end(&reason, at));
                }
            }
            tokio::select! {
                () = sleep(jittered(backoff, self.clients.first().map_or(0, |client| client.number))) => {}
                () = self.context.stopped() => break,
            }
            backoff = (backoff * 2).min(MAX_BACKOFF);
            self.target = self.target.wrapping_add(1);
            if self.context.targets.len() > 1 {
                self.clients.iter_mut().for_each(Client::change_server);
            }
        }
        self.finish();
    }

    /// Counts a connection that was not open yet when the fleet stopped. Clients that reconnect on purpose may need a moment.
    fn count_unconnected(&self, time: Duration) {
        if !self.has_connected || time >= SLOW_CONNECT {
            self.context.count_error(self.target, &format!("not connected yet after {} s", time.as_secs()));
        }
    }

    /// Reports what clients lack that did not receive everything, and, if convergence is judged, clients that differ from the origin.
    fn finish(&mut self) {
        let connected = self.clients.iter().zip(&self.progress).filter(|_| self.is_connected);
        for lack in connected.filter_map(|(client, progress)| client.lack().filter(|_| !progress.is_synced)) {
            self.context.count_error(self.target, &lack);
        }
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

/// A runner together with its open connection.
struct Attached<'a> {
    runner: &'a mut Runner,
    link: Link,
    /// When the clients began to connect.
    wanted: Instant,
    /// Whether a response has arrived.
    is_answered: bool,
    /// The client and stream to which each stream of the connection belongs.
    owners: Vec<Option<(usize, StreamKey)>>,
    streams: HashMap<(usize, StreamKey), StreamId>,
}

impl<'a> Attached<'a> {
    fn new(runner: &'a mut Runner, link: Link, wanted: Instant) -> Self {
        Self { runner, link, wanted, is_answered: false, owners: Vec::new(), streams: HashMap::new() }
    }

    /// Returns why the connection has ended, and whether it had a response.
    async fn drive(mut self) -> (End, bool) {
        let end = self.converse().await;
        (end, self.is_answered)
    }

    async fn converse(&mut self) -> End {
        let mut phases = self.runner.context.phase.clone();
        let mut phase = *phases.borrow_and_update();
        if matches!(phase, Phase::Stopping { .. }) {
            return End::Stop; // the run has ended while the connection was made, and no other phase follows
        }
        let at = self.at();
        for place in 0..self.runner.clients.len() {
            let actions = self.runner.clients[place].connect(at);
            self.perform(place, actions);
        }
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
                        let mut other = phases.clone(); // a copy, so that the original still sees the change of phase
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
                let (progress, conduct) = (&mut self.runner.progress[place], self.runner.behaviour.conduct());
                let (counters, observer) = (&self.runner.context.counters, &self.runner.context.observer);
                if let Some(stamp) = outcome.change.filter(|_| progress.is_synced) {
                    counters.changes.add(1);
                    let lag = Duration::from_nanos(unix_nanos().saturating_sub(stamp.unix_nanos));
                    observer.change_received(conduct, lag);
                    if outcome.is_acked {
                        observer.change_acked(conduct, lag);
                    }
                }
                if !progress.is_synced && self.runner.clients[place].is_synced() {
                    progress.is_synced = true;
                    counters.synced.increase();
                    if conduct.behaves {
                        counters.behaving_synced.increase();
                    }
                    observer.first_sync(self.runner.clients[place].number, conduct, self.wanted.elapsed());
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
                let (at, reason) = (self.at(), status.to_string());
                self.runner.context.count_error(self.runner.target, &reason);
                self.runner.clients[place].note_end(&reason, at);
                Some(End::Lost) // all streams of the connection are opened again, after a pause
            }
            Event::Closed(reason) => {
                let at = self.at();
                self.runner.context.count_error(self.runner.target, &reason);
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

/// Returns between half of the backoff and all of it, different for each client.
fn jittered(backoff: Duration, number: usize) -> Duration {
    backoff.mul_f64(0.5 + (number.wrapping_mul(7919) % 1000) as f64 / 2000.0)
}

const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(5);
/// A connection that takes this long to open is reported, even if the client had one before.
const SLOW_CONNECT: Duration = Duration::from_secs(1);
const SLOW_READ: Duration = Duration::from_millis(500);
/// The first pause between two comparisons of a client with the origin.
const FIRST_LOOK: Duration = Duration::from_millis(20);
const MAX_LOOK: Duration = Duration::from_secs(1);
const FAR: Duration = Duration::from_secs(1 << 30);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::net::TcpListener;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::link::LinkOptions;
    use crate::observe::Unobserved;

    #[tokio::test]
    async fn a_connection_that_was_made_while_the_run_ended_ends_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = listener.local_addr().unwrap();
        let (_phase, phase) = watch::channel(Phase::Stopping { judged: false });
        let context = Context {
            targets: [target.into()].into(),
            link: LinkOptions::default(),
            period: Duration::from_secs(60),
            started: Instant::now(),
            phase,
            counters: Arc::default(),
            observer: Arc::new(Unobserved),
            handshakes: Arc::new(Semaphore::new(1)),
        };
        let link = Link::open(target, &context.link).await.unwrap();
        let mut runner = Runner::new(context, Behaviour::EnvoyAdsDelta, Vec::new());
        let driven = Attached::new(&mut runner, link, Instant::now()).drive();
        let (end, _) = tokio::time::timeout(Duration::from_secs(20), driven).await.expect("it goes on");
        assert!(matches!(end, End::Stop));
    }
}
