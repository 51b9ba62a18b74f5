//! The control plane, the relay and the honest clients of one behaviour.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use tokio::runtime::{Builder, Runtime};

use super::behaviour::Behaviour;
use super::container::Container;
use super::health;
use super::honest::Honest;
use super::offender::{CLUSTER, Did, Offender};
use super::options::Options;
use super::sources::Sources;
use super::streams::FORGED;
use super::times::Phases;
use crate::kind::Kind;
use crate::link::scan;
use crate::measure::Process;
use crate::origin::{Counts, Origin};
use crate::reserved::Reserved;
use crate::scenario::file;
use crate::scenario::relay::Relay;

pub struct Stage {
    pub phases: Phases,
    pub offender: Arc<Offender>,
    pub process: Option<Process>,
    pub admin: Option<SocketAddr>,
    log: Option<Log>,
    /// The relay that was started for this behaviour, and its reserved addresses.
    _relay: (Option<Relay>, Option<[Reserved; 2]>),
    /// The relay's control group, which is dropped after the relay.
    pub container: Option<Container>,
    /// Threads for the control plane, the honest clients and the probes, so that these do not wait for the hostile clients.
    _threads: [Threads; 3],
}

struct Threads(Option<Runtime>);

/// The log file of the relay. Dropping it deletes the file.
struct Log(PathBuf);

impl Stage {
    pub async fn start(options: &Options, behaviour: Behaviour) -> anyhow::Result<Self> {
        let threads = [Threads::start()?, Threads::start()?, Threads::start()?];
        let small = Counts { clusters: 50, routes: 1, listeners: 1, size: 1 << 10 };
        let full = Counts { clusters: 1000, size: 10 << 10, ..small };
        let listen = options.origin.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 0)));
        let counts = if options.small { small } else { full };
        let origin = threads[0].spawn(Origin::start(listen, counts, None)).await??;
        let origin = Arc::new(origin);
        let names: Arc<[_]> = origin.shared().world().set(Kind::Endpoints).keys().cloned().collect();
        let (mut target, mut admin, mut pid) = (options.target, options.admin, options.pid);
        let (mut relay, mut log, mut reserved, mut container) = (None, None, None, None);
        let mut probes = admin;
        if let Some(weir) = &options.weir {
            let [address, of_probes] =
                reserved.insert([Reserved::new()?, Reserved::new()?]).each_ref().map(|it| it.address);
            let file = std::env::temp_dir().join(format!("weir-hostile-{}-{}.log", std::process::id(), address.port()));
            let started = log.insert(Log(file));
            container = options.container.map(|bytes| Container::new(&behaviour.name(), bytes)).transpose()?;
            let mut program = program(weir, behaviour, options.memory, started, [address, of_probes]);
            if let Some(container) = &container {
                program.arguments[1].insert_str(0, &container.enter()); // the script
            }
            let started = Relay::start(&program, None, origin.address).await?;
            (target, admin, pid) = (Some(started.address), Some(address), started.pid());
            probes = Some(of_probes);
            relay = Some(started);
        }
        let target = target.context("one of --weir and --target is required")?;
        let node = scan::node("honest", CLUSTER);
        let phases = Phases::default();
        let [first, second, third, ..] = &*names else { bail!("the control plane has too few resources") };
        let honest = Honest {
            target,
            origin: origin.clone(),
            node: node.clone(),
            has_own_keys: behaviour.has_own_keys(),
            names: [first.clone(), second.clone(), third.clone()],
            phases: phases.clone(),
        };
        threads[1].spawn(honest.clone().stay());
        threads[1].spawn(honest.come());
        if let Some(probes) = probes {
            threads[2].spawn(health::probe(probes, phases.clone()));
        }
        let node = scan::node("hostile", CLUSTER);
        let (did, is_small) = (Arc::<Did>::default(), options.small);
        let sources = Arc::new(sources(options, behaviour, target));
        let offender = Offender { target, probes, sources, origin, names, node, is_small, slowness: 1, did };
        let process = pid.map(Process::new).transpose()?;
        let offender = Arc::new(offender);
        Ok(Self { phases, offender, process, admin, log, _relay: (relay, reserved), container, _threads: threads })
    }

    /// Closes the control plane's address, so that the next behaviour can use it.
    pub async fn stop(self) {
        self.offender.origin.stop_listening().await;
    }

    /// Returns how many bytes the relay has logged.
    pub fn log_bytes(&self) -> Option<u64> {
        Some(std::fs::metadata(&self.log.as_ref()?.0).ok()?.len())
    }

    /// Returns how many lines of the log a client has forged.
    pub fn forged_lines(&self) -> Option<u64> {
        let lines = BufReader::new(File::open(&self.log.as_ref()?.0).ok()?).split(b'\n').map_while(Result::ok);
        Some(lines.filter(|line| line.starts_with(FORGED.as_bytes())).count() as u64)
    }
}

