//! Metrics of TLS towards clients.

use super::page::Page;
use super::table::*;
use super::unix_seconds;
use crate::tls::TlsReport;

pub(super) fn add(page: &mut Page, reports: &[TlsReport]) {
    for TlsReport { listener, reload_failures, is_outdated, expires, failures } in reports {
        for (certificate, expires) in expires {
            page.add(TLS_CERTIFICATE_EXPIRES_TIMESTAMP_SECONDS, [listener, certificate], unix_seconds(*expires));
        }
        page.add(TLS_RELOAD_FAILURES, [listener], *reload_failures);
        page.add(TLS_FILES_OUTDATED, [listener], (*is_outdated).into());
        for (reason, count) in failures {
            page.add(TLS_HANDSHAKES_FAILED, [listener, reason], *count);
        }
    }
}
