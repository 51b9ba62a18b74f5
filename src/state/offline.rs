//! The state file while no relay has it open: its contents, a copy of it, and a file made from a copy.

use std::fs::OpenOptions;
use std::io::{BufReader, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, bail};
use serde_json::{Value, json};
use weir_core::proto::node::Node;

use super::file;
use super::load::Stored;
use super::portable;
use super::sealing::SealingKey;

/// Returns what is in the file: views, their servers, sets and names.
pub(crate) fn describe(path: &Path, key: Option<&Path>) -> anyhow::Result<Value> {
    let stored = stored(path, key)?;
    let time = |at: u64| match at {
        0 => Value::Null,
        at => json!(
            humantime::format_rfc3339_seconds(std::time::UNIX_EPOCH + std::time::Duration::from_millis(at)).to_string()
        ),
    };
    let views = stored.views.iter().map(|view| {
        let record = &view.record;
        let node: Node = prost::Message::decode(record.node.clone()).unwrap_or_default();
        let sets = record.sets.iter().map(|set| {
            let mut names: Vec<_> = view.of_set(set.number).map(|resource| resource.name.to_string()).collect();
            names.sort_unstable();
            json!({"type": set.type_name, "wildcard": set.wildcard, "collections": set.collections, "names": names})
        });
        let servers = record.servers.iter().map(|server| json!({"server": server.name, "heard": time(server.heard)}));
        json!({
            "view": node.id.strip_prefix("weir-").unwrap_or(&node.id),
            "cluster": node.cluster,
            "key_fields": record.key_fields,
            "shared": record.shared,
            "lacks_secrets": record.lacks_secrets,
            "written": time(record.written),
            "servers": servers.collect::<Vec<_>>(),
            "sets": sets.collect::<Vec<_>>(),
        })
    });
    Ok(Value::Array(views.collect()))
}

/// Copies everything into a new file, in clear.
pub(crate) fn export(path: &Path, key: Option<&Path>, with_secrets: bool, to: &Path) -> anyhow::Result<()> {
    let stored = stored(path, key)?;
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to);
    let mut out = BufWriter::new(file.with_context(|| format!("cannot make {}", to.display()))?);
    portable::write(&stored, with_secrets, &mut out).with_context(|| format!("cannot write {}", to.display()))?;
    out.flush().with_context(|| format!("cannot write {}", to.display()))
}

/// Makes a state file from a copy. The file must not exist yet.
pub(crate) fn import(path: &Path, key: Option<&Path>, from: &Path) -> anyhow::Result<()> {
    if path.exists() {
        bail!("{} exists: move it away first", path.display());
    }
    let key = key.map(SealingKey::read).transpose()?;
    let source = std::fs::File::open(from).with_context(|| format!("cannot read {}", from.display()))?;
    let made = (|| {
        let database = file::open(path, key.is_some())?;
        portable::read(&mut BufReader::new(source), &database, key.as_ref())?;
        file::guarded(|| Stored::read(&database, key.as_ref()))?;
        Ok::<_, portable::SnapshotFault>(())
    })();
    if made.is_err() {
        let _ = std::fs::remove_file(path); // this function has made it, and it is incomplete
    }
    made.with_context(|| format!("cannot use {}", from.display()))
}

fn stored(path: &Path, key: Option<&Path>) -> anyhow::Result<Stored> {
    if !path.exists() {
        bail!("no state file at {}: expected what state.path of the configuration names", path.display());
    }
    let key = key.map(SealingKey::read).transpose()?;
    let read = || {
        let database = file::open(path, key.is_some())?;
        file::guarded(|| Stored::read(&database, key.as_ref()))
    };
    read().with_context(|| format!("cannot use {}", path.display()))
}
