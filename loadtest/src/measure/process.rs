//! Figures of one process, read from the kernel by its pid: processor time, memory and write calls.

use std::fs;
use std::time::Duration;

use anyhow::{Context, anyhow};
use nix::time::{ClockId, clock_getcpuclockid};
use nix::unistd::Pid;

/// A running process, by its pid.
#[derive(Debug, Clone, Copy)]
pub struct Process {
    pid: u32,
    clock: ClockId,
}

/// Bytes of memory. RSS counts shared pages in full, PSS a share of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    pub rss: u64,
    pub pss: u64,
}

impl Process {
    pub fn new(pid: u32) -> anyhow::Result<Self> {
        let clock = clock_getcpuclockid(Pid::from_raw(i32::try_from(pid)?));
        Ok(Self { pid, clock: clock.with_context(|| format!("process {pid} has no processor clock"))? })
    }

    pub fn this() -> anyhow::Result<Self> {
        Self::new(std::process::id())
    }

    /// Returns the processor time of all its threads since it started, user and system, including threads that have ended.
    pub fn cpu(&self) -> anyhow::Result<Duration> {
        let now = self.clock.now().with_context(|| format!("process {} has ended", self.pid))?;
        Ok(now.into())
    }

    /// Waits until the process is idle, so that its last work counts, and returns its processor time. Gives up on a process that is never idle.
    pub async fn quiet_cpu(&self) -> anyhow::Result<Duration> {
        let mut before = self.cpu()?;
        for _ in 0..QUIET_CHECKS {
            tokio::time::sleep(QUIET).await;
            let now = self.cpu()?;
            if now - before < NOTHING {
                return Ok(now);
            }
            before = now;
        }
        Ok(before)
    }

    pub fn memory(&self) -> anyhow::Result<Memory> {
        let text = self.read("smaps_rollup")?;
        Ok(Memory { rss: kilobytes(&text, "Rss:")?, pss: kilobytes(&text, "Pss:")? })
    }

    /// Returns the RSS in bytes, from a counter that is cheap to read and lags a little.
    pub fn rss(&self) -> anyhow::Result<u64> {
        let text = self.read("statm")?;
        let pages: Option<u64> = text.split_whitespace().nth(1).and_then(|pages| pages.parse().ok());
        pages.map(|pages| pages * PAGE).ok_or_else(|| anyhow!("no resident pages in {text:?}"))
    }

    /// Returns the largest RSS since the start of the process, or since `reset_peak`.
    pub fn peak_rss(&self) -> anyhow::Result<u64> {
        kilobytes(&self.read("status")?, "VmHWM:")
    }

    pub fn reset_peak(&self) -> anyhow::Result<()> {
        let path = format!("/proc/{}/clear_refs", self.pid);
        fs::write(&path, "5").with_context(|| format!("cannot write {path}"))
    }

    /// Returns the number of calls of the write family, without `sendmsg`.
    pub fn write_calls(&self) -> anyhow::Result<u64> {
        number(&self.read("io")?, "syscw:")
    }

    fn read(&self, file: &str) -> anyhow::Result<String> {
        let path = format!("/proc/{}/{file}", self.pid);
        fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
    }
}

/// Returns the bytes in kernel buffers of TCP sockets, of all processes.
pub fn tcp_memory() -> anyhow::Result<u64> {
    let text = fs::read_to_string("/proc/net/sockstat").context("cannot read /proc/net/sockstat")?;
    tcp_pages(&text).map(|pages| pages * PAGE)
}

/// Returns how many connections a server on this port of the loopback interface has.
pub fn established(port: u16) -> anyhow::Result<usize> {
    let text = fs::read_to_string("/proc/net/tcp").context("cannot read /proc/net/tcp")?;
    Ok(text.lines().filter(|line| is_established(line, port)).count())
}

fn is_established(line: &str, port: u16) -> bool {
    let mut words = line.split_whitespace().skip(1);
    let local = words.next().is_some_and(|local| local.ends_with(&format!(":{port:04X}")));
    local && words.nth(1) == Some("01")
}

fn tcp_pages(sockstat: &str) -> anyhow::Result<u64> {
    let line = sockstat.lines().find(|line| line.starts_with("TCP:"));
    let pages = line.and_then(|line| line.split_whitespace().skip_while(|word| *word != "mem").nth(1));
    let pages = pages.and_then(|pages| pages.parse().ok());
    pages.ok_or_else(|| anyhow!("no TCP memory in {sockstat:?}"))
}

fn kilobytes(text: &str, key: &str) -> anyhow::Result<u64> {
    number(text, key).map(|kilobytes| kilobytes * 1024)
}

fn number(text: &str, key: &str) -> anyhow::Result<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(key));
    let number = rest.and_then(|rest| rest.split_whitespace().next()).and_then(|word| word.parse().ok());
    number.ok_or_else(|| anyhow!("no number after {key:?} in {text:?}"))
}

const PAGE: u64 = 4096;
const QUIET: Duration = Duration::from_millis(5);
/// A process is idle if it uses less than this in a pause of `QUIET`: 1 % of one core.
const NOTHING: Duration = Duration::from_micros(50);
const QUIET_CHECKS: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_of_a_server_are_counted_at_its_side() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut kept = Vec::new();
        for count in 0..3 {
            assert_eq!(established(address.port()).unwrap(), count);
            let client = tokio::net::TcpStream::connect(address).await.unwrap();
            kept.push((client, listener.accept().await.unwrap()));
        }
    }

    #[test]
    fn the_kernel_s_tables_are_read_by_their_keys() {
        let rollup = "5500-7ffd ---p 00000000 00:00 0 [rollup]\nRss:    5140 kB\nPss:    2031 kB\nPss_Dirty: 12 kB\n";
        assert_eq!(kilobytes(rollup, "Rss:").unwrap(), 5140 * 1024);
        assert_eq!(kilobytes(rollup, "Pss:").unwrap(), 2031 * 1024);
        assert_eq!(number("rchar: 5\nsyscr: 7\nsyscw: 9\n", "syscw:").unwrap(), 9);
        let sockstat = "sockets: used 99\nTCP: inuse 4 orphan 0 tw 2 alloc 5 mem 37\nUDP: inuse 1 mem 3\n";
        assert_eq!(tcp_pages(sockstat).unwrap(), 37);
        assert!(number("Rss: many kB", "Rss:").is_err() && kilobytes("", "Rss:").is_err() && tcp_pages("").is_err());
    }

    #[test]
    fn the_processor_clock_of_a_process_moves_with_its_work() {
        let this = Process::this().unwrap();
        let start = this.cpu().unwrap();
        let mut sum = 0u64;
        while this.cpu().unwrap() - start < Duration::from_millis(1) {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(this.memory().unwrap().rss >= 1 << 20 && this.peak_rss().unwrap() >= 1 << 20);
        assert!(Process::new(u32::MAX).is_err());
    }
}
