//! The dashboard and the alert rules in `deploy` use metrics and labels that the relay has.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use regex::Regex;
use serde_json::Value;

/// Returns the documented metrics with their labels. A histogram counts as the names of its series.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let page = fs::read_to_string("docs/metrics.md").unwrap();
    let mut metrics = BTreeMap::new();
    for row in page.lines().filter_map(|line| line.strip_prefix("| `")) {
        let (name, rest) = row.split_once('`').unwrap();
        let columns: Vec<_> = rest.split(" | ").collect();
        let labels: BTreeSet<String> =
            columns[1].split(',').map(|label| label.trim().to_owned()).filter(|label| !label.is_empty()).collect();
        if columns[2].starts_with("Histogram") {
            for series in ["_sum", "_count"] {
                metrics.insert(format!("{name}{series}"), labels.clone());
            }
            metrics.insert(format!("{name}_bucket"), labels.into_iter().chain(["le".into()]).collect());
        } else {
            metrics.insert(name.to_owned(), labels);
        }
    }
    assert!(metrics.len() > 70 && metrics.contains_key("weir_client_reply_acked_lag_seconds_bucket"));
    metrics
}

/// Labels that Prometheus adds to each series.
const OF_PROMETHEUS: [&str; 2] = ["instance", "job"];

/// Returns the faults of an expression and of the texts that show its result.
fn faults_of(expression: &str, shown: &[&str], metrics: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let series = Regex::new(r"((?:weir|process)_[a-z0-9_]+)(?:\{([^}]*)\})?").unwrap();
    let matcher = Regex::new(r#"([a-z_]+) *(?:=~|!~|!=|=) *"[^"]*""#).unwrap();
    let grouping = Regex::new(r"by \(([^)]*)\)").unwrap();
    let placeholder = Regex::new(r"\{\{ *(?:\$labels\.)?([a-z_]+) *\}\}").unwrap();
    let (mut faults, mut known) = (Vec::new(), BTreeSet::from(OF_PROMETHEUS.map(str::to_owned)));
    for found in series.captures_iter(expression) {
        let Some(labels) = metrics.get(&found[1]) else {
            faults.push(format!("no metric {}", &found[1]));
            continue;
        };
        for label in matcher.captures_iter(found.get(2).map_or("", |of| of.as_str())) {
            if !labels.contains(&label[1]) && !OF_PROMETHEUS.contains(&&label[1]) {
                faults.push(format!("{} has no label {}", &found[1], &label[1]));
            }
        }
        known.extend(labels.iter().cloned());
    }
    let mut left = known.clone();
    for group in grouping.captures_iter(expression) {
        let by: BTreeSet<String> = group[1].split(',').map(|label| label.trim().to_owned()).collect();
        faults.extend(by.difference(&known).map(|label| format!("no metric has the label {label}")));
        left = by;
    }
    for text in shown {
        let labels = placeholder.captures_iter(text).map(|found| found[1].to_owned());
        faults
            .extend(labels.filter(|label| !left.contains(label)).map(|label| format!("{label} is not in the result")));
    }
    if !series.is_match(expression) {
        faults.push("no metric at all".into());
    }
    faults
}

#[test]
fn the_check_finds_each_sort_of_fault() {
    let metrics = documented();
    let faults = |expression, shown: &[&str]| faults_of(expression, shown, &metrics).join("; ");
    assert_eq!(faults("sum by (type) (rate(weir_client_nacks_total{type=\"x\"}[5m]))", &["{{type}}"]), "");
    assert_eq!(faults("weir_client_nacks", &[]), "no metric weir_client_nacks");
    assert_eq!(faults("weir_views{view=\"x\"}", &[]), "weir_views has no label view");
    assert_eq!(faults("sum by (server) (weir_views)", &[]), "no metric has the label server");
    assert_eq!(faults("sum by (view) (weir_resources)", &["{{ $labels.type }}"]), "type is not in the result");
    assert_eq!(faults("vector(1)", &[]), "no metric at all");
}

#[test]
fn the_alert_rules_use_documented_metrics_and_labels() {
    let rules: Value =
        serde_saphyr::from_str(&fs::read_to_string("deploy/prometheus/weir-alerts.yaml").unwrap()).unwrap();
    let (metrics, mut names) = (documented(), BTreeSet::new());
    let paths = Regex::new(r"(docs/[a-z-]+\.md)").unwrap();
    for rule in rules["groups"][0]["rules"].as_array().unwrap() {
        let (name, expression) = (rule["alert"].as_str().unwrap(), rule["expr"].as_str().unwrap());
        assert!(names.insert(name), "{name} is there twice");
        let texts = ["summary", "description"].map(|text| rule["annotations"][text].as_str().unwrap());
        assert_eq!(faults_of(expression, &texts, &metrics), Vec::<String>::new(), "{name}");
        assert!(matches!(rule["labels"]["severity"].as_str(), Some("page" | "ticket")), "{name}");
        for path in texts.iter().flat_map(|text| paths.captures_iter(text)) {
            assert!(fs::exists(&path[1]).unwrap(), "{name}: {}", &path[1]);
        }
    }
    let page = fs::read_to_string("docs/metrics.md").unwrap();
    assert!(page.contains("deploy/prometheus/weir-alerts.yaml") && names.len() >= 15);
}

#[test]
fn the_dashboard_uses_documented_metrics_and_labels() {
    let board: Value = serde_json::from_str(&fs::read_to_string("deploy/grafana/weir.json").unwrap()).unwrap();
    let (metrics, mut count, mut identities) = (documented(), 0, BTreeSet::new());
    for panel in board["panels"].as_array().unwrap() {
        assert!(identities.insert(panel["id"].as_u64().unwrap()), "{panel}");
        for target in panel["targets"].as_array().into_iter().flatten() {
            let (expression, legend) = (target["expr"].as_str().unwrap(), target["legendFormat"].as_str().unwrap());
            // Grafana fills in this matcher.
            assert!(expression.contains("instance=~\"$instance\""), "{expression}");
            assert_eq!(faults_of(expression, &[legend], &metrics), Vec::<String>::new(), "{}", panel["title"]);
            count += 1;
        }
    }
    assert!(count > 30);
    let relays = board["templating"]["list"][1]["query"]["query"].as_str().unwrap();
    assert_eq!(relays, "label_values(weir_build_info, instance)");
}

/// Checks the example of a collector for traces, metrics and logs.
#[test]
fn each_pipeline_of_the_collector_names_parts_that_it_has_and_all_three_signals_are_there() {
    let collector: Value = serde_saphyr::from_str(&fs::read_to_string("deploy/otel/collector.yaml").unwrap()).unwrap();
    let pipelines = collector["service"]["pipelines"].as_object().unwrap();
    assert_eq!(pipelines.keys().collect::<Vec<_>>(), ["logs", "metrics", "traces"]);
    for (signal, parts) in pipelines.values().flat_map(|pipeline| pipeline.as_object().unwrap()) {
        for part in parts.as_array().unwrap() {
            let name = part.as_str().unwrap();
            assert!(collector[signal].as_object().unwrap().contains_key(name), "{signal} lack {name}");
        }
    }
    let scraped =
        &collector["receivers"]["prometheus"]["config"]["scrape_configs"][0]["static_configs"][0]["targets"][0];
    assert_eq!(scraped, "127.0.0.1:19000");
}
