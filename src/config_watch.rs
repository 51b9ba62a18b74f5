//! Decides when a watched configuration file is read again: when it has changed; and, while it cannot be used, when a file that it names has changed,
//! and from time to time.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::config::hash_of;
use crate::file_access::{self, LIMIT, Stamp};

/// An attempt to use the file, for whatever reason, with the state of the files before it.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    at: Instant,
    sha256: Option<String>,
    /// The files that the configuration names, and their stamps.
    named: Vec<(PathBuf, Option<Stamp>)>,
}

/// The result of the last attempt.
#[derive(Debug)]
pub(crate) enum LastAttempt<'a> {
    /// The file is in use; this is its hash.
    Taken(&'a str),
    Refused(&'a Attempt),
}

/// Why the file is read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// An operator requests it, or the file has changed: the result is to be logged.
    News,
    /// The file was refused, and may be usable now.
    Again,
}

/// The state of the file, and of the files that it names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ConfigFileState {
    sha256: Option<String>,
    named: Vec<Option<Stamp>>,
}

#[derive(Debug, Default)]
pub(crate) struct ConfigWatch {
    seen: Option<ConfigFileState>,
    /// The last wait that was logged: the hash of the file, and the missing files.
    said: Option<(Option<String>, Option<String>)>,
}

/// What the watch waits for while the file cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Waits {
    /// The missing files that the configuration names.
    pub(crate) missing: Option<String>,
}

impl Attempt {
    /// Records the stamps of the files that a configuration names, before they are read.
    pub(crate) fn of(sha256: Option<String>, named: BTreeSet<PathBuf>) -> Self {
        let named = named.into_iter().map(|path| {
            let stamp = file_access::stamp_blocking(&path, LIMIT).ok().flatten();
            (path, stamp)
        });
        Self { at: Instant::now(), sha256, named: named.collect() }
    }

    /// Whether a named file has changed since.
    fn is_before(&self, look: &ConfigFileState) -> bool {
        !self.named.iter().map(|(_, stamp)| stamp).eq(&look.named)
    }

    fn missing(&self) -> Option<String> {
        let missing = self.named.iter().filter(|(_, stamp)| stamp.is_none());
        let missing: Vec<_> = missing.map(|(path, _)| path.display().to_string()).collect();
        (!missing.is_empty()).then(|| missing.join(", "))
    }
}

impl ConfigFileState {
    /// Reads the state of the file, and of the files that it named when it was refused. What a disk does not answer counts as unchanged.
    pub(crate) fn at(path: &Path, refused: Option<&Attempt>) -> Self {
        let sha256 = file_access::read_blocking(path, LIMIT).ok().map(|bytes| hash_of(&bytes));
        let named = refused.iter().flat_map(|attempt| &attempt.named);
        let named = named.map(|(path, before)| file_access::stamp_blocking(path, LIMIT).unwrap_or(*before));
        Self { sha256, named: named.collect() }
    }
}

impl ConfigWatch {
    /// Returns why the file is to be read now, if it is. A change is read once two checks in a row find the same state, because some programs do not
    /// replace a file in one step.
    pub(crate) fn is_due(&mut self, look: ConfigFileState, tried: &LastAttempt<'_>, now: Instant) -> Option<Cause> {
        let is_settled = self.seen.as_ref() == Some(&look);
        let (known, again) = match tried {
            LastAttempt::Taken(sha256) => (Some(*sha256), false),
            LastAttempt::Refused(attempt) => {
                let again = now >= attempt.at + AGAIN || is_settled && attempt.is_before(&look);
                (attempt.sha256.as_deref(), again)
            }
        };
        let is_other = look.sha256.is_some() && look.sha256.as_deref() != known;
        self.seen = Some(look);
        match is_settled && is_other {
            true => Some(Cause::News),
            false => again.then_some(Cause::Again),
        }
    }

    /// Returns what the watch waits for, unless it has already returned the same.
    pub(crate) fn waits(&mut self, tried: &LastAttempt<'_>) -> Option<Waits> {
        let waits = match tried {
            LastAttempt::Taken(_) => None,
            LastAttempt::Refused(attempt) => Some((attempt.sha256.clone(), attempt.missing())),
        };
        let is_news = waits != self.said;
        self.said.clone_from(&waits);
        waits.filter(|_| is_news).map(|(_, missing)| Waits { missing })
    }
}

