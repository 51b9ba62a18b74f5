//! A folder for the files of a test.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A folder that is deleted when this is dropped.
pub struct Folder(pub PathBuf);

impl Folder {
    /// Creates a folder in the build folder.
    pub fn new(name: &str) -> Self {
        Self::below(&build_folder(), name)
    }

    /// Creates a folder in the system's folder for temporary files, since the path of a socket has to be short.
    pub fn with_short_path(name: &str) -> Self {
        Self::below(&std::env::temp_dir(), &format!("weir-{name}"))
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

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0); // a process that the test has started may still be writing there
    }
}

/// Returns the folder of the build for files of tests: `CARGO_TARGET_TMPDIR`, which cargo names only to test programs.
pub fn build_folder() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let top = program.ancestors().find(|folder| folder.join(TAG).is_file());
    let folder = top.map_or_else(std::env::temp_dir, |top| top.join("tmp"));
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// The file by which cargo marks the top folder of what it builds.
const TAG: &str = "CACHEDIR.TAG";
