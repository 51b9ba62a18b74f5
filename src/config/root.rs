//! Builds the configuration from its parts.

use std::time::Duration;

use super::addresses::Addresses;
use super::checked::{Config, ReloadOptions};
use super::checker::{Checker, or};
use super::form::{Count, Interval, Located, Positive, Size, Wait};
use super::limits::{GRACE, drain};
use super::plain_server::MESSAGE_BYTES;
use super::raw;
use super::shown::ShownConfig;
use super::upstream::SourceLimits;
use super::yaml::Node;
use crate::downstream::{self, AgeLimit, ConnectionLimits, HandshakeLimits};
use crate::protocol::limits::Limits;
use crate::protocol::upstream::BackoffTimes;
use crate::relay::ViewsOptions;
use crate::upstream::Plan;
use crate::xds::{Access, KeyRule, Permissions};

impl Checker<'_> {
    /// Checks every part, and builds the configuration. It must not be used if there are faults.
    pub(crate) fn config(&mut self, raw: &raw::Root) -> Option<Config> {
        let Addresses { listen, admin, probes } = self.addresses(raw);
        let limits = SourceLimits {
            message_bytes: or(&raw.limits.message_bytes, Size(MESSAGE_BYTES)).0,
            file_bytes: or(&raw.limits.file_bytes, Size(FILE_BYTES)).0 as u64,
            backoff: BackoffTimes::default(),
        };
        let upstream = raw.upstream.0.as_ref();
        let plan = upstream.and_then(|upstream| self.upstream(upstream, limits));
        let transcoder = upstream.and_then(|upstream| self.transcoder(&upstream.descriptors));
        let table = self.types(raw);
        let access = self.access(&raw.access, &table);
        let rule = key_rule(&raw.views);
        let permissions = self.permissions(raw, &rule, &table);
        let views_limits = Limits { brakes: self.brakes(&raw.brakes, &table), ..self.limits(raw) };
        let connections = self.connections(raw);
        let loads = self.loads(&raw.load_reports);
        let rest = self.rest(&raw.rest);
        let views_idle = or(&raw.views.idle_timeout, Wait(VIEWS_IDLE)).0;
        let state = self.state(&raw.state, views_idle);
        let downstream = clients(raw, limits.message_bytes, connections, self.handshakes(raw));
        self.fit_one_another(raw, &views_limits, &downstream);
        self.views_fit(raw);
        let upstream = plan?;
        self.no_loops(raw, &upstream);
        self.nodes_fit(raw, &upstream, downstream.request_limits.node_bytes);
        let views = ViewsOptions {
            rule,
            accept_missing_node: raw.views.accept_missing_node.value,
            max_views: or(&raw.views.max, Positive(MAX_VIEWS)).0,
            max_views_per_connection: or(&raw.limits.views_per_connection, Count(MAX_VIEWS_PER_CONNECTION)).0,
            max_views_per_identity: or(&raw.limits.views_per_identity, Count(0)).0,
            max_in_metrics: or(&raw.views.max_in_metrics, Count(MAX_IN_METRICS)).0,
            table,
            access,
            permissions,
            limits: views_limits,
            stated_versions_bytes: or(&raw.limits.stated_versions_bytes, Size(STATED_VERSIONS_BYTES)).0,
            plan: upstream.for_views(),
        };
        Some(Config {
            listen,
            admin,
            probes,
            hub: hub(&upstream, &views),
            upstream,
            transcoder,
            views,
            file_bytes: limits.file_bytes as usize,
            views_idle,
            downstream,
            drain: drain(&raw.drain, &raw.reload),
            reload: ReloadOptions { watch: raw.reload.watch.value },
            tree: Node::default(),
            loads,
            rest,
            state,
            shown: ShownConfig::default(),
            warnings: Vec::new(),
        })
    }
}

