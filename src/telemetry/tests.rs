mod cardinality;
mod shared;

use std::collections::BTreeSet;

use weir_core::protocol::ladder::Switches;
use weir_core::protocol::session::{AnswerEffect, ReplyLag};
use weir_core::protocol::view::Forgotten;
use weir_core::protocol::wait::{WaitKind, WaitSubject};
use weir_core::xds::TypeTable;

use super::*;
use crate::downstream::ShardFigures;
use crate::relay::Clock;
use crate::relay::report::{LadderMetrics, OrderMetrics, RemovalMetrics, ServerMetrics, Totals, TypeSize};
use crate::state::StateCounters;
use crate::written::{check_tables, head, row};

const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

fn view() -> ViewMetrics {
    let ladder = LadderMetrics {
        authority: "x".into(),
        state: "active",
        state_seconds: 7,
        servers: vec!["http://one".into(), "http://two".into()],
        active: Some(1),
        switches: Switches { down: 3, up: 2 },
    };
    let totals = Totals { opened: 5, ended: 4, responses: 9, nacks: 1, bytes: 0 };
    let last_response = Some(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_800_000_000));
    let server = ServerMetrics { server: "http://two".into(), streams: 2, connected: 1, last_response, totals };
    ViewMetrics {
        label: Some("abc".into()),
        sessions: 4,
        blocked: 2,
        over_absent_limit: 1,
        cached: 6,
        by_type: [("other".into(), TypeSize { resources: 5, bytes: 500 })].into(),
        from_disk: 2,
        ladders: vec![ladder],
        servers: vec![server],
        dangling: 3,
        order: OrderMetrics { removals: 4, waits: 5, too_large: 6 },
        removals: RemovalMetrics { bytes: 7, forgotten: Forgotten { by_age: 8, by_bytes: 9 } },
    }
}

fn written(views: &[ViewMetrics]) -> String {
    let table = Arc::new(TypeTable::new());
    let (counters, incidents) = (
        ProcessCounters::new(table.clone(), Clock::starting_now()),
        Incidents::with_brakes(["envoy.config.cluster.v3.Cluster"].into_iter()),
    );
    counters.nack(None);
    counters.open_connections.store(3, std::sync::atomic::Ordering::Relaxed);
    (0..5).for_each(|_| counters.client_writes.add_one());
    incidents.rejected("http://two", &table.resolve(CDS), &table, 2);
    incidents.rejected("http://two", &table.resolve("made.Up"), &table, 1);
    incidents.rejected("http://two", &table.resolve("also.made.Up"), &table, 1);
    incidents.upstream("http://two".into(), Totals { opened: 50, ended: 40, responses: 90, nacks: 10, bytes: 0 });
    let (deliveries, kind) = (&counters.deliveries, table.resolve(CDS));
    let lag = ReplyLag { change: Some(std::time::Duration::from_millis(3)), request: None };
    deliveries.sent(deliveries.place(&kind), 10, lag);
    let answered = AnswerEffect { kind, is_ack: true, lag, waited_since: None, waits_since: None };
    deliveries.answered(&answered);
    let mut waits = WaitReport::keeping(0);
    let mut list = waits.list();
    let (age, bound) = (std::time::Duration::from_millis(2500), std::time::Duration::from_secs(1));
    list.add(WaitKind::Ack, age, Some(bound), WaitSubject::default);
    waits.add("abc", Some(1), &[], list);
    incidents.waits.note(&waits.beyond, &crate::relay::AnsweringViews::All);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let health = || WorkerHealth::with_shards(vec![ShardFigures::default()]);
    let (probe, workers) = runtime.block_on(async { (RuntimeProbe::start(), health()) });
    text(&MetricsSnapshot {
        view_count: views.len(),
        key_values: vec![("cluster".into(), 2), ("metadata".into(), 12)],
        views,
        waits: &waits,
        counters: &counters,
        incidents: &incidents,
        buffered_load_bytes: 11,
        stated_versions_bytes: 12,
        cached_bytes: 13,
        book: Book::default(),
        unanswered: vec![("http://two".into(), 8)],
        connections: vec![("http://one".into(), 3)],
        nacking: [("other".into(), 17)].into(),
        servers: vec!["http://one".into(), "http://two".into()],
        files: vec![FilesReport {
            paths: vec!["a".into(), "b.json".into()],
            state: "ready",
            reason: None,
            files: 3,
            resources: 4,
            age_seconds: None,
            load_seconds: None,
            errors: Vec::new(),
        }],
        tls: vec![TlsReport {
            listener: "[::]:18000".into(),
            reload_failures: 2,
            is_outdated: true,
            expires: [("a.pem", 1_900_000_000), ("b.pem", 1_800_000_000)]
                .map(|(file, at)| (file.into(), std::time::UNIX_EPOCH + std::time::Duration::from_secs(at)))
                .to_vec(),
            failures: vec![("expired", 3)],
        }],
        state: Some(&StateCounters::default()),
        config: &config_facts(),
        log_lines_dropped: 18,
        workers: &workers,
        probe: &probe,
    })
}

