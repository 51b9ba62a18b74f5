//! A running relay's problems in a few lines, each with the command that shows more.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::admin::{AdminArgs, AdminError};
use super::{problems, seconds};
use crate::plural::plural;

/// The beginning of `weir status` and `weir top`.
#[derive(Debug, Default)]
pub(super) struct Summary {
    state: String,
    uptime: f64,
    views: usize,
    /// Views with a ladder that has no active server, or not the first of its list.
    without_server: BTreeSet<String>,
    open: u64,
    /// How many clients lack something, up to [`MOST`], and for how long the first of them has.
    behind: u64,
    longest: f64,
    /// The clients that lack something, the longest first.
    laggards: Vec<Value>,
    nacked_types: u64,
    held: u64,
    dangling: BTreeSet<String>,
    /// The page of problems.
    problems: Value,
}

impl Summary {
    /// Asks the relay. The caller has read the page of the views. `/nacks` goes through all clients, so it is requested only for JSON, which alone
    /// shows it.
    pub(super) async fn ask(relay: &AdminArgs, upstreams: &Value, is_json: bool) -> Result<Self, AdminError> {
        let info = relay.get("/server_info", &[]).await?;
        let laggards = relay.get("/laggards", &[("limit", MOST)]).await?;
        let problems = relay.get("/problems", &[]).await?;
        let mut others = [const { Value::Null }; 3];
        if is_json {
            others = [
                relay.get("/nacks", &[("nacked", "1"), ("limit", "1")]).await?,
                relay.get("/brakes", &[]).await?,
                relay.get("/dangling", &[]).await?,
            ];
        }
        Ok(Self { problems, ..Self::of(&info, upstreams, &laggards, others.each_ref()) })
    }

    fn of(info: &Value, upstreams: &Value, laggards: &Value, [nacks, brakes, dangling]: [&Value; 3]) -> Self {
        let list = |page: &Value| page.as_array().cloned().unwrap_or_default();
        let views = list(upstreams);
        let is_away = |ladder: &Value| matches!(ladder["state"].as_str(), Some("cached" | "down"));
        let away = views.iter().filter(|view| list(&view["authorities"]).iter().any(is_away));
        let behind = list(&laggards["clients"]);
        // A removal counts once, however many servers have made it. The page may not have all sets.
        let held_of =
            |key: &str| list(&brakes[key]).into_iter().filter_map(|of| of["held"].as_u64()).collect::<Vec<_>>();
        let held = held_of("sets").iter().sum::<u64>().max(held_of("servers").into_iter().max().unwrap_or_default());
        let names = |page: &Value, key: &str| {
            list(page).iter().filter_map(|row| row[key].as_str().map(str::to_owned)).collect::<BTreeSet<_>>()
        };
        Self {
            state: info["state"].as_str().unwrap_or("unknown").to_owned(),
            uptime: info["uptime_seconds"].as_f64().unwrap_or_default(),
            views: views.iter().filter(|view| view["view"] != "shared").count(),
            without_server: away.filter_map(|view| view["view"].as_str().map(str::to_owned)).collect(),
            open: laggards["open"].as_u64().unwrap_or_default(),
            behind: behind.len() as u64,
            longest: behind.iter().filter_map(|client| client["behind_seconds"].as_f64()).fold(0.0, f64::max),
            laggards: behind,
            nacked_types: nacks["total"].as_u64().unwrap_or_default(),
            held,
            dangling: names(dangling, "cluster"),
            problems: Value::Null,
        }
    }

    /// Whether clients lack something.
    pub(super) fn has_laggards(&self) -> bool {
        self.behind > 0
    }

    /// Returns at most `most` clients, those that have lacked something for longest.
    pub(super) fn laggards(&self, most: usize) -> &[Value] {
        &self.laggards[..self.laggards.len().min(most)]
    }

