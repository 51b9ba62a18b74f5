//! Reads files that others write while the relay runs: tokens, certificates, the configuration.
//!
//! A disk may hang, as that of a server that is gone does, and a read then never returns. So each access has a thread of its own, and there is
//! one at a time for each file: whoever asks for the same file meanwhile gets what that one finds, and waits until it has taken too long.
//! Many attempts on a file that hangs cost one thread, and none of those that the runtime has for others. What hangs may do so for ever although
//! the path leads to another disk by now, so another access begins after [`RENEWED`]. When a few of a file hang, it is seldom asked for again, and
//! not at all while very many of all files do.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use tokio::sync::Notify;

/// How long an access may take where nothing else says so.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);

/// What tells two versions of a file apart: metadata that changes when it is written in place or replaced. Links are followed: Kubernetes
/// renews a volume by changing a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    pub(crate) size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Returns whether this is the same file, written to but not replaced.
    pub(crate) fn is_same_file(&self, other: Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    /// Returns whether the file changed so recently that its writer may not have finished. That is not known if it did so later than now.
    pub(crate) fn is_young(&self, at: SystemTime) -> bool {
        let of = |part: i64| u64::try_from(part).unwrap_or_default();
        let changed = Duration::from_secs(of(self.changed.0)) + Duration::from_nanos(of(self.changed.1));
        at.duration_since(SystemTime::UNIX_EPOCH + changed).map_or(true, |age| age < YOUNG)
    }

    /// Returns whether the stamp is so recent that a later change may have the same one.
    pub(crate) fn is_fresh(&self, at: SystemTime) -> bool {
        let seconds = u64::try_from(self.changed.0).unwrap_or_default();
        let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        at.duration_since(changed).map_or(true, |age| age < FRESH)
    }
}

/// How long a file has to be left alone before its writer counts as done.
pub(crate) const YOUNG: Duration = Duration::from_millis(750);
/// Time stamps of file systems are accurate to a second or two at worst.
const FRESH: Duration = Duration::from_secs(3);

/// Returns the content of a file, for who may wait in its thread.
pub(crate) fn read_blocking(path: &Path, limit: Duration) -> io::Result<Bytes> {
    Access::to(path, Sought::Content)?.found_blocking(limit)
}

/// Returns the stamp of a file, or none if there is no such file.
pub(crate) fn stamp_blocking(path: &Path, limit: Duration) -> io::Result<Option<Stamp>> {
    begin_stamp(path)?.stamp(limit)
}

/// Begins to read a file. Of several files that hang, those who begin all before they wait for one wait no longer than for one.
pub(crate) fn begin_read(path: &Path) -> io::Result<Begun> {
    Access::to(path, Sought::Content).map(Begun)
}

/// Begins to look at the stamp of a file.
pub(crate) fn begin_stamp(path: &Path) -> io::Result<Begun> {
    Access::to(path, Sought::Stamp).map(Begun)
}

/// An access that has begun, of this one or of another who asked for the same.
pub(crate) struct Begun(Arc<Access>);

/// What was in a file. What is read may be older than what was asked later, so it has a stamp of its own.
#[derive(Debug, Clone)]
pub(crate) struct Content {
    pub(crate) bytes: Bytes,
    pub(crate) stamp: Option<Stamp>,
    /// When the reading began, or a little before.
    pub(crate) at: SystemTime,
}

impl Begun {
    /// Waits for the content of a file.
    pub(crate) async fn bytes(&self, limit: Duration) -> io::Result<Bytes> {
        self.0.found(limit).await
    }

    /// Returns the content of a file if it has come, whenever that was.
    pub(crate) fn come(&self) -> Option<Bytes> {
        self.0.content()?.ok()
    }

    /// The same as [`Self::bytes`] for who may wait in its thread, with how the file looked.
    pub(crate) fn content(&self, limit: Duration) -> io::Result<Content> {
        let bytes = self.0.found_blocking(limit)?;
        Ok(Content { bytes, stamp: self.0.stamp(), at: self.0.at })
    }

    /// Waits for the stamp of a file. None if there is no such file.
    pub(crate) fn stamp(&self, limit: Duration) -> io::Result<Option<Stamp>> {
        match self.0.found_blocking(limit) {
            Ok(_) => Ok(self.0.stamp()),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(error),
            Err(_) => Ok(None),
        }
    }
}

/// Looks whether a file can be opened, or a folder listed.
pub(crate) fn look_blocking(path: &Path, limit: Duration) -> io::Result<()> {
    Access::to(path, Sought::Presence)?.found_blocking(limit).map(drop)
}

