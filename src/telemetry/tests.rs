use std::collections::BTreeSet;

use super::*;
use crate::protocol::ladder::Switches;
use crate::relay::{OrderMetrics, Totals};
use crate::xds::TypeTable;

const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

fn view() -> ViewMetrics {
    let ladder = LadderMetrics {
        authority: "x".into(),
        state: "active",
        seconds: 7,
        servers: vec!["http://one".into(), "http://two".into()],
        active: Some(1),
        switches: Switches { down: 3, up: 2 },
    };
    let totals = Totals { opened: 5, ended: 4, responses: 9, nacks: 1 };
    let server = ServerMetrics { server: "http://two".into(), streams: 2, connected: 1, totals };
    ViewMetrics {
        view: "abc".into(),
        sessions: 4,
        blocked: 2,
        over_absent_limit: 1,
        cached: 6,
        ladders: vec![ladder],
        servers: vec![server],
        dangling: 3,
        order: OrderMetrics { removals: 4, waits: 5, too_large: 6 },
    }
}

fn written(views: &[ViewMetrics]) -> String {
    let table = Arc::new(TypeTable::new());
    let (tally, incidents) = (ProcessCounters::new(table.clone()), Incidents::default());
    tally.nack(None);
    incidents.rejected("http://two", &table.resolve(CDS), &table, 2);
    incidents.rejected("http://two", &table.resolve("made.Up"), &table, 1);
    incidents.rejected("http://two", &table.resolve("also.made.Up"), &table, 1);
    text(&MetricsSnapshot {
        views,
        tally: &tally,
        incidents: &incidents,
        load_bytes: 11,
        unanswered: vec![("http://two".into(), 8)],
    })
}

#[test]
fn a_ladder_says_which_server_serves_and_how_often_that_changed() {
    let text = written(&[view()]);
    for line in [
        "weir_ladder_active{view=\"abc\",authority=\"x\",server=\"http://one\"} 0",
        "weir_ladder_active{view=\"abc\",authority=\"x\",server=\"http://two\"} 1",
        "weir_ladder_standing{view=\"abc\",authority=\"x\",standing=\"active\"} 1",
        "weir_ladder_standing{view=\"abc\",authority=\"x\",standing=\"down\"} 0",
        "weir_ladder_standing_seconds{view=\"abc\",authority=\"x\"} 7",
        "weir_ladder_moves_total{view=\"abc\",authority=\"x\",direction=\"down\"} 3",
        "weir_ladder_moves_total{view=\"abc\",authority=\"x\",direction=\"up\"} 2",
        "weir_upstream_nacks_total{view=\"abc\",server=\"http://two\"} 1",
        "weir_sessions{view=\"abc\"} 4",
        "weir_sessions_waiting{view=\"abc\"} 2",
        "weir_sessions_guessing{view=\"abc\"} 1",
        "weir_clusters_missing{view=\"abc\"} 3",
        "weir_clusters_removed_in_use_total{view=\"abc\"} 4",
        "weir_clusters_awaited_in_vain_total{view=\"abc\"} 5",
        "weir_resources_too_large_to_order_total{view=\"abc\"} 6",
        "weir_names_refused_total 0",
        "weir_client_nacks_total{type=\"other\"} 1",
        "weir_upstream_resources_rejected_total{server=\"http://two\",type=\"envoy.config.cluster.v3.Cluster\"} 2",
        "weir_upstream_resources_rejected_total{server=\"http://two\",type=\"other\"} 2",
        "weir_view_panics_total 0",
        "weir_load_bytes 11",
        "weir_upstream_life_calls_unanswered_total{server=\"http://two\"} 8",
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
fn the_page_has_every_metric_and_no_other() {
    let text = written(&[view()]);
    let kinds = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let named = |(name, kind): (&str, &str)| if kind == "counter" { format!("{name}_total") } else { name.to_owned() };
    let there: BTreeSet<_> = kinds.map(named).collect();
    let page = include_str!("../../docs/metrics.md");
    let told = page.lines().filter_map(|line| line.strip_prefix("| `weir_")?.split_once('`'));
    let told: BTreeSet<_> = told.map(|(name, _)| format!("weir_{name}")).collect();
    assert_eq!(there, told);
    // With its labels: those that a line has stand in the row of the metric.
    for (name, labels) in text.lines().filter_map(|line| line.split_once('{')) {
        let labels = labels.split_once('}').unwrap().0;
        let names: Vec<_> =
            labels.split("\",").filter_map(|label| label.split_once('=')).map(|(name, _)| name).collect();
        let row = page.lines().find(|line| line.starts_with(&format!("| `{name}` |"))).unwrap();
        let columns: Vec<_> = row.split(" | ").collect();
        assert_eq!(columns[1], names.join(", "), "{row}");
    }
}
