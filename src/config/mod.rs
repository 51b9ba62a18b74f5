//! The configuration file and its checked form.
//!
//! [`raw`] mirrors the file. [`check`] turns it into types that cannot be wrong, with every default in one place, and reports
//! every fault with its place, not only the first. What it says of control planes is in [`upstream`], or in a file that gRPC
//! clients have too ([`bootstrap`]).

mod bootstrap;
mod check;
mod connection;
mod json;
mod raw;
mod rest;
mod types;
mod upstream;

pub(crate) use check::MESSAGE_BYTES;
pub(crate) use upstream::{name_in, plain_server, server_uri};

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::downstream::{self, DrainTimes, RestOptions};
use crate::relay::{LoadsMode, ViewsOptions};
use crate::transcode::Transcoder;
use crate::upstream::Plan;

/// Everything that a relay needs to start.
#[derive(Debug, Clone)]
pub struct Config {
    pub listen: Vec<SocketAddr>,
    pub admin: Option<SocketAddr>,
    pub upstream: Plan,
    /// With an operator's descriptors; None is the one with those that are embedded, which nobody may need.
    pub transcoder: Option<Arc<Transcoder>>,
    pub views: ViewsOptions,
    /// For what all views share, if they share anything.
    pub hub: Option<ViewsOptions>,
    pub views_idle: Duration,
    pub downstream: downstream::Options,
    pub drain: DrainTimes,
    pub loads: LoadsMode,
    /// None where polls are not served.
    pub rest: Option<RestOptions>,
    /// What is allowed and may not be meant.
    pub warnings: Vec<Diagnostic>,
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The text says where: line, column and a piece of the file.
    #[error("{}: {text}", path.display())]
    Syntax { path: PathBuf, text: String },
    #[error("{}", listed(.0))]
    Faults(Vec<Diagnostic>),
}

/// One thing that is wrong or doubtful, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    pub path: PathBuf,
    pub line: Option<u64>,
    /// The keys that lead to it.
    pub at: String,
    pub reason: String,
}

impl Config {
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.into(), source })?;
        Self::parse(path, &text)
    }

    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        Self::parse_in(path, text, &|name| std::env::var(name).ok())
    }

    /// In an environment of these variables.
    fn parse_in(path: &Path, text: &str, environment: &dyn Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let raw = serde_saphyr::from_str(text)
            .map_err(|error| ConfigError::Syntax { path: path.into(), text: error.to_string() })?;
        let mut checker = check::Checker { path, environment, faults: Vec::new(), warnings: Vec::new() };
        let config = checker.root(&raw);
        let check::Checker { faults, warnings, .. } = checker;
        let config = config.filter(|_| faults.is_empty()).ok_or(ConfigError::Faults(faults))?;
        Ok(Self { warnings, ..config })
    }
}

