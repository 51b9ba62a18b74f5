//! How much memory there is: the limit of the container, or else the memory of the machine.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// `limits.memory`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemorySetting {
    Bytes(usize),
    /// A percentage of the memory that there is.
    Percent(u8),
}

/// The memory that there is for the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MachineMemory {
    pub(crate) bytes: usize,
    /// The file or the statement that this is from.
    pub(crate) source: String,
}

/// How much memory the process may use, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Budget {
    /// 0: there is no limit, since nothing is known of the machine.
    pub(crate) bytes: usize,
    setting: MemorySetting,
    machine: Option<MachineMemory>,
}

impl Budget {
    /// Returns the budget on this machine.
    pub(crate) fn of(setting: MemorySetting) -> Self {
        Self::on(setting, MachineMemory::find())
    }

    /// Returns the budget on a machine with this memory; `None` if its memory is not known.
    pub(crate) fn on(setting: MemorySetting, machine: Option<MachineMemory>) -> Self {
        let bytes = match setting {
            MemorySetting::Bytes(bytes) => bytes,
            MemorySetting::Percent(percent) => {
                machine.as_ref().map_or(0, |machine| (machine.bytes as u128 * u128::from(percent) / 100) as usize)
            }
        };
        Self { bytes, setting, machine }
    }

    #[cfg(test)]
    pub(crate) fn unlimited() -> Self {
        Self::on(MemorySetting::Percent(100), None)
    }

    /// Reads the limit of the container again, which may have changed.
    pub(crate) fn again(&self) -> Self {
        Self::of(self.setting)
    }

    /// Returns so many hundredths of the budget. If none is known, of the memory of a usual machine.
    pub(crate) fn part(&self, percent: usize) -> usize {
        let bytes = if self.bytes == 0 { USUAL } else { self.bytes };
        (bytes as u128 * percent as u128 / 100) as usize
    }

    /// Returns the memory of the machine if the budget is larger.
    pub(crate) fn exceeds(&self) -> Option<&MachineMemory> {
        self.machine.as_ref().filter(|machine| machine.bytes < self.bytes)
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = self.bytes >> 20;
        match (&self.setting, &self.machine) {
            (MemorySetting::Bytes(_), _) => write!(f, "{mib} MiB"),
            (MemorySetting::Percent(percent), Some(MachineMemory { bytes, source })) => {
                write!(f, "{mib} MiB, {percent}% of {} MiB ({source})", bytes >> 20)
            }
            (MemorySetting::Percent(_), None) => {
                f.write_str("no limit: the system does not say how much memory there is")
            }
        }
    }
}

impl MachineMemory {
    /// Returns the smallest of the limits of the process.
    pub(crate) fn find() -> Option<Self> {
        Self::find_in(Path::new("/"))
    }

    /// Returns the memory that an operator states.
    pub(crate) fn stated(bytes: usize) -> Self {
        Self { bytes, source: "as stated".into() }
    }

    fn find_in(root: &Path) -> Option<Self> {
        let machine = of_machine(root).map(|bytes| Self { bytes, source: "the memory of the machine".into() });
        let groups = control_groups(root).into_iter().filter_map(|file| {
            let bytes = fs::read_to_string(&file).ok()?.trim().parse().ok()?; // `max` is no limit
            let shown = Path::new("/").join(file.strip_prefix(root).unwrap_or(&file));
            Some(Self { bytes, source: shown.display().to_string() })
        });
        machine.into_iter().chain(groups).filter(|found| found.bytes > 0).min_by_key(|found| found.bytes)
    }
}

fn of_machine(root: &Path) -> Option<usize> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let kibibytes: usize =
        text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?.trim().split(' ').next()?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Returns the files with the memory limits of the process: of its control group and of all groups above, for both versions of control groups.
