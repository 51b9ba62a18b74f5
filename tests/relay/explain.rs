//! Why a client has a resource or lacks it, in situations that the tests create.

mod clients;
mod held;
mod missing;
mod rejected;
mod servers;
mod way;

use serde_json::Value;

use super::client::Told;
use super::evidence::servers;
use super::void::listener;
use super::*;

/// A request for the explanation of one client's resource.
struct Asked<'a> {
    relay: &'a Relay,
    client: &'a str,
    kind: &'a str,
    name: &'a str,
}

impl Asked<'_> {
    async fn page(&self) -> Value {
        let Self { relay, client, kind, name } = self;
        let (status, page) = probe(relay.admin, &format!("/explain?client={client}&type={kind}&name={name}")).await;
        if status != 200 {
            return Value::Null; // the client is not connected yet
        }
        serde_json::from_str::<Value>(&page).unwrap()[0].take()
    }

    /// Waits until the explanation has this verdict and exactly these reasons.
    async fn is(&self, verdict: &str, codes: &[&str]) -> Value {
        let seen = std::sync::Mutex::new(Vec::new());
        let looking = async {
            loop {
                let page = self.page().await;
                if page["verdict"] == verdict && codes_of(&page) == codes {
                    return page;
                }
                let chain = format!("{} {:?}", page["verdict"], codes_of(&page));
                note(&mut seen.lock().unwrap(), chain);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let found = tokio::time::timeout(client::PATIENCE, looking).await;
        found.unwrap_or_else(|_| panic!("expected {verdict} {codes:?}, saw {:#?}", seen.lock().unwrap()))
    }
}

impl Asked<'_> {
    /// Waits until the explanation has this verdict and this reason, besides any others.
    async fn shows(&self, verdict: &str, code: &str) -> Value {
        let seen = std::sync::Mutex::new(Value::Null);
        let looking = async {
            loop {
                let page = self.page().await;
                if page["verdict"] == verdict && codes_of(&page).contains(&code) {
                    return page;
                }
                *seen.lock().unwrap() = page;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let found = tokio::time::timeout(client::PATIENCE, looking).await;
        found.unwrap_or_else(|_| panic!("expected {verdict} with {code}, saw {:#}", seen.lock().unwrap()))
    }
}

/// Checks the verdict of a situation and the sentence that explains it, and that docs/operations.md lists both.
pub(super) fn situation(page: &Value, name: &str, verdict: &str, sentence: &str) {
    assert_eq!(page["verdict"], verdict, "{name}: {page:#}");
    let reasons = page["reasons"].as_array().into_iter().flatten();
    let mut texts = reasons.filter_map(|reason| reason["text"].as_str());
    assert!(texts.any(|text| text.contains(sentence)), "{name}: {sentence} is not in {page:#}");
    let runbook = std::fs::read_to_string("docs/operations.md").unwrap();
    let row = format!("| {name} | `{verdict}` | `{sentence}` |");
    assert!(runbook.contains(&row), "docs/operations.md has no row {row}");
}

fn note(seen: &mut Vec<String>, chain: String) {
    if seen.last() != Some(&chain) {
        seen.push(chain);
    }
}

fn codes_of(page: &Value) -> Vec<&str> {
    page["reasons"].as_array().into_iter().flatten().map(|reason| reason["code"].as_str().unwrap()).collect()
}

/// Returns the text of a reason.
fn text<'a>(page: &'a Value, code: &str) -> &'a str {
    reason(page, code)["text"].as_str().unwrap()
}

/// Checks that the text of a reason has the words under which docs/operations.md gives advice.
fn advised(page: &Value, code: &str, quoted: &str) {
    assert!(text(page, code).contains(quoted), "{page:#}");
    let runbook = std::fs::read_to_string("docs/operations.md").unwrap();
    assert!(runbook.contains(&format!("`{quoted}`")), "{quoted} is not in docs/operations.md");
}

fn reason<'a>(page: &'a Value, code: &str) -> &'a Value {
    let reasons = page["reasons"].as_array().unwrap();
    reasons.iter().find(|reason| reason["code"] == code).unwrap_or_else(|| panic!("no {code} in {page:#}"))
}

fn cluster_of<'a>(relay: &'a Relay) -> impl Fn(&'a str) -> Asked<'a> + 'a {
    move |name| Asked { relay, client: "test", kind: "clusters", name }
}

const ACTIVE: &str = "server_active";
const STAR: &str = "subscribed_by_wildcard";

/// Returns a relay, its control plane, and a delta client with a wildcard that was sent two clusters.
async fn two_clusters(rest: &str) -> (Relay, Plane, Stream, Client, Told) {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let config = config(plane.address, ", variant: delta", &format!("views: {{key: [cluster]}}\n{rest}"));
    let relay = run(crate::bind(config).await.unwrap(), std::future::pending());
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    let sent = client.sent().await;
    (relay, plane, stream, client, sent)
}

fn say_listener(stream: &Stream, nonce: &str, cluster: &str, content: &str) {
    let (type_url, nonce) = (LDS.into(), nonce.into());
    let resources = vec![listener("l", cluster, content)];
    stream.respond(&Response::Delta(DeltaDiscoveryResponse { type_url, nonce, resources, ..Default::default() }));
}
