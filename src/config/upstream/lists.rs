//! The sources and their order, from the configuration or from a bootstrap file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use super::limits::SourceLimits;
use crate::config::bootstrap::{self, Bootstrap};
use crate::config::checker::{Checker, or};
use crate::config::diagnostic::Place;
use crate::config::files;
use crate::config::form::{FilePath, Located, Name, Names, Wait};
use crate::config::plain_server::rule;
use crate::config::raw::{self, OnMissing};
use crate::protocol::ladder::{FallbackTimers, Rule};
use crate::upstream::{Lists, Plan, SourcePlan};

impl Checker<'_> {
    pub(crate) fn upstream(&mut self, raw: &Located<raw::Upstream>, limits: SourceLimits) -> Option<Plan> {
        let backoff = self.backoff(&raw.backoff, limits.backoff);
        let limits = SourceLimits { backoff, ..limits };
        let timers = FallbackTimers {
            delay: or(&raw.fallback.delay, Wait(Duration::ZERO)).0,
            hold_down: or(&raw.fallback.hold_down, Wait(Duration::ZERO)).0,
        };
        let from_environment = Some(&raw.bootstrap_from_environment).filter(|requested| requested.value);
        let lists = match (&raw.bootstrap, from_environment) {
            (Some(_), Some(requested)) => {
                self.fault(&requested.place, "cannot be combined with bootstrap");
                return None;
            }
            (Some(file), None) => self.bootstrap(file, raw, limits)?,
            (None, Some(requested)) => self.bootstrap_of_environment(requested, raw, limits)?,
            (None, None) => self.written(raw, limits)?,
        };
        let plan = Plan::new(lists, timers, raw.fallback.on_missing.value == OnMissing::Keep);
        Some(Plan { shared: self.shared(&raw.shared_authorities, &plan), ..plan })
    }

    fn shared(&mut self, names: &[Located<Name>], plan: &Plan) -> BTreeSet<String> {
        for name in names.iter().filter(|name| !plan.authorities.contains_key(&name.0)) {
            let known: Vec<_> = plan.authorities.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "an entry of authorities".into() } else { known.join(" or ") };
            self.fault(&name.place, format!("unknown authority {:?}: expected {known}", name.0));
        }
        names.iter().map(|name| name.0.clone()).collect()
    }

    /// Returns the sources that the configuration lists.
    fn written(&mut self, raw: &Located<raw::Upstream>, limits: SourceLimits) -> Option<Lists> {
        let top = match (&raw.servers, &raw.files) {
            (Some(_), Some(files)) => {
                self.fault(&files.place, "cannot be combined with servers; an item of servers may have files");
                Vec::new()
            }
            (Some(servers), None) => self.servers(&servers.0, limits),
            (None, Some(files)) => vec![self.files(files, limits)],
            (None, None) => {
                self.found.lacks(&raw.place, "missing source: expected servers, files or bootstrap");
                Vec::new()
            }
        };
        Some(Lists { top, authorities: self.authorities(&raw.authorities, limits) })
    }

    fn authorities(
        &mut self,
        authorities: &Names<raw::Authority>,
        limits: SourceLimits,
    ) -> BTreeMap<String, (Vec<SourcePlan>, Rule)> {
        let read = authorities.0.iter().map(|(name, authority)| {
            let servers = self.servers(&authority.servers, limits);
            (name.clone(), (servers, rule(authority.fallback_on_reachability_only.value)))
        });
        read.collect()
    }

    fn servers(&mut self, servers: &[Located<raw::Server>], limits: SourceLimits) -> Vec<SourcePlan> {
        servers.iter().filter_map(|server| self.source(server, limits)).collect()
    }

    fn bootstrap(&mut self, file: &Located<FilePath>, raw: &raw::Upstream, limits: SourceLimits) -> Option<Lists> {
        self.is_alone(&file.place, raw)?;
        let path = self.path(file);
        let text = self.text_of(&path, &file.place)?;
        self.bootstrap_text(&path, &text, limits)
    }

    /// Returns the bootstrap that gRPC clients on this machine would use: the file that one variable names, or else the text in the other
    /// (BOOT-1).
    fn bootstrap_of_environment(
        &mut self,
        requested: &Located<bool>,
        raw: &raw::Upstream,
        limits: SourceLimits,
    ) -> Option<Lists> {
        self.is_alone(&requested.place, raw)?;
        let set = |name| (self.environment)(name).filter(|value| !value.is_empty());
        match (set(BOOTSTRAP_FILE), set(BOOTSTRAP)) {
            (Some(file), _) => {
                let text = files::text(Path::new(&file));
                let reason = |fault| format!("{fault}, which {BOOTSTRAP_FILE} names");
                let text = text.map_err(|fault| self.fault(&requested.place, reason(fault))).ok()?;
                self.bootstrap_text(Path::new(&file), &text, limits)
            }
            (None, Some(text)) => self.bootstrap_text(Path::new(BOOTSTRAP), &text, limits),
            (None, None) => {
                self.fault(
                    &requested.place,
                    format!("no bootstrap: expected {BOOTSTRAP_FILE} or {BOOTSTRAP} to be set"),
                );
                None
            }
        }
    }

    /// Reads a bootstrap. It has servers and authorities, and no timers.
    fn bootstrap_text(&mut self, path: &Path, text: &str, limits: SourceLimits) -> Option<Lists> {
        let read = bootstrap::read(path, text, limits.message_bytes, self.opens_files);
        let Bootstrap { mut lists, unusable } = read.map_err(|faults| self.found.faults.extend(faults)).ok()?;
        self.found.unusable.extend(unusable);
        let authorities = lists.authorities.values_mut().flat_map(|(servers, _)| servers);
        for source in lists.top.iter_mut().chain(authorities) {
            if let SourcePlan::Ads(server) = source {
                server.backoff = limits.backoff;
            }
        }
        Some(lists)
    }

    /// Reports keys that a bootstrap replaces and that are set too.
    fn is_alone(&mut self, bootstrap: &Place, raw: &raw::Upstream) -> Option<()> {
        let has_others = raw.servers.is_some() || raw.files.is_some() || !raw.authorities.0.is_empty();
        if has_others {
            self.fault(bootstrap, "cannot be combined with servers, files or authorities");
        }
        (!has_others).then_some(())
    }
}

/// The environment variables of gRPC clients: the path of a file, and the JSON itself.
const BOOTSTRAP_FILE: &str = "GRPC_XDS_BOOTSTRAP";
const BOOTSTRAP: &str = "GRPC_XDS_BOOTSTRAP_CONFIG";
