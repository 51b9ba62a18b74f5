//! The program `weir`.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))] // `clippy.toml`

mod allocator;
mod command_line;
mod service_manager;
mod signals;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::Parser;
use tokio::runtime::{Handle, Runtime};
use weir::app::{App, InheritError, InheritedSockets};
use weir::build_facts;
use weir::config::{Config, Diagnostic};
use weir::demo::{Demo, Places};
use weir::open_files::{self, Raised};
use weir::telemetry::{LogControl, Traces};

use self::command_line::{Arguments, ended, invalid, refuse};
use self::signals::Signals;

/// The sockets that the process was started with. Only a relay reports faults in them.
type Inherited = Result<InheritedSockets, InheritError>;

fn main() -> ExitCode {
    allocator::share_arenas();
    let inherited = InheritedSockets::from_environment(); // changes the environment, so it must come before any thread
    let arguments = Arguments::parse();
    let log = match arguments.start_log() {
        Ok(log) => log,
        Err(error) => {
            weir::cli::error(&format!("{error:#}"));
            return ExitCode::from(weir::cli::FOUND);
        }
    };
    let _end = log.end(); // declared before the runtime, so it is dropped later
    let runtime = match Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return ended(&log, Err(error).context("cannot start the threads")),
    };
    let code = runtime.block_on(start(arguments, &log, inherited));
    // All tasks are dropped, with the sockets that they own. Threads that wait for a name server or a disk delay the end by `LAST_TASKS` at most.
    runtime.shutdown_timeout(LAST_TASKS);
    service_manager::finish(LAST_TASKS);
    code
}

async fn start(arguments: Arguments, log: &LogControl, inherited: Inherited) -> ExitCode {
    let Arguments { config, listen, admin, task, .. } = arguments;
    let places = Places { listen, admin };
    match task {
        Some(task) if places.listen.is_some() || places.admin.is_some() => {
            refuse(&format!("--listen and --admin have no effect on {}", task.name()))
        }
        Some(task) => task.run(config, log).await,
        None => match config {
            Some(path) => relay(path, places, log, inherited).await,
            None => ended(log, demo(places, log, inherited).await),
        },
    }
}

async fn relay(path: PathBuf, places: Places, log: &LogControl, inherited: Inherited) -> ExitCode {
    let serve = async {
        let mut signals = Signals::catch(true)?;
        let (of_start, of_log) = (path.clone(), log.clone());
        match signals.or_ended(move || configured(&of_start, places, &of_log, inherited)).await? {
            None => Ok(ExitCode::SUCCESS),
            Some(Err(code)) => Ok(code),
            Some(Ok(app)) => run(app, "", Some(&path), signals).await.map(|()| ExitCode::SUCCESS),
        }
    };
    serve.await.unwrap_or_else(|error| ended(log, Err(error)))
}

/// Reads the configuration and opens the listeners, which waits for the disk. Before it returns `Err`, it has printed the reason.
fn configured(path: &Path, places: Places, log: &LogControl, inherited: Inherited) -> Result<App, ExitCode> {
    let config = Config::from_file(path).map_err(|error| invalid(log, &error.to_string()))?;
    let config = with_places(config, places).map_err(|error| invalid(log, &format!("{error:#}")))?;
    log_warnings(&config);
    let app = bound(config, log, inherited).map_err(|error| ended(log, Err(error)))?;
    Ok(app.adapting(Box::new(move |config| with_places(config, places))))
}

fn bound(config: Config, log: &LogControl, inherited: Inherited) -> anyhow::Result<App> {
    raise_open_files();
    let app = Handle::current().block_on(App::bind_with(config, inherited?))?;
    Ok(app.with_log_control(log.clone()))
}

/// Overrides the configuration file with options of the command line.
fn with_places(mut config: Config, places: Places) -> anyhow::Result<Config> {
    if let Some(listen) = places.listen {
        config.listen_at(listen);
    }
    if let Some(address) = places.admin {
        config.admin_at(address).map_err(|reason| anyhow!("--admin: {reason}"))?;
    }
    Ok(config)
}

fn log_warnings(config: &Config) {
    for Diagnostic { path, line, at, reason, .. } in &config.warnings {
        tracing::warn!(file = %path.display(), line, key = at, reason, "configuration warning");
    }
}

