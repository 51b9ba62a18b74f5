//! What is wrong in the process as a whole.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use weir_core::protocol::view::Selector;
use weir_core::protocol::wait::WaitKind;
use weir_core::xds::{WILDCARD, short_type_name};

use crate::config_status::ConfigFacts;
use crate::problems::{ProblemKind, Sighting};
use crate::relay::WaitKey;
use crate::relay::deliveries::{Deliveries, UNANSWERED_FOR};
use crate::state::StateCounters;
use crate::tls::ListenerTls;

/// Waits beyond their bounds, those of a kind together.
pub(super) fn waits(beyond: &[WaitKey]) -> Vec<Sighting> {
    let mut kinds: BTreeMap<WaitKind, Sighting> = BTreeMap::new();
    for key in beyond {
        let of = kinds.entry(key.kind).or_insert_with(|| {
            let row = key.kind.row();
            let sighting = Sighting::new(ProblemKind::WaitBeyondBound, row.name, row.what);
            Sighting { next: next_for(key), ..sighting.with(MAYBE_LATE, &[]) }
        });
        of.times += 1;
        of.clients += usize::from(key.session.is_some());
        of.views.add_other(&key.view);
        if let Some(Selector::Name(name)) = &key.subject.of {
            of.names.add(name.as_str());
        }
    }
    kinds.into_values().collect()
}

/// Returns what explains a wait.
fn next_for(key: &WaitKey) -> Vec<String> {
    match (key.session, &key.subject.kind, &key.subject.of) {
        (Some(session), Some(kind), Some(of)) => {
            let name = if let Selector::Name(name) = of { name.as_str() } else { WILDCARD };
            ["weir", "explain", "--client", &session.to_string(), kind.name(), name].map(str::to_owned).into()
        }
        _ => ["weir", "status", "--sort", "lag"].map(str::to_owned).into(),
    }
}

/// Clients that leave replies unanswered.
pub(super) fn laggards(deliveries: &Deliveries) -> Vec<Sighting> {
    let of = |(kind, clients): (&str, usize)| {
        let reason = format!("for more than {} s", UNANSWERED_FOR[0]);
        let sighting = Sighting::new(ProblemKind::Laggards, short_type_name(kind), reason);
        Sighting { clients, ..sighting.with("they keep what they have", &["weir", "top"]) }
    };
    deliveries.unanswered().map(of).collect()
}

/// Certificates that end within a week: the listeners' own, and those that servers are shown.
pub(super) fn certificates(listeners: &[Arc<ListenerTls>], of_servers: &[(String, SystemTime)]) -> Vec<Sighting> {
    let now = SystemTime::now();
    let mut seen = Vec::new();
    for report in listeners.iter().map(|tls| tls.report()) {
        for (file, until) in report.expires {
            let noticed = "clients that verify it cannot connect once it has ended";
            seen.extend(ending(file, until, now, noticed).map(|mut of| {
                of.servers.add(format!("listener {}", report.listener));
                of
            }));
        }
    }
    let noticed = "servers that verify it take no stream once it has ended; then the cache is served";
    seen.extend(of_servers.iter().filter_map(|(file, until)| ending(file.clone(), *until, now, noticed)));
    seen
}

fn ending(file: String, until: SystemTime, now: SystemTime, noticed: &'static str) -> Option<Sighting> {
    let left = until.duration_since(now).unwrap_or_default();
    if left >= ENDS_SOON {
        return None;
    }
    let at = humantime::format_rfc3339_seconds(until);
    let reason = if left.is_zero() { format!("it ended at {at}") } else { format!("it ends at {at}") };
    let next = ["openssl", "x509", "-noout", "-subject", "-enddate", "-in", &file];
    Some(Sighting::new(ProblemKind::CertificateEnding, &*file, reason).with(noticed, &next))
}

/// The state file, if it is not written.
pub(super) fn state_file(state: Option<&StateCounters>, config: &ConfigFacts) -> Option<Sighting> {
    let fault = state?.fault()?;
    let path = config.config["state"]["path"].as_str().unwrap_or("state file");
    let noticed = "nothing until a restart, which would not begin with what clients have";
    Some(Sighting::new(ProblemKind::StateNotWritten, path, fault).with(noticed, &["ls", "-l", path]))
}

/// A configuration file that was not taken.
pub(super) fn configuration(config: &ConfigFacts) -> Option<Sighting> {
    let error = config.error.clone()?;
    let noticed = "nothing: the configuration before is in use";
    let file = config.file.display().to_string();
    Some(Sighting::new(ProblemKind::ReloadFailed, file, error).with(noticed, &["weir", "reload", "--dry-run"]))
}

const MAYBE_LATE: &str = "what waits comes late";
/// As the alert has it.
const ENDS_SOON: Duration = Duration::from_secs(7 * 24 * 3600);