/// What an access is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Sought {
    Content,
    Stamp,
    Presence,
}

/// One access, shared by all who wait for what it finds.
struct Access {
    path: PathBuf,
    begun: Instant,
    /// The same by the clock of stamps.
    at: SystemTime,
    found: Mutex<Option<Found>>,
    /// For those who wait in their thread.
    is_found: Condvar,
    /// For all others.
    waiting: Notify,
}

type Found = Result<(Bytes, Option<Stamp>), Arc<io::Error>>;

type UnderWay = BTreeMap<(PathBuf, Sought), Vec<Arc<Access>>>;

/// The accesses that have not returned, the latest of each file last.
static UNDER_WAY: LazyLock<Mutex<UnderWay>> = LazyLock::new(Mutex::default);

impl Access {
    /// Joins the access to a file that is under way, or begins one.
    fn to(path: &Path, sought: Sought) -> io::Result<Arc<Self>> {
        Self::to_at(path, sought, Instant::now())
    }

    fn to_at(path: &Path, sought: Sought, now: Instant) -> io::Result<Arc<Self>> {
        let key = (path.to_owned(), sought);
        let mut under_way = lock(&UNDER_WAY);
        let before = under_way.get(&key).map_or(&[][..], |before| before);
        if let Some(latest) = before.last()
            && !is_another_due(before.len(), now.saturating_duration_since(latest.begun), || lost(&under_way))
        {
            return Ok(latest.clone());
        }
        let access = Arc::new(Self {
            path: path.to_owned(),
            begun: now,
            at: SystemTime::now(),
            found: Mutex::default(),
            is_found: Condvar::new(),
            waiting: Notify::new(),
        });
        let (of_thread, of_map) = (access.clone(), key.clone());
        thread::Builder::new().name("weir-file".into()).spawn(move || {
            let found = sought.seek(&of_map.0);
            of_thread.end(&of_map); // who asks from now on asks the disk
            of_thread.answer(found);
        })?;
        under_way.entry(key).or_default().push(access.clone());
        Ok(access)
    }

    fn end(&self, key: &(PathBuf, Sought)) {
        let mut under_way = lock(&UNDER_WAY);
        if let Some(all) = under_way.get_mut(key) {
            all.retain(|access| !std::ptr::eq(&**access, self));
            if all.is_empty() {
                under_way.remove(key);
            }
        }
    }

    fn answer(&self, found: Found) {
        *lock(&self.found) = Some(found);
        self.is_found.notify_all();
        self.waiting.notify_waiters();
    }

    /// Waits until the access has taken so long, whenever this one joined it.
    async fn found(&self, limit: Duration) -> io::Result<Bytes> {
        let answered = async {
            loop {
                let mut waiting = std::pin::pin!(self.waiting.notified());
                waiting.as_mut().enable(); // before the look, so that no answer comes in between
                if let Some(found) = self.content() {
                    return found;
                }
                waiting.await;
            }
        };
        let left = (self.begun + limit).saturating_duration_since(Instant::now());
        tokio::time::timeout(left, answered).await.unwrap_or_else(|_| Err(self.late(limit)))
    }

    fn found_blocking(&self, limit: Duration) -> io::Result<Bytes> {
        let left = (self.begun + limit).saturating_duration_since(Instant::now());
        let found = self.is_found.wait_timeout_while(lock(&self.found), left, |found| found.is_none());
        drop(found.unwrap_or_else(PoisonError::into_inner));
        self.content().unwrap_or_else(|| Err(self.late(limit)))
    }

    fn content(&self) -> Option<io::Result<Bytes>> {
        let found = lock(&self.found);
        found.as_ref().map(|found| match found {
            Ok((content, _)) => Ok(content.clone()),
            // An error of the system keeps its number, by which it is told apart.
            Err(error) => Err(match error.raw_os_error() {
                Some(number) => io::Error::from_raw_os_error(number),
                None => io::Error::new(error.kind(), error.to_string()),
            }),
        })
    }

    fn stamp(&self) -> Option<Stamp> {
        lock(&self.found).as_ref().and_then(|found| found.as_ref().ok()?.1)
    }

    fn late(&self, limit: Duration) -> io::Error {
        let (path, limit) = (self.path.display(), humantime::format_duration(limit));
        io::Error::new(io::ErrorKind::TimedOut, format!("the disk has not answered for {path} within {limit}"))
    }
}

