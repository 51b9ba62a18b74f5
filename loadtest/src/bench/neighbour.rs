//! How busy views affect other views: how long the first client of another view waits for its first response.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;

use super::clients::{ClientOptions, Clients, Names};
use super::gate::Gate;
use super::own_thread::OwnThread;
use super::size::show_size;
use super::stage::Stage;
use super::subject::{Setting, Subject};
use super::{Bench, Kind, Programs, Resources, Running, Scene};
use crate::link::Target;
use crate::measure::{Latencies, raise_open_files};
use crate::wire::Variant;

/// Views that receive large updates in which every resource changes.
#[derive(Debug, Clone)]
pub struct LargeUpdates {
    pub views: usize,
    pub resources: usize,
    /// Bytes of each resource.
    pub size: usize,
    /// How many clients with new views come meanwhile.
    pub neighbours: usize,
}

/// A view whose SotW clients are sent a large set for each change.
#[derive(Debug, Clone)]
pub struct LargeSets {
    pub connections: usize,
    pub resources: usize,
    /// Bytes of each resource.
    pub size: usize,
    pub rounds: u32,
}

impl Bench for LargeUpdates {
    fn name(&self) -> String {
        let Self { views, resources, size, neighbours } = self;
        let size = show_size(resources * size);
        format!("neighbour: {neighbours} new views beside {views} that take in updates of {size}, delta")
    }

    fn subjects(&self) -> Vec<Subject> {
        vec![Subject::Relay]
    }

    fn gates(&self) -> Vec<Gate> {
        vec![Gate::absolute("neighbour_p99_beside_by_direct", 3.0)]
    }

    fn run<'a>(&'a self, subject: Subject, programs: &'a Programs) -> Running<'a> {
        Box::pin(self.measure(subject, programs))
    }
}

impl LargeUpdates {
    async fn measure(&self, subject: Subject, programs: &Programs) -> anyhow::Result<Scene> {
        raise_open_files(self.views)?;
        let last = self.resources;
        // One resource more, for the clients of the other views.
        let resources = Resources { kind: Kind::Endpoints, count: last + 1, size: self.size };
        let config = "limits: {message_bytes: 256MiB}";
        let setting = Setting { relay_config: config, ..Setting::of(resources) };
        let stage = Stage::start(subject, setting, programs).await?;
        let names: Names = Arc::new(move |_| (0..last).map(|index| resources.name(index)).collect());
        let of_view = |view: usize| {
            let options = ClientOptions { names: names.clone(), cluster: format!("busy-{view}"), ..stage.clients(1) };
            Clients::storm(options, last)
        };
        let busy: Vec<Clients> = (0..self.views).map(of_view).collect();
        reached(&busy).await?;
        let neighbours = Neighbours::new(stage.clients(1), resources.name(last))?;
        let alone = neighbours.come(0, Until::Enough(ALONE)).await??;
        let beside = neighbours.come_by_turns(ALONE, self.neighbours, stage.origin.address.into());
        for round in 1.. {
            stage.origin.change(0..last, round, |start| busy.iter().for_each(|busy| busy.expect(round, last, start)));
            reached(&busy).await?;
            if beside.is_finished() {
                break;
            }
        }
        let (beside, direct) = beside.await??;
        let mut figures = figures(&alone, &beside);
        figures.insert("neighbour_p99_direct_ms".into(), p99(&direct));
        figures.insert("neighbour_p99_beside_by_direct".into(), p99(&beside) / p99(&direct));
        Ok(Scene::of(figures))
    }
}

/// Waits until the clients of all views have reached their goal.
async fn reached(views: &[Clients]) -> anyhow::Result<()> {
    for clients in views {
        clients.reached().await?;
    }
    Ok(())
}

impl Bench for LargeSets {
    fn name(&self) -> String {
        let Self { connections, resources, size, rounds } = self;
        let size = show_size(*size);
        format!("neighbour: {connections} SotW clients of {resources} clusters of {size}, one changes, {rounds} rounds")
    }

    fn subjects(&self) -> Vec<Subject> {
        vec![Subject::Relay, Subject::Floor]
    }

    fn gates(&self) -> Vec<Gate> {
        vec![
            Gate::ratio("cpu_ms_per_client_and_change", Subject::Floor, 1.5).free(0.15),
            Gate::absolute("neighbour_p99_beside_by_alone", 3.0),
        ]
    }

    fn run<'a>(&'a self, subject: Subject, programs: &'a Programs) -> Running<'a> {
        Box::pin(self.measure(subject, programs))
    }
}

