//! The command line: options, commands, and what each does.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use weir::build_facts;
use weir::cli::check::{Against, AsClient, Shows};
use weir::cli::{
    CANNOT_ASK, FOUND, brakes::Brakes, compare::Compare, dangling::Dangling, explain::Explain, get::Get,
    key::against::NodesAgainst, nacks::Nacks, problems::Problems, release::Release, reload::Reload, show,
    snapshot::Snapshot, split::Split, status::Status, tap::Tap, top::Top, watch::Watch,
};
use weir::config::{Config, admin_address, listen_address, size};
use weir::telemetry::{LogControl, LogFilter, LogFormat};
use weir_core::xds::KeyRule;

/// Relays xDS from a control plane to a fleet.
///
/// Without a configuration it serves the example resources of config/demo.
#[derive(Debug, Parser)]
#[command(version = build_facts::LINE, about)]
pub struct Arguments {
    /// Configuration file; config/relay.yaml is one with every key explained
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Address for clients, instead of those in the configuration; `:18000` is that port on all addresses [default without a
    /// configuration: 127.0.0.1:18000]
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address)]
    pub listen: Option<SocketAddr>,
    /// Address for operators, instead of the one in the configuration; `:19000` is that port on 127.0.0.1 [default without a
    /// configuration: 127.0.0.1:19000]
    #[arg(long, value_name = "ADDRESS", value_parser = admin_address)]
    pub admin: Option<SocketAddr>,
    /// Log level: error, warn, info, debug or trace, also by module (`info,weir::downstream=debug`) [default: info with a
    /// configuration, warn with the example resources]
    #[arg(long, env = "WEIR_LOG", value_name = "FILTER")]
    log: Option<LogFilter>,
    /// Form of log lines
    #[arg(long, env = "WEIR_LOG_FORMAT", value_name = "FORMAT", value_enum, default_value = "text")]
    log_format: LogFormat,
    #[command(subcommand)]
    pub task: Option<Task>,
}

#[derive(Debug, Subcommand)]
pub enum Task {
    /// Checks a configuration and the files that it names, and shows what the relay understands: servers in their order, addresses, the
    /// sharing key, access rules, limits.
    ///
    /// The last line is the verdict. Exits with 0 if the relay can use it, with 1 if there are faults. Warnings are shown, and do not count.
    Check {
        /// Configuration file; - is standard input
        #[arg(value_name = "FILE", conflicts_with = "config_file")]
        file: Option<PathBuf>,
        /// Shows only faults and the verdict
        #[arg(long, conflicts_with_all = ["all", "identities"])]
        quiet: bool,
        /// Shows every key, also those that are not set
        #[arg(long, conflicts_with = "identities")]
        all: bool,
        #[command(flatten)]
        config: ConfigFile,
        #[command(flatten)]
        client: AsClient,
        #[command(flatten)]
        against: Against,
        /// Memory of the machine or container that the file is for, such as 2GiB, instead of that of this one
        #[arg(long, value_name = "SIZE", value_parser = size, conflicts_with = "identities")]
        memory: Option<usize>,
    },
    /// Shows which sharing key nodes have, what made it, and how a fleet splits. With --against, whether a control plane sends the same to
    /// nodes of one key.
    Key {
        #[command(flatten)]
        config: ConfigFile,
        /// Nodes as JSON, one a line; without it they are read from standard input
        nodes: Option<PathBuf>,
        #[command(flatten)]
        split: Split,
        #[command(flatten)]
        against: Box<NodesAgainst>,
    },
    Get(Get),
    Watch(Watch),
    Status(Status),
    Top(Top),
    Tap(Tap),
    Explain(Explain),
    #[command(name = "diff")]
    Compare(Compare),
    Nacks(Nacks),
    Dangling(Dangling),
    Problems(Problems),
    Brakes(Brakes),
    Release(Release),
    Reload(Reload),
    Snapshot(Snapshot),
    /// Prints the version, and what the program was built from.
    Version,
    /// Prints the JSON schema of the configuration, for editors and other tools.
    Schema,
    /// Writes manual pages: weir.1, and one for each command.
    Man {
        /// Folder for the pages; it is made if it is not there
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
    },
    /// Prints a completion script for a shell.
    Completions {
        shell: Shell,
    },
}

