//! The configuration in types that cannot be invalid: reads a file and returns it, or everything that is wrong with it.
//!
//! The file is parsed to a tree ([`yaml`]), environment variables are substituted in its values, the tree is read by its forms ([`raw`],
//! [`form`](super::form)), and the result is checked ([`checker`](super::checker)). Each step continues after a fault as far as possible,
//! so that all faults are reported at once.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::upstream::BackoffTimes;
use weir_core::xds::{Access, KeyRule, Permissions};

use super::addresses::{self, Addresses};
use super::admin::{AdminOptions, admin_may_be_at};
use super::checker::Checker;
use super::diagnostic::{Diagnostic, Diagnostics};
use super::in_force::InForce;
use super::presets::Preset;
use super::secrets::without_values;
use super::shown::ShownConfig;
use super::upstream::{self, SourceLimits};
use super::yaml::{self, Node};
use super::{
    access, brakes, clients, consistency, contradictions, files, headers, limits, loops, memory, permissions, protocol,
    raw, rest, state, types, views,
};
use crate::downstream::{self, DrainTimes, ListenAddress, ListenOptions, RestOptions};
use crate::file_access;
use crate::relay::{LoadsMode, TenantLimits, ViewsOptions};
use crate::state::StateOptions;
use crate::transcode::Transcoder;
use crate::upstream::{Plan, SourcePlan};

/// How a changed file is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReloadOptions {
    /// Whether the relay checks the file for changes by itself.
    pub(crate) watch: bool,
}

/// Everything that a relay needs to start.
#[derive(Debug, Clone)]
pub struct Config {
    /// Addresses for clients.
    pub listen: Vec<ListenOptions>,
    /// Where operators connect.
    pub admin: AdminOptions,
    /// Where probes and scrapers of metrics connect.
    pub probes: Option<SocketAddr>,
    /// The servers, and the lists of each authority.
    pub upstream: Plan,
    /// The transcoder with an operator's descriptors. `None` means the embedded descriptors, which may never be needed.
    pub(crate) transcoder: Option<Arc<Transcoder>>,
    /// Options of all views.
    pub views: ViewsOptions,
    /// Options of the hub, if there are shared authorities.
    pub hub: Option<ViewsOptions>,
    pub(crate) views_idle: Duration,
    /// How often each view is audited; `None`: never.
    pub(crate) views_audit: Option<Duration>,
    pub(crate) downstream: downstream::Options,
    pub(crate) drain: DrainTimes,
    /// How long all worker threads may stall. `None`: without a limit.
    pub(crate) watchdog: Option<Duration>,
    /// After this time the relay is ready in any case. `None`: never.
    pub(crate) ready_after: Option<Duration>,
    pub(crate) loads: LoadsMode,
    /// `None` if REST is not served.
    pub(crate) rest: Option<RestOptions>,
    /// `None` if no state is kept on disk.
    pub(crate) state: Option<StateOptions>,
    /// The file as it was written.
    pub(super) tree: Node,
    pub(crate) reload: ReloadOptions,
    /// The preset that the sharing key comes from.
    pub(crate) preset: Option<Preset>,
    /// The values of the sections that `weir check` shows.
    pub(crate) in_force: InForce,
    /// The configuration as it is shown to operators.
    pub(crate) shown: ShownConfig,
    /// Values that are valid, but probably not intended.
    pub warnings: Vec<Diagnostic>,
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read {}: {}", path.display(), files::cause(error))]
    Unreadable { path: PathBuf, error: std::io::Error },
    #[error("{}", listed(.0))]
    Faults(Vec<Diagnostic>),
}

/// The result of reviewing a configuration.
#[derive(Debug)]
pub(crate) struct Review {
    /// `None` if the relay could not start with it.
    pub(crate) config: Option<Config>,
    /// The faults, and files that the relay could not use.
    pub(crate) faults: Vec<Diagnostic>,
    pub(crate) warnings: Vec<Diagnostic>,
    /// The files that the configuration names, as far as it can be read.
    pub(super) named: BTreeSet<PathBuf>,
    /// Environment variables in the configuration, with their values.
    values: Vec<(String, String)>,
}

impl Review {
    /// Returns a text about the configuration, with the names of variables instead of their values, which may be secret.
    pub(crate) fn without_values(&self, text: &str) -> String {
        without_values(text, &self.values)
    }

    /// Returns the configuration with its warnings, or an error with all faults.
    pub(super) fn into_config(self) -> Result<Config, ConfigError> {
        let config = self.config.ok_or(ConfigError::Faults(self.faults))?;
        Ok(Config { warnings: self.warnings, ..config })
    }
}

