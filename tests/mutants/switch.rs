//! Copied beside the changed sources: turns one mutant on, or records which mutants a test reaches.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

static ON: LazyLock<usize> = LazyLock::new(|| {
    let number = std::env::var("WEIR_MUTANT").ok().and_then(|number| number.parse().ok());
    number.unwrap_or(usize::MAX)
});

static REACHED: LazyLock<Option<(File, Vec<AtomicBool>)>> = LazyLock::new(|| {
    let path = std::env::var_os("WEIR_MUTANTS_REACHED")?;
    let file = OpenOptions::new().create(true).append(true).open(path).expect("the file is writable");
    Some((file, (0..100_000).map(|_| AtomicBool::new(false)).collect()))
});

/// Returns whether this mutant is turned on.
pub(crate) fn is_on(number: usize) -> bool {
    if let Some((file, reached)) = &*REACHED {
        if !reached[number].swap(true, Ordering::Relaxed) {
            let mut file = file;
            file.write_all(format!("{number}\n").as_bytes()).expect("the file is writable");
        }
    }
    *ON == number
}
