//! The admin address of a relay: its pages, and its metrics in the text format of Prometheus.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Returns all metrics.
pub async fn metrics(admin: SocketAddr) -> anyhow::Result<String> {
    timeout(LIMIT, page(admin, "/metrics")).await.context("no metrics in time")?
}

/// Returns the headers and the body of a page with status 200. Waits as long as the server keeps the connection open.
pub async fn page(address: SocketAddr, path: &str) -> anyhow::Result<String> {
    let mut socket = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await?;
    let mut response = Vec::new();
    socket.read_to_end(&mut response).await?;
    let response = String::from_utf8_lossy(&response).into_owned();
    let status = response.split_whitespace().nth(1).unwrap_or("nothing");
    ensure!(status == "200", "status {status}");
    Ok(response)
}

/// Returns the sum of all series of a metric; `None` if there are none.
pub fn metric(metrics: &str, name: &str) -> Option<f64> {
    let value = |line: &str| {
        let rest = line.strip_prefix(name).filter(|rest| rest.starts_with(['{', ' ']))?;
        // A space may be in a label, but not in a value.
        rest.rsplit_once(' ')?.1.trim().parse::<f64>().ok()
    };
    metrics.lines().filter_map(value).reduce(|sum, value| sum + value)
}

const LIMIT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_series_of_a_metric_are_added_up() {
        let text = "# TYPE weir_writes_total counter\nweir_writes_total{of=\"a b\"} 3\nweir_writes_total{of=\"c\"} 4\n\
                    weir_writes_total_more 9\nweir_views 5\n";
        assert_eq!(metric(text, "weir_writes_total"), Some(7.0));
        assert_eq!(metric(text, "weir_views"), Some(5.0));
        assert_eq!(metric(text, "weir_writes"), None);
    }
}
