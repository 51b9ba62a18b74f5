//! The last contents of the files of one server or collector, which are used while their disk hangs.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::file_access::{self, Begun};
use crate::log_pace::LogPace;

/// Reads files, and keeps the last content of each. Clones share the contents.
#[derive(Clone, Default)]
pub(crate) struct KnownFiles(Arc<Inner>);

struct Inner {
    last: Mutex<Last>,
    /// Certificates with their keys.
    pairs: Mutex<BTreeMap<[PathBuf; 2], Pair>>,
    hung: LogPace,
    apart: LogPace,
}

/// A certificate and its key.
struct Pair {
    /// What the files had when they last belonged together.
    contents: [Bytes; 2],
    /// When the reading of these contents began.
    since: Instant,
    /// The files were read again since then, did not belong together, and the contents are used in their place.
    is_kept: bool,
}

#[derive(Default)]
struct Last {
    contents: BTreeMap<PathBuf, Bytes>,
    /// Reads that took too long: the oldest and the newest. Their results are newer than `contents`.
    late: BTreeMap<PathBuf, Vec<Begun>>,
}

impl Last {
    /// Returns the last content of a file, including the result of a late read.
    fn content(&mut self, path: &Path) -> Option<Bytes> {
        let newest = self.late.get_mut(path).and_then(|late| {
            let (at, content) = late.iter().enumerate().rev().find_map(|(at, begun)| Some((at, begun.come()?)))?;
            late.drain(..=at);
            Some(content)
        });
        if let Some(content) = newest {
            self.contents.insert(path.to_owned(), content);
        }
        self.contents.get(path).cloned()
    }

    fn add_late(&mut self, path: &Path, begun: Begun) {
        let late = self.late.entry(path.to_owned()).or_default();
        late.truncate(1);
        late.push(begun);
    }
}

impl Default for Inner {
    fn default() -> Self {
        let (hung, apart) = (LogPace::once_a_minute(), LogPace::once_a_minute());
        Self { last: Mutex::default(), pairs: Mutex::default(), hung, apart }
    }
}

impl KnownFiles {
    /// Returns the content of a file, or its last content if the disk does not answer within the limit.
    pub(crate) async fn read(&self, path: &Path, limit: Duration) -> io::Result<Bytes> {
        let begun = file_access::begin_read(path)?;
        let read = begun.bytes(limit).await;
        let mut last = self.0.last.lock().unwrap_or_else(PoisonError::into_inner);
        match read {
            Ok(content) => {
                last.late.remove(path);
                last.contents.insert(path.to_owned(), content.clone());
                Ok(content)
            }
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                let content = last.content(path);
                last.add_late(path, begun);
                drop(last);
                if content.is_some() && self.0.hung.line(Instant::now()).is_some() {
                    tracing::warn!(%error, "a file cannot be read in time; what it had before is used");
                }
                content.ok_or(error)
            }
            Err(error) => {
                last.late.remove(path);
                last.contents.remove(path); // somebody has removed the file
                Err(error)
            }
        }
    }
}

impl KnownFiles {
    /// Records that the contents of two files belong together, unless a reading that began later has found others.
    pub(crate) fn belong_together(&self, paths: [&Path; 2], contents: [Bytes; 2], read_since: Instant) {
        let (mut pairs, paths) = (self.pairs(), paths.map(Path::to_owned));
        if pairs.get(&paths).is_none_or(|pair| pair.since <= read_since) {
            pairs.insert(paths, Pair { contents, since: read_since, is_kept: false });
        }
    }

    /// Records that the contents of two files cannot be used, and nothing is used in their place.
    pub(crate) fn note_unusable(&self, paths: [&Path; 2]) {
        if let Some(pair) = self.pairs().get_mut(&paths.map(Path::to_owned)) {
            pair.is_kept = false;
        }
    }

    /// Returns the contents of two files when they last belonged together: one of them may have been renewed while the other is not written yet, or
    /// hangs. `read_since` is when the caller began to read what does not belong together: another one may have read both files since then.
    pub(crate) fn last_together(&self, paths: [&Path; 2], read_since: Instant) -> Option<[Bytes; 2]> {
        let contents = {
            let mut pairs = self.pairs();
            let pair = pairs.get_mut(&paths.map(Path::to_owned))?;
            pair.is_kept |= pair.since < read_since;
            pair.contents.clone()
        };
        if self.0.apart.line(Instant::now()).is_some() {
            let [certificate, key] = paths.map(Path::display);
            tracing::warn!(%certificate, %key, "the key does not belong to the certificate; what they had before is used");
        }
        Some(contents)
    }

