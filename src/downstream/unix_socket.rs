//! Unix sockets: bound in a private folder and moved to their path once mode and owner are set, so that no client connects earlier.

use std::fs::{self, DirBuilder, File, Metadata, Permissions, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::UnixListener;

use super::inherited::InheritedSockets;
use super::late_socket::{AwaitedAddress, LateSocket, OF_UNIX};
use super::unix_options::{LONGEST_PATH, UnixOptions, UnixSocketError, check_folder, folder_of, group, user};

/// A socket that clients can connect to. Dropping it removes its file, unless another file has replaced it, or the socket was inherited.
#[derive(Debug)]
pub(crate) struct UnixSocket {
    _file: Option<SocketFile>, // dropped first: no file may remain whose socket is closed
    listener: UnixListener,
}

/// A socket that is not yet at its path.
struct Prepared {
    socket: Socket,
    folder: PrivateFolder,
}

/// A folder that only this user may enter. Dropping it removes the folder and its contents.
struct PrivateFolder(PathBuf);

/// The file of a socket of this process.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    is: FileIdentity,
}

/// The identity of a file, which tells it from a later one at its path. The time is needed because inode numbers are reused.
#[derive(Debug, PartialEq, Eq)]
struct FileIdentity {
    device: u64,
    number: u64,
    modified: (i64, i64),
}

impl UnixSocket {
    /// Listens, with a backlog of this length.
    pub(crate) fn listen(options: &UnixOptions, backlog: i32) -> Result<Self, UnixSocketError> {
        let path = &options.path;
        let prepared = Prepared::new(options, backlog)?;
        let _lock = lock(folder_of(path))?;
        check_place(path)?;
        prepared.publish(path)
    }

    /// Returns the inherited socket at this path, or else listens on a new one, now or later. Also returns whether it was inherited.
    pub(crate) fn open(
        options: &UnixOptions,
        backlog: i32,
        inherited: &mut InheritedSockets,
    ) -> Result<(LateSocket<Self>, bool), UnixSocketError> {
        let path = &options.path;
        let fail = |error| UnixSocketError::System { what: "use the inherited socket", path: path.clone(), error };
        let Some(socket) = inherited.take_unix(path, backlog).map_err(fail)? else {
            return Ok((Self::listen_or_wait(options, backlog, inherited)?, false));
        };
        check_inherited(options)?;
        let socket = Self { _file: None, listener: UnixListener::from_std(socket.into()).map_err(fail)? };
        Ok((LateSocket::open(socket), true))
    }

    /// Listens. If another process has the path and this process is its successor, the socket is opened later.
    fn listen_or_wait(
        options: &UnixOptions,
        backlog: i32,
        inherited: &mut InheritedSockets,
    ) -> Result<LateSocket<Self>, UnixSocketError> {
        match Self::listen(options, backlog) {
            Err(UnixSocketError::InUse(_)) if inherited.follows_another() => {
                let late = LateSocket::unopened();
                let (opened, options) = (late.clone(), options.clone());
                let address = format!("unix:{}", options.path.display());
                let open = move || {
                    opened.set(Self::listen(&options, backlog)?);
                    Ok(())
                };
                inherited.await_address(AwaitedAddress::new(address, OF_UNIX, open));
                Ok(late)
            }
            listening => listening.map(LateSocket::open),
        }
    }

    pub(crate) fn listener(&self) -> &UnixListener {
        &self.listener
    }
}

impl Prepared {
    fn new(options: &UnixOptions, backlog: i32) -> Result<Self, UnixSocketError> {
        let path = &options.path;
        check_folder(folder_of(path))?;
        let (owner, group) = (user(&options.owner)?, group(&options.group)?);
        let folder = PrivateFolder::beside(path)?;
        let place = folder.socket();
        let fail = |what| move |error| UnixSocketError::System { what, path: path.clone(), error };
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(fail("open"))?;
        socket.bind(&SockAddr::unix(&place).map_err(fail("open"))?).map_err(fail("open"))?;
        fs::set_permissions(&place, Permissions::from_mode(options.mode)).map_err(fail("set the mode of"))?;
        if owner.is_some() || group.is_some() {
            lchown(&place, owner, group).map_err(fail("set owner and group of"))?;
        }
        socket.listen(backlog).map_err(fail("listen on"))?;
        socket.set_nonblocking(true).map_err(fail("open"))?;
        Ok(Self { socket, folder })
    }

    fn publish(self, path: &Path) -> Result<UnixSocket, UnixSocketError> {
        let fail = |error| UnixSocketError::System { what: "open", path: path.into(), error };
        let is = FileIdentity::of(&fs::symlink_metadata(self.folder.socket()).map_err(fail)?);
        let listener = UnixListener::from_std(self.socket.into()).map_err(fail)?;
        fs::rename(self.folder.socket(), path).map_err(fail)?;
        Ok(UnixSocket { _file: Some(SocketFile { path: path.into(), is }), listener })
    }
}

