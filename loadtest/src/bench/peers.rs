//! The peer: a small program that uses go-control-plane, built if `go` is installed.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use tokio::process::Command;

/// Builds the peer. An error says why it is missing.
pub async fn build() -> anyhow::Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/go-control-plane");
    let program = std::env::current_exe()?.with_file_name("go-control-plane-peer");
    let mut build = Command::new("go");
    build.current_dir(&source).arg("build").arg("-o").arg(&program).arg(".");
    let output = build.output().await.context("no `go` to build it with")?;
    if !output.status.success() {
        bail!("go build: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(program)
}
