//! The content of the page at one moment. All lists are limited, and state how many entries are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use serde::Serialize;
use serde_json::{Value as Json, json};

use crate::admin::AdminContext;
use crate::admin::server_info::state;
use crate::build_facts;
use crate::relay::{Census, LAGS, NackQuery, ServerMetrics, StateCounts, ViewMetrics, ViewReport, questions};
use crate::telemetry::resident_bytes;
use crate::view_words::view_words;

/// Returns the picture as JSON on one line.
pub(super) async fn of(shown: &AdminContext, instance: &str) -> Vec<u8> {
    let views = &shown.views;
    let (census, laggards) = questions::census(views, ROWS).await;
    let (view_count, measures) = questions::metrics(views).await;
    let mut reports = questions::report(views).await;
    reports.sort_by(|one, other| other.clients.cmp(&one.clients).then_with(|| one.view.cmp(&other.view)));
    let more_views = reports.len().saturating_sub(ROWS);
    let errors = errors_of(&reports);
    // NACKs are only counted if there are any: counting them visits every client.
    let nacking = questions::nacking_streams(views).values().any(|count| *count > 0);
    let nacks = match nacking {
        true => questions::nacks(views, NackQuery { nacked: true, limit: ROWS, ..NackQuery::default() }).await.types,
        false => Vec::new(),
    };
    let mut brakes = questions::brakes(views).await;
    brakes.sets.truncate(ROWS);
    let dangles = measures.iter().any(|view| view.dangling > 0);
    let mut dangling = if dangles { questions::dangling(views).await } else { Vec::new() };
    let more_dangling = dangling.len().saturating_sub(ROWS);
    dangling.truncate(ROWS);
    let (nacks, brakes, dangling) = (json!(nacks), json!(brakes), json!(dangling));
    let picture = json!({
        "view_words": words_of(&reports, &[nacks.clone(), brakes["sets"].clone(), dangling.clone()]),
        "at": humantime::format_rfc3339_millis(SystemTime::now()).to_string(),
        "relay": relay(shown, instance),
        "problems": views.incidents().problems.page(ROWS, Instant::now()),
        "totals": totals(shown, &census, view_count, &measures),
        "servers": servers(shown, &measures, &errors),
        "views": reports.iter().take(ROWS).map(|report| view(report, &census)).collect::<Vec<_>>(),
        "more_views": more_views,
        "types": types(&census),
        "lags": lags(&census),
        "laggards": laggards,
        "nacks": nacks,
        "brakes": brakes,
        "dangling": dangling,
        "more_dangling": more_dangling,
    });
    serde_json::to_vec(&picture).unwrap_or_default()
}

fn relay(shown: &AdminContext, instance: &str) -> Json {
    let readiness = shown.views.readiness();
    let (reasons, _) = readiness.reasons(false, ROWS); // strict readiness adds only problems, which the picture lists anyway
    let facts = shown.config.get();
    json!({
        "instance": instance,
        "version": build_facts::VERSION,
        "commit": build_facts::COMMIT,
        "state": state(readiness),
        "reasons": reasons.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "uptime_seconds": shown.info.since.elapsed().as_secs(),
        "changes_at": changes_at(&facts.config, &facts.file),
    })
}

/// Returns the address that takes changes, as commands name it; `None` if no address does.
fn changes_at(config: &Json, file: &Path) -> Option<String> {
    let admin = &config["admin"];
    let socket = admin["socket"].as_str().map(|socket| file.parent().unwrap_or(Path::new("")).join(socket));
    let may_change = admin["tls"]["may_change"].as_array().is_some_and(|who| !who.is_empty());
    let address = admin["address"].as_str().filter(|_| may_change);
    socket.map(|socket| format!("unix:{}", socket.display())).or_else(|| Some(format!("https://{}", address?)))
}

/// Returns the names of the views in `named`, by which operators know them.
fn words_of(reports: &[ViewReport], named: &[Json]) -> BTreeMap<String, String> {
    let named: BTreeSet<_> = named
        .iter()
        .flat_map(|list| list.as_array().into_iter().flatten())
        .filter_map(|row| row["view"].as_str())
        .collect();
    let of = |report: &ViewReport| {
        let fields = report.key_fields.iter().map(|(field, value)| (&**field, &**value));
        (report.view.clone(), view_words(fields))
    };
    reports.iter().filter(|report| named.contains(&*report.view)).map(of).collect()
}

