//! Files that are read again when they change. The last good version stays in use until a later one can be used.
//!
//! A check has two steps, so that nobody waits for the disk while holding a lock: a [`DiskQuestion`] is asked of the disk, and then its
//! [`DiskAnswer`] is judged. Many questions are asked at the same time, so that several hanging files cost no more time than one.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use bytes::Bytes;
use xxhash_rust::xxh3::Xxh3;

use super::pem::TlsFileError;
use crate::file_access::{self, Begun, Content, LIMIT, Stamp};

/// Files that belong together, and the value that was parsed from them.
pub(super) struct Watched<T> {
    parse: Parse<T>,
    good: T,
    known: Known,
}

/// Makes a value from the contents of files, in the order of their paths.
type Parse<T> = Box<dyn Fn(&[Bytes]) -> Result<T, TlsFileError> + Send>;

/// The known state of the files.
#[derive(Debug, Clone)]
struct Known {
    paths: Vec<PathBuf>,
    /// The stamps of the files before they were last read, whether that succeeded or not.
    read: Vec<Option<Stamp>>,
    /// When they were read, by the clock that stamps are compared with.
    read_at: SystemTime,
    /// The hash of the contents at that time.
    content: u128,
    /// The stamps at the last check, and the hash of the contents if they were read then.
    seen: Vec<Option<Stamp>>,
    seen_content: Option<u128>,
    failed: bool,
}

/// A question about files, to be asked of the disk.
pub(super) struct DiskQuestion(Known);

/// A question for which the disk has been asked about the stamps.
struct Looking<'q> {
    known: &'q Known,
    at: SystemTime,
    stamps: Vec<io::Result<Begun>>,
}

/// A question for which the disk has been asked for the contents, if they have to be read.
struct Reading<'q> {
    known: &'q Known,
    stamps: Vec<Option<Stamp>>,
    contents: Option<Vec<io::Result<Begun>>>,
}

/// Files that were in use before: their value and known state.
pub(super) struct Earlier<T> {
    good: T,
    known: Known,
}

/// The disk's answer.
pub(super) struct DiskAnswer {
    at: SystemTime,
    found: Result<Found, TlsFileError>,
}

struct Found {
    stamps: Vec<Option<Stamp>>,
    /// `None` if the files did not have to be read.
    contents: Option<Result<Vec<Content>, TlsFileError>>,
}

/// The result of a check of the files.
#[derive(Debug)]
pub(super) enum CheckResult {
    Same,
    Renewed,
    /// The present files cannot be used. `is_news`: this was not known before.
    Failed {
        error: TlsFileError,
        is_news: bool,
    },
}

impl<T> Watched<T> {
    /// Reads the files for the first time.
    pub(super) fn read(paths: Vec<PathBuf>, parse: Parse<T>) -> Result<Self, TlsFileError> {
        let now = SystemTime::now();
        let contents = contents(&paths, begin(&paths, file_access::begin_read))?;
        let (good, content) = (parse(&bytes(&contents))?, hash(&contents));
        let (read, read_at) = (stamps_of(&contents), earliest(&contents, now));
        let known =
            Known { paths, seen: read.clone(), read, read_at, content, seen_content: Some(content), failed: false };
        Ok(Self { parse, good, known })
    }

    /// Reads files that were in use before. If the present files cannot be used, the earlier value stays in use, and the result has the error.
    pub(super) fn read_again(parse: Parse<T>, earlier: Earlier<T>) -> (Self, CheckResult) {
        let Earlier { good, known } = earlier;
        let had_failed = known.failed;
        // The next check treats the files as unknown, so it reads them in any case.
        let mut again = Self { parse, good, known: Known { failed: true, ..known } };
        again.known.seen = again.known.paths.iter().map(|_| None).collect();
        let contents = contents(&again.known.paths, begin(&again.known.paths, file_access::begin_read));
        let at = SystemTime::now();
        let seen = contents.as_ref().map_or_else(|_| stamps(&again.known.paths), |contents| stamps_of(contents));
        let look = match contents {
            Err(error) if is_late(&error) => again.judge(DiskAnswer { at, found: Err(error) }),
            contents => again.judge(DiskAnswer { at, found: Ok(Found { stamps: seen, contents: Some(contents) }) }),
        };
        let look = match look {
            CheckResult::Failed { error, is_news } => CheckResult::Failed { error, is_news: is_news || !had_failed },
            CheckResult::Same | CheckResult::Renewed => look,
        };
        (again, look)
    }

    /// Returns the value and the known state, with which a later reading of the same files can start.
    pub(super) fn earlier(&self) -> Earlier<T>
    where
        T: Clone,
    {
        Earlier { good: self.good.clone(), known: self.known.clone() }
    }

    /// Returns the question of the next check.
    pub(super) fn question(&self) -> DiskQuestion {
        DiskQuestion(self.known.clone())
    }