#[test]
fn a_ladder_says_which_server_serves_and_how_often_that_changed() {
    let text = written(&[view()]);
    for line in [
        "weir_ladder_active{view=\"abc\",authority=\"x\",server=\"http://one\"} 0",
        "weir_ladder_active{view=\"abc\",authority=\"x\",server=\"http://two\"} 1",
        "weir_ladder_state{view=\"abc\",authority=\"x\",state=\"active\"} 1",
        "weir_ladder_state{view=\"abc\",authority=\"x\",state=\"down\"} 0",
        "weir_ladder_switches_total{view=\"abc\",authority=\"x\",direction=\"fallback\"} 3",
        "weir_ladder_switches_total{view=\"abc\",authority=\"x\",direction=\"return\"} 2",
        "weir_upstream_nacks_total{view=\"abc\",server=\"http://two\"} 1",
        "weir_client_streams_open{view=\"abc\"} 4",
        "weir_client_streams_blocked{view=\"abc\"} 2",
        "weir_client_streams_over_absent_limit{view=\"abc\"} 1",
        "weir_clusters_missing{view=\"abc\"} 3",
        "weir_removal_history_bytes{view=\"abc\"} 7",
        "weir_removals_forgotten_total{view=\"abc\",reason=\"age\"} 8",
        "weir_removals_forgotten_total{view=\"abc\",reason=\"bytes\"} 9",
        "weir_clusters_removed_in_use_total{view=\"abc\"} 4",
        "weir_cluster_waits_timed_out_total{view=\"abc\"} 5",
        "weir_resources_not_scanned_total{view=\"abc\"} 6",
        "weir_client_names_rejected_total 0",
        "weir_client_nacks_total{type=\"other\"} 1",
        "weir_client_streams_nacking{type=\"other\"} 17",
        "weir_client_nacks_total{type=\"envoy.config.cluster.v3.Cluster\"} 0",
        "weir_client_streams_rejected_total{reason=\"no_node\"} 0",
        "weir_upstream_resources_rejected_total{server=\"http://one\",type=\"envoy.config.cluster.v3.Cluster\"} 0",
        "weir_upstream_resources_rejected_total{server=\"http://two\",type=\"envoy.config.cluster.v3.Cluster\"} 2",
        "weir_upstream_resources_rejected_total{server=\"http://two\",type=\"other\"} 2",
        "weir_view_panics_total 0",
        "weir_views 1",
        "weir_oldest_wait_seconds{wait=\"ack\"} 2.5",
        "weir_oldest_wait_seconds{wait=\"name\"} 0.0",
        "weir_waits_beyond_bound_total{wait=\"ack\"} 1",
        "weir_waits_beyond_bound_total{wait=\"name\"} 0",
        "weir_client_replies_total{type=\"envoy.config.cluster.v3.Cluster\"} 1",
        "weir_client_reply_bytes_total{type=\"envoy.config.cluster.v3.Cluster\"} 10",
        "weir_client_acks_total{type=\"envoy.config.cluster.v3.Cluster\"} 1",
        "weir_client_acks_total{type=\"other\"} 0",
        "weir_client_streams_unanswered{type=\"other\",seconds=\"60\"} 0",
        "weir_client_reply_sent_lag_seconds_bucket{le=\"0.0025\",type=\"envoy.config.cluster.v3.Cluster\",reply=\"change\"} 0",
        "weir_client_reply_sent_lag_seconds_bucket{le=\"0.005\",type=\"envoy.config.cluster.v3.Cluster\",reply=\"change\"} 1",
        "weir_client_reply_sent_lag_seconds_bucket{le=\"+Inf\",type=\"envoy.config.cluster.v3.Cluster\",reply=\"change\"} 1",
        "weir_client_reply_acked_lag_seconds_count{type=\"envoy.config.cluster.v3.Cluster\",reply=\"change\"} 1",
        "weir_client_reply_acked_lag_seconds_count{type=\"envoy.config.cluster.v3.Cluster\",reply=\"first\"} 0",
        "weir_type_resources{type=\"other\"} 5",
        "weir_type_resource_bytes{type=\"envoy.config.cluster.v3.Cluster\"} 0",
        "weir_upstream_last_response_timestamp_seconds{view=\"abc\",server=\"http://two\"} 1800000000",
        "weir_server_responses_total{server=\"http://one\"} 0",
        "weir_server_nacks_total{server=\"http://two\"} 10",
        "weir_tasks 1",
        "weir_tasks_queued 0",
        "weir_shard_connections{shard=\"0\"} 0",
        "weir_shard_streams{shard=\"0\"} 0",
        "weir_shard_late_rounds_total{shard=\"0\"} 0",
        "weir_shard_poll_seconds_bucket{le=\"0.001\",shard=\"0\"} 0",
        "weir_brake_held_removals{type=\"envoy.config.cluster.v3.Cluster\"} 0",
        "weir_brakes_engaged_total{type=\"envoy.config.cluster.v3.Cluster\"} 0",
        "weir_brake_removals_released_total{type=\"envoy.config.cluster.v3.Cluster\",reason=\"operator\"} 0",
        "weir_key_field_values{field=\"metadata\"} 12",
        "weir_client_connections 3",
        "weir_client_replies_waiting 0",
        "weir_client_writes_total 5",
        "weir_cached_bytes 13",
        "weir_load_reports_buffered_bytes 11",
        "weir_upstream_liveness_calls_unanswered_total{server=\"http://two\"} 8",
        "weir_upstream_connections{server=\"http://one\"} 3",
        "weir_resource_files{source=\"a,b.json\"} 3",
        "weir_tls_certificate_expires_timestamp_seconds{listener=\"[::]:18000\",certificate=\"a.pem\"} 1900000000",
        "weir_tls_certificate_expires_timestamp_seconds{listener=\"[::]:18000\",certificate=\"b.pem\"} 1800000000",
        "weir_tls_reload_failures_total{listener=\"[::]:18000\"} 2",
        "weir_tls_files_outdated{listener=\"[::]:18000\"} 1",
        "weir_tls_handshakes_failed_total{listener=\"[::]:18000\",reason=\"expired\"} 3",
        "weir_resource_file_errors{source=\"a,b.json\"} 0",
    ] {
        assert!(text.lines().any(|written| written == line), "{line} is missing in:\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn nothing_is_left_of_a_view_that_has_gone() {
    assert!(!written(&[]).contains("view="));
}

#[test]
fn views_without_a_label_are_summed_as_other() {
    let other = || ViewMetrics { label: None, ..view() };
    let text = written(&[view(), other(), other()]);
    for line in [
        "weir_client_streams_open{view=\"abc\"} 4",
        "weir_client_streams_open{view=\"other\"} 8",
        "weir_ladder_active{view=\"other\",authority=\"x\",server=\"http://two\"} 2",
        "weir_upstream_responses_total{view=\"other\",server=\"http://two\"} 18",
    ] {
        assert!(text.lines().any(|written| written == line), "{line} is missing in:\n{text}");
    }
    assert!(!text.contains("timestamp_seconds{view=\"other\""), "of several there is no one time");
}

#[test]
fn of_servers_with_one_name_the_latest_response_counts_and_the_rest_is_summed() {
    let mut view = view();
    let earlier = Some(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000));
    view.servers.push(ServerMetrics { last_response: earlier, ..view.servers[0].clone() });
    let text = written(&[view]);
    for line in [
        "weir_upstream_last_response_timestamp_seconds{view=\"abc\",server=\"http://two\"} 1800000000",
        "weir_upstream_streams{view=\"abc\",server=\"http://two\"} 4",
    ] {
        assert!(text.lines().any(|written| written == line), "{line} is missing in:\n{text}");
    }
}

#[test]
fn every_metric_of_the_table_has_a_series() {
    let text = written(&[view()]);
    let kinds = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let kinds = kinds.map(|(name, kind)| if kind == "counter" { format!("{name}_total") } else { name.to_owned() });
    let names: Vec<_> = table::ROWS.iter().map(|row| row.name).collect();
    assert_eq!(kinds.collect::<Vec<_>>(), names, "in the order of the table");
    let unique: BTreeSet<_> = names.iter().collect();
    assert_eq!(unique.len(), names.len());
}

/// The version since which most metrics exist. docs/metrics.md states it once, and states only other versions in the rows.
const FIRST_RELEASE: &str = "0.2.0";

#[test]
fn the_table_of_metrics_is_written_from_that_of_the_program() {
    let line = |of: &metric::Row| {
        let (labels, words) = (of.labels.join(", "), of.doc.trim().split("\n\n").map(joined).collect::<Vec<_>>());
        let kind = of.kind.trim_start_matches("Float").replace("Highest", "Gauge");
        let since = if of.since == FIRST_RELEASE { String::new() } else { format!(". Since {}", of.since) };
        row(&[&format!("`{}`", of.name), &labels, &kind, &(words.join(". ") + &since)])
    };
    check_tables("docs/metrics.md", |what, _| {
        let rows = table::ROWS.iter().map(line);
        (what == "metrics").then(|| head(&["Metric", "Labels", "Kind", "Meaning"]).into_iter().chain(rows).collect())
    });
}

fn joined(lines: &str) -> String {
    lines.lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

fn config_facts() -> ConfigFacts {
    ConfigFacts {
        file: "relay.yaml".into(),
        sha256: "9f86d0".into(),
        bootstrap: None,
        config: serde_json::Value::Null.into(),
        command_line: serde_json::Value::Null,
        read: std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_800_000_000),
        pending: vec!["listen".into()],
        error: None,
        reloads: 4,
        failures: 1,
    }
}