impl Config {
    /// Reads and checks a configuration file. An error lists everything that is wrong with it.
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        Self::parse(path, &read(path)?)
    }

    /// Checks a configuration whose text was read from `path`. Relative paths in it start at its folder.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        Self::parse_in(path, text, &variable)
    }

    /// Parses a configuration with the given environment variables.
    pub(super) fn parse_in(
        path: &Path,
        text: &str,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        review(path, text, environment, false).into_config()
    }

    /// Reviews a configuration as `weir check` does: with the files that it names, which a relay can start without, and for a machine with this much
    /// memory.
    pub(crate) fn review(path: &Path, text: &str, machine: Option<usize>) -> Review {
        let mut found = Diagnostics::of(path);
        let tree = yaml::read(text, &mut found);
        review_read(path, text, tree, Checker::new(found, &variable, true).on_machine(machine))
    }

    /// Reads the text of a configuration. The path `-` means standard input.
    pub(crate) fn text_of(path: &Path) -> Result<String, ConfigError> {
        match path == Path::new("-") {
            true => std::io::read_to_string(std::io::stdin())
                .map_err(|error| ConfigError::Unreadable { path: path.into(), error }),
            false => read(path),
        }
    }

    /// Replaces all addresses for clients by one. It requires of its connections what the first address required.
    pub fn listen_at(&mut self, address: SocketAddr) {
        self.listen.truncate(1);
        if let Some(options) = self.listen.first_mut() {
            options.address = ListenAddress::Tcp(address);
        }
        self.shown.command_line.insert("--listen".into(), address.to_string().into());
    }

    /// Sets the number of shards where the file states none. 0: the relay has no runtime but the one that it is started on.
    pub fn set_default_shards(&mut self, count: usize) {
        self.downstream.shards = self.downstream.shards.or(Some(count));
    }

    /// Replaces the address for operators. The error says why operators may not be served there.
    pub fn admin_at(&mut self, address: SocketAddr) -> Result<(), String> {
        admin_may_be_at(address, self.admin.tls.is_some())?;
        self.admin.address = Some(address);
        self.shown.command_line.insert("--admin".into(), address.to_string().into());
        Ok(())
    }
}

