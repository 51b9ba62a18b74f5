//! Reads files that others may write while the relay runs: tokens, certificates, the configuration.
//!
//! A disk may hang, for example one of a lost server, and a read then never returns. So each access has a thread of its own, and each file has one
//! access at a time: those that request the same file meanwhile share its result, and wait for it only within their own limits. Many attempts on a
//! hanging file cost one thread, which is none of the runtime's. A hanging access may never return although the path leads to another disk by now, so another
//! access begins after [`RENEWED`]. Once a few accesses to a file hang, others begin seldom, and none begins while very many hang over all
//! files.

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

/// The limit of an access, unless the caller has a reason for another one.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);

/// Distinguishes two versions of a file: metadata that changes when the file is written in place or replaced. Links are followed, because
/// Kubernetes renews a volume by changing a link.
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

    /// Returns whether this is the same file, possibly written to, but not replaced.
    pub(crate) fn is_same_file(&self, other: Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    /// Returns whether the file changed so recently that its writer may not have finished. A change in the future counts as recent too.
    pub(crate) fn is_young(&self, at: SystemTime) -> bool {
        let of = |part: i64| u64::try_from(part).unwrap_or_default();
        let changed = Duration::from_secs(of(self.changed.0)) + Duration::from_nanos(of(self.changed.1));
        at.duration_since(SystemTime::UNIX_EPOCH + changed).map_or(true, |age| age < YOUNG)
    }

    /// Returns whether the stamp is so recent that a later change may have the same stamp.
    pub(crate) fn is_fresh(&self, at: SystemTime) -> bool {
        let seconds = u64::try_from(self.changed.0).unwrap_or_default();
        let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        at.duration_since(changed).map_or(true, |age| age < FRESH)
    }
}

/// How long a file must not change before its writer counts as finished.
pub(crate) const YOUNG: Duration = Duration::from_millis(750);
/// In the worst case, file systems have time stamps with an accuracy of a second or two.
const FRESH: Duration = Duration::from_secs(3);

/// Returns the content of a file, for callers that may block their thread.
pub(crate) fn read_blocking(path: &Path, limit: Duration) -> io::Result<Bytes> {
    Access::to(path, AccessKind::Content)?.found_blocking(limit)
}

/// Returns the stamp of a file; `None` if there is no such file.
pub(crate) fn stamp_blocking(path: &Path, limit: Duration) -> io::Result<Option<Stamp>> {
    begin_stamp(path)?.stamp(limit)
}

/// Begins to read a file. A caller that begins several reads before it waits for any does not wait longer than for one, even if several hang.
pub(crate) fn begin_read(path: &Path) -> io::Result<Begun> {
    Access::to(path, AccessKind::Content).map(Begun)
}

/// Begins to read the stamp of a file.
pub(crate) fn begin_stamp(path: &Path) -> io::Result<Begun> {
    Access::to(path, AccessKind::Stamp).map(Begun)
}

/// An access that has begun, perhaps for another caller that requested the same.
pub(crate) struct Begun(Arc<Access>);

/// The content of a file. It may be older than a stamp that was read separately, so it has a stamp of its own.
#[derive(Debug, Clone)]
pub(crate) struct Content {
    pub(crate) bytes: Bytes,
    pub(crate) stamp: Option<Stamp>,
    /// A time at or shortly before the beginning of the read.
    pub(crate) at: SystemTime,
}

impl Begun {
    /// Waits for the content of a file.
    pub(crate) async fn bytes(&self, limit: Duration) -> io::Result<Bytes> {
        self.0.found(limit).await
    }

    /// Returns the content of a file if the read has succeeded, whenever that was.
    pub(crate) fn come(&self) -> Option<Bytes> {
        self.0.content()?.ok()
    }

    /// Like [`Self::bytes`], with the stamp of the file, for callers that may block their thread.
    pub(crate) fn content(&self, limit: Duration) -> io::Result<Content> {
        let bytes = self.0.found_blocking(limit)?;
        Ok(Content { bytes, stamp: self.0.stamp(), at: self.0.at })
    }

    /// Waits for the stamp of a file; `None` if there is no such file.
    pub(crate) fn stamp(&self, limit: Duration) -> io::Result<Option<Stamp>> {
        match self.0.found_blocking(limit) {
            Ok(_) => Ok(self.0.stamp()),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(error),
            Err(_) => Ok(None),
        }
    }
}

/// Checks whether a file can be opened, or a folder listed.
pub(crate) fn look_blocking(path: &Path, limit: Duration) -> io::Result<()> {
    Access::to(path, AccessKind::Presence)?.found_blocking(limit).map(drop)
}

/// The result that an access is to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum AccessKind {
    Content,
    Stamp,
    Presence,
}

/// One access, shared by all callers that wait for its result.
struct Access {
    path: PathBuf,
    begun: Instant,
    /// The beginning, by the clock of stamps.
    at: SystemTime,
    found: Mutex<Option<Found>>,
    /// Wakes callers that block their thread.
    is_found: Condvar,
    /// Wakes all other callers.
    waiting: Notify,
}

type Found = Result<(Bytes, Option<Stamp>), Arc<io::Error>>;

type UnderWay = BTreeMap<(PathBuf, AccessKind), Vec<Arc<Access>>>;

/// The accesses that have not returned, the latest of each file last.
static UNDER_WAY: LazyLock<Mutex<UnderWay>> = LazyLock::new(Mutex::default);

