//! Requests of operators to a relay's admin address.

use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::raw_http::{exchange, request};
use crate::wait::PATIENCE;

/// Returns status and body of a page.
pub async fn get(admin: &str, path: &str) -> (u16, String) {
    let asking = async {
        let socket = TcpStream::connect(admin).await.unwrap();
        exchange(socket, &request(&format!("GET {path}"))).await
    };
    timeout(PATIENCE, asking).await.unwrap_or_else(|_| panic!("the admin address does not answer {path}"))
}

/// Returns the value of a metric, by its name and labels. `None`: it does not exist, maybe not yet.
pub async fn metric(admin: &str, name: &str) -> Option<f64> {
    value_of(&get(admin, "/metrics").await.1, name)
}

/// Returns the value of a metric on a page of them.
pub fn value_of(page: &str, name: &str) -> Option<f64> {
    let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    Some(value.trim().parse().unwrap())
}
