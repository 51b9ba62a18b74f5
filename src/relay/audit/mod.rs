//! Audits: whether members of a view that its server is not shown would be given the same as the view (`views.audit`).
//!
//! Owns when which view is audited, one at a time, and what was found. Leaves what counts as a difference to the core, and streams to the
//! edge. A finding is only reported: a view is split by the configuration alone.

mod board;
mod content;
mod run;
mod schedule;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use weir_core::protocol::audit::{Differing, NotAuditable};
use weir_core::xds::MemberNode;

pub(crate) use self::board::{AuditBoard, AuditDifference, AuditReport, AuditResult};
use self::run::{Audit, AuditEnd};
use self::schedule::Schedule;
use super::command::{Command, ask};
use super::inspection::{audit_subject, is_finding_over};
use super::views::{Views, audited};
use crate::random::random;
use crate::transcode::Descriptors;

/// Audits each view with several clients once in an interval, while the configuration of this number is the one in use. Never returns.
pub(crate) async fn audit_views(views: &Views, number: u64, interval: Duration, descriptors: &Descriptors) {
    let (mut schedule, board) = (Schedule::every(interval), &views.incidents().audits);
    let mut ticks = tokio::time::interval((interval / 20).clamp(SHORTEST_TICK, LONGEST_TICK));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if !board.is_followed(number) {
            continue;
        }
        let totals = views.incidents().upstream_totals();
        board.note_received(totals.into_iter().map(|(server, of)| (server, of.bytes)), views.shared().clock.now());
        let running = audited::running(views);
        let watched = views.incidents().troubles.views(); // those that run included
        let (shared, moving) = shared_and_moving(watched.iter().map(|of| (&of.view, of.clients())));
        board.retain(&shared);
        end_findings(board, &running, &moving).await;
        let due = running.iter().map(|(view, _)| view.clone()).filter(|view| shared.contains(view));
        schedule.follow(due, Instant::now(), random);
        let Some(view) = schedule.next(Instant::now()) else { continue };
        let Some((_, task)) = running.iter().find(|(of, _)| *of == view) else { continue };
        if moving.contains(&view) {
            schedule.note_not_now(&view, Instant::now());
            continue;
        }
        let turn = board.turn().await;
        if !board.is_followed(number) {
            continue; // another configuration came meanwhile
        }
        let result = audit((views, number), (&view, task), descriptors, interval.min(GAP)).await;
        drop(turn);
        match result {
            None => schedule.note_not_now(&view, Instant::now()),
            Some(AuditResult::Unfinished) => schedule.note_unfinished(&view, Instant::now()),
            Some(AuditResult::Equal | AuditResult::Differs) => schedule.note_audit(&view, Instant::now()),
        }
    }
}

/// Returns the views that several clients share, and those whose clients are moving to a new configuration, since an earlier one has some of them
/// still. The view of the new one may have none yet: its first may come at any moment. `watched` has the views of each configuration in order.
fn shared_and_moving<'a>(
    watched: impl Iterator<Item = (&'a Arc<str>, usize)>,
) -> (BTreeSet<Arc<str>>, BTreeSet<Arc<str>>) {
    let mut clients = BTreeMap::<&Arc<str>, (usize, usize)>::new();
    for (view, here) in watched {
        let (earlier, all) = clients.entry(view).or_default();
        (*earlier, *all) = (*all, *all + here);
    }
    let of = |is: fn(&(usize, usize)) -> bool| {
        clients.iter().filter(|(_, counts)| is(counts)).map(|(view, _)| Arc::clone(view)).collect()
    };
    (of(|(_, all)| *all > 1), of(|(earlier, _)| *earlier > 0))
}

/// Forgets findings that do not hold for the clients that are connected. The next audit may be far off, and have no member to ask for. Views whose
/// clients are moving to a new configuration are left out: the new view does not have all of them yet.
async fn end_findings(board: &AuditBoard, running: &[(Arc<str>, mpsc::Sender<Command>)], moving: &BTreeSet<Arc<str>>) {
    let findings = board.findings();
    if findings.is_empty() {
        return;
    }
    let tasks: BTreeMap<_, _> = running.iter().map(|(view, task)| (view, task)).collect();
    for (view, AuditReport { server, .. }) in findings.into_iter().filter(|(view, _)| !moving.contains(view)) {
        let Some(task) = tasks.get(&view) else { continue };
        if ask(task, move |of| is_finding_over(of, &server)).await == Some(true) {
            board.forget(&view);
        }
    }
}

