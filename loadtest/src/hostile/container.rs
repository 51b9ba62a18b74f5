//! A memory control group for the relay, as containers have.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use serde::{Deserialize, Serialize};

/// A group with a limit. Dropping it removes the group.
#[derive(Debug)]
pub struct Container {
    path: PathBuf,
    version: Version,
}

/// What the kernel counted in the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contained {
    pub limit: u64,
    /// The maximum of bytes in the group, including those of the kernel and of files that were read.
    pub peak: u64,
    /// How many processes were killed because memory ran out.
    pub kills: u64,
}

/// The control files of a version of control groups, by purpose.
#[derive(Debug)]
struct Version {
    limit: &'static str,
    peak: &'static str,
    kills: &'static str,
}

impl Container {
    /// Creates a group below the one of this process.
    pub fn new(name: &str, bytes: usize) -> anyhow::Result<Self> {
        Self::below(Path::new("/sys/fs/cgroup"), &std::fs::read_to_string("/proc/self/cgroup")?, name, bytes)
    }

    /// `own`: the text of `/proc/self/cgroup`, which has the groups of this process.
    fn below(root: &Path, own: &str, name: &str, bytes: usize) -> anyhow::Result<Self> {
        let groups = own.lines().filter_map(|line| line.splitn(3, ':').skip(1).collect::<Vec<_>>().try_into().ok());
        let of_memory =
            groups.clone().find(|[controllers, _]: &[&str; 2]| controllers.split(',').any(|one| one == "memory"));
        let (parent, version) = match of_memory {
            Some([_, group]) => (root.join("memory").join(group.trim_start_matches('/')), V1),
            None => {
                let unified = groups.clone().find(|[controllers, _]| controllers.is_empty());
                let [_, group] = unified.context("this process is in no control group")?;
                let own = root.join(group.trim_start_matches('/'));
                // In version 2 a group with processes cannot have groups below it, so the new group goes beside it.
                (if own == root { own } else { own.parent().unwrap_or(root).to_owned() }, V2)
            }
        };
        let path = parent.join(format!("weir-{name}-{}", std::process::id()));
        let container = Self { path, version };
        let why = || format!("no memory control group can be made at {}", container.path.display());
        std::fs::create_dir(&container.path).with_context(why)?;
        std::fs::write(container.path.join(container.version.limit), bytes.to_string()).with_context(why)?;
        Ok(container)
    }

    /// Returns a shell line that moves the shell into the group.
    pub fn enter(&self) -> String {
        format!("echo $$ > '{}' || exit 1; ", self.path.join("cgroup.procs").display())
    }

    pub fn counted(&self) -> io::Result<Contained> {
        let read = |name: &str| std::fs::read_to_string(self.path.join(name));
        let number = |text: String| text.trim().parse().map_err(io::Error::other);
        let kills = read(self.version.kills)?;
        let kills = kills.lines().find_map(|line| line.strip_prefix("oom_kill ")).unwrap_or("0").to_owned();
        let [limit, peak] = [self.version.limit, self.version.peak].map(|name| read(name).and_then(number));
        Ok(Contained { limit: limit?, peak: peak?, kills: number(kills)? })
    }
}

impl Contained {
    /// Returns how the group ran out of memory, if it did.
    pub fn failure(self) -> Option<String> {
        (self.kills > 0).then(|| format!("killed by the kernel: more than {} MiB", self.limit >> 20))
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // The group is busy until its last process, which was killed just now, has ended. A group without processes that stays costs nothing.
        for _ in 0..20 {
            match std::fs::remove_dir(&self.path) {
                #[allow(clippy::disallowed_methods, reason = "after the run, and for a second at most")]
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => std::thread::sleep(BUSY),
                _ => return,
            }
        }
    }
}

/// The pause between two attempts to remove the group.
const BUSY: Duration = Duration::from_millis(50);
const V1: Version =
    Version { limit: "memory.limit_in_bytes", peak: "memory.max_usage_in_bytes", kills: "memory.oom_control" };
const V2: Version = Version { limit: "memory.max", peak: "memory.peak", kills: "memory.events" };

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a group in a folder that looks like the kernel's. Returns the folder it is in, and what was counted.
    fn group(name: &str, own: &str, parent: &str, peak: &str, kills: &str) -> (String, Contained) {
        let root = std::env::temp_dir().join(format!("weir-container-{name}-{}", std::process::id()));
        std::fs::create_dir_all(root.join(parent)).unwrap();
        let container = Container::below(&root, own, "nacks", 1 << 20).unwrap();
        std::fs::write(container.path.join(peak), "77\n").unwrap();
        std::fs::write(container.path.join(kills), "other 3\noom_kill 2\n").unwrap();
        let counted = container.counted().unwrap();
        let at = container.path.parent().unwrap().strip_prefix(&root).unwrap().display().to_string();
        std::fs::remove_dir_all(&root).unwrap();
        (at, counted)
    }

    #[test]
    fn a_group_of_either_version_is_made_with_its_limit() {
        let counted = Contained { limit: 1 << 20, peak: 77, kills: 2 };
        let v1 = group("v1", "4:memory:/pods/one\n1:cpu:/\n0::/\n", "memory/pods/one", V1.peak, V1.kills);
        assert_eq!(v1, ("memory/pods/one".into(), counted));
        let v2 = group("v2", "0::/pods/one\n", "pods/one", V2.peak, V2.kills);
        assert_eq!(v2, ("pods".into(), counted));
        assert_eq!(counted.failure().unwrap(), "killed by the kernel: more than 1 MiB");
        assert_eq!(Contained { kills: 0, ..counted }.failure(), None);
        let error = Container::below(Path::new("/nowhere"), "0::/one", "nacks", 1).unwrap_err();
        assert!(error.to_string().starts_with("no memory control group can be made at /nowhere/"), "{error}");
    }
}