impl LargeSets {
    async fn measure(&self, subject: Subject, programs: &Programs) -> anyhow::Result<Scene> {
        raise_open_files(self.connections + ALONE * 2)?;
        let resources = Resources { kind: Kind::Clusters, count: self.resources, size: self.size };
        let setting = Setting { variant: Variant::Sotw, ..Setting::of(resources) };
        let mut stage = Stage::start(subject, setting, programs).await?;
        let clients =
            Clients::storm(ClientOptions { syncing: SYNCING, ..stage.clients(self.connections) }, self.resources);
        clients.reached().await?;
        stage.round(&clients, 1, 0..1).await?; // warm-up
        let process = stage.server.process;
        let start = process.quiet_cpu().await?;
        for round in 2..self.rounds + 2 {
            stage.round(&clients, round, 0..1).await?;
        }
        let cpu = process.quiet_cpu().await? - start;
        let each = cpu.as_secs_f64() * 1e3 / (self.connections as f64 * f64::from(self.rounds));
        if subject == Subject::Floor {
            let figures = BTreeMap::from([("cpu_ms_per_client_and_change".into(), each)]);
            return Ok(Scene::of(figures));
        }
        let options = ClientOptions { variant: Variant::Delta, ..stage.clients(1) };
        let neighbours = Neighbours::new(options, resources.name(self.resources - 1))?;
        let alone = neighbours.come(0, Until::Enough(ALONE)).await??;
        let is_over = Arc::new(AtomicBool::new(false));
        let beside = neighbours.come(ALONE, Until::Over(is_over.clone()));
        for round in self.rounds + 2..2 * self.rounds + 2 {
            stage.round(&clients, round, 0..1).await?;
        }
        is_over.store(true, Ordering::Relaxed);
        let beside = beside.await??;
        let mut figures = figures(&alone, &beside);
        figures.insert("cpu_ms_per_client_and_change".into(), each);
        Ok(Scene::of(figures))
    }
}

/// Clients that connect one after another for one name, each with a view of its own. They run on a thread of their own, so that they do not
/// wait for the clients of the busy view.
struct Neighbours {
    thread: OwnThread,
    options: ClientOptions,
}

enum Until {
    Enough(usize),
    Over(Arc<AtomicBool>),
}

impl Neighbours {
    fn new(options: ClientOptions, name: String) -> anyhow::Result<Self> {
        let names: Names = Arc::new(move |_| vec![name.clone()]);
        Ok(Self { thread: OwnThread::start()?, options: ClientOptions { names, ..options } })
    }

    /// Connects one client after another, at least one, and returns the times from connecting to the first response.
    fn come(&self, before: usize, until: Until) -> JoinHandle<anyhow::Result<Latencies>> {
        let options = self.options.clone();
        self.thread.spawn(async move {
            let mut latencies = Latencies::default();
            for done in 1.. {
                latencies.record(first_response(&options, before + done).await?);
                let is_enough = match &until {
                    Until::Enough(enough) => done >= *enough,
                    Until::Over(is_over) => is_over.load(Ordering::Relaxed),
                };
                if is_enough {
                    break;
                }
            }
            Ok(latencies)
        })
    }

    /// Connects this many clients one after another, and after each another one to the control plane itself. Returns the times of both.
    fn come_by_turns(
        &self,
        before: usize,
        count: usize,
        origin: Target,
    ) -> JoinHandle<anyhow::Result<(Latencies, Latencies)>> {
        let options = self.options.clone();
        let direct = ClientOptions { target: origin, tls: None, ..options.clone() };
        self.thread.spawn(async move {
            let mut latencies = (Latencies::default(), Latencies::default());
            for number in before + 1..=before + count {
                latencies.0.record(first_response(&options, number).await?);
                latencies.1.record(first_response(&direct, number).await?);
            }
            Ok(latencies)
        })
    }
}

/// Connects a client with a view of its own, and returns the time to its first response.
async fn first_response(options: &ClientOptions, number: usize) -> anyhow::Result<Duration> {
    let options = ClientOptions { cluster: format!("neighbour-{number}"), ..options.clone() };
    let client = Clients::storm(options, 1);
    client.reached().await
}

fn figures(alone: &Latencies, beside: &Latencies) -> BTreeMap<String, f64> {
    BTreeMap::from([
        ("neighbour_p99_alone_ms".into(), p99(alone)),
        ("neighbour_p99_beside_ms".into(), p99(beside)),
        ("neighbour_p99_beside_by_alone".into(), p99(beside) / p99(alone)),
        ("neighbours_beside".into(), beside.count() as f64),
    ])
}

/// In milliseconds.
fn p99(latencies: &Latencies) -> f64 {
    latencies.percentile(99.0).as_secs_f64() * 1e3
}

const ALONE: usize = 200;
/// How many clients may wait for their first set at a time.
const SYNCING: usize = 32;