impl Sought {
    fn seek(self, path: &Path) -> Found {
        let found = match self {
            Self::Content => content(path).map(|(content, stamp)| (content.into(), Some(stamp))),
            Self::Stamp => path.metadata().map(|metadata| (Bytes::new(), Some(Stamp::of(&metadata)))),
            Self::Presence => path.metadata().and_then(|metadata| match metadata.is_dir() {
                true => fs::read_dir(path).map(|_| (Bytes::new(), None)),
                false => fs::File::open(path).map(|_| (Bytes::new(), None)),
            }),
        };
        found.map_err(Arc::new)
    }
}

/// Reads a file. A change while it is read has another stamp.
fn content(path: &Path) -> io::Result<(Vec<u8>, Stamp)> {
    let mut file = fs::File::open(path)?;
    let (stamp, mut content) = (Stamp::of(&file.metadata()?), Vec::new());
    file.read_to_end(&mut content)?;
    Ok((content, stamp))
}

/// Whether another access begins beside so many that have not returned, the latest of which began so long ago.
fn is_another_due(hang: usize, since: Duration, lost: impl FnOnce() -> usize) -> bool {
    match hang < FEW {
        true => since >= RENEWED,
        false => since >= SELDOM && lost() < MAX_LOST,
    }
}

/// How many accesses there are beside the first one to each file.
fn lost(under_way: &UnderWay) -> usize {
    under_way.values().map(|all| all.len().saturating_sub(1)).sum()
}

