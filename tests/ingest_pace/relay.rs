//! The relay in a process of its own, whose processor time and memory can be measured.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use weir_testkit::program::Program;

const WEIR: &str = env!("CARGO_BIN_EXE_weir");
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The running program. It ends when this is dropped.
pub struct Relay {
    program: Program,
    pub address: SocketAddr,
}

impl Relay {
    pub fn over(upstream: SocketAddr, of: &str) -> Self {
        let config = format!(
            "listen: [{{address: '127.0.0.1:0'}}]\nviews: {{key: [cluster]}}\nlimits: {{message_bytes: 512MiB}}\n\
             upstream: {{servers: [{{uri: 'http://{upstream}', variant: sotw}}]}}\n"
        );
        let program = Program::start(WEIR, &format!("ingest-{of}.yaml"), &config, PATIENCE);
        let address = program.address.parse().unwrap();
        Self { program, address }
    }

    /// Returns the seconds of processor time that the program has used, once it is idle.
    pub async fn used(&self) -> f64 {
        let mut before = used(&format!("/proc/{}", self.program.child.id()));
        loop {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let now = used(&format!("/proc/{}", self.program.child.id()));
            if now - before < 0.001 {
                return now;
            }
            before = now;
        }
    }

    /// Returns the peak and the current memory of the program, in bytes.
    pub fn memory(&self) -> (f64, f64) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.program.child.id())).unwrap();
        let of = |key: &str| {
            let line = status.lines().find(|line| line.starts_with(key)).unwrap();
            1024.0 * line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap()
        };
        (of("VmHWM:"), of("VmRSS:"))
    }
}

/// Returns the seconds of processor time of a process or of a thread, by its folder in `/proc`.
pub fn used(folder: &str) -> f64 {
    let threads = std::fs::read_dir(format!("{folder}/task")).into_iter().flatten();
    let threads = threads.map(|thread| thread.unwrap().path().join("schedstat"));
    let of = |path: std::path::PathBuf| -> f64 {
        let text = std::fs::read_to_string(path).unwrap_or_default(); // the thread may have ended
        text.split_whitespace().next().map_or(0.0, |nanoseconds| nanoseconds.parse().unwrap())
    };
    let all: Vec<f64> = threads.map(of).collect();
    let own = || of(Path::new(folder).join("schedstat"));
    let nanoseconds = if all.is_empty() { own() } else { all.iter().sum() };
    nanoseconds / 1e9
}