    /// Returns what the file of a certificate had before, if that is used because its key did not belong to it when both were last read.
    pub(crate) fn kept_certificate(&self, paths: [&Path; 2]) -> Option<Bytes> {
        let pairs = self.pairs();
        let kept = pairs.get(&paths.map(Path::to_owned)).filter(|pair| pair.is_kept)?;
        Some(kept.contents[0].clone())
    }

    fn pairs(&self) -> MutexGuard<'_, BTreeMap<[PathBuf; 2], Pair>> {
        self.0.pairs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Shows nothing, because the files contain secrets.
impl fmt::Debug for KnownFiles {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("KnownFiles")
    }
}

/// Treats all as equal: two servers do not differ by the last contents of their files.
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

    /// Otherwise each late read would be replaced by the next, and a disk that always needs longer than the limit would never be read.
    #[tokio::test]
    async fn of_readings_that_are_late_the_oldest_is_kept_until_it_or_a_newer_one_has_come() {
        let (path, pipes) = (Path::new("file"), ["oldest", "between", "newest"].map(Pipe::new));
        let mut last = Last::default();
        for pipe in &pipes {
            last.add_late(path, file_access::begin_read(&pipe.0).unwrap());
        }
        assert_eq!(last.content(path), None);
        for (pipe, content) in [(&pipes[0], "one"), (&pipes[2], "three")] {
            let reading = file_access::begin_read(&pipe.0).unwrap();
            let pipe = pipe.0.clone();
            tokio::task::spawn_blocking(move || std::fs::write(&pipe, content)).await.unwrap().unwrap();
            reading.bytes(LONG).await.unwrap();
            assert_eq!(last.content(path).as_deref(), Some(content.as_bytes()));
        }
        let between = pipes[1].0.clone();
        tokio::task::spawn_blocking(move || std::fs::write(&between, "two")).await.unwrap().unwrap();
        assert_eq!(last.content(path).as_deref(), Some(b"three".as_slice()), "it was given up");
    }

    #[test]
    fn a_pair_that_another_reader_has_found_since_a_reading_began_is_not_reported_as_an_earlier_one() {
        let (known, paths, slow) = (KnownFiles::default(), ["certificate", "key"].map(Path::new), Instant::now());
        known.belong_together(paths, Default::default(), slow + LONG / 2);
        assert!(known.last_together(paths, slow).is_some());
        assert!(known.kept_certificate(paths).is_none());
        known.last_together(paths, slow + LONG);
        assert!(known.kept_certificate(paths).is_some(), "this one has begun later");
        known.last_together(paths, slow);
        assert!(known.kept_certificate(paths).is_some());
    }

    #[test]
    fn a_pair_that_a_slow_reading_has_found_does_not_replace_one_of_a_reading_that_began_later() {
        let (known, paths, slow) = (KnownFiles::default(), ["certificate", "key"].map(Path::new), Instant::now());
        let pair = |text: &'static str| [text, text].map(|text| Bytes::from_static(text.as_bytes()));
        known.belong_together(paths, pair("new"), slow + LONG);
        known.belong_together(paths, pair("old"), slow);
        assert_eq!(known.last_together(paths, slow), Some(pair("new")));
        known.belong_together(paths, pair("newest"), slow + 2 * LONG);
        assert_eq!(known.last_together(paths, slow), Some(pair("newest")));
    }

    #[tokio::test]
    async fn what_came_too_late_is_used_the_next_time_that_a_file_hangs() {
        let (known, pipe) = (KnownFiles::default(), Pipe::new("late"));
        for content in ["one", "two"] {
            let _ = known.read(&pipe.0, Duration::ZERO).await; // this begins the read
            let path = pipe.0.clone();
            let reading = file_access::begin_read(&path).unwrap();
            tokio::task::spawn_blocking(move || std::fs::write(&path, content)).await.unwrap().unwrap();
            assert_eq!(&reading.bytes(LONG).await.unwrap()[..], content.as_bytes());
            assert_eq!(&known.read(&pipe.0, Duration::ZERO).await.unwrap()[..], content.as_bytes());
        }
    }

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
        // A file that cannot be read differs from one that cannot be read yet.
        let missing = Path::new("/no/such/file");
        assert_eq!(known.read(missing, LONG).await.unwrap_err().kind(), ErrorKind::NotFound);
        assert!(!format!("{known:?}").contains("two"));
    }
}
