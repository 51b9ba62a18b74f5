//! The list of problems: a problem is listed soon after it begins, and removed soon after it ends. The command that it names works.

mod process;
mod views;

use std::time::Instant;

use serde_json::Value;

use super::status::weir;
use super::*;

/// How soon a problem has to be listed, and how soon removed. The machine may be busy with other tests.
const SOON: Duration = Duration::from_secs(2);
const GONE: Duration = Duration::from_secs(5);
const SLACK: Duration = Duration::from_secs(6);

async fn page(admin: SocketAddr) -> Value {
    serde_json::from_str(&get(admin, "/problems").await).unwrap()
}

/// Returns the first problem of a kind.
async fn of_kind(admin: SocketAddr, kind: &str) -> Option<Value> {
    let page = page(admin).await;
    page["problems"].as_array().unwrap().iter().find(|problem| problem["kind"] == kind).cloned()
}

/// Waits until a problem of a kind is listed, and returns it. It has to be listed soon after it began.
pub(super) async fn appears(admin: SocketAddr, kind: &str) -> Value {
    let began = Instant::now();
    until(&format!("a problem: {kind}"), async || of_kind(admin, kind).await.is_some()).await;
    assert!(began.elapsed() < SOON + SLACK, "{kind} after {:?}", began.elapsed());
    let metrics = get(admin, "/metrics").await;
    assert!(metrics.contains(&format!("weir_problems{{kind=\"{kind}\"}} 1")), "{kind}: {metrics}");
    of_kind(admin, kind).await.unwrap()
}

/// Waits until no problem of a kind is listed any more.
pub(super) async fn goes(admin: SocketAddr, kind: &str) {
    let began = Instant::now();
    until(&format!("the end of {kind}"), async || of_kind(admin, kind).await.is_none()).await;
    assert!(began.elapsed() < GONE + SLACK, "{kind} after {:?}", began.elapsed());
}

/// Runs the command that a problem names, as `weir problems` prints it. Returns the exit code and the output.
pub(super) async fn next(admin: SocketAddr, kind: &str) -> (i32, String) {
    let address = admin.to_string();
    let (code, out, error) = weir(&["problems", "--admin", &address]).await;
    assert_eq!(code, 1, "{out}{error}");
    let title = of_kind(admin, kind).await.unwrap()["title"].as_str().unwrap().to_owned();
    let paragraph = out.split("\n\n").find(|paragraph| paragraph.starts_with(&title));
    let paragraph = paragraph.unwrap_or_else(|| panic!("no {title} in {out}"));
    let typed = paragraph.lines().find_map(|line| line.strip_prefix("  next: weir ")).expect("a command");
    let mut words: Vec<_> = typed.split(' ').collect();
    if words[0] == "top" {
        words.splice(1..1, ["--count", "1"]); // otherwise the command would run until it is stopped
    }
    assert!(words.ends_with(&["--admin", &address]), "it asks the same relay: {typed}");
    let (code, out, error) = weir(&words).await;
    assert!(code < 2, "{typed}: {error}");
    (code, out)
}

async fn run_with(plane: &Plane, rest: &str) -> Relay {
    let rest = format!("views: {{key: [cluster]}}\n{rest}\n");
    run(crate::bind(config(plane.address, ", variant: delta", &rest)).await.unwrap(), std::future::pending())
}

#[tokio::test]
async fn a_relay_with_which_nothing_is_wrong_says_so() {
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, "").await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    let sent = client.sent().await;
    client.ack(CDS, &[], &sent);
    let admin = relay.admin.to_string();
    assert_eq!(weir(&["problems", "--admin", &admin]).await, (0, "nothing is wrong\n".to_owned(), String::new()));
    let (code, json, _) = weir(&["problems", "--admin", &admin, "-o", "json"]).await;
    let page: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, page), (0, serde_json::json!({"problems": [], "count": 0, "kinds": {}})));
    assert!(get(relay.admin, "/metrics").await.contains("weir_problems{kind=\"nacks\"} 0"));
    let (code, _, error) = weir(&["problems", "--admin", "127.0.0.1:1"]).await;
    assert!(code == 2 && error.contains("cannot reach"), "{error}");
}