/// Returns the addresses of the hostile clients. A relay that bounds its memory has to distinguish them from honest ones.
fn sources(options: &Options, behaviour: Behaviour, target: SocketAddr) -> Sources {
    let addresses = behaviour.addresses();
    let is_needed = addresses > 1 || options.is_relay_bounded();
    match target.is_ipv4() && target.ip().is_loopback() && is_needed {
        true if options.small => Sources::loopback(addresses.div_ceil(100)),
        true => Sources::loopback(addresses),
        false => Sources::default(),
    }
}

/// Returns the relay's command with its defaults, its log in a file, and what the behaviour needs: limits of open files or views, summed load
/// reports, tenants.
fn program(
    weir: &std::path::Path,
    behaviour: Behaviour,
    memory: Option<usize>,
    log: &Log,
    [admin, probes]: [SocketAddr; 2],
) -> file::Relay {
    let limit = behaviour.open_files().map(|files| format!("ulimit -n {files}; ")).unwrap_or_default();
    let script = format!("{limit}exec \"$0\" --config \"$1\" --log info 2>\"$2\"");
    let views = behaviour.views().map(|views| format!(", max: {views}")).unwrap_or_default();
    let memory = memory.map(|memory| format!("limits: {{memory: {memory}}}\n")).unwrap_or_default();
    let loads = if behaviour.sums_load_reports() { "load_reports: {mode: aggregate}\n" } else { "" };
    let tenants = if behaviour.has_tenants() { TENANTS } else { "" };
    let config = format!(
        "listen: [{{address: \"{{listen}}\"}}]\nadmin: {{address: \"{admin}\"}}\nprobes: {{address: \"{probes}\"}}\n\
         upstream: {{servers: [{{uri: \"http://{{upstream}}\"}}]}}\nviews: {{key: [cluster]{views}}}\n{memory}{loads}{tenants}"
    );
    let paths = [weir.display().to_string(), "{config}".into(), log.0.display().to_string()];
    let arguments = ["-c".to_owned(), script].into_iter().chain(paths).collect();
    file::Relay { binary: "/bin/sh".into(), arguments, config, replicas: 1, balancer: false }
}

/// Honest clients have the address 127.0.0.1, hostile ones other addresses.
const TENANTS: &str = "permissions:\n\
    - {name: honest, identities: [{network: 127.0.0.1}], tenant: honest, free: [cluster]}\n\
    - {name: others, identities: [{network: 127.0.0.0/8}], tenant: others, free: [cluster]}\n";

impl Threads {
    fn start() -> anyhow::Result<Self> {
        Ok(Self(Some(Builder::new_multi_thread().worker_threads(1).enable_all().build()?)))
    }

    fn spawn<F>(&self, task: F) -> tokio::task::JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        match &self.0 {
            Some(runtime) => runtime.spawn(task),
            None => tokio::spawn(task),
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0); // if it cannot be deleted, it stays in the folder for temporary files
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::ValueEnum;
    use weir::config::Config;

    use super::*;

    fn config(behaviour: Behaviour, memory: Option<usize>) -> String {
        let log = Log(PathBuf::from("no such log"));
        let addresses = [19000, 19001].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let config = program(Path::new("weir"), behaviour, memory, &log, addresses).config;
        config.replace("{listen}", "127.0.0.1:18000").replace("{upstream}", "127.0.0.1:18010")
    }

    #[test]
    fn each_behaviour_has_a_relay_with_what_it_needs() {
        for behaviour in Behaviour::value_variants() {
            let config = config(*behaviour, None);
            assert!(Config::parse(Path::new("test.yaml"), &config).is_ok(), "{config}");
            assert_eq!(config.contains("max: 50"), *behaviour == Behaviour::ViewKeys);
            assert_eq!(config.contains("mode: aggregate"), behaviour.sums_load_reports());
            assert_eq!(config.contains("tenant: honest"), behaviour.has_tenants());
        }
        assert!(config(Behaviour::Nacks, Some(1 << 20)).contains("\nlimits: {memory: 1048576}\n"));
    }

    #[test]
    fn hostile_clients_have_another_address_if_the_relay_bounds_its_memory() {
        let options = |text: &str| {
            let arguments = ["hostile", "--weir", "weir"].into_iter().chain(text.split_whitespace());
            <Arguments as clap::Parser>::parse_from(arguments).options
        };
        let count =
            |text: &str, behaviour, target: &str| sources(&options(text), behaviour, target.parse().unwrap()).count();
        let (local, far) = ("127.0.0.1:18000", "192.0.2.1:18000");
        assert_eq!(count("", Behaviour::Nacks, local), 0);
        assert_eq!(count("--memory 1GiB", Behaviour::Nacks, local), 1);
        assert_eq!(count("--memory 1GiB", Behaviour::Nacks, far), 0, "it cannot be reached from loopback addresses");
        assert_eq!(count("", Behaviour::ManyAddresses, local), 1000);
        assert_eq!(count("--small", Behaviour::ManyAddresses, local), 10);
    }

    #[derive(clap::Parser)]
    struct Arguments {
        #[command(flatten)]
        options: Options,
    }
}