pub(super) fn read(path: &Path) -> Result<String, ConfigError> {
    let read = file_access::read_blocking(path, file_access::LIMIT);
    let text = read.and_then(|bytes| {
        String::from_utf8(bytes.into()).map_err(|_| std::io::Error::from(std::io::ErrorKind::InvalidData))
    });
    text.map_err(|error| ConfigError::Unreadable { path: path.into(), error })
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Reviews the text of a file like a relay that reads it.
pub(super) fn review_text(path: &Path, text: &str) -> Review {
    review(path, text, &variable, false)
}

pub(super) fn review(
    path: &Path,
    text: &str,
    environment: &dyn Fn(&str) -> Option<String>,
    opens_files: bool,
) -> Review {
    let mut found = Diagnostics::of(path);
    let tree = yaml::read(text, &mut found);
    review_read(path, text, tree, Checker::new(found, environment, opens_files))
}

/// Reviews a tree that was made from the text.
pub(super) fn review_tree(path: &Path, text: &str, tree: Node) -> Review {
    review_read(path, text, Some(tree), Checker::new(Diagnostics::of(path), &variable, false))
}

fn review_read(path: &Path, text: &str, tree: Option<Node>, mut checker: Checker<'_>) -> Review {
    let mut shown = ShownConfig::empty_of(path, text);
    let written = tree.clone().unwrap_or_default();
    let raw = tree.and_then(|tree| {
        shown = std::mem::take(&mut shown).with_tree(&tree);
        checker.read(tree)
    });
    let config = raw.and_then(|raw| build(&raw, &mut checker));
    let found = checker.into_diagnostics().shown();
    let Diagnostics { mut faults, unusable, warnings, named, bootstrap, values, .. } = found;
    shown.bootstrap = bootstrap;
    let config = config.filter(|_| faults.is_empty()).map(|config| Config { shown, tree: written, ..config });
    faults.extend(unusable);
    faults.sort_by_key(|fault| (fault.path != path, fault.line, fault.column)); // each step goes through the whole file
    Review { config, faults, warnings, named, values }
}

/// Checks every part, and builds the configuration, which must not be used if there are faults.
fn build(raw: &raw::Root, checker: &mut Checker) -> Option<Config> {
    let Addresses { listen, admin, probes } = addresses::check(raw, checker);
    let limits = SourceLimits {
        message_bytes: raw.limits.message_bytes.0,
        file_bytes: raw.limits.file_bytes.0 as u64,
        backoff: BackoffTimes::default(),
    };
    let upstream = raw.upstream.0.as_ref();
    let plan = upstream.and_then(|upstream| upstream::check(upstream, limits, checker));
    let transcoder = upstream.and_then(|upstream| upstream::transcoder(&upstream.descriptors, checker));
    let table = types::check(raw, checker);
    let access = access::check(&raw.access, &table, checker);
    let (rule, preset) = views::check(&raw.views, checker);
    let permissions = permissions::check(raw, &rule, &table, checker);
    views::check_identity(&raw.views, plan.as_ref(), &rule, &permissions, checker);
    views::check_audit(&raw.views, plan.as_ref(), checker);
    views::check_node(&raw.views, checker);
    headers::check_shared(raw, &rule, &permissions, checker);
    let brakes = brakes::check(&raw.brakes, &table, checker);
    let memory = memory::check(&raw.limits, checker);
    let protocol = protocol::check(raw, brakes, &memory, checker);
    let connections = limits::connections(&raw.limits, checker);
    let loads = limits::loads(&raw.load_reports, &memory, checker);
    let rest = rest::check(&raw.rest, &memory, checker);
    let views_idle = raw.views.idle_timeout.0;
    let state = state::check(&raw.state, views_idle, checker);
    let downstream = clients::check(raw, connections, limits::handshakes(&raw.limits), &memory, checker);
    consistency::check(raw, checker);
    consistency::check_views(raw, checker);
    consistency::check_ages(raw, checker);
    consistency::check_tenants(raw, &rule, checker);
    let mut upstream = plan?;
    for server in &mut upstream.servers {
        let judges_clients = rule.headers().next().is_some();
        match server {
            SourcePlan::Ads(server) => server.judges_clients = judges_clients,
            SourcePlan::Rest(server) => server.at.judges_clients = judges_clients,
            SourcePlan::Files(_) => {}
        }
    }
    loops::check(raw, &upstream, checker);
    consistency::check_nodes(raw, &upstream, checker);
    contradictions::check(raw, &upstream, checker);
    let views = ViewsOptions {
        shows_members: views::shows_members(&raw.views),
        accept_missing_node: raw.views.accept_missing_node.value,
        max_views: raw.views.max.0,
        max_views_per_connection: raw.limits.views_per_connection.0,
        max_views_per_identity: raw.limits.views_per_identity.0,
        max_views_per_tenant: raw.limits.views_per_tenant.0,
        tenants: limits::tenants(&raw.limits),
        max_in_metrics: raw.views.max_in_metrics.0,
        table,
        access,
        permissions,
        protocol,
        stated_versions_bytes: memory::or_part(&raw.limits.stated_versions_bytes, &memory, STATED_VERSIONS),
        memory,
        header_hasher: headers::check(raw, &rule, &upstream, checker),
        plan: upstream.for_views(),
        rule,
        panics_at: None,
    };
    Some(Config {
        listen,
        admin,
        probes,
        hub: hub(&upstream, &views),
        upstream,
        transcoder,
        views,
        views_idle,
        views_audit: raw.views.audit.interval.0,
        downstream,
        drain: limits::drain(&raw.drain, &raw.reload),
        watchdog: raw.watchdog.0,
        ready_after: raw.ready_after.as_ref().map(|given| given.value.0),
        reload: ReloadOptions { watch: raw.reload.watch.value },
        tree: Node::default(),
        loads,
        rest,
        state,
        preset,
        in_force: InForce::of(raw),
        shown: ShownConfig::default(),
        warnings: Vec::new(),
    })
}

/// The default of `limits.stated_versions_bytes`, in percent of `limits.memory`.
const STATED_VERSIONS: usize = 12;

/// The options of the hub: one view for all. Access and permissions are checked in the clients' own views.
fn hub(upstream: &Plan, views: &ViewsOptions) -> Option<ViewsOptions> {
    upstream.for_hub().map(|plan| ViewsOptions {
        rule: KeyRule::of(Vec::new()),
        shows_members: false, // what all views share is made for no single client
        accept_missing_node: true,
        max_views: 1,
        max_views_per_connection: 0,
        max_views_per_identity: 0,
        max_views_per_tenant: 0,
        tenants: TenantLimits::default(),
        max_in_metrics: 1,
        access: Access::default(),
        permissions: Permissions::default(),
        protocol: unlimited(&views.protocol),
        plan,
        ..views.clone()
    })
}

/// Returns the options without limits: a session of the hub serves a whole view, whose clients are limited already.
fn unlimited(options: &ProtocolOptions) -> ProtocolOptions {
    let mut options = options.clone();
    let (session, view) = (&mut options.session, &mut options.view);
    (session.types, session.names, session.names_per_stream) = (usize::MAX, usize::MAX, usize::MAX);
    (view.names_per_view, view.cached_bytes, view.absent_names_per_stream) = (usize::MAX, usize::MAX, usize::MAX);
    options
}

fn listed(faults: &[Diagnostic]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
