//! The sources and their order, from the configuration or from a bootstrap file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use weir_core::protocol::ladder::{FallbackTimers, Rule};

use super::limits::SourceLimits;
use super::server::{file_source, source};
use crate::config::checker::Checker;
use crate::config::connection;
use crate::config::diagnostic::FilePosition;
use crate::config::files;
use crate::config::form::{FilePath, Located, Name, Names, Setting};
use crate::config::plain_server::rule;
use crate::config::raw::{self, OnMissing};
use crate::upstream::{Lists, Plan, SourcePlan};

pub(in crate::config) fn check(
    raw: &Located<raw::Upstream>,
    limits: SourceLimits,
    checker: &mut Checker,
) -> Option<Plan> {
    let backoff = connection::backoff(&raw.backoff, limits.backoff, checker);
    let limits = SourceLimits { backoff, ..limits };
    let timers = FallbackTimers { delay: raw.fallback.delay.0, hold_down: raw.fallback.hold_down.0 };
    let from_environment = Some(&raw.bootstrap_from_environment).filter(|requested| requested.value);
    let lists = match (&raw.bootstrap, from_environment) {
        (Some(_), Some(requested)) => {
            checker.fault(&requested.place, "cannot be combined with bootstrap");
            return None;
        }
        (Some(file), None) => bootstrap(file, raw, limits, checker)?,
        (None, Some(requested)) => bootstrap_of_environment(requested, raw, limits, checker)?,
        (None, None) => written(raw, limits, checker)?,
    };
    let plan = Plan::new(lists, timers, raw.fallback.on_missing.value == OnMissing::Keep);
    Some(Plan { shared: shared(&raw.shared_authorities, &plan, checker), ..plan })
}

fn shared(names: &[Located<Name>], plan: &Plan, checker: &mut Checker) -> BTreeSet<String> {
    for name in names.iter().filter(|name| !plan.authorities.contains_key(&name.0)) {
        let known: Vec<_> = plan.authorities.keys().map(String::as_str).collect();
        let known = if known.is_empty() { "an entry of authorities".into() } else { known.join(" or ") };
        checker.fault(&name.place, format!("unknown authority {:?}: expected {known}", name.0));
    }
    names.iter().map(|name| name.0.clone()).collect()
}

/// Returns the sources that the configuration lists.
fn written(raw: &Located<raw::Upstream>, limits: SourceLimits, checker: &mut Checker) -> Option<Lists> {
    let top = match (&raw.servers, &raw.files) {
        (Some(_), Some(files)) => {
            checker.fault(&files.place, "cannot be combined with servers; an item of servers may have files");
            Vec::new()
        }
        (Some(servers), None) => list(&servers.0, limits, checker),
        (None, Some(files)) => vec![file_source(files, limits, checker)],
        (None, None) => {
            checker.lacks(&raw.place, "missing source: expected servers, files or bootstrap");
            Vec::new()
        }
    };
    Some(Lists { top, authorities: authority_lists(&raw.authorities, limits, checker) })
}

fn authority_lists(
    authorities: &Names<raw::Authority>,
    limits: SourceLimits,
    checker: &mut Checker,
) -> BTreeMap<String, (Vec<SourcePlan>, Rule)> {
    let read = authorities.0.iter().map(|(name, authority)| {
        let servers = list(&authority.servers, limits, checker);
        (name.clone(), (servers, rule(authority.fallback_on_reachability_only.value)))
    });
    read.collect()
}

fn list(servers: &[Located<raw::Server>], limits: SourceLimits, checker: &mut Checker) -> Vec<SourcePlan> {
    servers.iter().filter_map(|server| source(server, limits, checker)).collect()
}

fn bootstrap(
    file: &Located<FilePath>,
    raw: &raw::Upstream,
    limits: SourceLimits,
    checker: &mut Checker,
) -> Option<Lists> {
    is_alone(&file.place, raw, checker)?;
    let path = checker.path(file);
    let text = checker.text_of(&path, &file.place)?;
    bootstrap_text(&path, &text, limits, checker)
}

/// Returns the bootstrap that gRPC clients on this machine would use: the file that the first variable names, or else the text in the second
/// (BOOT-1).
fn bootstrap_of_environment(
    requested: &Setting<bool>,
    raw: &raw::Upstream,
    limits: SourceLimits,
    checker: &mut Checker,
) -> Option<Lists> {
    is_alone(&requested.place, raw, checker)?;
    match (checker.variable(BOOTSTRAP_FILE), checker.variable(BOOTSTRAP)) {
        (Some(file), _) => {
            let text = files::text(Path::new(&file));
            let reason = |fault| format!("{fault}, which {BOOTSTRAP_FILE} names");
            let text = text.map_err(|fault| checker.fault(&requested.place, reason(fault))).ok()?;
            bootstrap_text(Path::new(&file), &text, limits, checker)
        }
        (None, Some(text)) => bootstrap_text(Path::new(BOOTSTRAP), &text, limits, checker),
        (None, None) => {
            checker
                .fault(&requested.place, format!("no bootstrap: expected {BOOTSTRAP_FILE} or {BOOTSTRAP} to be set"));
            None
        }
    }
}

/// Reads a bootstrap. It has servers and authorities, but no timers.
fn bootstrap_text(path: &Path, text: &str, limits: SourceLimits, checker: &mut Checker) -> Option<Lists> {
    let mut lists = checker.bootstrap(path, text, limits.message_bytes)?;
    let authorities = lists.authorities.values_mut().flat_map(|(servers, _)| servers);
    for source in lists.top.iter_mut().chain(authorities) {
        if let SourcePlan::Ads(server) = source {
            server.backoff = limits.backoff;
        }
    }
    Some(lists)
}

/// Reports keys that are set although the bootstrap replaces them.
fn is_alone(bootstrap: &FilePosition, raw: &raw::Upstream, checker: &mut Checker) -> Option<()> {
    let has_others = raw.servers.is_some() || raw.files.is_some() || !raw.authorities.0.is_empty();
    if has_others {
        checker.fault(bootstrap, "cannot be combined with servers, files or authorities");
    }
    (!has_others).then_some(())
}

/// The environment variables of gRPC clients: the path of a file, and the JSON itself.
const BOOTSTRAP_FILE: &str = "GRPC_XDS_BOOTSTRAP";
const BOOTSTRAP: &str = "GRPC_XDS_BOOTSTRAP_CONFIG";
