//! Metrics of TLS towards clients.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::labels::Labelled;
use crate::tls::TlsReport;

pub(super) fn register(registry: &mut Registry, reports: &[TlsReport]) {
    let help = "Unix time at which the certificate of a listener, or of its chain, expires";
    let expires = Labelled::<Gauge>::register(registry, "tls_certificate_expires_timestamp_seconds", help);
    let help = "Times that changed TLS files of a listener could not be used";
    let reload_failures = Labelled::<Counter>::register(registry, "tls_reload_failures", help);
    let help = "1 if TLS files of a listener cannot be used as they are, and earlier versions are in use";
    let outdated = Labelled::<Gauge>::register(registry, "tls_files_outdated", help);
    let failures = Labelled::<Counter>::register(registry, "tls_handshakes_failed", "TLS handshakes that failed");
    for TlsReport { listener, reload_failures: count, is_outdated, expires: time, failures: reasons } in reports {
        let time = time.duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        expires.at(&[("listener", listener)]).set(i64::try_from(time).unwrap_or(i64::MAX));
        reload_failures.at(&[("listener", listener)]).inc_by(*count);
        outdated.at(&[("listener", listener)]).set(i64::from(*is_outdated));
        for (reason, count) in reasons {
            failures.at(&[("listener", listener), ("reason", reason)]).inc_by(*count);
        }
    }
}
