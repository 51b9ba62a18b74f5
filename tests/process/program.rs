//! The built program: its reaction to signals.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use weir_testkit::folder::Folder;
use weir_testkit::raw_http::{ask, request};
use weir_testkit::running::{PATIENCE, Running, stderr};

use crate::WEIR;

fn start(configuration: &str) -> (Folder, Running) {
    start_with(configuration, |command| command)
}

fn start_with(configuration: &str, change: impl FnOnce(&mut Command) -> &mut Command) -> (Folder, Running) {
    let folder = Folder::with_short_path("program");
    let mut command = relay_in(&folder, configuration);
    let program = Running::start(change(&mut command), stderr);
    (folder, program)
}

/// Returns the command of a relay whose configuration is in the folder.
fn relay_in(folder: &Folder, configuration: &str) -> Command {
    folder.write("relay.yaml", configuration);
    let mut command = Command::new(WEIR);
    command.args(["--config", &folder.file("relay.yaml")]).env("NO_COLOR", "1").stderr(Stdio::piped());
    command
}

/// Returns a closed pipe, as in `weir ... | head` after head has ended.
fn nobody_reads() -> Stdio {
    std::io::pipe().unwrap().1.into()
}

#[test]
fn i10_whoever_reads_the_log_may_have_had_enough() {
    let folder = Folder::with_short_path("program-log");
    let configuration = "listen: [{address: '127.0.0.1:0'}]
upstream: {servers: [{uri: 'http://127.0.0.1:1'}]}
";
    let mut child = relay_in(&folder, configuration).stdout(nobody_reads()).spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(log.any(|line| line.unwrap().contains("weir started")));
    drop(log);
    // The program prints that it was asked to stop.
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn i10_whoever_reads_what_was_requested_may_have_had_enough() {
    let configuration = concat!(env!("CARGO_MANIFEST_DIR"), "/config/federation.yaml");
    for (line, code) in [(&["check", "--config", configuration][..], 0), (&["check"], 2), (&["get", "no such type"], 2)]
    {
        let mut command = Command::new(WEIR);
        command.args(line).stdin(Stdio::null()).stdout(nobody_reads()).stderr(nobody_reads());
        assert_eq!(command.status().unwrap().code(), Some(code), "{line:?}");
    }
}

#[test]
fn boot_26_sighup_takes_a_file_that_is_valid_and_nothing_of_one_that_is_not() {
    let configuration = "listen: [{address: '127.0.0.1:0'}]\nupstream: {servers: [{uri: 'http://127.0.0.1:1'}]}\n";
    let (folder, mut program) = start(configuration);
    program.says("weir started");
    folder.write("relay.yaml", &format!("{configuration}limits: {{linger: 1m, header_bytes: 8KiB}}\n"));
    program.signal("-HUP");
    program.says("configuration read again; what is pending needs a restart");
    folder.write("relay.yaml", "listen: []\n");
    program.signal("-HUP");
    program.says("invalid configuration; the one before goes on, and a restart would fail");
    assert!(program.child.try_wait().unwrap().is_none(), "it has ended");
    program.signal("-TERM");
    assert!(program.child.wait().unwrap().success());
}

#[test]
fn the_log_has_the_warnings_of_the_configuration_and_each_step_of_draining() {
    let configuration = "listen: [{address: '127.0.0.1:0'}]
upstream: {servers: [{uri: 'http://127.0.0.1:1'}]}
drain: {delay: 10ms}
shards: 2
types:
- {name: envoy.config.cluster.v3.Cluster, full_state: false}
";
    let (_folder, mut program) = start(configuration);
    program.says("configuration warning");
    let started = program.says("weir started");
    for name in ["version=", "config=", "listen=", "servers=", "workers=", "shards=2"] {
        assert!(started.contains(name), "{name} is missing in {started}");
    }
    program.signal("-TERM");
    program.says("SIGTERM received; draining");
    program.says("waiting for the drain delay; still accepting clients delay=10ms");
    program.says("closing listeners and ending client streams");
    assert!(program.child.wait().unwrap().success());
}

#[test]
fn the_log_filter_is_changed_over_the_admin_socket_which_goes_with_the_program() {
    let configuration = "listen: [{address: 'unix:weir.sock'}]
admin: {socket: admin.sock}
upstream: {servers: [{uri: 'http://127.0.0.1:1'}]}
drain: {grace: 0s, spread: 0s}
";
    let (folder, mut program) = start(configuration);
    program.says("weir started");
    let [admin, clients] = ["admin.sock", "weir.sock"].map(|name| folder.0.join(name));
    let asked = |line: &str| ask(UnixStream::connect(&admin).unwrap(), &request(line)).unwrap();
    assert!(asked("GET /log").ends_with("\r\n\r\ninfo\n"));
    assert!(asked("POST /log?filter=warn,weir::admin=info").starts_with("HTTP/1.1 200"));
    program.says("log filter changed");
    let changed = asked("GET /log");
    assert!(changed.contains("weir::admin=info") && changed.contains("warn"), "{changed}");
    assert!(clients.exists());
    program.signal("-TERM");
    assert!(program.child.wait().unwrap().success());
    assert!(!clients.exists() && !admin.exists());
}

#[test]
fn a_collector_that_never_answers_delays_the_end_a_little_and_lines_of_json_have_the_ids_of_their_span() {
    let collector = std::net::TcpListener::bind("127.0.0.1:0").unwrap(); // connections are completed, and no process reads them
    let endpoint = format!("http://{}", collector.local_addr().unwrap());
    let configuration = "listen: [{address: '127.0.0.1:0'}]\nupstream: {servers: [{uri: 'http://127.0.0.1:1'}]}\n";
    let (_folder, mut program) = start_with(configuration, |command| {
        command.args(["--log-format", "json", "--log", "info,weir=debug"]);
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint).env("OTEL_BSP_SCHEDULE_DELAY", "1");
        command.env("OTEL_BSP_MAX_QUEUE_SIZE", "none").env("OTEL_TRACES_SAMPLER", "sometimes")
    });
    let json = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
    program.says("OTEL_TRACES_SAMPLER");
    program.says("OTEL_BSP_MAX_QUEUE_SIZE");
    program.says("exporting traces");
    let address = json(&program.says("weir started"))["listen"].as_str().unwrap().to_owned();
    let mut client = std::net::TcpStream::connect(address).unwrap();
    let request = "POST /v3/discovery:clusters HTTP/1.1\r\nhost: relay\r\ncontent-type: application/json\r\ncontent-length: 1\r\n\r\n?";
    client.write_all(request.as_bytes()).unwrap();
    let rejected = json(&program.says("poll rejected"));
    let lengths = ["trace_id", "span_id"].map(|id| rejected[id].as_str().unwrap().len());
    assert_eq!(lengths, [32, 16]);
    program.signal("-TERM");
    let begun = std::time::Instant::now();
    program.says("the last spans could not be exported in time");
    assert!(program.child.wait().unwrap().success());
    assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
}

