//! Runs one target under libFuzzer. The variable `WEIR_FUZZ_TARGET` names it; `fuzz/run` sets it.
#![no_main]

mod memory;
mod targets;

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use weir::transcode::Transcoder;

use targets::{TARGETS, Target};

static TARGET: OnceLock<&'static Target> = OnceLock::new();

fuzz_target!(init: { target(); }, |data: &[u8]| {
    let target = target();
    let used = memory::most_used(|| (target.run)(data));
    let [fixed, per_byte] = target.memory;
    let limit = fixed + per_byte * data.len();
    assert!(used <= limit, "{used} bytes of memory for {} bytes of input: the limit is {limit}", data.len());
});

fn target() -> &'static Target {
    TARGET.get_or_init(|| {
        Transcoder::envoy(); // loaded once, and not on account of an input
        let name = std::env::var("WEIR_FUZZ_TARGET").unwrap_or_default();
        let names = || TARGETS.iter().map(|target| target.name).collect::<Vec<_>>().join(", ");
        let found = TARGETS.iter().find(|target| target.name == name);
        found.unwrap_or_else(|| panic!("WEIR_FUZZ_TARGET is {name:?}: expected one of {}", names()))
    })
}
