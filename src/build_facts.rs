//! How this program was built.

/// The version of the package.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit that was given as `WEIR_COMMIT` when it was built, or `unknown`.
pub const COMMIT: &str = env!("WEIR_COMMIT");
/// The target for which it was built.
pub const TARGET: &str = env!("WEIR_TARGET");
/// The build profile.
pub const PROFILE: &str = if cfg!(debug_assertions) { "debug" } else { "release" };
/// The memory allocator.
pub const ALLOCATOR: &str = if cfg!(feature = "jemalloc") { "jemalloc" } else { "system" };

/// Version, commit and target in one line.
pub const LINE: &str =
    concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("WEIR_COMMIT"), ", for ", env!("WEIR_TARGET"), ")");
