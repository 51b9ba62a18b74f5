//! Files that are read again when they change. What was last read without errors stays until something better can be read.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::pem::TlsFileError;

/// Files that belong together, and what was made of them.
pub(super) struct Watched<T> {
    paths: Vec<PathBuf>,
    parse: Parse<T>,
    good: T,
    /// How the files looked before they were last read, whatever came of it.
    read: Vec<Option<Stamp>>,
    /// How they looked the last time.
    seen: Vec<Option<Stamp>>,
    failed: bool,
}

/// Makes something of the contents of files, in the order of their paths.
type Parse<T> = Box<dyn Fn(&[Vec<u8>]) -> Result<T, TlsFileError> + Send>;

/// What tells two versions of a file apart. Links are followed: Kubernetes renews a volume by changing a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    file: (u64, u64),
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
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
        let read: Vec<_> = paths.iter().map(|path| Stamp::of(path)).collect();
        let good = parse(&contents(&paths)?)?;
        Ok(Self { paths, parse, good, seen: read.clone(), read, failed: false })
    }

    /// Looks whether the files have changed, and reads them if they have. They are read once they look the same twice in a row: files are
    /// seldom renewed in one step, and a certificate without its key is no fault while the key is on its way.
    pub(super) fn look(&mut self) -> Look {
        let now: Vec<_> = self.paths.iter().map(|path| Stamp::of(path)).collect();
        let is_settled = now == self.seen;
        let is_news = now != self.read;
        self.seen = now;
        if !is_settled || !(is_news || self.failed) {
            return Look::Same;
        }
        self.read = self.seen.clone();
        let read = contents(&self.paths).and_then(|contents| (self.parse)(&contents));
        self.failed = read.is_err();
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
        self.failed
    }
}

fn contents(paths: &[PathBuf]) -> Result<Vec<Vec<u8>>, TlsFileError> {
    let read = |path: &PathBuf| std::fs::read(path).map_err(|source| TlsFileError::Read { path: path.clone(), source });
    paths.iter().map(read).collect()
}

impl Stamp {
    /// Looks at a file. None: it is not there, or cannot be looked at.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        path.metadata().ok().map(|metadata: Metadata| Self {
            file: (metadata.dev(), metadata.ino()),
            bytes: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(contents: &[Vec<u8>]) -> Result<String, TlsFileError> {
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
}
