//! Files that are read again when they change. What was last read without errors stays until something better can be read.
//!
//! A look has two steps, so that nobody waits for the disk under a lock: a [`Question`] is asked of the disk, and its [`Answer`] is judged.

use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

use bytes::Bytes;
use xxhash_rust::xxh3::Xxh3;

use super::pem::TlsFileError;
use crate::file_access::{self, LIMIT, Stamp};

/// Files that belong together, and what was made of them.
pub(super) struct Watched<T> {
    parse: Parse<T>,
    good: T,
    known: Known,
}

/// Makes something of the contents of files, in the order of their paths.
type Parse<T> = Box<dyn Fn(&[Bytes]) -> Result<T, TlsFileError> + Send>;

/// What is known of the files.
#[derive(Debug, Clone)]
struct Known {
    paths: Vec<PathBuf>,
    /// How the files looked before they were last read, whatever came of it.
    read: Vec<Option<Stamp>>,
    /// When that was, by the clock that stamps are compared with.
    read_at: SystemTime,
    /// What they had then.
    content: u128,
    /// How they looked the last time, and what they had if they were read.
    seen: Vec<Option<Stamp>>,
    seen_content: Option<u128>,
    failed: bool,
}

/// What is to be found out about files.
pub(super) struct Question(Known);

/// What the disk says.
pub(super) struct Answer {
    at: SystemTime,
    found: Result<Found, TlsFileError>,
}

struct Found {
    stamps: Vec<Option<Stamp>>,
    /// None if they did not have to be read.
    contents: Option<Result<Vec<Bytes>, TlsFileError>>,
}

/// What a look at the files has found.
#[derive(Debug)]
pub(super) enum Look {
    Same,
    Renewed,
    /// The files cannot be used as they are now. `is_news` if that was not known.
    Failed {
        error: TlsFileError,
        is_news: bool,
    },
}

impl<T> Watched<T> {
    /// Reads the files for the first time.
    pub(super) fn read(paths: Vec<PathBuf>, parse: Parse<T>) -> Result<Self, TlsFileError> {
        let (read_at, read) = (SystemTime::now(), stamps(&paths)?);
        let contents = contents(&paths)?;
        let (good, content) = (parse(&contents)?, hash(&contents));
        let known =
            Known { paths, seen: read.clone(), read, read_at, content, seen_content: Some(content), failed: false };
        Ok(Self { parse, good, known })
    }

    /// Returns what a look has to find out.
    pub(super) fn question(&self) -> Question {
        Question(self.known.clone())
    }

    /// Takes over what has changed. Files are read once they look the same twice in a row: they are seldom renewed in one step, and a
    /// certificate without its key is no fault while the key is on its way.
    pub(super) fn judge(&mut self, Answer { at, found }: Answer) -> Look {
        let (Found { stamps, contents }, known) = match found {
            Ok(found) => (found, &mut self.known),
            Err(error) => {
                let is_news = !std::mem::replace(&mut self.known.failed, true);
                return Look::Failed { error, is_news };
            }
        };
        known.seen = stamps;
        let Some(contents) = contents else {
            known.seen_content = None;
            return Look::Same;
        };
        let is_news = known.seen != known.read;
        let content = contents.as_ref().ok().map(|contents| hash(contents));
        let before = std::mem::replace(&mut known.seen_content, content);
        if !is_news && !known.failed {
            // The stamps say nothing, so the contents have to be the same twice.
            if content.is_none() || content == Some(known.content) || content != before {
                return Look::Same;
            }
        }
        (known.read, known.read_at) = (known.seen.clone(), at);
        known.content = content.unwrap_or_default();
        let read = contents.and_then(|contents| (self.parse)(&contents));
        known.failed = read.is_err();
        match read {
            Ok(good) => {
                self.good = good;
                Look::Renewed
            }
            Err(error) => Look::Failed { error, is_news },
        }
    }

    /// Returns the last good version.
    pub(super) fn good(&self) -> &T {
        &self.good
    }

    /// Whether the files cannot be used as they are, and an earlier version is in use.
    pub(super) fn has_failed(&self) -> bool {
        self.known.failed
    }
}

impl Question {
    /// Asks the disk, which may take long.
    pub(super) fn ask(&self) -> Answer {
        let at = SystemTime::now();
        Answer { at, found: self.0.look() }
    }
}

impl Known {
    fn look(&self) -> Result<Found, TlsFileError> {
        let stamps = stamps(&self.paths)?;
        let has_settled = stamps == self.seen;
        let may_differ = stamps != self.read || self.failed || self.may_be_written_unseen();
        if !has_settled || !may_differ {
            return Ok(Found { stamps, contents: None });
        }
        match contents(&self.paths) {
            Err(error) if is_late(&error) => Err(error),
            contents => Ok(Found { stamps, contents: Some(contents) }),
        }
    }

    /// Whether the files were read so soon after a change that a later one may have the same stamp.
    fn may_be_written_unseen(&self) -> bool {
        self.read.iter().flatten().any(|stamp| stamp.is_fresh(self.read_at))
    }
}

/// Whether the disk has not answered, so that nothing is known of the file.
fn is_late(error: &TlsFileError) -> bool {
    matches!(error, TlsFileError::Read { source, .. } if source.kind() == io::ErrorKind::TimedOut)
}

fn contents(paths: &[PathBuf]) -> Result<Vec<Bytes>, TlsFileError> {
    let fail = |path: &PathBuf, source| TlsFileError::Read { path: path.clone(), source };
    paths.iter().map(|path| file_access::read_blocking(path, LIMIT).map_err(|error| fail(path, error))).collect()
}