/// When another access begins although the one before has not returned.
const RENEWED: Duration = Duration::from_secs(60);
/// How many accesses to a file may hang before others to it are seldom.
const FEW: usize = 3;
/// When another access begins then.
const SELDOM: Duration = Duration::from_secs(600);
/// How many threads may be lost to accesses that hang, besides one to each file. With more of them only the first few to a file begin.
const MAX_LOST: usize = 64;

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A pipe that hangs whoever reads it, until something is written.
    pub(crate) struct Pipe(pub(crate) PathBuf);

    impl Pipe {
        pub(crate) fn new(name: &str) -> Self {
            Self::at(std::env::temp_dir().join(format!("weir-pipe-{name}-{}", std::process::id())))
        }

        /// Puts it in the place of a file.
        pub(crate) fn at(path: PathBuf) -> Self {
            let _ = fs::remove_file(&path);
            make_pipe(&path);
            Self(path)
        }
    }

    impl Drop for Pipe {
        /// Nobody is left waiting.
        fn drop(&mut self) {
            let opened = fs::File::options().read(true).write(true).open(&self.0);
            let _ = fs::remove_file(&self.0);
            thread::sleep(Duration::from_millis(10)); // a reader that has just found it opens it meanwhile
            drop(opened); // a reader finds the end of it
        }
    }

    /// Without another program: that would have copies of the files and sockets of other tests, and of their locks, until it runs.
    pub(crate) fn make_pipe(path: &Path) {
        nix::unistd::mkfifo(path, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    }

    /// How many accesses to a file are under way.
    pub(crate) fn under_way(path: &Path) -> usize {
        lock(&UNDER_WAY).iter().filter(|((of, _), _)| of == path).map(|(_, all)| all.len()).sum()
    }

    const SHORT: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(60);

    async fn read(path: &Path, limit: Duration) -> io::Result<Bytes> {
        begin_read(path)?.bytes(limit).await
    }

    #[tokio::test]
    async fn a_hundred_attempts_on_a_file_that_hangs_share_one_thread_and_the_result() {
        let pipe = Pipe::new("many");
        let attempts = (0..100).map(|_| read(&pipe.0, SHORT));
        for attempt in futures_util::future::join_all(attempts).await {
            let error = attempt.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            assert!(error.to_string().ends_with("within 50ms"), "{error}");
        }
        assert_eq!(under_way(&pipe.0), 1);
        // A read with as little time as those fails too, and one with more time waits.
        assert_eq!(read_blocking(&pipe.0, SHORT).unwrap_err().kind(), io::ErrorKind::TimedOut);
        // Both have joined it before it has its result; a later one would find the pipe empty.
        let [one, other] = [(); 2].map(|()| begin_read(&pipe.0).unwrap());
        let path = pipe.0.clone();
        let writing = tokio::task::spawn_blocking(move || fs::write(path, "late"));
        let (one, other, written) = tokio::join!(one.bytes(LONG), other.bytes(LONG), writing);
        written.unwrap().unwrap();
        assert_eq!((&one.unwrap()[..], &other.unwrap()[..]), (&b"late"[..], &b"late"[..]));
        assert_eq!(under_way(&pipe.0), 0);
    }

    /// What hangs on a mount that was replaced may never return.
    #[test]
    fn after_a_minute_a_file_that_hangs_is_asked_for_again_a_few_times() {
        let pipe = Pipe::new("again");
        let (start, minute) = (Instant::now(), RENEWED);
        let at = |now| Access::to_at(&pipe.0, Sought::Content, now).unwrap();
        let first = at(start);
        assert!(Arc::ptr_eq(&first, &at(start + minute - SHORT)));
        let mut others: Vec<_> = (1..=11).map(|minutes| at(start + minutes * minute)).collect();
        assert_eq!(under_way(&pipe.0), FEW);
        assert!(!Arc::ptr_eq(&first, &others[0]) && Arc::ptr_eq(&others[1], &others[10]));
        // It may lead to another disk after a long time too.
        others.extend([12, 13, 21, 22].map(|minutes| at(start + minutes * minute)));
        assert_eq!(under_way(&pipe.0), FEW + 2);
        assert!(!Arc::ptr_eq(&others[10], &others[11]) && Arc::ptr_eq(&others[11], &others[13]));
        let path = pipe.0.clone();
        drop(pipe);
        let ended = |access: &Arc<Access>| match access.found_blocking(10 * minute) {
            Ok(content) => content.is_empty(),
            Err(error) => error.kind() == io::ErrorKind::NotFound, // it came late to its file
        };
        assert!(ended(&first) && others.iter().all(ended));
        assert_eq!(under_way(&path), 0);
    }

    #[test]
    fn of_files_that_hang_no_more_threads_are_lost_than_a_limit() {
        for (hang, since, lost, expected) in [
            (1, RENEWED - SHORT, 0, false),
            (1, RENEWED, MAX_LOST, true),
            (FEW - 1, RENEWED, MAX_LOST, true),
            (FEW, SELDOM - SHORT, 0, false),
            (FEW, SELDOM, MAX_LOST - 1, true),
            (FEW, SELDOM, MAX_LOST, false),
            (MAX_LOST, SELDOM, 0, true),
        ] {
            assert_eq!(is_another_due(hang, since, || lost), expected, "{hang} {since:?} {lost}");
        }
    }

    /// Who asks while an earlier reading hangs gets what that one finds, and is to know that it is older.
    #[test]
    fn what_is_read_has_the_stamp_of_what_was_read_and_not_of_what_is_there_now() {
        let pipe = Pipe::new("stamp");
        let (path, begun) = (pipe.0.clone(), begin_read(&pipe.0).unwrap());
        let of_pipe = stamp_blocking(&path, LONG).unwrap();
        let mut writer = fs::File::options().write(true).open(&path).unwrap(); // once it is being read
        let next = path.with_extension("next");
        fs::write(&next, "new").unwrap();
        fs::rename(&next, &path).unwrap();
        let joined = begin_read(&path).unwrap();
        io::Write::write_all(&mut writer, b"old").unwrap();
        drop(writer);
        let (first, second) = (begun.content(LONG).unwrap(), joined.content(LONG).unwrap());
        assert_eq!((&first.bytes[..], &second.bytes[..]), (&b"old"[..], &b"old"[..]));
        let inode = |stamp: Option<Stamp>| stamp.unwrap().inode;
        assert_eq!(inode(second.stamp), inode(of_pipe));
        assert_ne!(inode(second.stamp), inode(stamp_blocking(&path, LONG).unwrap()));
        let now = begin_read(&path).unwrap().content(LONG).unwrap();
        assert_eq!((&now.bytes[..], now.stamp), (&b"new"[..], stamp_blocking(&path, LONG).unwrap()));
    }

    #[test]
    fn what_the_system_says_of_a_file_arrives_as_it_was_said() {
        let missing = std::env::temp_dir().join(format!("weir-missing-{}", std::process::id()));
        let error = read_blocking(&missing, LIMIT).unwrap_err();
        assert_eq!(
            (error.kind(), error.raw_os_error()),
            (io::ErrorKind::NotFound, fs::read(&missing).unwrap_err().raw_os_error())
        );
        assert_eq!(look_blocking(&missing, LIMIT).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(stamp_blocking(&missing, LIMIT).unwrap().is_none());
        fs::write(&missing, "there").unwrap();
        let stamp = Stamp::of(&missing.metadata().unwrap());
        assert_eq!(stamp_blocking(&missing, LIMIT).unwrap(), Some(stamp));
        assert_eq!(&read_blocking(&missing, LIMIT).unwrap()[..], b"there");
        look_blocking(&missing, LIMIT).unwrap();
        fs::remove_file(&missing).unwrap();
    }
}