fn totals(shown: &AdminContext, census: &Census, views: usize, measures: &[ViewMetrics]) -> Json {
    let counters = shown.views.counters();
    let deliveries = counters.deliveries.counts();
    let upstream = shown.views.incidents().upstream_totals();
    json!({
        "clients": census.clients,
        "connections": counters.connections(),
        "states": states(census),
        "views": views,
        "resources": measures.iter().map(|view| view.cached).sum::<usize>(),
        "cached_bytes": shown.views.cached_bytes(),
        "memory_bytes": resident_bytes(),
        "replies": deliveries.iter().map(|of| of.replies).sum::<u64>(),
        "reply_bytes": deliveries.iter().map(|of| of.bytes).sum::<u64>(),
        "acks": deliveries.iter().map(|of| of.acks).sum::<u64>(),
        "nacks": counters.nacks().values().sum::<u64>(),
        "responses": upstream.values().map(|of| of.responses).sum::<u64>(),
        "streams_accepted": counters.streams().iter().map(|(_, count)| count).sum::<u64>(),
        "streams_rejected": counters.rejections().map(|(_, count)| count).sum::<u64>(),
    })
}

/// Returns the states of all clients.
fn states(census: &Census) -> StateCounts {
    census.views.values().fold(StateCounts::default(), |sum, of| sum + *of)
}

#[derive(Serialize)]
struct Server<'a> {
    server: &'a str,
    connections: usize,
    streams: usize,
    connected: usize,
    last_response_seconds: Option<f64>,
    error: Option<&'a str>,
}

/// Returns the servers of the configuration, in its order, summed over all views.
fn servers<'a>(shown: &AdminContext, measures: &[ViewMetrics], errors: &BTreeMap<&'a str, &'a str>) -> Json {
    let connections: BTreeMap<_, _> = questions::upstream_connections(&shown.views).collect();
    let names: Vec<_> = shown.views.servers().collect();
    let of = |name: &String| {
        let all: Vec<&ServerMetrics> =
            measures.iter().flat_map(|view| &view.servers).filter(|of| of.server == *name).collect();
        let last = all.iter().filter_map(|of| of.last_response).max();
        let since = |last| SystemTime::now().duration_since(last).unwrap_or(Duration::ZERO).as_secs_f64();
        json!(Server {
            server: name,
            connections: connections.get(name).copied().unwrap_or_default(),
            streams: all.iter().map(|of| of.streams).sum(),
            connected: all.iter().map(|of| of.connected).sum(),
            last_response_seconds: last.map(since),
            error: errors.get(name.as_str()).copied(),
        })
    };
    names.iter().map(of).collect()
}

/// Returns the last error of each server whose stream is not connected.
fn errors_of(reports: &[ViewReport]) -> BTreeMap<&str, &str> {
    let lost = reports.iter().flat_map(|view| &view.streams).filter(|stream| !stream.connected);
    lost.filter_map(|stream| Some((stream.server.as_str(), stream.last_error.as_deref()?))).collect()
}

fn view(report: &ViewReport, census: &Census) -> Json {
    let ladders = report.authorities.iter().map(|of| {
        json!({
            "authority": of.authority,
            "state": of.state,
            "server": of.server,
            "state_seconds": of.state_seconds,
            "reason": of.reason,
        })
    });
    let servers: std::collections::BTreeSet<_> =
        report.streams.iter().filter(|stream| stream.connected).map(|stream| &stream.server).collect();
    json!({
        "view": report.view,
        "key_fields": report.key_fields,
        "clients": report.clients,
        "states": census.views.get(&report.view).copied().unwrap_or_default(),
        "ladders": ladders.collect::<Vec<_>>(),
        "from_disk": report.from_disk,
        "resources": report.cached.values().sum::<usize>(),
        "servers": servers,
    })
}

fn types(census: &Census) -> Vec<Json> {
    let of = |(kind, spread): (&weir_core::xds::Type, &crate::relay::Spread)| {
        json!({
            "type": kind.name(),
            "clients": spread.clients,
            "sent": spread.sent,
            "acked": spread.acked,
            "nacked": spread.nacked,
            "spreading_seconds": spread.behind_seconds,
        })
    };
    // Clients can invent types, so the list is limited to those with the most clients.
    let mut all: Vec<_> = census.types.iter().collect();
    all.sort_by_key(|(_, spread)| std::cmp::Reverse(spread.clients));
    all.into_iter().take(ROWS).map(of).collect()
}

fn lags(census: &Census) -> Vec<Json> {
    let limits = LAGS.iter().copied().map(Some).chain([None]);
    limits.zip(census.lags).map(|(limit, clients)| json!({"up_to_seconds": limit, "clients": clients})).collect()
}

