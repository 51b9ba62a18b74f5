//! The cost of a server process and the waiting times of clients: figures of a process by its pid, and their statistics.

mod admin;
mod latency;
mod limits;
mod polls;
mod process;
mod recorder;
mod statistics;

pub use admin::{metric, metrics, page};
pub use latency::Latencies;
pub use limits::raise_open_files;
pub use polls::Polls;
pub use process::{Memory, Process, established, tcp_memory};
pub use recorder::{Counts, Rates, Recorder, Times};
pub use statistics::{Spread, median};