impl PrivateFolder {
    fn beside(path: &Path) -> Result<Self, UnixSocketError> {
        let number = RandomState::new().hash_one(std::process::id()) as u32;
        let own = folder_of(path).join(format!(".w{number:08x}"));
        if own.as_os_str().len() + "/s".len() > LONGEST_PATH || path.as_os_str().len() > LONGEST_PATH {
            return Err(UnixSocketError::TooLong(path.into()));
        }
        let made = DirBuilder::new().mode(0o700).create(&own);
        made.map_err(|error| UnixSocketError::System { what: "make a folder beside", path: path.into(), error })?;
        Ok(Self(own))
    }

    fn socket(&self) -> PathBuf {
        self.0.join("s")
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.socket()); // not there once the socket was moved
        let _ = fs::remove_dir(&self.0);
    }
}

impl FileIdentity {
    fn of(found: &Metadata) -> Self {
        Self { device: found.dev(), number: found.ino(), modified: (found.mtime(), found.mtime_nsec()) }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_own = fs::symlink_metadata(&self.path).is_ok_and(|found| FileIdentity::of(&found) == self.is);
        if is_own && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the socket; the next start replaces it");
        }
    }
}

/// Checks that no process uses the path of a socket. A file that a dead process has left may be replaced.
fn check_place(path: &Path) -> Result<(), UnixSocketError> {
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => return Err(UnixSocketError::Other(path.into())),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(UnixSocketError::System { what: "look at", path: path.into(), error }),
    }
    let connect = || {
        let client = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        client.set_nonblocking(true)?; // otherwise a socket with a full backlog would block
        client.connect(&SockAddr::unix(path)?)
    };
    match connect() {
        Ok(()) => Err(UnixSocketError::InUse(path.into())),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(UnixSocketError::InUse(path.into())),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(error) => Err(UnixSocketError::System { what: "find out who uses", path: path.into(), error }),
    }
}

/// Checks that an inherited socket permits no more than configured. The process that opened it set its mode and owner.
fn check_inherited(options: &UnixOptions) -> Result<(), UnixSocketError> {
    let path = &options.path;
    let (owner, group) = (user(&options.owner)?, group(&options.group)?);
    let found = fs::symlink_metadata(path);
    let found = found.map_err(|error| UnixSocketError::System { what: "look at", path: path.clone(), error })?;
    let differs = |configured: Option<u32>, is| configured.is_some_and(|configured| configured != is);
    if found.mode() & PERMISSIONS & !options.mode != 0 {
        let (is, expected) = (found.mode() & PERMISSIONS, options.mode);
        return Err(UnixSocketError::TooOpen { path: path.clone(), is, expected });
    }
    if differs(owner, found.uid()) || differs(group, found.gid()) {
        return Err(UnixSocketError::OtherOwner(path.clone()));
    }
    Ok(())
}

/// Locks the folder, so that one process at a time checks it and puts its socket there.
fn lock(folder: &Path) -> Result<File, UnixSocketError> {
    let fail = |error| UnixSocketError::System { what: "lock folder", path: folder.into(), error };
    let (file, begun) = (File::open(folder).map_err(fail)?, Instant::now());
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            #[allow(clippy::disallowed_methods, reason = "for two seconds at most, as the relay starts")]
            Err(TryLockError::WouldBlock) if begun.elapsed() < LOCK => std::thread::sleep(Duration::from_millis(10)),
            Err(TryLockError::WouldBlock) => return Err(UnixSocketError::Busy(folder.into())),
            Err(TryLockError::Error(error)) => return Err(fail(error)),
        }
    }
}