/// Returns exit code, stdout and stderr of `weir status --ready`.
fn readiness(admin: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(WEIR);
    let done = command.args(["status", "--ready", "--admin", admin]).output().unwrap();
    let [out, errors] = [done.stdout, done.stderr].map(|text| String::from_utf8(text).unwrap());
    (done.status.code(), out, errors)
}

/// The command that the image has as its HEALTHCHECK.
#[test]
fn the_code_of_status_says_whether_a_relay_is_ready_is_not_or_could_not_be_asked() {
    let configuration = "listen: [{address: '127.0.0.1:0'}]
admin: {address: '127.0.0.1:0'}
probes: {address: '127.0.0.1:0'}
upstream: {files: resources}
";
    let field = |line: &str, name: &str| {
        let (_, rest) = line.split_once(&format!(" {name}=")).unwrap_or_else(|| panic!("no {name} in {line}"));
        rest.split_whitespace().next().unwrap().to_owned()
    };
    let resources = concat!(env!("CARGO_MANIFEST_DIR"), "/config/demo/resources");
    let (_ready_folder, ready) = start(&configuration.replace("resources", resources));
    let started = ready.says("weir started");
    for name in ["admin", "probes"] {
        let address = field(&started, name);
        let begun = std::time::Instant::now();
        while readiness(&address) != (Some(0), "ready\n".into(), String::new()) {
            assert!(begun.elapsed() < PATIENCE, "{name}: {:?}", readiness(&address));
        }
    }

    let (_waiting_folder, waiting) =
        start(&configuration.replace("files: resources", "servers: [{uri: 'http://127.0.0.1:1'}]"));
    let address = field(&waiting.says("weir started"), "admin");
    let (code, out, errors) = readiness(&address);
    assert!(code == Some(1) && errors.is_empty(), "{code:?} {errors}");
    assert!(out.starts_with("not ready\nno answer from a server yet: ") && out.contains("127.0.0.1:1"), "{out}");

    let clients = field(&started, "listen").trim_matches('"').to_owned();
    let silent_socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap(); // connections are completed, and no process reads them
    let silent = silent_socket.local_addr().unwrap().to_string();
    for (address, reason) in [("127.0.0.1:1", "cannot reach"), (&clients, ""), (&silent, "no response from")] {
        let begun = std::time::Instant::now();
        let (code, out, errors) = readiness(address);
        assert!(code == Some(2) && out.is_empty(), "{address}: {code:?} {out}");
        assert!(errors.starts_with(&format!("error: {reason}")), "{address}: {errors}");
        assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
    }
}