fn control_groups(root: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mut files = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else { continue };
        let (mounts, file): (&[&str], _) = match controllers {
            "" => (&["sys/fs/cgroup", "sys/fs/cgroup/unified"], "memory.max"),
            of if of.split(',').any(|one| one == "memory") => (&["sys/fs/cgroup/memory"], "memory.limit_in_bytes"),
            _ => continue,
        };
        for mount in mounts.iter().map(|mount| root.join(mount)) {
            // Within a container the path may be the one outside of it. Then only its first folders exist here.
            let path = Path::new(path.trim_start_matches('/'));
            files.extend(path.ancestors().map(|group| mount.join(group).join(file)));
        }
    }
    files
}

/// The memory of a usual machine.
const USUAL: usize = 6 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    /// The files of a machine with these limits.
    struct Machine(PathBuf);

    impl Machine {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("weir-machine-{}-{name}", std::process::id()));
            for (path, text) in files {
                let file = root.join(path);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, text).unwrap();
            }
            Self(root)
        }

        fn found(&self) -> Option<(usize, String)> {
            MachineMemory::find_in(&self.0).map(|found| (found.bytes, found.source))
        }
    }

    impl Drop for Machine {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0); // a temporary folder
        }
    }

    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal:        4096 kB\nMemFree:  1 kB\n");

    #[test]
    fn the_least_limit_of_the_group_and_those_above_it_counts() {
        let own = ("proc/self/cgroup", "0::/pods/one/main\n");
        let machine = Machine::new(
            "v2",
            &[
                MEMINFO,
                own,
                ("sys/fs/cgroup/pods/one/main/memory.max", "3000000\n"),
                ("sys/fs/cgroup/pods/one/memory.max", "2000000\n"),
                ("sys/fs/cgroup/pods/memory.max", "max\n"),
            ],
        );
        assert_eq!(machine.found(), Some((2_000_000, "/sys/fs/cgroup/pods/one/memory.max".into())));
        let of_namespace = [MEMINFO, ("proc/self/cgroup", "0::/\n"), ("sys/fs/cgroup/memory.max", "1000000\n")];
        let machine = Machine::new("namespace", &of_namespace);
        assert_eq!(machine.found(), Some((1_000_000, "/sys/fs/cgroup/memory.max".into())));
    }

    #[test]
    fn the_older_version_is_found_also_where_the_path_is_that_of_the_host() {
        let own = ("proc/self/cgroup", "12:cpu,cpuacct:/x\n5:memory:/docker/abc\n1:name=systemd:/x\n");
        let limit = |text: &'static str| ("sys/fs/cgroup/memory/memory.limit_in_bytes", text);
        assert_eq!(Machine::new("v1", &[MEMINFO, own, limit("1048576\n")]).found().unwrap().0, 1 << 20);
        let unlimited = Machine::new("v1-none", &[MEMINFO, own, limit("9223372036854771712\n")]);
        assert_eq!(unlimited.found(), Some((4 << 20, "the memory of the machine".into())));
    }

    #[test]
    fn a_limit_that_is_absent_or_above_the_machine_leaves_what_the_machine_has() {
        let own = ("proc/self/cgroup", "0::/a\n");
        for (name, limit) in [("max", "max\n"), ("above", "8388608\n"), ("odd", "much\n")] {
            let machine = Machine::new(name, &[MEMINFO, own, ("sys/fs/cgroup/a/memory.max", limit)]);
            assert_eq!(machine.found().unwrap().0, 4 << 20, "{name}");
        }
        assert_eq!(Machine::new("without", &[MEMINFO]).found().unwrap().0, 4 << 20);
        assert_eq!(Machine::new("nothing", &[]).found(), None);
    }

    #[test]
    fn a_share_is_of_what_there_is_and_a_size_is_as_it_is() {
        let machine = || Some(MachineMemory::stated(2 << 30));
        let share = Budget::on(MemorySetting::Percent(75), machine());
        assert_eq!((share.bytes >> 20, share.to_string()), (1536, "1536 MiB, 75% of 2048 MiB (as stated)".into()));
        let size = Budget::on(MemorySetting::Bytes(3 << 30), machine());
        assert_eq!((size.to_string().as_str(), size.exceeds().is_some()), ("3072 MiB", true));
        let unknown = Budget::on(MemorySetting::Percent(75), None);
        assert_eq!((unknown.bytes, unknown.part(50)), (0, 3 << 30));
    }
}
