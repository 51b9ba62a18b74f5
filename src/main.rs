//! The relay's program. So far there is a protocol model and nothing that listens; this says so instead of pretending.

use std::process::ExitCode;

fn main() -> ExitCode {
    eprintln!("weir {}: there is nothing to run yet.", env!("CARGO_PKG_VERSION"));
    eprintln!("The protocol model is complete and tested (`cargo test`); README.md says what works.");
    ExitCode::from(2)
}