    /// Applies changed files. They are read once two checks in a row find the same stamps: files are seldom renewed in one step, and a certificate
    /// whose key is not yet written is no error.
    pub(super) fn judge(&mut self, DiskAnswer { at, found }: DiskAnswer) -> CheckResult {
        let (Found { stamps, contents }, known) = match found {
            Ok(found) => (found, &mut self.known),
            Err(error) => {
                let is_news = !std::mem::replace(&mut self.known.failed, true);
                return CheckResult::Failed { error, is_news };
            }
        };
        known.seen = stamps;
        let Some(contents) = contents else {
            known.seen_content = None;
            return CheckResult::Same;
        };
        if contents.as_ref().is_ok_and(|contents| stamps_of(contents) != known.seen) {
            // They were replaced after the look at their stamps, or this has joined a read that began before it.
            known.seen_content = None;
            return CheckResult::Same;
        }
        let is_news = known.seen != known.read;
        let content = contents.as_ref().ok().map(|contents| hash(contents));
        let before = std::mem::replace(&mut known.seen_content, content);
        if !is_news && !known.failed {
            // The stamps do not distinguish versions here, so two checks have to find the same contents.
            if content.is_none() || content == Some(known.content) || content != before {
                return CheckResult::Same;
            }
        }
        known.read.clone_from(&known.seen);
        known.read_at = contents.as_ref().map_or(at, |contents| earliest(contents, at));
        if !known.failed && content == Some(known.content) {
            return CheckResult::Same; // written again with the same content
        }
        known.content = content.unwrap_or_default();
        let read = contents.and_then(|contents| (self.parse)(&bytes(&contents)));
        known.failed = read.is_err();
        match read {
            Ok(good) => {
                self.good = good;
                CheckResult::Renewed
            }
            Err(error) => CheckResult::Failed { error, is_news },
        }
    }

    /// Returns the last good version.
    pub(super) fn good(&self) -> &T {
        &self.good
    }

    /// Whether the present files cannot be used, so that an earlier version is in use.
    pub(super) fn has_failed(&self) -> bool {
        self.known.failed
    }
}

/// Asks the disk, which may take long. The answers are in the order of the questions.
pub(super) fn ask(questions: &[&DiskQuestion]) -> Vec<DiskAnswer> {
    let looking: Vec<_> = questions.iter().map(|question| question.begin()).collect();
    let reading: Vec<_> = looking.into_iter().map(|looking| (looking.at, looking.read())).collect();
    let answers = reading.into_iter().map(|(at, reading)| DiskAnswer { at, found: reading.and_then(Reading::found) });
    answers.collect()
}

impl DiskQuestion {
    fn begin(&self) -> Looking<'_> {
        let stamps = begin(&self.0.paths, file_access::begin_stamp);
        Looking { known: &self.0, at: SystemTime::now(), stamps }
    }
}

impl<'q> Looking<'q> {
    /// Waits for the stamps, and begins to read the files if they may have changed.
    fn read(self) -> Result<Reading<'q>, TlsFileError> {
        let Self { known, stamps, .. } = self;
        let stamps = known.paths.iter().zip(stamps).map(|(path, begun)| {
            let stamp = begun.and_then(|begun| begun.stamp(LIMIT));
            stamp.map_err(|source| TlsFileError::Read { path: path.clone(), source })
        });
        let stamps = stamps.collect::<Result<Vec<_>, _>>()?;
        let has_settled = stamps == known.seen;
        let may_differ = stamps != known.read || known.failed || known.may_be_written_unseen();
        let contents = (has_settled && may_differ).then(|| begin(&known.paths, file_access::begin_read));
        Ok(Reading { known, stamps, contents })
    }
}

impl Reading<'_> {
    fn found(self) -> Result<Found, TlsFileError> {
        let Self { known, stamps, contents: begun } = self;
        match begun.map(|begun| contents(&known.paths, begun)) {
            Some(Err(error)) if is_late(&error) => Err(error),
            contents => Ok(Found { stamps, contents }),
        }
    }
}

impl Known {
    /// Whether the files were read so soon after a change that a later change may have the same stamp.
    fn may_be_written_unseen(&self) -> bool {
        self.read.iter().flatten().any(|stamp| stamp.is_fresh(self.read_at))
    }
}

/// Whether the disk has not answered in time, so that nothing is known of the file.
fn is_late(error: &TlsFileError) -> bool {
    matches!(error, TlsFileError::Read { source, .. } if source.kind() == io::ErrorKind::TimedOut)
}

/// Begins the same access to each of these files.
fn begin(paths: &[PathBuf], access: fn(&Path) -> io::Result<Begun>) -> Vec<io::Result<Begun>> {
    paths.iter().map(|path| access(path)).collect()
}

fn contents(paths: &[PathBuf], begun: Vec<io::Result<Begun>>) -> Result<Vec<Content>, TlsFileError> {
    let contents = paths.iter().zip(begun).map(|(path, begun)| {
        let content = begun.and_then(|begun| begun.content(LIMIT));
        content.map_err(|source| TlsFileError::Read { path: path.clone(), source })
    });
    contents.collect()
}

/// Returns the stamps of files that cannot be read.
fn stamps(paths: &[PathBuf]) -> Vec<Option<Stamp>> {
    let begun = begin(paths, file_access::begin_stamp);
    begun.into_iter().map(|begun| begun.and_then(|begun| begun.stamp(LIMIT)).ok().flatten()).collect()
}

