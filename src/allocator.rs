//! The memory allocator of the program, and memory that goes back to the system after a peak.
//!
//! glibc's allocator keeps freed memory between blocks that are still used: after a peak of 700 MiB most of it. With the feature `jemalloc`
//! there is nothing to do.

#[cfg(feature = "jemalloc")]
#[global_allocator]
static JEMALLOC: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Returns the bytes that the allocator has given out, if it reports them.
#[cfg(feature = "jemalloc")]
pub fn live_bytes() -> Option<usize> {
    tikv_jemalloc_ctl::epoch::advance().ok()?;
    tikv_jemalloc_ctl::stats::allocated::read().ok()
}

/// Returns the bytes that the allocator has given out, if it reports them.
#[cfg(all(not(feature = "jemalloc"), target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code)]
pub fn live_bytes() -> Option<usize> {
    // SAFETY: the call has no preconditions, and locks what it reads.
    let info = unsafe { libc::mallinfo2() };
    Some(info.uordblks + info.hblkhd)
}

/// Returns the bytes that the allocator has given out, if it reports them.
#[cfg(all(not(feature = "jemalloc"), not(all(target_os = "linux", target_env = "gnu"))))]
pub fn live_bytes() -> Option<usize> {
    None
}

/// Makes all threads share a few arenas, twice as many as there are workers. With one for each thread, memory that a thread frees after a peak would
/// stay with its arena. Must be called before there are threads. `MALLOC_ARENA_MAX` overrides it.
#[cfg(all(not(feature = "jemalloc"), target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code)]
pub fn share_arenas() {
    if std::env::var_os("MALLOC_ARENA_MAX").is_some() {
        return;
    }
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let arenas = i32::try_from(2 * workers).unwrap_or(i32::MAX);
    // SAFETY: the call has no preconditions.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, arenas) };
}

/// Does nothing: this allocator needs no setting.
#[cfg(any(feature = "jemalloc", not(all(target_os = "linux", target_env = "gnu"))))]
pub fn share_arenas() {}

/// Returns memory to the system while the program runs; this allocator does so by itself.
#[cfg(any(feature = "jemalloc", not(all(target_os = "linux", target_env = "gnu"))))]
pub async fn give_back() {
    std::future::pending().await
}

#[cfg(all(not(feature = "jemalloc"), target_os = "linux", target_env = "gnu"))]
pub use glibc::give_back;

#[cfg(all(not(feature = "jemalloc"), target_os = "linux", target_env = "gnu"))]
mod glibc {
    use std::time::{Duration, Instant};

    /// Returns memory to the system while the program runs.
    pub async fn give_back() {
        let Some(mut level) = resident_bytes().map(Level::new) else { return };
        let mut rest = INTERVAL;
        loop {
            tokio::time::sleep(rest).await;
            let Some(before) = resident_bytes() else { return };
            if !level.is_peak(before) {
                continue;
            }
            let began = Instant::now();
            let _ = tokio::task::spawn_blocking(trim).await;
            rest = INTERVAL.max(began.elapsed() * 100); // other threads wait for the allocator's locks meanwhile
            let after = resident_bytes().unwrap_or(before);
            tracing::debug!(before, after, took = ?began.elapsed(), "freed memory goes back to the system");
            level.note(before, after);
        }
    }

    /// The least memory that the process needs, as far as is known.
    #[derive(Debug)]
    pub(super) struct Level {
        bytes: usize,
        fruitless: usize,
    }

    impl Level {
        pub(super) fn new(bytes: usize) -> Self {
            Self { bytes, fruitless: 0 }
        }

        /// Whether so much memory is in use that returning the unused part is worthwhile.
        pub(super) fn is_peak(&mut self, resident: usize) -> bool {
            self.bytes = self.bytes.min(resident);
            resident >= self.bytes + WORTHWHILE
        }

        /// Records the result of an attempt. A process that returns nothing for some minutes needs the memory that it has.
        pub(super) fn note(&mut self, before: usize, after: usize) {
            self.fruitless = if after + WORTHWHILE / 8 > before { self.fruitless + 1 } else { 0 };
            if self.fruitless == TRIES {
                *self = Self::new(after);
            }
        }
    }

    fn resident_bytes() -> Option<usize> {
        let sizes = std::fs::read_to_string("/proc/self/statm").ok()?;
        Some(sizes.split_whitespace().nth(1)?.parse::<usize>().ok()? * PAGE)
    }

    #[allow(unsafe_code)]
    fn trim() {
        // SAFETY: the call has no preconditions, and locks what it changes.
        unsafe { libc::malloc_trim(0) };
    }

    const INTERVAL: Duration = Duration::from_secs(15);
    const WORTHWHILE: usize = 64 << 20;
    const TRIES: usize = 20;
    const PAGE: usize = 4096;

    #[cfg(test)]
    mod tests {
        use super::*;

        const MIB: usize = 1 << 20;

        #[test]
        fn a_peak_is_looked_at_until_it_is_over() {
            let mut level = Level::new(20 * MIB);
            assert!(!level.is_peak(80 * MIB));
            assert!(level.is_peak(700 * MIB));
            level.note(700 * MIB, 300 * MIB);
            assert!(level.is_peak(300 * MIB), "what is in use now may be free later");
            level.note(300 * MIB, 40 * MIB);
            assert!(!level.is_peak(40 * MIB));
        }

        #[test]
        fn a_process_that_needs_its_memory_is_left_alone_after_a_while() {
            let mut level = Level::new(20 * MIB);
            for _ in 0..TRIES {
                assert!(level.is_peak(700 * MIB));
                level.note(700 * MIB, 699 * MIB);
            }
            assert!(!level.is_peak(700 * MIB));
            assert!(!level.is_peak(300 * MIB) && level.is_peak(364 * MIB), "it needs less now");
        }

        #[test]
        fn freed_memory_goes_back_to_the_system() {
            let blocks: Vec<Vec<u8>> = (0..40_000).map(|_| vec![7; 10_000]).collect();
            // Blocks that stay in use keep the allocator from returning the rest by itself.
            let kept: Vec<Vec<u8>> =
                blocks.into_iter().enumerate().filter(|(at, _)| at % 100 == 99).map(|(_, block)| block).collect();
            let before = resident_bytes().unwrap();
            trim();
            let after = resident_bytes().unwrap();
            assert!(before > after + 100 * MIB, "{before} {after}"); // other tests may take some meanwhile
            drop(kept);
        }
    }
}
