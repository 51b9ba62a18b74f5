//! Waiting for conditions, and never for durations.

use std::time::Duration;

use tokio::time::{sleep, timeout};

/// Longer than any step takes, even on a machine that builds meanwhile. A test that hangs fails after this time.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The pause between two looks at a condition.
const PAUSE: Duration = Duration::from_millis(5);

/// Waits until a condition holds. Fails with its description if it never does.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let looking = async {
        while !holds().await {
            sleep(PAUSE).await;
        }
    };
    timeout(PATIENCE, looking).await.unwrap_or_else(|_| panic!("never: {what}"));
}