fn stamps_of(contents: &[Content]) -> Vec<Option<Stamp>> {
    contents.iter().map(|content| content.stamp).collect()
}

fn bytes(contents: &[Content]) -> Vec<Bytes> {
    contents.iter().map(|content| content.bytes.clone()).collect()
}

fn earliest(contents: &[Content], at: SystemTime) -> SystemTime {
    contents.iter().map(|content| content.at).fold(at, SystemTime::min)
}

fn hash(contents: &[Content]) -> u128 {
    let mut hasher = Xxh3::new();
    for Content { bytes, .. } in contents {
        hasher.update(&bytes.len().to_le_bytes());
        hasher.update(bytes);
    }
    hasher.digest128()
}

#[cfg(test)]
mod tests {
    use super::*;

    impl<T> Watched<T> {
        fn look(&mut self) -> CheckResult {
            let question = self.question();
            self.judge(ask(&[&question]).pop().unwrap())
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
        let _ = std::fs::remove_dir_all(&folder); // of an earlier run
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
        assert!(matches!(watched.look(), CheckResult::Same));

        let other = folder.join("next");
        std::os::unix::fs::symlink(&versions[1], &other).unwrap();
        std::fs::rename(&other, &link).unwrap(); // only the link has changed
        assert!(matches!(watched.look(), CheckResult::Same), "they may be changing still");
        assert!(matches!(watched.look(), CheckResult::Renewed));
        assert_eq!(watched.good(), "34");

        write(1, "two", "bad");
        assert!(matches!(watched.look(), CheckResult::Same));
        assert!(matches!(watched.look(), CheckResult::Failed { is_news: true, .. }));
        assert!(matches!(watched.look(), CheckResult::Failed { is_news: false, .. }), "it is tried again");
        assert!(watched.has_failed() && watched.good() == "34");
        std::fs::remove_file(versions[1].join("two")).unwrap();
        assert!(matches!(watched.look(), CheckResult::Same));
        assert!(matches!(watched.look(), CheckResult::Failed { error: TlsFileError::Read { .. }, is_news: true }));
        write(1, "two", "5");
        assert!(matches!((watched.look(), watched.look()), (CheckResult::Same, CheckResult::Renewed)));
        assert!(!watched.has_failed() && watched.good() == "35");

        // Files that are replaced between the look at their stamps and the reading are judged once they have settled.
        write(1, "two", "bad 1");
        assert!(matches!(watched.look(), CheckResult::Same));
        assert!(matches!(watched.look(), CheckResult::Failed { is_news: true, .. }));
        let answer_before = |watched: &Watched<String>, change: &dyn Fn()| {
            let stamps = watched.known.seen.clone();
            change();
            let read = contents(&watched.known.paths, begin(&watched.known.paths, file_access::begin_read));
            DiskAnswer { at: SystemTime::now(), found: Ok(Found { stamps, contents: Some(read) }) }
        };
        let answer = answer_before(&watched, &|| write(1, "two", "bad again"));
        assert!(matches!(watched.judge(answer), CheckResult::Same));
        assert!(matches!(watched.look(), CheckResult::Same));
        assert!(matches!(watched.look(), CheckResult::Failed { is_news: true, .. }), "it is another version");
        let answer = answer_before(&watched, &|| std::fs::remove_file(versions[1].join("two")).unwrap());
        assert!(matches!(watched.judge(answer), CheckResult::Failed { is_news: false, .. }));
        assert!(matches!(watched.look(), CheckResult::Same));
        assert!(matches!(watched.look(), CheckResult::Failed { is_news: true, .. }), "once");
        assert!(matches!(watched.look(), CheckResult::Failed { is_news: false, .. }));
        std::fs::remove_dir_all(folder).unwrap();
    }

    /// A file that is written twice within a tick of the disk's clock has the same stamp twice. So has a file on a disk whose clock is ahead and does
    /// not advance.
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
            (watched.known.read, watched.known.seen) = (vec![stamp], vec![stamp]); // as if the stamp were the same
            let looks = [watched.look(), watched.look(), watched.look()];
            let renewed = looks.iter().filter(|look| matches!(look, CheckResult::Renewed)).count();
            assert_eq!((renewed, watched.good() == "2"), (usize::from(is_seen), is_seen), "{looks:?}");
            assert!(matches!(looks[0], CheckResult::Same), "it may be being written");
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
            DiskAnswer { at: SystemTime::now(), found: Err(TlsFileError::Read { path: "x".into(), source }) }
        };
        assert!(matches!(watched.judge(late()), CheckResult::Failed { is_news: true, .. }));
        assert!(matches!(watched.judge(late()), CheckResult::Failed { is_news: false, .. }));
        assert!(watched.has_failed() && watched.good() == "1");
        assert!(matches!(watched.look(), CheckResult::Renewed), "it is read again, and nothing else is known of it");
        assert!(!watched.has_failed());
        std::fs::remove_file(&path).unwrap();
    }
}
