//! What becomes of the relays that the program has started when it is stopped.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use weir_testkit::folder::Folder;
use weir_testkit::wait::until;

#[tokio::test]
async fn a_signal_that_stops_the_program_stops_the_relay_that_it_started() {
    for (signal, code) in [("TERM", 143), ("INT", 130)] {
        let folder = Folder::new("signals");
        let (relay, pid) = (folder.0.join("relay"), folder.0.join("pid"));
        // Not a relay: the program waits for it to accept connections.
        fs::write(&relay, format!("#!/bin/sh\necho $$ > {0}.new; mv {0}.new {0}\nexec sleep 600\n", pid.display()))
            .unwrap();
        fs::set_permissions(&relay, fs::Permissions::from_mode(0o755)).unwrap();
        let mut program = Command::new(env!("CARGO_BIN_EXE_weir-loadtest"))
            .args(["hostile", "--small", "--behaviour", "made-up-nodes", "--weir"])
            .arg(&relay)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        until("the relay has started", async || pid.exists()).await;
        let relay = fs::read_to_string(&pid).unwrap();
        let relay = Path::new("/proc").join(relay.trim());
        assert!(runs(&relay));
        let sent = Command::new("kill").args([format!("-{signal}"), program.id().to_string()]).status().unwrap();
        assert!(sent.success());
        assert_eq!(program.wait().unwrap().code(), Some(code), "{signal}");
        until("the relay has ended", async || !runs(&relay)).await;
    }
}

/// Whether a process runs. One that has ended may still be there, until its parent asks for its exit status.
fn runs(process: &Path) -> bool {
    let stat = fs::read_to_string(process.join("stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
}