#[derive(Debug, Args)]
pub struct ConfigFile {
    /// Configuration file
    #[arg(long = "config", id = "config_file", value_name = "FILE")]
    path: Option<PathBuf>,
}

impl Arguments {
    /// Starts the log. A relay does not wait for the log's reader.
    pub fn start_log(&self) -> anyhow::Result<LogControl> {
        let usual = match (&self.task, &self.config) {
            (Some(Task::Check { .. }), _) => "error", // the check prints its result itself
            (None, Some(_)) => "info",
            _ => "warn",
        };
        let filter = self.log.clone().map_or_else(|| usual.parse(), Ok)?;
        match self.task {
            Some(_) => Ok(LogControl::start(&filter, self.log_format)),
            None => {
                LogControl::start_with_queue(&filter, self.log_format).context("cannot start the thread of the log")
            }
        }
    }
}

impl Task {
    pub async fn run(self, before: Option<PathBuf>, log: &LogControl) -> ExitCode {
        let name = self.name();
        match self {
            Self::Check { file, quiet, all, config, client, against, memory } => match (file.or(config.path), before) {
                (Some(_), Some(_)) => {
                    refuse("a configuration file before check and one after it: expected one of them")
                }
                (None, None) => refuse(WHICH_FILE),
                (Some(path), None) | (None, Some(path)) if client.is_given() => {
                    ExitCode::from(weir::cli::check::run_as(&path, &client))
                }
                (Some(path), None) | (None, Some(path)) => {
                    let shows = Shows::of(quiet, all);
                    ExitCode::from(weir::cli::check::run(&path, memory, shows, against).await)
                }
            },
            Self::Key { against, .. } if against.is_json() && !against.is_given() => {
                refuse("--output json has no effect on key without --against")
            }
            Self::Key { split, .. } if split.is_given() && before.is_none() => split.run().await,
            Self::Key { config: ConfigFile { path }, nodes, split, against } if against.is_given() => {
                match path.or(before) {
                    Some(path) => match rule_and_nodes(&path, nodes) {
                        Ok((rule, nodes, about_secrets)) => against.run(&rule, &nodes, &about_secrets, &split).await,
                        Err(error) => invalid(log, &format!("{error:#}")),
                    },
                    None => refuse(WHICH_FILE),
                }
            }
            Self::Key { config: ConfigFile { path }, nodes, .. } => match path.or(before) {
                Some(path) => with_config(&path, log, |config| show_keys(&config, nodes)),
                None => refuse(WHICH_FILE),
            },
            _ if before.is_some() => refuse(&format!("--config has no effect on {name}")),
            Self::Get(get) => get.run().await,
            Self::Watch(watch) => watch.run().await,
            Self::Status(status) => status.run().await,
            Self::Explain(explain) => explain.run().await,
            Self::Snapshot(snapshot) => weir::cli::snapshot::run(&snapshot),
            Self::Top(top) => top.run().await,
            Self::Tap(tap) => tap.run().await,
            Self::Compare(compare) => compare.run().await,
            Self::Nacks(nacks) => nacks.run().await,
            Self::Dangling(dangling) => dangling.run().await,
            Self::Problems(problems) => problems.run().await,
            Self::Brakes(brakes) => brakes.run().await,
            Self::Release(release) => release.run().await,
            Self::Reload(reload) => reload.run().await,
            Self::Version => done(log, show(&format!("weir {}\n", build_facts::LINE)).context("cannot write")),
            Self::Schema => {
                let schema = format!("{:#}\n", weir::config::schema());
                done(log, show(&schema).context("cannot write"))
            }
            Self::Man { folder } => done(log, weir::cli::manual::write(Arguments::command(), &folder)),
            Self::Completions { shell } => {
                let mut script = Vec::new();
                clap_complete::generate(shell, &mut Arguments::command(), "weir", &mut script);
                done(log, show(&String::from_utf8_lossy(&script)).context("cannot write"))
            }
        }
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::Check { .. } => "check",
            Self::Key { .. } => "key",
            Self::Snapshot(_) => "snapshot",
            Self::Status(_) => "status",
            Self::Explain(_) => "explain",
            Self::Get(_) => "get",
            Self::Watch(_) => "watch",
            Self::Top(_) => "top",
            Self::Tap(_) => "tap",
            Self::Compare(_) => "diff",
            Self::Nacks(_) => "nacks",
            Self::Dangling(_) => "dangling",
            Self::Problems(_) => "problems",
            Self::Brakes(_) => "brakes",
            Self::Release(_) => "release",
            Self::Reload(_) => "reload",
            Self::Version => "version",
            Self::Schema => "schema",
            Self::Man { .. } => "man",
            Self::Completions { .. } => "completions",
        }
    }
}

