//! From the file as it is written to a configuration that cannot be wrong, with every fault on the way.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use serde_saphyr::{Location, Spanned};

use super::raw::{self, Text};
use super::upstream::SourceLimits;
use super::{Config, Diagnostic};
use crate::downstream::{self, DrainTimes};
use crate::protocol::limits::Limits;
use crate::protocol::loads::LoadLimits;
use crate::protocol::upstream::BackoffTimes;
use crate::relay::{LoadsMode, ViewsOptions};
use crate::xds::{Access, AccessRule, KeyField, KeyRule, NamePattern, Network, TypeTable};

pub(super) struct Checker<'a> {
    /// The file, which other files are named from.
    pub path: &'a Path,
    /// Variables of the environment.
    pub environment: &'a dyn Fn(&str) -> Option<String>,
    pub faults: Vec<Diagnostic>,
    /// What the relay can start with, and an operator should know of.
    pub warnings: Vec<Diagnostic>,
}

impl Checker<'_> {
    pub fn root(&mut self, raw: &raw::Root) -> Option<Config> {
        if raw.listen.value.is_empty() {
            self.fault(&raw.listen, "listen", "at least one address is needed");
        }
        let listen = raw.listen.value.iter().enumerate();
        let listen: Vec<_> =
            listen.filter_map(|(at, listen)| self.address(&listen.address, &format!("listen[{at}].address"))).collect();
        let admin = raw.admin.as_ref().map(|admin| self.address(&admin.address, "admin.address"));
        let message_bytes = number(&raw.limits.message_bytes, MESSAGE_BYTES);
        let file_bytes = number(&raw.limits.file_bytes, FILE_BYTES) as u64;
        let upstream =
            self.upstream(&raw.upstream, SourceLimits { message_bytes, file_bytes, backoff: BackoffTimes::default() });
        let transcoder = self.transcoder(&raw.upstream.value.descriptors);
        let rule = self.key_rule(&raw.views);
        let limits = self.limits(raw);
        let table = self.types(raw);
        let access = self.access(&raw.access, &table);
        let drain = DrainTimes {
            delay: self.duration(&raw.drain.delay, "drain.delay").unwrap_or_default(),
            grace: self.duration(&raw.drain.grace, "drain.grace").unwrap_or(GRACE),
            spread: self.duration(&raw.drain.spread, "drain.spread").unwrap_or(SPREAD),
        };
        let downstream = downstream::Options {
            message_bytes,
            incomplete_request_bytes: number(&raw.limits.incomplete_request_bytes, HALF_RECEIVED_BYTES),
            control_plane: raw.clients.control_plane_identifier.clone(),
            v2: raw.clients.v2,
        };
        let loads = self.loads(&raw.load_reports);
        let rest = self.rest(&raw.rest);
        let views_idle = self.duration(&raw.views.idle_timeout, "views.idle_timeout");
        let upstream = upstream?;
        let views = ViewsOptions {
            rule: rule?,
            accept_missing_node: raw.views.accept_missing_node,
            max_views: number(&raw.views.max, MOST_VIEWS),
            max_in_metrics: number(&raw.views.max_in_metrics, VIEWS_IN_METRICS),
            table,
            access,
            limits,
            plan: upstream.for_views(),
        };
        // Everybody is one to the hub, and who may have what is seen to where clients come in.
        let hub = upstream.for_hub().map(|plan| ViewsOptions {
            rule: KeyRule::of(Vec::new()),
            accept_missing_node: true,
            max_views: 1,
            max_in_metrics: 1,
            access: Access::default(),
            // A session there is a whole view: what bounds its clients bounds it.
            limits: Limits {
                names: usize::MAX,
                types: usize::MAX,
                absent_names_per_stream: usize::MAX,
                ..views.limits.clone()
            },
            plan,
            ..views.clone()
        });
        let views_idle = views_idle.unwrap_or(VIEWS_IDLE);
        Some(Config {
            listen,
            admin: admin.flatten(),
            upstream,
            transcoder,
            views,
            hub,
            views_idle,
            downstream,
            drain,
            loads,
            rest,
            warnings: Vec::new(),
        })
    }

    pub fn key_rule(&mut self, raw: &raw::Views) -> Option<KeyRule> {
        let Some(key) = &raw.key else { return Some(KeyRule::default()) };
        let mut fields = Vec::new();
        for (at, text) in key.iter().enumerate() {
            match KeyField::parse(&text.value) {
                Some(field) => fields.push(field),
                None => {
                    let reason = format!("{:?} is no part of a node; there are {}", text.value, KeyField::all_names());
                    self.fault(text, &format!("views.key[{at}]"), &reason);
                }
            }
        }
        (fields.len() == key.len()).then(|| KeyRule::of(fields))
    }

    fn limits(&mut self, raw: &raw::Root) -> Limits {
        let (limits, defaults) = (&raw.limits, Limits::default());
        for (limit, at) in [
            (&limits.types_per_stream, "limits.types_per_stream"),
            (&limits.names_per_type, "limits.names_per_type"),
            (&limits.reply_bytes, "limits.reply_bytes"),
            (&limits.message_bytes, "limits.message_bytes"),
            (&limits.incomplete_request_bytes, "limits.incomplete_request_bytes"),
            (&limits.file_bytes, "limits.file_bytes"),
        ] {
            if let Some(limit) = limit.as_ref().filter(|limit| limit.value == 0) {
                self.fault(limit, at, "nothing would get through");
            }
        }
        let resource_timer = self.duration(&limits.resource_timer, "limits.resource_timer");
        if let (Some(timer), Some(text)) = (resource_timer, &limits.resource_timer)
            && timer < SHORTEST_TIMER
        {
            let reason = "below 15s, names that a control plane is slow to send may count as absent";
            self.warn(text, "limits.resource_timer", reason);
        }
        Limits {
            types: number(&limits.types_per_stream, defaults.types),
            names: number(&limits.names_per_type, defaults.names),
            absent_names_per_stream: number(&limits.absent_names_per_stream, defaults.absent_names_per_stream),
            linger: self.duration(&limits.linger, "limits.linger").unwrap_or(defaults.linger),
            reply_bytes: number(&limits.reply_bytes, defaults.reply_bytes),
            resource_timer: resource_timer.unwrap_or(defaults.resource_timer),
            reference_hold: self
                .duration(&limits.reference_hold, "limits.reference_hold")
                .unwrap_or(defaults.reference_hold),
            second_silence: self
                .duration(&limits.second_silence, "limits.second_silence")
                .unwrap_or(defaults.second_silence),
            fetch_timeout: self
                .duration(&limits.fetch_timeout, "limits.fetch_timeout")
                .unwrap_or(defaults.fetch_timeout),
            grpc_fail_fast: raw.clients.grpc_fail_fast,
            ..defaults
        }
    }

    fn loads(&mut self, raw: &raw::Loads) -> LoadsMode {
        for (given, at) in
            [(&raw.bytes_per_view, "load_reports.bytes_per_view"), (&raw.bytes_total, "load_reports.bytes_total")]
        {
            if let Some(bytes) = given.as_ref().filter(|bytes| bytes.value == 0) {
                self.fault(bytes, at, "must be greater than 0");
            }
        }
        let outage = self.duration(&raw.max_outage, "load_reports.max_outage").unwrap_or(LOADS_OUTAGE);
        if let Some(text) = raw.max_outage.as_ref().filter(|_| outage.is_zero()) {
            self.fault(text, "load_reports.max_outage", "nothing would ever be kept");
        }
        match raw.mode {
            raw::LoadsMode::PassThrough => LoadsMode::PassThrough,
            raw::LoadsMode::Aggregate => {
                let (bytes, bytes_total) =
                    (number(&raw.bytes_per_view, LOADS_BYTES), number(&raw.bytes_total, LOADS_TOTAL_BYTES));
                LoadsMode::Aggregate(LoadLimits { outage, bytes, bytes_total })
            }
            raw::LoadsMode::Off => LoadsMode::Off,
        }
    }

    fn access(&mut self, entries: &[raw::AccessEntry], table: &TypeTable) -> Access {
        let mut rules = Vec::new();
        for (at, entry) in entries.iter().enumerate() {
            let place = format!("access[{at}]");
            if entry.types.value.is_empty() {
                self.fault(&entry.types, &format!("{place}.types"), "a rule is about at least one type");
            }
            let mut rule = AccessRule {
                types: Vec::new(),
                names: entry.names.iter().map(|name| NamePattern::parse(name)).collect(),
                peers: Vec::new(),
            };
            for text in &entry.types.value {
                let kind = table.resolve(&text.value);
                if !table.knows(kind.name()) {
                    let reason = format!("unknown type {:?}: neither built in nor listed under types", text.value);
                    self.fault(text, &format!("{place}.types"), &reason);
                }
                rule.types.push(kind.name().into());
            }
            for text in &entry.allow_from {
                match Network::parse(&text.value) {
                    Some(network) => rule.peers.push(network),
                    None => self.fault(
                        text,
                        &format!("{place}.allow_from"),
                        &format!("invalid network {:?}: expected an address or a CIDR block", text.value),
                    ),
                }
            }
            rules.push(rule);
        }
        Access::of(rules)
    }

    fn address(&mut self, text: &Text, at: &str) -> Option<SocketAddr> {
        let address = text.value.parse();
        address
            .map_err(|_| self.fault(text, at, &format!("invalid address {:?}: expected ADDRESS:PORT", text.value)))
            .ok()
    }

    pub fn duration(&mut self, text: &Option<Text>, at: &str) -> Option<Duration> {
        let text = text.as_ref()?;
        let duration = humantime::parse_duration(&text.value);
        duration.map_err(|error| self.fault(text, at, &format!("invalid duration {:?}: {error}", text.value))).ok()
    }

    /// Of something that is known by its keys alone.
    pub fn fault_without_place(&mut self, at: &str, reason: &str) {
        self.faults.push(Diagnostic { path: self.path.into(), line: None, at: at.into(), reason: reason.into() });
    }

    pub fn fault<T>(&mut self, place: &Spanned<T>, at: &str, reason: &str) {
        let fault = self.fault_at(place, at, reason);
        self.faults.push(fault);
    }

    pub fn warn<T>(&mut self, place: &Spanned<T>, at: &str, reason: &str) {
        let warning = self.fault_at(place, at, reason);
        self.warnings.push(warning);
    }

    fn fault_at<T>(&self, place: &Spanned<T>, at: &str, reason: &str) -> Diagnostic {
        let line = Some(place.referenced).filter(|place| *place != Location::UNKNOWN).map(|place| place.line());
        Diagnostic { path: self.path.into(), line, at: at.into(), reason: reason.into() }
    }
}

pub(super) fn number(given: &Option<Spanned<usize>>, default: usize) -> usize {
    given.as_ref().map_or(default, |given| given.value)
}

pub(crate) const MESSAGE_BYTES: usize = 64 << 20;
const FILE_BYTES: usize = 64 << 20;
const HALF_RECEIVED_BYTES: usize = 512 << 20;
const MOST_VIEWS: usize = 10_000;
const VIEWS_IN_METRICS: usize = 100;
const VIEWS_IDLE: Duration = Duration::from_secs(600);
const LOADS_OUTAGE: Duration = Duration::from_secs(300);
const LOADS_BYTES: usize = 64 << 20;
const LOADS_TOTAL_BYTES: usize = 256 << 20;
/// What clients wait for themselves; a relay that is faster answers for upstream what upstream never said (XLAT-17).
const SHORTEST_TIMER: Duration = Duration::from_secs(15);
const GRACE: Duration = Duration::from_secs(10);
const SPREAD: Duration = Duration::from_secs(5);
