//! The limit of open connections of this process.

use anyhow::{Context, ensure};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the limit of open files to its maximum, and checks that it allows this many connections.
pub fn raise_open_files(connections: usize) -> anyhow::Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).context("cannot read the limit of open files")?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).context("cannot raise the limit of open files")?;
    }
    let needed = (connections as u64).saturating_add(OTHERS);
    ensure!(
        needed <= hard,
        "{connections} connections need {needed} open files; the hard limit is {hard} (ulimit -Hn)"
    );
    Ok(())
}

/// How many open files are not connections: pipes to child processes, listeners, those of the runtime.
const OTHERS: u64 = 200;

#[cfg(test)]
mod tests {
    #[test]
    fn more_connections_than_the_hard_limit_are_an_error() {
        super::raise_open_files(1).unwrap();
        let error = super::raise_open_files(usize::MAX).unwrap_err().to_string();
        assert!(error.contains("the hard limit is"), "{error}");
    }
}
