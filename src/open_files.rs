//! The open files of the process, one for each connection: the limit, which is raised at start, and how it is divided.

use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};

/// The limit of open files before and after [`raise`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Raised {
    /// The soft limit that the process was started with.
    pub before: usize,
    /// The limit in force now.
    pub now: usize,
}

/// Raises the soft limit of open files to the hard one, which needs no privilege.
pub fn raise() -> io::Result<Raised> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    Ok(Raised { before: number(soft), now: limit() })
}

/// Returns how many files the process may have open.
pub fn limit() -> usize {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(USUAL, |(soft, _)| number(soft))
}

/// Returns the limit that [`raise`] puts in force.
pub(crate) fn raised_limit() -> usize {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(USUAL, |(_, hard)| number(hard))
}

fn number(limit: rlim_t) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// Whether opening failed because too many files are open, in the process or in the system.
pub(crate) fn is_exhausted(error: &io::Error) -> bool {
    matches!(error.raw_os_error().map(Errno::from_raw), Some(Errno::EMFILE | Errno::ENFILE))
}

/// How the limit is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shares {
    /// For connections of clients.
    pub(crate) clients: usize,
    /// For connections above that limit, which are refused.
    pub(crate) refusals: usize,
    /// For everything else: the admin address, connections to servers, resource files.
    pub(crate) others: usize,
}

impl Shares {
    pub(crate) fn of(limit: usize) -> Self {
        let limit = limit.min(MAX);
        let others = (limit / 4).max(FEWEST_OTHERS);
        let refusals = (limit / 16).clamp(4, 64);
        Self { clients: limit.saturating_sub(others + refusals).max(1), refusals, others }
    }
}

/// Files that are open only to be closed when one is needed and the limit is reached.
#[derive(Debug)]
pub(crate) struct SpareFiles {
    files: Mutex<Vec<File>>,
    count: usize,
}

impl SpareFiles {
    pub(crate) fn new(count: usize) -> Arc<Self> {
        let spare = Self { files: Mutex::default(), count };
        spare.refill();
        Arc::new(spare)
    }

    /// Closes one file. Returns false if none is left.
    pub(crate) fn release(&self) -> bool {
        self.files().pop().is_some()
    }

    /// Opens files in place of those that were closed, if the limit permits it. Returns whether the reserve is complete.
    pub(crate) fn refill(&self) -> bool {
        let mut files = self.files();
        while files.len() < self.count {
            let Ok(file) = File::open("/dev/null") else { return false };
            files.push(file);
        }
        true
    }

    fn files(&self) -> MutexGuard<'_, Vec<File>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The limit that is assumed if it cannot be read.
const USUAL: usize = 1024;
/// The limit that is assumed if the system has none, or one beyond what memory permits.
const MAX: usize = 1 << 20;
/// The program itself has some twenty files open.
const FEWEST_OTHERS: usize = 48;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_are_within_the_limit_and_clients_have_most_of_it() {
        for limit in [128, 256, 1024, 4096, 65_536, 1 << 20] {
            let Shares { clients, refusals, others } = Shares::of(limit);
            assert_eq!(clients + refusals + others, limit);
            assert!(clients > limit / 2 && refusals >= 4, "{limit}: {clients}, {refusals}");
        }
        assert_eq!(Shares::of(usize::MAX), Shares::of(1 << 20));
        assert_eq!(Shares::of(0).clients, 1);
    }

    #[test]
    fn spare_files_are_closed_one_by_one_and_opened_again() {
        let spare = SpareFiles::new(2);
        assert!(spare.release() && spare.release() && !spare.release());
        assert!(spare.refill() && spare.release());
    }
}
