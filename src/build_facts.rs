//! What this program was built from, and how.

/// The version of the package.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit that was given as `WEIR_COMMIT` when it was built, or `unknown`.
pub const COMMIT: &str = env!("WEIR_COMMIT");
/// The machine that it was built for.
pub const TARGET: &str = env!("WEIR_TARGET");
/// How it was built.
pub const PROFILE: &str = if cfg!(debug_assertions) { "debug" } else { "release" };
/// What gives it memory.
pub const ALLOCATOR: &str = if cfg!(feature = "jemalloc") { "jemalloc" } else { "system" };

/// Version, commit and machine in a line.
pub const LINE: &str =
    concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("WEIR_COMMIT"), ", for ", env!("WEIR_TARGET"), ")");
