//! Problems of the process as a whole.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use weir_core::protocol::view::Selector;
use weir_core::protocol::wait::WaitKind;
use weir_core::xds::{WILDCARD, short_type_name};

use crate::config_status::ConfigFacts;
use crate::problems::{CountedSample, ProblemKind, Sighting};
use crate::relay::deliveries::{Deliveries, UNANSWERED_FOR};
use crate::relay::{WaitKey, WatchedView};
use crate::state::StateCounters;
use crate::tls::ListenerTls;

/// Returns the waits beyond their bounds, one sighting for each kind. A view that has ended may have left some behind.
pub(super) fn waits(beyond: &[WaitKey], views: &[Arc<WatchedView>]) -> Vec<Sighting> {
    let words: BTreeMap<_, _> = views.iter().map(|view| (&*view.view, &view.words)).collect();
    let mut kinds: BTreeMap<WaitKind, Vec<(&WaitKey, &String)>> = BTreeMap::new();
    for key in beyond {
        if let Some(words) = words.get(&*key.view) {
            kinds.entry(key.kind).or_default().push((key, words));
        }
    }
    kinds.into_iter().map(|(kind, keys)| waits_of(kind, &keys)).collect()
}

fn waits_of(kind: WaitKind, keys: &[(&WaitKey, &String)]) -> Sighting {
    let sessions: BTreeSet<_> = keys.iter().filter_map(|(key, _)| key.session).collect();
    let views: BTreeMap<_, _> = keys.iter().map(|(key, words)| (&key.view, *words)).collect();
    let name = |(key, _): &(&WaitKey, &String)| match &key.subject.of {
        Some(Selector::Name(name)) => Some(name.as_str().to_owned()),
        Some(Selector::Wildcard) | None => None,
    };
    let names: BTreeSet<_> = keys.iter().filter_map(name).collect();
    let row = kind.row();
    Sighting {
        times: keys.len() as u64,
        clients: sessions.len(),
        views: CountedSample::of(views.into_values().cloned()),
        names: CountedSample::of(names),
        next: next_for(keys[0].0),
        ..Sighting::new(ProblemKind::WaitBeyondBound, row.name, row.what).with(MAYBE_LATE, &[])
    }
}

/// Returns the command that explains a wait.
fn next_for(key: &WaitKey) -> Vec<String> {
    match (key.session, &key.subject.kind, &key.subject.of) {
        (Some(session), Some(kind), Some(of)) => {
            let name = if let Selector::Name(name) = of { name.as_str() } else { WILDCARD };
            ["weir", "explain", "--client", &session.to_string(), kind.name(), name].map(str::to_owned).into()
        }
        _ => ["weir", "status", "--sort", "lag"].map(str::to_owned).into(),
    }
}

/// Returns the clients that leave replies unanswered.
pub(super) fn laggards(deliveries: &Deliveries) -> Vec<Sighting> {
    let of = |(kind, clients): (&str, usize)| {
        let reason = format!("for more than {} s", UNANSWERED_FOR[0]);
        let sighting = Sighting::new(ProblemKind::Laggards, short_type_name(kind), reason);
        Sighting { clients, ..sighting.with("they keep what they have", &["weir", "top"]) }
    };
    deliveries.unanswered().map(of).collect()
}

/// Returns the certificates that expire within a week: those of listeners, and those that servers are shown.
pub(super) fn certificates<'a>(
    listeners: &[Arc<ListenerTls>],
    of_servers: impl Iterator<Item = (&'a Path, SystemTime)>,
) -> Vec<Sighting> {
    let now = SystemTime::now();
    let mut files: BTreeMap<String, (SystemTime, BTreeSet<String>)> = BTreeMap::new();
    for report in listeners.iter().map(|tls| tls.report()) {
        for (file, until) in report.expires {
            let (end, of) = files.entry(file).or_insert_with(|| (until, BTreeSet::new()));
            *end = until.min(*end);
            of.insert(format!("listener {}", report.listener));
        }
    }
    let noticed = "clients that verify it cannot connect once it has ended";
    let of_listeners = files.into_iter().filter_map(|(file, (until, of))| {
        Some(Sighting { servers: CountedSample::of(of), ..ending(&file, until, now, noticed)? })
    });
    let noticed = "servers that verify it take no stream once it has ended; then the cache is served";
    let of_servers = of_servers.filter_map(|(file, until)| {
        let file = file.display().to_string();
        Some(Sighting { group: format!("to servers {file}"), ..ending(&file, until, now, noticed)? })
    });
    of_listeners.chain(of_servers).collect()
}

fn ending(file: &str, until: SystemTime, now: SystemTime, noticed: &'static str) -> Option<Sighting> {
    let left = until.duration_since(now).unwrap_or_default();
    if left >= ENDS_SOON {
        return None;
    }
    let at = humantime::format_rfc3339_seconds(until);
    let reason = if left.is_zero() { format!("it ended at {at}") } else { format!("it ends at {at}") };
    let next = ["openssl", "x509", "-noout", "-subject", "-enddate", "-in", file];
    Some(Sighting::new(ProblemKind::CertificateEnding, file, reason).with(noticed, &next))
}

/// Returns the state file as a problem, if writing it fails.
pub(super) fn state_file(state: Option<&StateCounters>, config: &ConfigFacts) -> Option<Sighting> {
    let fault = state?.fault()?;
    let path = config.config["state"]["path"].as_str().unwrap_or("state file");
    let noticed = "nothing until a restart, which would not begin with what clients have";
    Some(Sighting::new(ProblemKind::StateNotWritten, path, fault).with(noticed, &["ls", "-l", path]))
}

/// Returns a configuration file that was not applied.
pub(super) fn configuration(config: &ConfigFacts) -> Option<Sighting> {
    let error = config.error.clone()?;
    let noticed = "nothing: the configuration before is in use";
    let file = config.file.display().to_string();
    let next = ["weir", "check", &file];
    Some(Sighting::new(ProblemKind::ReloadFailed, &*file, error).with(noticed, &next))
}

const MAYBE_LATE: &str = "what waits comes late";
/// The same time as in the recommended alert.
const ENDS_SOON: Duration = Duration::from_secs(7 * 24 * 3600);
