//! What the files of one server or collector had the last time they were read, for as long as their disk hangs.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::file_access;
use crate::log_pace::LogPace;

/// Reads files, and knows what each had before. Clones know the same.
#[derive(Clone, Default)]
pub(crate) struct KnownFiles(Arc<Inner>);

struct Inner {
    last: Mutex<BTreeMap<PathBuf, Bytes>>,
    hung: LogPace,
}

impl Default for Inner {
    fn default() -> Self {
        Self { last: Mutex::default(), hung: LogPace::once_a_minute() }
    }
}

impl KnownFiles {
    /// Returns the content of a file, or what it had the last time if the disk does not answer within the limit.
    pub(crate) async fn read(&self, path: &Path, limit: Duration) -> io::Result<Bytes> {
        let read = file_access::read(path, limit).await;
        let mut last = self.0.last.lock().unwrap_or_else(PoisonError::into_inner);
        match read {
            Ok(content) => {
                last.insert(path.to_owned(), content.clone());
                Ok(content)
            }
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                let content = last.get(path).cloned();
                drop(last);
                if content.is_some() && self.0.hung.line(Instant::now()).is_some() {
                    tracing::warn!(%error, "a file cannot be read in time; what it had before is used");
                }
                content.ok_or(error)
            }
            Err(error) => {
                last.remove(path); // somebody has taken it away
                Err(error)
            }
        }
    }
}

/// What is in the files is secret.
impl fmt::Debug for KnownFiles {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("KnownFiles")
    }
}

/// What files had does not tell two servers apart.
impl PartialEq for KnownFiles {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for KnownFiles {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_access::tests::Pipe;

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn what_a_file_had_before_is_used_while_it_hangs_and_no_longer() {
        let (known, pipe) = (KnownFiles::default(), Pipe::new("known"));
        let hangs = known.read(&pipe.0, Duration::ZERO).await;
        assert_eq!(hangs.unwrap_err().kind(), ErrorKind::TimedOut, "nothing is known");
        let path = std::env::temp_dir().join(format!("weir-known-{}", std::process::id()));
        std::fs::write(&path, "two").unwrap();
        assert_eq!(&known.read(&path, LONG).await.unwrap()[..], b"two");
        let pipe = Pipe::at(path.clone());
        assert_eq!(&known.clone().read(&path, Duration::ZERO).await.unwrap()[..], b"two");
        drop(pipe);
        // What cannot be read is another matter than what cannot be read yet.
        let missing = Path::new("/no/such/file");
        assert_eq!(known.read(missing, LONG).await.unwrap_err().kind(), ErrorKind::NotFound);
        assert!(!format!("{known:?}").contains("two"));
    }
}