fn stamps(paths: &[PathBuf]) -> Result<Vec<Option<Stamp>>, TlsFileError> {
    let fail = |path: &PathBuf, source| TlsFileError::Read { path: path.clone(), source };
    paths.iter().map(|path| file_access::stamp_blocking(path, LIMIT).map_err(|error| fail(path, error))).collect()
}

fn hash(contents: &[Bytes]) -> u128 {
    let mut hasher = Xxh3::new();
    for content in contents {
        hasher.update(&content.len().to_le_bytes());
        hasher.update(content);
    }
    hasher.digest128()
}

#[cfg(test)]
mod tests {
    use super::*;

    impl<T> Watched<T> {
        fn look(&mut self) -> Look {
            let answer = self.question().ask();
            self.judge(answer)
        }
    }

    fn text(contents: &[Bytes]) -> Result<String, TlsFileError> {
        let all = contents.concat();
        let text = String::from_utf8_lossy(&all).into_owned();
        if text.contains("bad") { Err(TlsFileError::NoKey("bad".into())) } else { Ok(text) }
    }

    #[test]
    fn files_are_read_when_they_have_settled_and_a_bad_version_changes_nothing() {
        let folder = std::env::temp_dir().join(format!("weir-watched-{}", std::process::id()));
        let versions = ["v1", "v2"].map(|version| folder.join(version));
        versions.iter().for_each(|version| std::fs::create_dir_all(version).unwrap());
        let write =
            |version: usize, name: &str, text: &str| std::fs::write(versions[version].join(name), text).unwrap();
        for (version, name, text) in [(0, "one", "1"), (0, "two", "2"), (1, "one", "3"), (1, "two", "4")] {
            write(version, name, text);
        }
        let link = folder.join("now");
        std::os::unix::fs::symlink(&versions[0], &link).unwrap();
        let paths = ["one", "two"].map(|name| link.join(name)).to_vec();
        let mut watched = Watched::read(paths, Box::new(text)).unwrap();
        assert_eq!(watched.good(), "12");
        assert!(matches!(watched.look(), Look::Same));

        let other = folder.join("next");
        std::os::unix::fs::symlink(&versions[1], &other).unwrap();
        std::fs::rename(&other, &link).unwrap(); // the link alone has changed
        assert!(matches!(watched.look(), Look::Same), "they may be changing still");
        assert!(matches!(watched.look(), Look::Renewed));
        assert_eq!(watched.good(), "34");

        write(1, "two", "bad");
        assert!(matches!(watched.look(), Look::Same));
        assert!(matches!(watched.look(), Look::Failed { is_news: true, .. }));
        assert!(matches!(watched.look(), Look::Failed { is_news: false, .. }), "it is tried again");
        assert!(watched.has_failed() && watched.good() == "34");
        std::fs::remove_file(versions[1].join("two")).unwrap();
        assert!(matches!(watched.look(), Look::Same));
        assert!(matches!(watched.look(), Look::Failed { error: TlsFileError::Read { .. }, is_news: true }));
        write(1, "two", "5");
        assert!(matches!((watched.look(), watched.look()), (Look::Same, Look::Renewed)));
        assert!(!watched.has_failed() && watched.good() == "35");
        std::fs::remove_dir_all(folder).unwrap();
    }

    /// The stamps of a file that is written twice within a tick of the disk's clock are the same, and so are those of a disk whose clock is
    /// ahead and stands.
    #[test]
    fn what_is_written_without_another_stamp_is_seen_while_the_stamp_is_fresh_or_ahead_of_the_clock() {
        let path = std::env::temp_dir().join(format!("weir-stamp-{}", std::process::id()));
        let hour = std::time::Duration::from_secs(3600);
        for (read_at, is_seen) in [(SystemTime::now() - hour, true), (SystemTime::now() + hour, false)] {
            std::fs::write(&path, "1").unwrap();
            let mut watched = Watched::read(vec![path.clone()], Box::new(text)).unwrap();
            watched.known.read_at = read_at;
            std::fs::write(&path, "2").unwrap();
            let stamp = file_access::stamp_blocking(&path, LIMIT).unwrap();
            (watched.known.read, watched.known.seen) = (vec![stamp], vec![stamp]); // as if it were the same
            let looks = [watched.look(), watched.look(), watched.look()];
            let renewed = looks.iter().filter(|look| matches!(look, Look::Renewed)).count();
            assert_eq!((renewed, watched.good() == "2"), (usize::from(is_seen), is_seen), "{looks:?}");
            assert!(matches!(looks[0], Look::Same), "it may be being written");
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn files_that_hang_are_at_fault_once_and_good_again_when_they_answer() {
        let path = std::env::temp_dir().join(format!("weir-hung-{}", std::process::id()));
        std::fs::write(&path, "1").unwrap();
        let mut watched = Watched::read(vec![path.clone()], Box::new(text)).unwrap();
        let late = || {
            let source = io::ErrorKind::TimedOut.into();
            Answer { at: SystemTime::now(), found: Err(TlsFileError::Read { path: "x".into(), source }) }
        };
        assert!(matches!(watched.judge(late()), Look::Failed { is_news: true, .. }));
        assert!(matches!(watched.judge(late()), Look::Failed { is_news: false, .. }));
        assert!(watched.has_failed() && watched.good() == "1");
        assert!(matches!(watched.look(), Look::Renewed), "it is read again, and nothing else is known of it");
        assert!(!watched.has_failed());
        std::fs::remove_file(&path).unwrap();
    }
}