/// How often an unusable file is tried again. Changes are usually noticed earlier, but a network file system may show them late.
const AGAIN: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A folder with a configuration and a file that it may name.
    struct World {
        folder: PathBuf,
        watch: ConfigWatch,
    }

    impl World {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("weir-config-watch-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&folder); // of an earlier run
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("relay.yaml"), "one").unwrap();
            Self { folder, watch: ConfigWatch::default() }
        }

        fn write(&self, name: &str, text: &str) {
            std::fs::write(self.folder.join(name), text).unwrap();
        }

        fn refused(&self) -> Attempt {
            let sha256 = Some(hash_of(&std::fs::read(self.folder.join("relay.yaml")).unwrap()));
            Attempt::of(sha256, ["a.pem", "b.pem"].map(|name| self.folder.join(name)).into())
        }

        fn is_due(&mut self, refused: &Attempt, later: Duration) -> Option<Cause> {
            let look = ConfigFileState::at(&self.folder.join("relay.yaml"), Some(refused));
            self.watch.is_due(look, &LastAttempt::Refused(refused), refused.at + later)
        }

        fn waits(&mut self, tried: &LastAttempt<'_>) -> Option<String> {
            let folder = format!("{}/", self.folder.display());
            self.watch.waits(tried).map(|waits| waits.missing.unwrap_or("nothing".into()).replace(&folder, ""))
        }
    }

    impl Drop for World {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }

    #[test]
    fn a_refused_file_is_due_when_it_or_a_file_that_it_names_has_changed_and_settled() {
        let mut world = World::new("changes");
        for (name, text, cause) in [
            ("a.pem", "there", Cause::Again),
            ("a.pem", "there, and longer", Cause::Again),
            ("b.pem", "there", Cause::Again),
            ("relay.yaml", "2", Cause::News),
        ] {
            let refused = world.refused();
            assert_eq!([(); 2].map(|()| world.is_due(&refused, SECOND)), [None; 2], "nothing has changed");
            std::fs::write(world.folder.join(name), text).unwrap();
            assert_eq!([(); 2].map(|()| world.is_due(&refused, SECOND)), [None, Some(cause)], "{name}");
        }
        let refused = world.refused();
        std::fs::remove_file(world.folder.join("b.pem")).unwrap();
        assert_eq!([(); 2].map(|()| world.is_due(&refused, SECOND)), [None, Some(Cause::Again)], "it is away");
        let refused = world.refused();
        std::fs::remove_file(world.folder.join("relay.yaml")).unwrap();
        assert_eq!([(); 2].map(|()| world.is_due(&refused, SECOND)), [None; 2], "there is nothing to read");
    }

    #[test]
    fn a_refused_file_is_due_thirty_seconds_after_the_last_attempt_whoever_made_it() {
        let mut world = World::new("again");
        let first = world.refused();
        let meanwhile = Attempt { at: first.at + AGAIN / 2, ..first.clone() };
        for attempt in [first, meanwhile] {
            let looks = [AGAIN - SECOND, AGAIN, AGAIN + SECOND].map(|later| world.is_due(&attempt, later));
            assert_eq!(looks, [None, Some(Cause::Again), Some(Cause::Again)]);
        }
    }

    #[test]
    fn a_file_in_use_is_due_when_it_has_changed_alone() {
        let mut world = World::new("in-use");
        let in_use = hash_of(b"one");
        let (path, long) = (world.folder.join("relay.yaml"), Instant::now() + 10 * AGAIN);
        let mut looks = |text: &str| {
            std::fs::write(&path, text).unwrap();
            [(); 3].map(|()| world.watch.is_due(ConfigFileState::at(&path, None), &LastAttempt::Taken(&in_use), long))
        };
        assert_eq!(looks("one"), [None; 3]);
        assert_eq!(looks("two"), [None, Some(Cause::News), Some(Cause::News)]);
        assert_eq!(looks("one"), [None; 3]);
    }

    #[test]
    fn what_is_waited_for_is_said_once_until_it_is_something_else() {
        let mut world = World::new("said");
        let nothing = hash_of(b"one");
        for _ in 0..2 {
            let _ = std::fs::remove_file(world.folder.join("a.pem"));
            let both = world.refused();
            assert_eq!(world.waits(&LastAttempt::Refused(&both)).as_deref(), Some("a.pem, b.pem"));
            assert_eq!(world.waits(&LastAttempt::Refused(&world.refused())), None, "another attempt, the same");
            world.write("a.pem", "there");
            assert_eq!(world.waits(&LastAttempt::Refused(&both)), None, "it is not known yet whether that is enough");
            assert_eq!(world.waits(&LastAttempt::Refused(&world.refused())).as_deref(), Some("b.pem"));
            assert_eq!(world.waits(&LastAttempt::Taken(&nothing)), None);
        }
        world.write("b.pem", "there");
        assert_eq!(world.waits(&LastAttempt::Refused(&world.refused())).as_deref(), Some("nothing"), "another fault");
    }
}
