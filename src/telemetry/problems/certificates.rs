//! When the certificates end that the relay shows servers. They are read from their files now and then.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::file_access;
use crate::tls::{certificates, of_chain};

#[derive(Default)]
pub(super) struct ServerCertificateFiles {
    ends: Vec<(String, SystemTime)>,
    /// Of which files that is, and when.
    last: Option<(Arc<[PathBuf]>, Instant)>,
}

impl ServerCertificateFiles {
    pub(super) fn ends(&self) -> &[(String, SystemTime)] {
        &self.ends
    }

    /// Reads the files if they are others than before, or it is time.
    pub(super) async fn look(&mut self, files: &Arc<[PathBuf]>) {
        let is_recent = |(of, at): &(Arc<[PathBuf]>, Instant)| Arc::ptr_eq(of, files) && at.elapsed() < EVERY;
        if self.last.as_ref().is_some_and(is_recent) {
            return;
        }
        let of = files.clone();
        let read = move || of.iter().filter_map(|file| Some((file.display().to_string(), end_of(file)?))).collect();
        self.ends = tokio::task::spawn_blocking(read).await.unwrap_or_default();
        self.last = Some((files.clone(), Instant::now()));
    }
}

/// Returns when the first certificate of a chain ends. A file that cannot be read shows in the error of its server.
fn end_of(file: &Path) -> Option<SystemTime> {
    let bytes = file_access::read_blocking(file, FILE_LIMIT).ok()?;
    Some(of_chain(&certificates(file, &bytes).ok()?)?.until)
}

const EVERY: Duration = Duration::from_secs(60);
/// How long a disk that hangs is waited for, which delays the list of problems.
const FILE_LIMIT: Duration = Duration::from_secs(1);