/// Prints what is wrong with the command line.
pub fn refuse(reason: &str) -> ExitCode {
    let error = Arguments::command().error(ErrorKind::ArgumentConflict, reason);
    let _ = error.print(); // a closed stderr is ignored
    ExitCode::from(CANNOT_ASK)
}

fn with_config(path: &Path, log: &LogControl, task: impl FnOnce(Config) -> anyhow::Result<()>) -> ExitCode {
    match Config::from_file(path) {
        Ok(config) => done(log, task(config)),
        Err(error) => invalid(log, &error.to_string()),
    }
}

/// Returns the rule for keys, the text of the nodes, and what sharing by this rule means for secrets of these nodes.
fn rule_and_nodes(path: &Path, nodes: Option<PathBuf>) -> anyhow::Result<(KeyRule, String, String)> {
    let (views, text) = (Config::from_file(path)?.views, read_nodes(nodes)?);
    let about_secrets = weir::cli::key::about_secrets(&views.rule, &views.permissions, &text);
    Ok((views.rule, text, about_secrets))
}

fn read_nodes(nodes: Option<PathBuf>) -> anyhow::Result<String> {
    match &nodes {
        Some(path) => std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display())),
        None => std::io::read_to_string(std::io::stdin()).context("cannot read standard input"),
    }
}

fn show_keys(config: &Config, nodes: Option<PathBuf>) -> anyhow::Result<()> {
    let text = read_nodes(nodes)?;
    let views = &config.views;
    let report = weir::cli::key::report(&views.rule, &text)?;
    let about_secrets = weir::cli::key::about_secrets(&views.rule, &views.permissions, &text);
    show(&(report + &about_secrets)).context("cannot write")
}

/// Returns the exit code of a relay that has ended.
pub fn ended(log: &LogControl, ended: anyhow::Result<()>) -> ExitCode {
    let Err(error) = ended else { return ExitCode::SUCCESS };
    say(log, &format!("{error:#}"));
    ExitCode::from(FOUND)
}

/// Returns the exit code of a command.
fn done(log: &LogControl, done: anyhow::Result<()>) -> ExitCode {
    done.map_or_else(|error| invalid(log, &format!("{error:#}")), |()| ExitCode::SUCCESS)
}

/// Prints what is wrong with the input.
pub fn invalid(log: &LogControl, reasons: &str) -> ExitCode {
    say(log, reasons);
    ExitCode::from(CANNOT_ASK)
}

/// Prints errors after the lines of the log.
fn say(log: &LogControl, reasons: &str) {
    reasons.lines().for_each(|reason| log.say(&format!("error: {reason}")));
}

const WHICH_FILE: &str =
    "missing configuration: expected --config FILE; config/relay.yaml is one with every key explained";
