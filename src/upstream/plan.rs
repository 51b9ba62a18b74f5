//! The control planes and other sources, and which requests go to which of them.

use std::collections::{BTreeMap, BTreeSet};

use weir_core::protocol::ladder::{FallbackTimers, Rule};
use weir_core::protocol::session::Variant;
use weir_core::protocol::sources;
use weir_core::protocol::upstream::{OnResourceTimeout, ServerQuirks};

use super::{AdsServer, FilesOptions, RestServer};
use crate::relay::StartSource;

/// Every server once, and the server lists as indices into it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The servers, in the order of their first mention.
    pub servers: Vec<SourcePlan>,
    /// The list for old-style names, the first choice first (BOOT-12, BOOT-14).
    pub top: Vec<usize>,
    /// The lists for new-style names, by authority.
    pub authorities: BTreeMap<String, AuthorityPlan>,
    /// Timers that prevent flapping between the servers of a list.
    pub timers: FallbackTimers,
    /// After a fallback, resources that the old server had and the new one lacks are kept (FB-26).
    pub(crate) hold_missing: bool,
    /// Authorities whose names mean the same to all clients, so that all views share their resources (NAME-20).
    pub(crate) shared: BTreeSet<String>,
}

/// A source of resources. Equal sources are one (BOOT-9).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourcePlan {
    /// A control plane over gRPC.
    Ads(Box<AdsServer>),
    /// Files and folders.
    Files(FilesServer),
    /// A control plane that is polled over HTTP.
    Rest(Box<RestServer>),
}

/// Files used as a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilesServer {
    pub(crate) options: FilesOptions,
    /// True if no other server gets the same requests: then what is not in these files does not exist. Beside servers, files are never evidence of
    /// absence (FS-6).
    pub(crate) authoritative: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorityPlan {
    pub servers: Vec<usize>,
    pub rule: Rule,
}

/// The configured lists. An authority's list may be empty, which means the top-level list (BOOT-13).
#[derive(Debug, Default)]
pub(crate) struct Lists {
    pub(crate) top: Vec<SourcePlan>,
    pub(crate) authorities: BTreeMap<String, (Vec<SourcePlan>, Rule)>,
}

impl Plan {
    pub(crate) fn new(lists: Lists, patience: FallbackTimers, hold_missing: bool) -> Self {
        let mut servers = Vec::new();
        let top = places(&mut servers, lists.top);
        let authorities = lists.authorities.into_iter().map(|(name, (own, rule))| {
            let own = if own.is_empty() { top.clone() } else { places(&mut servers, own) };
            (name, AuthorityPlan { servers: own, rule })
        });
        let authorities = authorities.collect();
        Self { servers, top, authorities, timers: patience, hold_missing, shared: BTreeSet::new() }
    }

    /// Returns the plan of a view: the same lists, with the hub behind all servers where authorities are shared.
    pub(crate) fn for_views(&self) -> sources::Plan {
        let mut plan = self.for_sources();
        let hub = sources::ServerPlan::Streams {
            variant: Variant::Delta,
            // The hub reports absence itself, and waits as long as its upstream servers may take.
            quirks: ServerQuirks {
                on_resource_timeout: OnResourceTimeout::Unknown,
                skips_brakes: true, // the hub's views have them
                max_request_bytes: usize::MAX,
                node_in_every_request: false, // a session of this process
                ..ServerQuirks::default()
            }
            .into(),
        };
        let shared = plan.authorities.iter_mut().filter(|(name, _)| self.shared.contains(*name));
        for (_, authority) in shared {
            *authority = sources::AuthorityPlan { servers: vec![plan.servers.len()], rule: Rule::default() };
        }
        plan.servers.extend((!self.shared.is_empty()).then_some(hub));
        plan
    }

    /// Returns the plan of the hub, if there is one.
    pub(crate) fn for_hub(&self) -> Option<sources::Plan> {
        let mut plan = self.for_sources();
        plan.authorities.retain(|name, _| self.shared.contains(name));
        (!self.shared.is_empty()).then_some(plan)
    }

    /// Returns the same lists, without the settings of connections.
    fn for_sources(&self) -> sources::Plan {
        let list = |servers: &[usize], rule| sources::AuthorityPlan { servers: servers.into(), rule };
        let authorities = self.authorities.iter().map(|(name, of)| (name.clone(), list(&of.servers, of.rule)));
        sources::Plan {
            servers: self.servers.iter().map(SourcePlan::for_sources).collect(),
            top: list(&self.top, Rule::default()), // old-style names have no other list (BOOT-22)
            authorities: authorities.collect(),
            timers: self.timers,
            holds_missing: self.hold_missing,
        }
    }
}

impl SourcePlan {
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Ads(server) => server.name(),
            Self::Files(files) => files.options.to_string(),
            Self::Rest(server) => server.name(),
        }
    }

    /// Returns the control plane over gRPC, if it is one.
    pub fn ads(&self) -> Option<&AdsServer> {
        match self {
            Self::Ads(server) => Some(server),
            Self::Files(_) | Self::Rest(_) => None,
        }
    }

    /// Returns the source as it is asked at the start.
    pub(crate) fn for_start(&self) -> StartSource {
        StartSource { name: self.name(), is_files: matches!(self, Self::Files(_)) }
    }

    /// Returns what a view has to know of the source.
    fn for_sources(&self) -> sources::ServerPlan {
        match self {
            Self::Ads(server) => sources::ServerPlan::Streams {
                variant: server.variant.unwrap_or(Variant::Delta),
                quirks: server.quirks.clone().into(),
            },
            Self::Files(files) => sources::ServerPlan::LocalSet { authoritative: files.authoritative },
            Self::Rest(server) => {
                sources::ServerPlan::Streams { variant: Variant::Sotw, quirks: server.rules().into() }
            }
        }
    }
}

impl FilesServer {
    pub(crate) fn new(options: FilesOptions) -> Self {
        Self { options, authoritative: false }
    }
}

/// Returns the servers of a list as indices into `servers`. Equal servers are one (BOOT-9), also within a list: falling back from a server to
/// itself is of no use.
fn places(servers: &mut Vec<SourcePlan>, list: Vec<SourcePlan>) -> Vec<usize> {
    let mut places = Vec::new();
    let alone = list.iter().all(|server| *server == list[0]);
    for mut server in list {
        if let SourcePlan::Files(files) = &mut server {
            files.authoritative = alone;
        }
        let known = servers.iter().position(|known| *known == server);
        let at = known.unwrap_or_else(|| {
            servers.push(server);
            servers.len() - 1
        });
        if !places.contains(&at) {
            places.push(at);
        }
    }
    places
}
