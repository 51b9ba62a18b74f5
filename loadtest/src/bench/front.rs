//! The load that relays take off a control plane: go-control-plane with equal clients that connect directly, through a relay, or through
//! two tiers of relays. First resources change; then the control plane is killed while more clients start.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::clients::{ClientOptions, Clients, wildcard};
use super::gate::Gate;
use super::origin::Origin;
use super::stage::{CLUSTER, CONNECTING, figures_of, mib};
use super::subject::{Server, Setting, Subject};
use super::{Bench, Kind, Programs, Resources, Running, Scene};
use crate::link::Target;
use crate::measure::{Process, established, raise_open_files};
use crate::wire::Variant;

#[derive(Debug, Clone)]
pub struct Front {
    pub connections: usize,
    /// The number of changes, each of one resource of 1 KiB among 100.
    pub changes: u32,
    /// The number of clients that start during the outage, at even intervals.
    pub starts: u32,
    pub outage: Duration,
}

impl Bench for Front {
    fn name(&self) -> String {
        let Self { connections, changes, starts, outage } = self;
        format!(
            "front: {connections} clients of go-control-plane, {changes} changes of 1 KiB, then {starts} clients start while it is away \
             for {} s, delta",
            outage.as_secs()
        )
    }

    fn subjects(&self) -> Vec<Subject> {
        vec![Subject::Direct, Subject::OneTier, Subject::TwoTiers]
    }

    fn gates(&self) -> Vec<Gate> {
        Vec::new()
    }

    fn run<'a>(&'a self, subject: Subject, programs: &'a Programs) -> Running<'a> {
        Box::pin(self.measure(subject, programs))
    }
}

impl Front {
    async fn measure(&self, subject: Subject, programs: &Programs) -> anyhow::Result<Scene> {
        raise_open_files(self.connections)?;
        let fleet = Fleet::start(subject, programs).await?;
        let clients = Clients::storm(fleet.clients(self.connections), RESOURCES.count);
        clients.reached().await?;
        fleet.round(&clients, 1).await?; // to warm up
        clients.take_latencies();
        let (control_plane, relays) = (fleet.control_plane.process, fleet.relays());
        let before = (control_plane.quiet_cpu().await?, cpu_of(&relays).await?);
        for round in 2..self.changes + 2 {
            fleet.round(&clients, round).await?;
        }
        let after = (control_plane.quiet_cpu().await?, cpu_of(&relays).await?);
        let mut figures = figures_of(&clients.take_latencies());
        let each = |time: Duration| time.as_secs_f64() * 1e3 / f64::from(self.changes);
        figures.insert("control_plane_cpu_ms_per_change".into(), each(after.0 - before.0));
        figures.insert("control_plane_rss_mib".into(), mib(control_plane.memory()?.rss));
        figures.insert("control_plane_connections".into(), established(fleet.control_plane_port())? as f64);
        figures.insert("relays_cpu_ms_per_change".into(), each(after.1 - before.1));
        figures.insert("relays_rss_mib".into(), mib(memory_of(&relays)?));
        // A second tier serves clients in an outage as one tier does, and measuring that would add a minute to each repetition.
        if subject != Subject::TwoTiers {
            figures.insert("served_in_outage_percent".into(), self.outage(fleet).await?);
        }
        Ok(Scene::of(figures))
    }

    /// Kills the control plane, and returns which percentage of the clients that start meanwhile have their set after 5 s.
    async fn outage(&self, fleet: Fleet) -> anyhow::Result<f64> {
        let options = fleet.clients(1);
        let Fleet { control_plane, tiers, origin } = fleet;
        tokio::task::spawn_blocking(move || drop(control_plane)).await?;
        let mut starting = JoinSet::new();
        for _ in 0..self.starts {
            let options = options.clone();
            starting.spawn(async move {
                let client = Clients::storm(options, RESOURCES.count);
                matches!(timeout(PATIENCE, client.reached()).await, Ok(Ok(_)))
            });
            sleep(self.outage / self.starts.max(1)).await;
        }
        let served = starting.join_all().await.into_iter().filter(|is_served| *is_served).count();
        drop((tiers, origin));
        Ok(100.0 * served as f64 / f64::from(self.starts.max(1)))
    }
}

