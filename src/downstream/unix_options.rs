//! The configuration of a Unix socket, and checks of its folder, path, user and group.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::{Group, User};

/// A Unix socket as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnixOptions {
    /// The path of the socket.
    pub path: PathBuf,
    /// The permissions. Whoever may write may connect.
    pub mode: u32,
    /// By default the user of this process.
    pub owner: Option<Account>,
    /// By default the group of this process.
    pub group: Option<Account>,
}

/// A user or a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Account {
    /// By its number.
    Number(u32),
    /// By its name.
    Name(Box<str>),
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum UnixSocketError {
    #[error("cannot {what} {}: {error}", path.display())]
    System { what: &'static str, path: PathBuf, error: io::Error },
    #[error(
        "folder {} is writable by everybody: expected one in which only its owner can replace the socket",
        .0.display()
    )]
    OpenFolder(PathBuf),
    #[error("{} is in use: a process accepts connections there", .0.display())]
    InUse(PathBuf),
    #[error("{} is no socket: expected nothing there, or a socket", .0.display())]
    Other(PathBuf),
    #[error("path too long for a socket: {}; expected at most {LONGEST_FOLDER} bytes for its folder", .0.display())]
    TooLong(PathBuf),
    #[error("another process is opening a socket in {}", .0.display())]
    Busy(PathBuf),
    #[error("the inherited socket {} has mode {is:04o}: expected {expected:04o} or less, as configured", path.display())]
    TooOpen { path: PathBuf, is: u32, expected: u32 },
    #[error("the inherited socket {} belongs to another user or group than configured", .0.display())]
    OtherOwner(PathBuf),
    #[error("unknown {kind} {name:?}")]
    Unknown { kind: &'static str, name: Box<str> },
}

/// Checks that not every user can put another socket in place of this one.
pub(crate) fn check_folder(folder: &Path) -> Result<(), UnixSocketError> {
    let found = fs::metadata(folder);
    let found = found.map_err(|error| UnixSocketError::System { what: "use folder", path: folder.into(), error })?;
    match found.mode() & (WRITABLE_BY_ALL | STICKY) {
        WRITABLE_BY_ALL => Err(UnixSocketError::OpenFolder(folder.into())),
        _ => Ok(()),
    }
}

pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Checks that owner and group exist.
pub(crate) fn check_accounts(options: &UnixOptions) -> Result<(), UnixSocketError> {
    user(&options.owner).and_then(|_| group(&options.group)).map(|_| ())
}

/// Returns the number of a user.
pub(super) fn user(account: &Option<Account>) -> Result<Option<u32>, UnixSocketError> {
    let find = |name: &str| User::from_name(name).ok().flatten().map(|user| user.uid.as_raw());
    number(account, "user", find)
}

/// Returns the number of a group.
pub(super) fn group(account: &Option<Account>) -> Result<Option<u32>, UnixSocketError> {
    let find = |name: &str| Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw());
    number(account, "group", find)
}

fn number(
    account: &Option<Account>,
    kind: &'static str,
    find: impl Fn(&str) -> Option<u32>,
) -> Result<Option<u32>, UnixSocketError> {
    match account {
        None => Ok(None),
        Some(Account::Number(number)) => Ok(Some(*number)),
        Some(Account::Name(name)) => {
            find(name).map(Some).ok_or_else(|| UnixSocketError::Unknown { kind, name: name.clone() })
        }
    }
}

const WRITABLE_BY_ALL: u32 = 0o002;
const STICKY: u32 = 0o1000;
/// The kernel's limit for a path, without the zero at its end.
pub(super) const LONGEST_PATH: usize = 107;
/// The limit for the folder, which leaves room for the private folder.
pub(crate) const LONGEST_FOLDER: usize = LONGEST_PATH - "/.w00000000/s".len();
