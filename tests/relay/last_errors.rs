//! What the relays of a test last found of a server, for the message of a test that waits for them in vain.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::client::exchange;

/// The admin addresses of all relays that were started.
static RELAYS: Mutex<Vec<SocketAddr>> = Mutex::new(Vec::new());

/// Notes a relay, to be asked at its admin address.
pub fn note(admin: SocketAddr) {
    RELAYS.lock().unwrap().push(admin);
}

/// Returns what the noted relays that use a server last found of it.
pub async fn errors_of(server: SocketAddr) -> String {
    let relays = RELAYS.lock().unwrap().clone();
    let names = [server.to_string(), format!("localhost:{}", server.port())];
    let mut errors = Vec::new();
    for relay in relays {
        let Ok(Ok(socket)) = timeout(ANSWER, TcpStream::connect(relay)).await else { continue };
        let asking = exchange(socket, "GET /upstreams HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
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

/// A relay answers at its admin address within this time, unless it hangs.
const ANSWER: Duration = Duration::from_secs(2);