fn listed(faults: &[Diagnostic]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}: {}", self.at, self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::ladder::Rule;
    use crate::upstream::SourcePlan;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(Path::new("relay.yaml"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn the_commented_example_is_a_valid_configuration() {
        let config = parse(include_str!("../../config/relay.yaml")).unwrap();
        assert_eq!(config.listen.len(), 1);
    }

    #[test]
    fn the_examples_of_failover_and_federation_are_what_they_say() {
        let failover = parse(include_str!("../../config/failover.yaml")).unwrap().upstream;
        assert_eq!((failover.servers.len(), failover.top.as_slice()), (2, [0, 1].as_slice()));
        assert!(
            failover.servers[0].ads().unwrap().tls.as_ref().is_some_and(|tls| tls.own.is_some())
                && failover.hold_missing
        );
        let federation = parse(include_str!("../../config/federation.yaml")).unwrap().upstream;
        assert_eq!((federation.servers.len(), federation.top.as_slice()), (3, [0, 1].as_slice()));
        assert_eq!(federation.authorities["config.example"].servers, [0, 1]);
        let endpoints = &federation.authorities["endpoints.example"];
        assert_eq!((endpoints.servers.as_slice(), endpoints.rule), ([2, 0].as_slice(), Rule::Reachability));
    }

    #[test]
    fn the_example_of_files_is_what_it_says() {
        let text = include_str!("../../config/files.yaml");
        let config = Config::parse(Path::new("config/files.yaml"), text).unwrap();
        assert_eq!(config.upstream.servers[0].name(), "files config/demo/resources");
        assert!(config.transcoder.is_none(), "the embedded descriptors are for whoever needs them");
        let text = text.replace("descriptors: []", "descriptors: [no.pb, files.yaml]");
        let message = Config::parse(Path::new("config/files.yaml"), &text).unwrap_err().to_string();
        assert!(message.contains("upstream.descriptors[0]: cannot read config/no.pb"), "{message}");
    }

    #[test]
    fn the_example_of_polling_is_what_it_says() {
        let config = parse(include_str!("../../config/rest.yaml")).unwrap();
        let names: Vec<_> = config.upstream.servers.iter().map(SourcePlan::name).collect();
        assert_eq!(names, ["http://127.0.0.1:18011 (REST)", "http://127.0.0.1:18010"]);
        let rest = config.rest.unwrap();
        assert_eq!((rest.long_poll.as_millis(), rest.timeout.as_millis()), (0, 800));
        assert_eq!((rest.cache_bytes, rest.response_bytes), (64 << 20, 256 << 20));
        let with = |rest: &str| {
            parse(&format!(
                "listen: [{{address: '[::]:1'}}]\nupstream: {{servers: [{{uri: 'http://cp:1'}}]}}\nrest: {rest}"
            ))
        };
        assert_eq!(with("{enabled: false}").unwrap().rest, None);
        assert_eq!(with("{long_poll: 20s}").unwrap().rest.map(|rest| rest.long_poll.as_secs()), Some(20));
        let message = with("{long_poll: soon, timeout: x, cache_bytes: 0}").unwrap_err();
        for part in ["rest.long_poll", "rest.timeout", "rest.cache_bytes: must be greater than 0"] {
            assert!(message.contains(part), "{part} is missing in:\n{message}");
        }
        let message = with("{response_bytes: 134217727}").unwrap_err();
        assert!(message.contains("rest.response_bytes: has to be twice rest.cache_bytes"), "{message}");
    }

    #[test]
    fn every_fault_is_told_at_once_with_its_path() {
        let text = "listen: [{address: nowhere}]\nupstream: {servers: [{uri: 'cp:1', connect_timeout: soon}]}\nviews: {key: [cluster, colour]}\n";
        let message = parse(text).unwrap_err();
        let places = ["relay.yaml:1: listen[0].address", "relay.yaml:2: upstream.servers[0].uri"];
        for part in places.into_iter().chain([":2: upstream.servers[0].connect_timeout", ":3: views.key[1]"]) {
            assert!(message.contains(part), "{part} is missing in:\n{message}");
        }
    }

    #[test]
    fn xlat_17_a_resource_timer_that_is_shorter_than_the_clients_is_a_warning() {
        let warnings = |timer: &str| {
            let text = "listen: [{address: '[::]:1'}]\nupstream: {servers: [{uri: 'http://cp:1'}]}\nlimits:\n";
            let config = parse(&format!("{text}  resource_timer: {timer}\n")).unwrap();
            config.warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(warnings("15s"), [""; 0]);
        let short = warnings("14s");
        assert!(short.len() == 1 && short[0].starts_with("relay.yaml:4: limits.resource_timer: "), "{short:?}");
    }

    #[test]
    fn draining_begins_at_once_unless_there_is_a_delay() {
        let with = |drain: &str| {
            let text = "listen: [{address: '[::]:1'}]\nupstream: {servers: [{uri: 'http://cp:1'}]}\n";
            parse(&format!("{text}{drain}")).map(|config| config.drain.delay)
        };
        assert_eq!(with(""), Ok(Duration::ZERO));
        assert_eq!(with("drain: {delay: 5s}"), Ok(Duration::from_secs(5)));
        assert!(with("drain: {delay: soon}").unwrap_err().starts_with("relay.yaml:3: drain.delay: "));
    }

    #[test]
    fn loads_are_passed_through_unless_something_else_is_said() {
        let with = |loads: &str| {
            parse(&format!("listen: [{{address: '[::]:1'}}]\nupstream: {{servers: [{{uri: 'http://cp:1'}}]}}\n{loads}"))
        };
        assert_eq!(with("").unwrap().loads, LoadsMode::PassThrough);
        assert_eq!(with("load_reports: {mode: off}").unwrap().loads, LoadsMode::Off);
        let LoadsMode::Aggregate(limits) = with("load_reports: {mode: aggregate, max_outage: 1m}").unwrap().loads
        else {
            panic!("another mode");
        };
        assert_eq!(limits.outage, Duration::from_secs(60));
        let message = with("load_reports: {mode: aggregate, max_outage: 0s, bytes_per_view: 0}").unwrap_err();
        assert!(
            message.contains("load_reports.max_outage") && message.contains("load_reports.bytes_per_view"),
            "{message}"
        );
        assert!(with("load_reports: {mode: sum}").is_err());
    }

    #[test]
    fn a_key_that_does_not_exist_is_told_with_its_line() {
        let message = parse("listen: []\nupstream:\n  servers: []\n  sevrers: []\n").unwrap_err();
        assert!(message.contains("relay.yaml") && message.contains("sevrers") && message.contains('4'), "{message}");
    }
}