fn key_rule(raw: &raw::Views) -> KeyRule {
    match &raw.key {
        Some(key) => KeyRule::of(key.0.iter().map(|field| field.value.clone()).collect()),
        None => KeyRule::default(),
    }
}

/// The options of the hub: one view for all. Access and permissions are checked in the clients' own views.
fn hub(upstream: &Plan, views: &ViewsOptions) -> Option<ViewsOptions> {
    upstream.for_hub().map(|plan| ViewsOptions {
        rule: KeyRule::of(Vec::new()),
        accept_missing_node: true,
        max_views: 1,
        max_views_per_connection: 0,
        max_views_per_identity: 0,
        max_in_metrics: 1,
        access: Access::default(),
        permissions: Permissions::default(),
        // A session of the hub serves a whole view, whose clients are limited already.
        limits: Limits {
            names: usize::MAX,
            names_per_stream: usize::MAX,
            names_per_view: usize::MAX,
            cached_bytes: usize::MAX,
            types: usize::MAX,
            absent_names_per_stream: usize::MAX,
            ..views.limits.clone()
        },
        plan,
        ..views.clone()
    })
}

fn clients(
    raw: &raw::Root,
    message_bytes: usize,
    connections: ConnectionLimits,
    handshakes: HandshakeLimits,
) -> downstream::Options {
    let identifier = raw.clients.control_plane_identifier.as_ref();
    downstream::Options {
        message_bytes,
        incomplete_request_bytes: or(&raw.limits.incomplete_request_bytes, Size(INCOMPLETE_REQUEST_BYTES)).0,
        outdated_reply_bytes: or(&raw.limits.outdated_reply_bytes, Size(OUTDATED_REPLY_BYTES)).0,
        request_bytes_per_second: or(&raw.limits.request_bytes_per_second, Size(REQUEST_BYTES_PER_SECOND)).0,
        request_limits: downstream::RequestLimits {
            entries: or(&raw.limits.request_entries, Positive(REQUEST_ENTRIES)).0,
            name_bytes: or(&raw.limits.name_bytes, Size(NAME_BYTES)).0,
            node_bytes: or(&raw.limits.node_bytes, Size(NODE_BYTES)).0,
        },
        new_names_per_second: or(&raw.limits.new_names_per_second, Count(NEW_NAMES_PER_SECOND)).0,
        control_plane: identifier.map_or_else(|| CONTROL_PLANE.into(), |given: &Located<String>| given.value.clone()),
        v2: raw.clients.v2.value,
        connections,
        handshakes,
        age: AgeLimit {
            age: or(&raw.clients.max_connection_age, Interval(None)).0.unwrap_or_default(),
            grace: or(&raw.drain.grace, Wait(GRACE)).0,
        },
    }
}

const FILE_BYTES: usize = 64 << 20;
const INCOMPLETE_REQUEST_BYTES: usize = 512 << 20;
const OUTDATED_REPLY_BYTES: usize = 128 << 20;
/// 25 fleets with a hundred thousand clusters each come back at the same time.
const STATED_VERSIONS_BYTES: usize = 512 << 20;
/// Slower than any link that an Envoy is run on.
const REQUEST_BYTES_PER_SECOND: usize = 1 << 10;
/// A full stream of names, each with its version, and as many to leave.
const REQUEST_ENTRIES: usize = 400_000;
const NAME_BYTES: usize = 16 << 10;
/// More than changes while a fleet is being scaled.
const NEW_NAMES_PER_SECOND: usize = 5000;
/// Sixteen times a large node.
const NODE_BYTES: usize = 1 << 20;
const MAX_VIEWS: usize = 10_000;
/// A relay has up to 50 streams on one connection, each of another view. Twice that, since views outlive their streams for a while.
const MAX_VIEWS_PER_CONNECTION: usize = 100;
const MAX_IN_METRICS: usize = 100;
const VIEWS_IDLE: Duration = Duration::from_secs(600);
const CONTROL_PLANE: &str = "weir";