const PERMISSIONS: u32 = 0o777;
/// How long to wait for another process that opens a socket in the same folder.
const LOCK: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener as StdListener;

    use nix::unistd::{Gid, Uid};
    use tokio::net::UnixStream;

    use super::*;
    use crate::downstream::unix_options::Account;

    const PATIENCE: Duration = Duration::from_secs(20);

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("weir-unix-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn options(&self, mode: u32) -> UnixOptions {
            UnixOptions { path: self.0.join("weir.sock"), mode, owner: None, group: None }
        }

        fn entries(&self) -> Vec<PathBuf> {
            let mut entries: Vec<_> = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path()).collect();
            entries.sort();
            entries
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn listen(options: &UnixOptions) -> Result<UnixSocket, String> {
        UnixSocket::listen(options, 16).map_err(|error| error.to_string())
    }

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o7777
    }

    #[tokio::test]
    async fn a_socket_is_in_its_place_with_its_mode_and_goes_with_the_listener() {
        let folder = Folder::new("place");
        for expected in [0o600, 0o660, 0o777] {
            let options = folder.options(expected);
            let socket = listen(&options).unwrap();
            assert_eq!((folder.entries(), mode(&options.path)), (vec![options.path.clone()], expected));
            let (client, accepted) = tokio::join!(UnixStream::connect(&options.path), socket.listener().accept());
            let own = accepted.unwrap().0.peer_cred().unwrap();
            assert_eq!((own.uid(), own.gid()), (Uid::current().as_raw(), Gid::current().as_raw()));
            drop((client.unwrap(), socket));
            assert_eq!(folder.entries(), Vec::<PathBuf>::new());
        }
    }

    /// A connection does not find out whether a program uses such a socket.
    #[tokio::test]
    async fn a_socket_for_datagrams_is_left_in_its_place() {
        let folder = Folder::new("datagrams");
        let options = folder.options(0o600);
        let _other = std::os::unix::net::UnixDatagram::bind(&options.path).unwrap();
        let refused = listen(&options).unwrap_err();
        assert!(refused.contains("find out who uses"), "{refused}");
        assert_eq!(folder.entries(), std::slice::from_ref(&options.path));
    }

    #[tokio::test]
    async fn nobody_else_reaches_a_socket_before_its_mode_and_owner_are_set() {
        let folder = Folder::new("private");
        let own = Uid::current().as_raw();
        let options = UnixOptions {
            owner: Some(Account::Number(own)),
            group: Some(Account::Number(Gid::current().as_raw())),
            ..folder.options(0o666)
        };
        let prepared = Prepared::new(&options, 16).unwrap();
        let [private] = folder.entries().try_into().unwrap();
        assert_eq!((mode(&private), fs::metadata(&private).unwrap().uid()), (0o700, own));
        assert_eq!(mode(&private.join("s")), 0o666, "before it is moved");
        drop(prepared);
        assert_eq!(folder.entries(), Vec::<PathBuf>::new(), "what failed leaves nothing");
    }

    #[tokio::test]
    async fn the_socket_of_a_dead_process_is_replaced_and_that_of_a_live_one_is_not() {
        let folder = Folder::new("stale");
        let options = folder.options(0o600);
        drop(StdListener::bind(&options.path).unwrap());
        assert!(options.path.exists(), "the file stays");
        // A program that another test starts just now has a copy of the dead socket for a moment.
        let begun = Instant::now();
        let socket = loop {
            match listen(&options) {
                Err(error) if error.contains("is in use") && begun.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                listened => break listened.unwrap(),
            }
        };
        let again = listen(&options).unwrap_err();
        assert!(again.ends_with("weir.sock is in use: a process accepts connections there"), "{again}");
        drop(socket);
        let live = StdListener::bind(&options.path).unwrap();
        assert!(listen(&options).unwrap_err().contains("is in use"));
        live.set_nonblocking(true).unwrap();
        let waiting: Vec<_> = std::iter::repeat_with(|| {
            let client = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
            client.set_nonblocking(true).unwrap();
            let connected = client.connect(&SockAddr::unix(&options.path).unwrap());
            connected.map(|()| client)
        })
        .take(5_000)
        .take_while(Result::is_ok)
        .collect();
        assert!(listen(&options).unwrap_err().contains("is in use"), "with {} in its queue", waiting.len());
    }

    #[tokio::test]
    async fn what_is_no_socket_and_what_another_process_put_there_stays() {
        let folder = Folder::new("other");
        let options = folder.options(0o600);
        fs::write(&options.path, "text").unwrap();
        assert!(listen(&options).unwrap_err().ends_with("is no socket: expected nothing there, or a socket"));
        fs::remove_file(&options.path).unwrap();
        let socket = listen(&options).unwrap();
        fs::remove_file(&options.path).unwrap();
        let other = StdListener::bind(&options.path).unwrap();
        drop(socket);
        assert!(options.path.exists(), "it is another one's");
        drop(other);
    }

    #[tokio::test]
    async fn a_folder_in_which_everybody_could_replace_the_socket_is_an_error() {
        let folder = Folder::new("open");
        for (mode, usable) in [(0o777, false), (0o1777, true), (0o775, true), (0o702, false)] {
            fs::set_permissions(&folder.0, Permissions::from_mode(mode)).unwrap();
            let listened = listen(&folder.options(0o600));
            assert_eq!(listened.is_ok(), usable, "{mode:o}: {listened:?}");
            if let Err(error) = listened {
                assert!(error.contains("is writable by everybody: expected one"), "{error}");
            }
        }
        let nowhere = UnixOptions { path: folder.0.join("none/weir.sock"), ..folder.options(0o600) };
        assert!(listen(&nowhere).unwrap_err().starts_with("cannot use folder "));
    }

    #[tokio::test]
    async fn names_that_nobody_has_and_paths_that_are_too_long_are_errors() {
        let folder = Folder::new("names");
        let nobody = Some(Account::Name("no such account".into()));
        let options = folder.options(0o600);
        let owner = UnixOptions { owner: nobody.clone(), ..options.clone() };
        assert_eq!(listen(&owner).unwrap_err(), "unknown user \"no such account\"");
        let group = UnixOptions { group: nobody, ..options.clone() };
        assert_eq!(listen(&group).unwrap_err(), "unknown group \"no such account\"");
        let long = UnixOptions { path: folder.0.join("a".repeat(100)), ..options };
        assert!(listen(&long).unwrap_err().starts_with("path too long for a socket: "));
        assert_eq!(folder.entries(), Vec::<PathBuf>::new());
    }
}