/// Raises the limit of open files: each connection takes one, and the usual soft limit is 1024.
fn raise_open_files() {
    match open_files::raise() {
        Ok(Raised { before, now }) if before < now => tracing::info!(before, now, "limit of open files raised"),
        Ok(_) => {}
        Err(error) => tracing::warn!(%error, "cannot raise the limit of open files"),
    }
}

async fn demo(places: Places, log: &LogControl, inherited: Inherited) -> anyhow::Result<()> {
    let mut signals = Signals::catch(false)?;
    let of_log = log.clone();
    let start = move || {
        let demo = Demo::new(places)?;
        let app = bound(demo.config.clone(), &of_log, inherited)
            .map_err(|error| anyhow!("{error:#}; --listen and --admin give the example resources other addresses"))?;
        Ok::<_, anyhow::Error>((demo, app))
    };
    let Some(started) = signals.or_ended(start).await? else { return Ok(()) };
    let (demo, app) = started?; // the demo's files exist until the relay has ended
    let program = std::env::args().next().unwrap_or_else(|| "weir".into());
    let greeting = app.addresses().first().map(|clients| demo.greeting(*clients, app.admin_address(), &program));
    run(app, &greeting.unwrap_or_default(), None, signals).await?;
    // Not to stdout, which may have no reader.
    demo.farewell().iter().for_each(|text| log.say(text));
    Ok(())
}

fn log_start(app: &App, config: Option<&Path>) {
    let listen = addresses_of(app).join(" ");
    let admin = app.admin_address().map(tracing::field::display);
    let admin_socket = app.admin_socket().map(|path| path.display().to_string());
    let probes = app.probes_address().map(tracing::field::display);
    let config = config.map_or_else(|| "example resources".into(), |path| path.display().to_string());
    let servers = app.servers().join(" ");
    let workers = tokio::runtime::Handle::current().metrics().num_workers();
    let (version, commit) = (build_facts::VERSION, build_facts::COMMIT);
    let shards = app.shards();
    let (open_files, max_connections, memory) = (open_files::limit(), app.max_connections(), app.memory());
    tracing::info!(
        version,
        commit,
        config,
        listen,
        admin,
        admin_socket,
        probes,
        servers,
        memory,
        workers,
        shards,
        open_files,
        max_connections,
        "weir started"
    );
    for reason in weir::app::system_warnings() {
        tracing::warn!(reason, "system setting");
    }
}

fn addresses_of(app: &App) -> Vec<String> {
    app.listens_at().iter().map(ToString::to_string).collect()
}

/// Runs the relay. `config` is the path of its configuration file, if it has one.
async fn run(app: App, greeting: &str, config: Option<&Path>, signals: Signals) -> anyhow::Result<()> {
    let Signals { mut terminate, mut interrupt, mut hang_up } = signals;
    let _ = std::io::stdout().lock().write_all(greeting.as_bytes()); // stdout may be closed
    let traces = Traces::from_environment();
    let mut app = app.with_traces(&traces).asking_allocator(allocator::live_bytes).telling(
        service_manager::alive,
        service_manager::opened,
        service_manager::stopping,
    );
    log_start(&app, config);
    tokio::spawn(allocator::give_back());
    service_manager::ready(addresses_of(&app), app.awaits());
    let stop = Box::pin(async move {
        terminate.recv().await;
        tracing::info!("SIGTERM received; draining");
    });
    let reloads = app.reloads();
    let looks = async {
        let Some(hang_up) = &mut hang_up else { return std::future::pending().await };
        while hang_up.recv().await.is_some() {
            service_manager::reloading();
            service_manager::reloaded(&reloads.reload().await); // the reload itself is logged
        }
    };
    let mut ended = Ok(());
    tokio::select! {
        done = app.run_with(reloads.clone(), stop) => ended = done,
        () = looks => {}
        _ = interrupt.recv() => tracing::info!("interrupted; stopping at once"),
    }
    traces.finish().await;
    ended
}

/// How long the process waits at its end for threads that a name server, a disk or a service manager delays.
const LAST_TASKS: Duration = Duration::from_millis(500);