    /// Returns the first line, and one for each of the worst problems, with the command that shows more about it.
    pub(super) fn text(&self, relay: &AdminArgs) -> String {
        let (streams, views) = (plural(self.open as usize, "client stream"), plural(self.views, "view"));
        let mut lines =
            vec![format!("{}, up {}: {streams} in {views}", self.state.replace('_', " "), seconds(self.uptime))];
        if self.behind > 0 {
            let more = if self.behind.to_string() == MOST { " or more" } else { "" };
            let behind = plural(self.behind as usize, "client stream");
            let top = problems::next(&json!({"next": ["weir", "top"]}), relay);
            lines.push(format!("{behind}{more} lacking something, the first for {} -> {top}", seconds(self.longest)));
        }
        let problems: Vec<_> = self.problems["problems"].as_array().into_iter().flatten().take(WORST).collect();
        let all = problems::next(&json!({"next": ["weir", "problems"]}), relay);
        // The reader is already using `weir status`.
        let next =
            |of: &Value| if of["next"] == json!(["weir", "status"]) { all.clone() } else { problems::next(of, relay) };
        lines.extend(problems.iter().map(|of| format!("{} -> {}", problems::line(of), next(of))));
        let more = (self.problems["count"].as_u64().unwrap_or_default() as usize).saturating_sub(problems.len());
        if more > 0 {
            lines.push(format!("and {} -> {all}", plural(more, "more problem")));
        }
        lines.join("\n") + "\n"
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "state": self.state,
            "uptime_seconds": self.uptime,
            "clients": self.open,
            "views": self.views,
            "views_without_server": self.without_server,
            "behind": self.behind,
            "behind_seconds": (self.behind > 0).then_some(self.longest),
            "nacked_types": self.nacked_types,
            "held_removals": self.held,
            "dangling_clusters": self.dangling,
            "problems": self.problems,
        })
    }
}

/// The number of problems that are shown at the beginning.
const WORST: usize = 10;
/// How many laggards to count.
const MOST: &str = "1000";

#[cfg(test)]
mod tests {
    use super::super::endpoint::TlsArgs;
    use super::*;

    #[test]
    fn each_problem_has_a_line_with_its_command_and_what_is_well_has_none() {
        let relay = AdminArgs::of("--admin", "http://127.0.0.1:19000".into(), TlsArgs::default());
        let info = json!({"state": "ready", "uptime_seconds": 75});
        let view = |name: &str, state: &str| json!({"view": name, "authorities": [{"state": state}]});
        let none = json!([]);
        let well = Summary::of(
            &info,
            &json!([view("a", "active")]),
            &json!({"open": 2, "clients": []}),
            [&json!({"total": 0}), &json!({}), &none],
        );
        assert_eq!(well.text(&relay), "ready, up 1m 15s: 2 client streams in 1 view\n");
        assert!(!well.has_laggards());
        let laggards = json!({"open": 2, "clients": [{"behind_seconds": 42.3}, {"behind_seconds": 1.0}]});
        let brakes = json!({"servers": [{"held": 480}, {"held": 480}], "sets": [{"held": 480}]});
        let dangling = json!([{"cluster": "nowhere"}, {"cluster": "nowhere"}]);
        let views = json!([view("a", "cached"), view("b", "down"), view("c", "active")]);
        let ill = Summary::of(&info, &views, &laggards, [&json!({"total": 1}), &brakes, &dangling]);
        let away = json!({"title": "server away", "subject": "http://cp:1", "views": {"count": 2, "first": []}, "clients": 9,
            "since_seconds": 12.0, "next": ["weir", "status"]});
        let problems = json!({"problems": vec![away; 11], "count": 14});
        let text = Summary { problems, ..ill }.text(&relay);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines[..3],
            [
                "ready, up 1m 15s: 2 client streams in 3 views",
                "2 client streams lacking something, the first for 42s -> weir top",
                "server away: http://cp:1: 2 views, 9 client streams, for 12s -> weir problems",
            ]
        );
        assert_eq!((lines.len(), lines[12]), (13, "and 4 more problems -> weir problems"));
    }
}