/// The maximum number of rows of a list.
const ROWS: usize = 20;

#[cfg(test)]
mod tests {
    use weir_core::xds::TypeTable;

    use super::*;
    use crate::relay::{AuthorityReport, Spread, StreamReport};

    fn stream(server: &str, connected: bool, last_error: Option<&str>) -> StreamReport {
        StreamReport {
            server: server.into(),
            connected,
            variant: "delta",
            responses: 1,
            last_error: last_error.map(str::to_owned),
            liveness_call: None,
            liveness_unrouted: None,
            types: Vec::new(),
        }
    }

    fn report(name: &str, streams: Vec<StreamReport>) -> ViewReport {
        let authority = |name: &str, state: &'static str, server: Option<&str>| AuthorityReport {
            authority: name.into(),
            state,
            server: server.map(str::to_owned),
            state_seconds: 7,
            reason: Some("refused".into()),
            missing: Vec::new(),
            missing_count: 0,
            fallbacks: 0,
            returns: 0,
        };
        ViewReport {
            view: name.into(),
            key_fields: BTreeMap::from([("cluster".into(), "web".into())]),
            node: String::new(),
            shown_client: None,
            clients: 3,
            cached: BTreeMap::from([("one".into(), 5), ("two".into(), 6)]),
            from_disk: None,
            authorities: vec![authority("", "active", Some("two")), authority("x", "down", None)],
            streams,
            audit: None,
        }
    }

    fn census() -> Census {
        let of = StateCounts { synced: 1, stale: 2, ..StateCounts::default() };
        let other = StateCounts { synced: 1, not_sent: 1, nacked: 4, ..StateCounts::default() };
        let mut census = Census::with_laggards(ROWS);
        (census.lags[0], census.lags[LAGS.len()]) = (3, 9);
        census.views = BTreeMap::from([("a".to_owned(), of), ("b".to_owned(), other)]);
        census
    }

    #[test]
    fn an_error_is_of_a_stream_that_is_not_connected_in_whichever_view() {
        let reports = [
            report("a", vec![stream("one", true, Some("old")), stream("two", false, Some("reset"))]),
            report("b", vec![stream("three", false, None), stream("four", false, Some("refused"))]),
        ];
        assert_eq!(errors_of(&reports), BTreeMap::from([("two", "reset"), ("four", "refused")]));
    }

    #[test]
    fn a_view_has_its_own_clients_its_ladders_and_the_servers_that_are_connected() {
        let streams = vec![stream("two", true, None), stream("one", false, None), stream("two", true, None)];
        let shown = view(&report("b", streams), &census());
        assert_eq!(shown["servers"], json!(["two"]));
        assert_eq!((&shown["clients"], &shown["resources"]), (&json!(3), &json!(11)));
        assert_eq!(shown["states"], json!({"SYNCED": 1, "NOT_SENT": 1, "STALE": 0, "NACKED": 4}));
        assert_eq!(shown["ladders"][1]["authority"], "x");
        assert_eq!((&shown["ladders"][0]["server"], &shown["ladders"][1]["server"]), (&json!("two"), &Json::Null));
        let unknown = view(&report("c", Vec::new()), &census());
        assert_eq!(unknown["states"], json!({"SYNCED": 0, "NOT_SENT": 0, "STALE": 0, "NACKED": 0}));
        let all = StateCounts { synced: 2, not_sent: 1, stale: 2, nacked: 4 };
        assert_eq!(states(&census()), all, "of all views");
    }

    #[test]
    fn types_that_most_clients_have_are_first_and_the_last_lag_has_no_limit() {
        let (table, mut census) = (TypeTable::new(), census());
        for number in 0..ROWS + 5 {
            let kind = table.resolve(&format!("type.googleapis.com/own.T{number:02}"));
            census.types.insert(kind, Spread { clients: number, ..Spread::default() });
        }
        let shown = types(&census);
        let last = format!("own.T{}", ROWS + 4);
        assert_eq!((shown.len(), &shown[0]["type"], &shown[0]["clients"]), (ROWS, &json!(last), &json!(ROWS + 4)));
        assert_eq!(shown[ROWS - 1]["clients"], 5);
        let lags = lags(&census);
        assert_eq!(lags.first(), Some(&json!({"up_to_seconds": LAGS[0], "clients": 3})));
        assert_eq!(lags.last(), Some(&json!({"up_to_seconds": null, "clients": 9})));
    }
}