/// Audits a view. None: that cannot be now.
async fn audit(
    (views, configuration): (&Views, u64),
    (view, task): (&Arc<str>, &mpsc::Sender<Command>),
    descriptors: &Descriptors,
    gap: Duration,
) -> Option<AuditResult> {
    let (shared, board, number) = (views.shared(), &views.incidents().audits, random_number());
    let found = board.member_of_finding(view);
    let subject = match ask(task, move |of| audit_subject(of, found.as_ref(), number)).await {
        Some(Ok(subject)) => subject,
        not_now => {
            if matches!(not_now, Some(Err(NotAuditable::AllEqual | NotAuditable::Relay)))
                && board.is_followed(configuration)
            {
                board.forget(view);
            }
            board.note_not_waiting(view);
            return None;
        }
    };
    let (server, nodes) = (subject.connector.describe(), [subject.shown.clone(), subject.member.clone()]);
    let member = subject.member.clone();
    if shared.memory.is_scarce() || !board.may_begin(&server, view, subject.offer.bytes, shared.clock.now()) {
        return None;
    }
    let mut audit = Audit::begin(shared, (task, subject), descriptors, gap);
    let end = audit.run(gap).await;
    let bytes = audit.bytes();
    drop(audit);
    let result = match end {
        AuditEnd::Equal => {
            board.note_finding(configuration, view, member, report(&server, &BTreeSet::new(), Vec::new()));
            AuditResult::Equal
        }
        AuditEnd::Differs(found) => {
            let report = report(&server, &found, node_fields(nodes, descriptors).await);
            if board.is_followed(configuration) {
                log(view, &report, board.line());
            }
            board.note_finding(configuration, view, member, report);
            AuditResult::Differs
        }
        AuditEnd::Unfinished(why) => {
            tracing::debug!(view = &**view, server, reason = why.words(), "audit of a view not finished");
            AuditResult::Unfinished
        }
    };
    board.note_end(result, &server, bytes, shared.clock.now());
    Some(result)
}

fn report(server: &str, found: &BTreeSet<Differing>, node_fields: Vec<String>) -> AuditReport {
    let shown = |of: &Differing| AuditDifference {
        kind: of.kind.name().to_owned(),
        name: of.name.to_string(),
        path: of.path.clone(),
    };
    AuditReport {
        server: server.to_owned(),
        differences: found.iter().take(SHOWN).map(shown).collect(),
        differences_count: found.len(),
        node_fields,
    }
}

/// Returns the fields in which the nodes differ, in the words of sharing keys.
async fn node_fields(nodes: [MemberNode; 2], descriptors: &Descriptors) -> Vec<String> {
    let descriptors = descriptors.clone();
    let compared = tokio::task::spawn_blocking(move || {
        let nodes = nodes.map(|node| node.encoded());
        descriptors().differing_node_fields(&nodes)
    });
    compared.await.unwrap_or_default().into_iter().take(SHOWN).collect()
}

fn log(view: &str, report: &AuditReport, line: Option<u64>) {
    let (Some(unlogged), Some(first)) = (line, report.differences.first()) else { return };
    let AuditReport { server, differences_count: count, node_fields, .. } = report;
    let (type_url, resource, path, fields) = (&*first.kind, &*first.name, &*first.path, node_fields.join(", "));
    tracing::warn!(
        view,
        server,
        type_url,
        resource,
        path,
        count,
        fields,
        unlogged,
        "clients that share a view are not given the same; the key lacks a field"
    );
}

/// The seeds of hash maps are random enough to choose by.
fn random_number() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// The least time between two comparisons that count, unless the interval is shorter.
const GAP: Duration = Duration::from_secs(30);
const SHORTEST_TICK: Duration = Duration::from_millis(50);
const LONGEST_TICK: Duration = Duration::from_secs(5);
/// How many differences and fields are shown.
const SHOWN: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_that_a_reload_moves_are_counted_at_both_places() {
        let [one, moves, idle, crowd, moved] = ["one", "moves", "idle", "crowd", "moved"].map(Arc::<str>::from);
        let before = [(&one, 1), (&moves, 1), (&idle, 0), (&crowd, 2), (&moved, 0)];
        let after = [(&moves, 1), (&crowd, 0), (&moved, 2)];
        let (shared, moving) = shared_and_moving(before.into_iter().chain(after));
        assert_eq!(shared, [&moves, &crowd, &moved].map(Arc::clone).into());
        assert_eq!(moving, [moves, crowd].into(), "the new view of the crowd may have its first client at any moment");
    }
}