impl Access {
    /// Joins the access to a file that is under way, or begins one.
    fn to(path: &Path, kind: AccessKind) -> io::Result<Arc<Self>> {
        Self::to_at(path, kind, Instant::now())
    }

    fn to_at(path: &Path, kind: AccessKind, now: Instant) -> io::Result<Arc<Self>> {
        let key = (path.to_owned(), kind);
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
            let found = kind.perform(&of_map.0);
            of_thread.end(&of_map); // later callers ask the disk again
            of_thread.answer(found);
        })?;
        under_way.entry(key).or_default().push(access.clone());
        Ok(access)
    }

    fn end(&self, key: &(PathBuf, AccessKind)) {
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

    /// Waits for the result until the access has taken `limit`, counted from its beginning and not from when this caller joined it.
    async fn found(&self, limit: Duration) -> io::Result<Bytes> {
        let answered = async {
            loop {
                let mut waiting = std::pin::pin!(self.waiting.notified());
                waiting.as_mut().enable(); // before the check, so that no result is missed in between
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
            // An error of the system keeps its number, by which callers recognise it.
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

impl AccessKind {
    fn perform(self, path: &Path) -> Found {
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

/// Reads a file. If it changes during the read, the stamp differs from the later one.
fn content(path: &Path) -> io::Result<(Vec<u8>, Stamp)> {
    let mut file = fs::File::open(path)?;
    let (stamp, mut content) = (Stamp::of(&file.metadata()?), Vec::new());
    file.read_to_end(&mut content)?;
    Ok((content, stamp))
}

/// Whether another access begins beside `hang` accesses that have not returned, the latest of which began `since` ago.
fn is_another_due(hang: usize, since: Duration, lost: impl FnOnce() -> usize) -> bool {
    match hang < FEW {
        true => since >= RENEWED,
        false => since >= SELDOM && lost() < MAX_LOST,
    }
}

/// Returns how many accesses there are beyond the first one to each file.
fn lost(under_way: &UnderWay) -> usize {
    under_way.values().map(|all| all.len().saturating_sub(1)).sum()
}

/// After this time, another access begins although the one before has not returned.
const RENEWED: Duration = Duration::from_secs(60);
/// From this number of hanging accesses to a file on, others to it begin seldom.
const FEW: usize = 3;
/// The time after which another access begins then.
const SELDOM: Duration = Duration::from_secs(600);
/// The limit of threads that hang beyond one for each file. Above it, only the first few accesses to a file begin.
const MAX_LOST: usize = 64;

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A pipe that blocks its readers until something is written.
    pub(crate) struct Pipe(pub(crate) PathBuf);

    impl Pipe {
        pub(crate) fn new(name: &str) -> Self {
            Self::at(std::env::temp_dir().join(format!("weir-pipe-{name}-{}", std::process::id())))
        }

        /// Replaces a file by the pipe.
        pub(crate) fn at(path: PathBuf) -> Self {
            let _ = fs::remove_file(&path);
            make_pipe(&path);
            Self(path)
        }
    }

    impl Drop for Pipe {
        /// Releases all readers that still wait.
        fn drop(&mut self) {
            let opened = fs::File::options().read(true).write(true).open(&self.0);
            let _ = fs::remove_file(&self.0);
            thread::sleep(Duration::from_millis(10)); // a reader that has just found it opens it meanwhile
            drop(opened); // a reader finds the end of it
        }
    }

    /// Makes a pipe without another program: until it runs, that has copies of the files and sockets of other tests, and of their locks.
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
        // A read with as little time as the earlier ones fails too, while one with more time waits.
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

    /// An access that hangs on a mount that was replaced may never return.
    #[test]
    fn after_a_minute_a_file_that_hangs_is_asked_for_again_a_few_times() {
        let pipe = Pipe::new("again");
        let (start, minute) = (Instant::now(), RENEWED);
        let at = |now| Access::to_at(&pipe.0, AccessKind::Content, now).unwrap();
        let first = at(start);
        assert!(Arc::ptr_eq(&first, &at(start + minute - SHORT)));
        let mut others: Vec<_> = (1..=11).map(|minutes| at(start + minutes * minute)).collect();
        assert_eq!(under_way(&pipe.0), FEW);
        assert!(!Arc::ptr_eq(&first, &others[0]) && Arc::ptr_eq(&others[1], &others[10]));
        // After a long time too, the path may lead to another disk.
        others.extend([12, 13, 21, 22].map(|minutes| at(start + minutes * minute)));
        assert_eq!(under_way(&pipe.0), FEW + 2);
        assert!(!Arc::ptr_eq(&others[10], &others[11]) && Arc::ptr_eq(&others[11], &others[13]));
        let path = pipe.0.clone();
        drop(pipe);
        let ended = |access: &Arc<Access>| match access.found_blocking(10 * minute) {
            Ok(content) => content.is_empty(),
            Err(error) => error.kind() == io::ErrorKind::NotFound, // this thread opened the file too late
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

    /// A caller that joins a hanging read gets its result, and must be able to see that this is older than its request.
    #[test]
    fn what_is_read_has_the_stamp_of_what_was_read_and_not_of_what_is_there_now() {
        let pipe = Pipe::new("stamp");
        let (path, begun) = (pipe.0.clone(), begin_read(&pipe.0).unwrap());
        let of_pipe = stamp_blocking(&path, LONG).unwrap();
        let mut writer = fs::File::options().write(true).open(&path).unwrap(); // opens once the file is being read
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
