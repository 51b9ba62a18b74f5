//! Metrics of the process, under the names that Prometheus' own client libraries use. They are read from `/proc` on Linux; other systems
//! have none.

use std::fs;

use super::page::Page;
use super::table::*;

/// Figures of this process from `/proc`.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ProcessStats {
    cpu_seconds: f64,
    start_time: f64,
    resident_bytes: i64,
    virtual_bytes: i64,
    threads: i64,
    open_fds: i64,
    max_fds: i64,
}

pub(super) fn add(page: &mut Page) {
    let Some(stats) = read() else { return };
    page.add(PROCESS_CPU_SECONDS, [], stats.cpu_seconds);
    page.add(PROCESS_START_TIME_SECONDS, [], stats.start_time);
    page.add(PROCESS_RESIDENT_MEMORY_BYTES, [], stats.resident_bytes);
    page.add(PROCESS_VIRTUAL_MEMORY_BYTES, [], stats.virtual_bytes);
    page.add(PROCESS_THREADS, [], stats.threads);
    page.add(PROCESS_OPEN_FDS, [], stats.open_fds);
    page.add(PROCESS_MAX_FDS, [], stats.max_fds);
}

/// Returns the resident memory of this process, if the system provides it.
pub(crate) fn resident_bytes() -> Option<i64> {
    read().map(|stats| stats.resident_bytes)
}

fn read() -> Option<ProcessStats> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let boot = fs::read_to_string("/proc/stat").ok()?;
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let open_fds = fs::read_dir("/proc/self/fd").ok()?.count();
    parse(&stat, &boot, &limits, i64::try_from(open_fds).ok()?)
}

fn parse(stat: &str, boot: &str, limits: &str, open_fds: i64) -> Option<ProcessStats> {
    // The program name is in parentheses and may contain any character.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let field = |number: usize| fields.get(number - FIRST_FIELD)?.parse::<i64>().ok();
    let boot_time: f64 = boot.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    let max_fds = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    Some(ProcessStats {
        cpu_seconds: (field(14)? + field(15)?) as f64 / TICKS_PER_SECOND,
        start_time: boot_time + field(22)? as f64 / TICKS_PER_SECOND,
        threads: field(20)?,
        virtual_bytes: field(23)?,
        resident_bytes: field(24)? * PAGE_BYTES,
        open_fds,
        max_fds: max_fds.split_whitespace().next()?.parse().unwrap_or(i64::MAX), // or "unlimited"
    })
}

/// The number of the first field after the name, as proc(5) counts.
const FIRST_FIELD: usize = 3;
/// The unit of times in `/proc`; the kernel's own clock may have another.
const TICKS_PER_SECOND: f64 = 100.0;
const PAGE_BYTES: i64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_proc_are_read_also_with_a_strange_program_name() {
        let stat = "7 (we ir) x) S 1 7 7 0 -1 4194560 100 0 0 0 150 50 0 0 20 0 4 0 1000 8192 3 18446744073709551615";
        let limits =
            "Limit  Soft  Hard  Units\nMax open files            1024                 524288               files\n";
        let stats = parse(stat, "cpu 1\nbtime 1700000000\n", limits, 9).unwrap();
        assert_eq!(
            stats,
            ProcessStats {
                cpu_seconds: 2.0,
                start_time: 1_700_000_010.0,
                resident_bytes: 3 * 4096,
                virtual_bytes: 8192,
                threads: 4,
                open_fds: 9,
                max_fds: 1024,
            }
        );
        assert_eq!(parse("nothing", "", "", 0), None);
    }
}
