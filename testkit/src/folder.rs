//! A folder for the files of a test.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

#[cfg(target_os = "linux")]
use nix::sys::statvfs::statvfs;

/// A folder that is deleted when this is dropped.
pub struct Folder(pub PathBuf);

impl Folder {
    /// Creates a folder in the build folder.
    pub fn new(name: &str) -> Self {
        Self::below(&build_folder(), name)
    }

    /// Creates a folder for sockets, whose paths have to be short, and for state. A relay listens only where others cannot write.
    pub fn with_short_path(name: &str) -> Self {
        let folder = Self::below(&short_base(), &format!("weir-{name}"));
        fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o755)).unwrap();
        folder
    }

    fn below(parent: &Path, name: &str) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("{name}-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&path); // from an earlier run
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    pub fn socket(&self) -> PathBuf {
        self.0.join("weir.sock")
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0); // a process that the test has started may still be writing there
    }
}

/// Returns where folders with short paths are: in memory if there is room. A disk that a build keeps busy may answer so late that a relay begins
/// without its state.
fn short_base() -> PathBuf {
    #[cfg(target_os = "linux")]
    if statvfs("/dev/shm").is_ok_and(|of| of.blocks_available() * of.fragment_size() > 1 << 30) {
        return "/dev/shm".into();
    }
    std::env::temp_dir()
}

/// Returns the folder of the build for files of tests. Cargo names it to test programs, when they are compiled, as `CARGO_TARGET_TMPDIR`.
fn build_folder() -> PathBuf {
    let folder = folder_for(std::env::var_os("CARGO_TARGET_TMPDIR"), &std::env::current_exe().unwrap());
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Returns the folder that is named, or the one in the build that has the program. A program outside of any build has a folder of its own, since
/// those of other builds may run at the same time.
fn folder_for(named: Option<OsString>, program: &Path) -> PathBuf {
    let in_build = || Some(program.ancestors().find(|folder| folder.join(TAG).is_file())?.join("tmp"));
    let own = || std::env::temp_dir().join(format!("weir-tests-{}", std::process::id()));
    named.map(PathBuf::from).or_else(in_build).unwrap_or_else(own)
}

/// The file by which cargo marks the top folder of what it builds.
const TAG: &str = "CACHEDIR.TAG";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_tests_are_where_the_variable_says_or_in_the_build_or_apart_from_those_of_other_programs() {
        let own = folder_for(None, Path::new("/no-build/debug/deps/program"));
        assert!(own.starts_with(std::env::temp_dir()), "{own:?}");
        assert!(own.to_str().unwrap().ends_with(&format!("-{}", std::process::id())), "{own:?}");
        let build = Folder::with_short_path("build");
        build.write(TAG, "");
        let program = build.0.join("debug/deps/program");
        assert_eq!(folder_for(None, &program), build.0.join("tmp"));
        assert_eq!(folder_for(Some("/elsewhere".into()), &program), Path::new("/elsewhere"));
    }
}