/// A control plane, and the relays in front of it.
struct Fleet {
    /// The tiers of relays, the one next to the control plane first.
    tiers: Vec<Server>,
    control_plane: Server,
    origin: Origin,
}

impl Fleet {
    async fn start(subject: Subject, programs: &Programs) -> anyhow::Result<Self> {
        let origin = Origin::start(RESOURCES).await?;
        let control_plane = started(Subject::Linear, &origin_of(&origin.address.into()), programs).await?;
        let mut fleet = Self { tiers: Vec::new(), control_plane, origin };
        for tier in 0..tiers_of(subject) {
            let folder = programs.folder.join(format!("tier-{tier}"));
            std::fs::create_dir_all(&folder)?;
            let setting = origin_of(&fleet.front().target);
            let tier = started(Subject::Relay, &setting, &Programs { folder, ..programs.clone() }).await?;
            fleet.tiers.push(tier);
        }
        Ok(fleet)
    }

    /// Returns the server to which clients connect.
    fn front(&self) -> &Server {
        self.tiers.last().unwrap_or(&self.control_plane)
    }

    fn control_plane_port(&self) -> u16 {
        port_of(&self.control_plane.target)
    }

    fn relays(&self) -> Vec<Process> {
        self.tiers.iter().map(|tier| tier.process).collect()
    }

    fn clients(&self, connections: usize) -> ClientOptions {
        ClientOptions {
            target: self.front().target.clone(),
            tls: None,
            variant: Variant::Delta,
            kind: RESOURCES.kind,
            connections,
            streams: 1,
            names: wildcard(),
            cluster: CLUSTER.into(),
            connecting: CONNECTING,
            syncing: usize::MAX >> 4,
            small: 0,
            held: Default::default(),
        }
    }

    /// Changes one resource, and waits until all clients have it.
    async fn round(&self, clients: &Clients, round: u32) -> anyhow::Result<()> {
        let changed = round as usize % RESOURCES.count;
        self.origin.change(changed..changed + 1, round, |start| clients.expect(round, 1, start));
        clients.reached().await?;
        Ok(())
    }
}

fn tiers_of(subject: Subject) -> usize {
    match subject {
        Subject::OneTier => 1,
        Subject::TwoTiers => 2,
        _ => 0,
    }
}

/// Returns the setting of a server whose upstream is the one at this address.
fn origin_of(target: &Target) -> Setting {
    let origin = ([127, 0, 0, 1], port_of(target)).into();
    Setting { origin, ..Setting::of(RESOURCES) }
}

fn port_of(target: &Target) -> u16 {
    match target {
        Target::Tcp(address) => address.port(),
        Target::Unix(_) => 0,
    }
}

async fn started(subject: Subject, setting: &Setting, programs: &Programs) -> anyhow::Result<Server> {
    let (setting, programs) = (setting.clone(), programs.clone());
    tokio::task::spawn_blocking(move || Server::start(subject, &setting, &programs)).await?
}

async fn cpu_of(processes: &[Process]) -> anyhow::Result<Duration> {
    let mut sum = Duration::ZERO;
    for process in processes {
        sum += process.quiet_cpu().await?;
    }
    Ok(sum)
}

fn memory_of(processes: &[Process]) -> anyhow::Result<u64> {
    processes.iter().map(|process| Ok(process.memory()?.rss)).sum()
}

const RESOURCES: Resources = Resources { kind: Kind::Clusters, count: 100, size: 1024 };
/// How long the client of a service may take for its start.
const PATIENCE: Duration = Duration::from_secs(5);
