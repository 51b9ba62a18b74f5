//! The errors that the relays of a test last found at a server. A test that waits for the server too long reports them.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::raw_http::{exchange, request};

/// The admin addresses of all relays that were started.
static RELAYS: Mutex<Vec<SocketAddr>> = Mutex::new(Vec::new());

/// Records the admin address of a relay, for [`errors_of`].
pub fn note(admin: SocketAddr) {
    RELAYS.lock().unwrap().push(admin);
}

/// Returns the last errors of a server that the recorded relays report.
pub async fn errors_of(server: SocketAddr) -> String {
    let relays = RELAYS.lock().unwrap().clone();
    let names = [server.to_string(), format!("localhost:{}", server.port())];
    let mut errors = Vec::new();
    for relay in relays {
        let Ok(Ok(socket)) = timeout(ANSWER, TcpStream::connect(relay)).await else { continue };
        let request = request("GET /upstreams");
        let asking = exchange(socket, &request);
        let Ok((200, report)) = timeout(ANSWER, asking).await else { continue };
        let views: Value = serde_json::from_str(&report).unwrap();
        for stream in views.as_array().into_iter().flatten().flat_map(|view| view["streams"].as_array()).flatten() {
            if stream["server"].as_str().is_some_and(|uri| names.iter().any(|name| uri.ends_with(name))) {
                errors.push(format!("last error {}", stream["last_error"]));
            }
        }
    }
    if errors.is_empty() { "no view has a stream to it".into() } else { errors.join("; ") }
}

/// A relay answers within this time at its admin address, unless it hangs.
const ANSWER: Duration = Duration::from_secs(2);
