//! Metrics of the relay: its views, types, brakes and files.

use super::MetricsSnapshot;
use super::page::Page;
use super::table::*;
use crate::build_facts;
use crate::memory::Book;
use crate::relay::{AuditBoard, BrakeWatch};

pub(super) fn add(page: &mut Page, snapshot: &MetricsSnapshot<'_>) {
    page.add(BUILD_INFO, [build_facts::VERSION], 1);
    page.count(VIEWS, [], snapshot.view_count);
    page.add(METRICS_VIEWS_LEFT_OUT, [], snapshot.counters.metrics_views_left_out());
    for (field, count) in &snapshot.key_values {
        page.add(KEY_FIELD_VALUES, [field], i64::try_from(*count).unwrap_or(i64::MAX));
    }
    page.add(VIEW_PANICS, [], snapshot.incidents.view_panics());
    page.add(LOG_LINES_DROPPED, [], snapshot.log_lines_dropped);
    for (kind, count) in snapshot.incidents.problems.counts() {
        page.count(PROBLEMS, [kind.word()], count);
    }
    page.count(CACHED_BYTES, [], snapshot.cached_bytes);
    add_memory(page, &snapshot.book);
    add_types(page, snapshot);
    add_brakes(page, &snapshot.incidents.brakes);
    add_audits(page, &snapshot.incidents.audits);
    for source in &snapshot.files {
        let name = source.name();
        page.count(RESOURCE_FILES, [&name], source.files);
        page.count(RESOURCE_FILE_ERRORS, [&name], source.errors.len());
    }
}

fn add_memory(page: &mut Page, book: &Book) {
    page.count(MEMORY_BUDGET_BYTES, [], book.budget);
    page.count(MEMORY_CHARGED_BYTES, ["clients"], book.clients);
    page.count(MEMORY_CHARGED_BYTES, ["common"], book.common);
    page.count(MEMORY_BOOK_BYTES, [], book.charged);
    page.count(MEMORY_LIVE_BYTES, [], book.live);
    page.add(MEMORY_CORRECTION, [], book.scale as f64 / 1000.0);
    page.add(MEMORY_STREAMS_ENDED, [], book.given_way);
}

fn add_types(page: &mut Page, snapshot: &MetricsSnapshot<'_>) {
    for kind in snapshot.counters.type_names() {
        page.count(TYPE_RESOURCES, [kind], 0);
        page.count(TYPE_RESOURCE_BYTES, [kind], 0);
    }
    for (kind, size) in snapshot.views.iter().flat_map(|view| &view.by_type) {
        page.count(TYPE_RESOURCES, [kind], size.resources);
        page.count(TYPE_RESOURCE_BYTES, [kind], size.bytes);
    }
}

fn add_audits(page: &mut Page, audits: &AuditBoard) {
    for (result, count) in audits.ends() {
        page.add(AUDITS, [result.word()], count);
    }
    page.count(AUDIT_VIEWS_DIFFERING, [], audits.findings().len());
    page.add(AUDIT_RECEIVED_BYTES, [], audits.bytes());
}

fn add_brakes(page: &mut Page, brakes: &BrakeWatch) {
    for (kind, count) in brakes.held() {
        page.count(BRAKE_HELD_REMOVALS, [&kind], count);
    }
    for (kind, count) in brakes.engaged() {
        page.add(BRAKES_ENGAGED, [&kind], count);
    }
    for ((kind, reason), count) in brakes.released() {
        page.add(BRAKE_REMOVALS_RELEASED, [&kind, reason.name()], count);
    }
}
