//! The program as a user starts it: exit codes, messages, figures whose truth is known.

#[path = "../../tests/support/sixteen_threads.rs"]
mod sixteen_threads;

use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use weir_loadtest::kind::Kind;
use weir_loadtest::origin::{Counts, Origin};
use weir_testkit::folder::Folder;

const COUNTS: Counts = Counts { clusters: 4, routes: 2, listeners: 1, size: 100 };
const DELAY: Duration = Duration::from_millis(50);
const CHANGES: usize = 25;
const ALL_CLIENTS: &str = "envoy-ads-delta=18446744073709551615";
/// An empty SETTINGS frame and its acknowledgement: a server without a control plane, which never responds.
const SILENT: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0, 0];

fn program(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir-loadtest")).args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// Runs the program beside what it talks to.
async fn beside(arguments: &[&str]) -> (Option<i32>, String) {
    let arguments: Vec<_> = arguments.iter().map(ToString::to_string).collect();
    let run = move || program(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

async fn origin() -> Origin {
    Origin::start("127.0.0.1:0".parse().unwrap(), COUNTS, None).await.unwrap()
}

/// A server that accepts connections, and answers the first bytes of each with these.
async fn server(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut bytes = [0; 1024];
                let _ = socket.read(&mut bytes).await;
                let _ = socket.write_all(answer).await;
                while socket.read(&mut bytes).await.is_ok_and(|count| count > 0) {}
            });
        }
    });
    address
}

#[test]
fn the_program_and_each_command_that_is_shown_have_a_manual_page() {
    let parent = Folder::new("loadtest-manual");
    let folder = parent.0.join("pages");
    let man = |folder: &std::path::Path| {
        let Output { status, stdout, stderr } = program(&["man", folder.to_str().unwrap()]);
        (status.code(), String::from_utf8([stdout, stderr].concat()).unwrap())
    };
    assert_eq!(man(&folder), (Some(0), String::new()));
    let page = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap().replace("\\-", "-");
    assert!(page("weir-loadtest.1").contains("weir-loadtest-clients(1)"), "{}", page("weir-loadtest.1"));
    assert!(page("weir-loadtest-clients.1").contains("--min-synced"), "{}", page("weir-loadtest-clients.1"));
    assert!(!folder.join("weir-loadtest-baseline.1").exists() && !folder.join("weir-loadtest-help.1").exists());
    let in_a_file = folder.join("weir-loadtest.1/pages");
    let (code, said) = man(&in_a_file);
    let expected = format!("error: cannot write manual pages to {}: ", in_a_file.display());
    assert!(code == Some(2) && said.starts_with(&expected), "{said}");
}

#[test]
fn what_cannot_run_or_ask_ends_with_2_and_says_why() {
    for (arguments, expected) in [
        (
            &["clients", "127.0.0.1:1", "--clients", "envoy-ads-sotw=3", "--duration", "5s"][..],
            "x Connection refused (127.0.0.1:1)",
        ),
        (&["clients", "127.0.0.1:70000"], "invalid address \"127.0.0.1:70000\": expected HOST:PORT"),
        (&["clients", "127.0.0.1:1", "--clients", "grpc=1"], "expected --listeners NAME"),
        (&["clients", "127.0.0.1:1", "--clients", "pods=1"], "unknown behaviour \"pods\": expected one of"),
        (&["clients", "127.0.0.1:1", "--clients", "zombie=0"], "no clients: expected --clients"),
        (&["clients", "127.0.0.1:1", "--clients", "zombie=1", "--duration", "1s"], "NOT SERVED: no client connected"),
        (
            &["clients", "127.0.0.1:1", "--clients", "envoy-ads-sotw=1", "--duration", "1s", "--min-synced", "0"],
            "NOT SERVED: no client connected",
        ),
        (&["clients", "127.0.0.1:1", "--clients", ALL_CLIENTS, "--clients", ALL_CLIENTS], "the hard limit is"),
        (&["clients", "127.0.0.1:1", "--clients", "zombie=1", "--min-synced", "1"], "--min-synced is 1"),
        (&["clients", "https://127.0.0.1:1"], "--tls-ca"),
        (&["conformance"], "--target"),
        (&["conformance", "--list", "--only"], "--only"),
        (&["compare", "/none", "/none"], "cannot read /none"),
        (&["compare", "/dev/null", "/dev/null"], "/dev/null is not a report"),
        (&["run", "/none"], "/none"),
        (&["record", "127.0.0.1:1", "/none/file", "--behaviour", "zombie"], "only aggregated streams are recorded"),
        (&["replay", "/none", "--listen", "127.0.0.1:0"], "/none"),
        (&["origin", "--listen", "localhost"], "--listen"),
        (&["hostile", "--behaviour", "nothing"], "nothing"),
        (&["bench", "--nothing"], "--nothing"),
        (&["nothing"], "nothing"),
    ] {
        let output = program(arguments);
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(text.contains(expected), "{arguments:?}: {expected:?} is missing in: {text}");
        assert!(!text.contains("panicked"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_serves_nothing_is_named_with_what_it_did_instead() {
    const ALERT: &[u8] = &[0x15, 3, 3, 0, 2, 2, 10];
    for (answer, expected) in [
        (ALERT, "the server expects TLS: use https:// and --tls-ca (127.0.0.1:"),
        (
            b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n",
            "the server speaks HTTP/1.1 and not gRPC; is this an admin address?",
        ),
    ] {
        let address = server(answer).await;
        let (code, text) = beside(&["clients", &address, "--clients", "envoy-ads-delta=2", "--duration", "5s"]).await;
        assert!(code == Some(2) && text.contains(expected), "{code:?} {text}");
        assert!(text.contains("result:     NOT SERVED: no client received everything"), "{text}");
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let silent = tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut socket, _)) = listener.accept().await {
            socket.write_all(SILENT).await.unwrap();
            open.push(socket);
        }
    });
    let (code, text) = beside(&["clients", &address, "--clients", "envoy-ads-delta=3", "--duration", "5s"]).await;
    silent.abort();
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("3 x the server is connected, and sends no clusters (127.0.0.1:"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_drops_packets_is_named() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let mut waiting = Vec::new(); // nobody accepts these, and the kernel takes no more
    while let Ok(connection) = timeout(Duration::from_millis(500), TcpStream::connect(address)).await {
        waiting.push(connection.unwrap());
    }
    let address = address.to_string();
    let (code, text) = beside(&["clients", &address, "--clients", "envoy-ads-delta=3", "--duration", "2s"]).await;
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("3 x not connected yet after") && text.contains("NOT SERVED: no client connected"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_server_that_is_gone_nothing_says_that_it_is_connected() {
    // No test program that runs at the same time uses this host, so no server of another test gets the port.
    let host = if cfg!(target_os = "linux") { "127.200.0.1:0" } else { "127.0.0.1:0" };
    let listener = TcpListener::bind(host).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        drop(listener);
        socket.write_all(SILENT).await.unwrap();
        while socket.read(&mut [0; 1024]).await.is_ok_and(|count| count > 0) {}
    });
    let flapper = ["--clients", "flapper=1", "--period", "500ms", "--duration", "6s"];
    let (code, text) = beside(&[&["clients", &address][..], &flapper].concat()).await;
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("x Connection refused") && !text.contains("the server is connected"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unix_socket_of_another_protocol_is_named() {
    let folder = Folder::with_short_path("loadtest-http");
    let path = folder.socket();
    let listener = UnixListener::bind(&path).unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let _ = socket.read(&mut [0; 1024]).await;
            for piece in [b"HT".as_slice(), b"TP/1.1 400 Bad Request\r\n\r\n"] {
                let _ = socket.write_all(piece).await;
                tokio::time::sleep(DELAY).await;
            }
        }
    });
    let address = format!("unix:{}", path.display());
    let (code, text) = beside(&["clients", &address, "--clients", "envoy-ads-delta=1", "--duration", "5s"]).await;
    assert!(code == Some(2) && text.contains("is this an admin address?"), "{code:?} {text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_before_the_first_sync_is_named_in_the_result() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let child = tokio::process::Command::new(env!("CARGO_BIN_EXE_weir-loadtest"))
        .args(["clients", &address, "--clients", "envoy-ads-delta=1", "--duration", "2m"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let (mut socket, _) = listener.accept().await.unwrap(); // interrupts are caught before it connects
    socket.write_all(SILENT).await.unwrap();
    kill(Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()), Signal::SIGINT).unwrap();
    let output = child.wait_with_output().await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    let result = text.lines().find(|line| line.starts_with("result:")).unwrap();
    assert!(result.contains("NOT SERVED") && result.contains("(interrupted after ") && result.ends_with(" of 120 s)"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_closes_the_pipe_ends_no_run_whose_report_goes_to_a_file() {
    let folder = Folder::new("loadtest-pipe");
    let file = folder.0.join("report.json");
    let path = file.to_str().unwrap();
    let origin = origin().await;
    let address = origin.address.to_string();
    for (address, expected) in [("127.0.0.1:1", 2), (&address, 0)] {
        let mut child = tokio::process::Command::new(env!("CARGO_BIN_EXE_weir-loadtest"))
            .args(["clients", address, "--clients", "envoy-ads-delta=1", "--duration", "7s", "--json", path])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        drop(child.stdout.take()); // progress after 5 s finds it closed
        assert_eq!(child.wait().await.unwrap().code(), Some(expected), "{address}");
        let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        std::fs::remove_file(&file).unwrap();
        let sample = &report["cells"][0]["samples"][0];
        assert_eq!(sample["figures"]["synced"].as_f64(), Some(if expected == 0 { 1.0 } else { 0.0 }), "{sample}");
        assert!(sample["fan_out"].as_array().is_none_or(Vec::is_empty), "nothing has changed: {sample}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_code_is_0_if_all_synced_and_1_if_fewer_than_required() {
    let origin = origin().await;
    let address = origin.address.to_string();
    let (code, text) = beside(&["clients", &address, "--clients", "envoy-ads-sotw=2", "--duration", "6s"]).await;
    assert!(code == Some(0) && text.contains("result:     passed") && text.contains("errors:     none"), "{text}");
    // gRPC clients of a listener that does not exist never sync.
    let mixed = ["--clients", "envoy-ads-sotw=2", "--clients", "grpc=1", "--listeners", "absent", "--duration", "6s"];
    let (code, text) = beside(&[&["clients", &address][..], &mixed].concat()).await;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("result:     FAILED: 2 of 3 clients that behave synced, 3 must"), "{text}");
    let (code, text) = beside(&[&["clients", &address, "--min-synced", "2"][..], &mixed].concat()).await;
    assert_eq!(code, Some(0), "{text}");
}

/// Passes bytes on, those of the server 50 ms later.
async fn late(to: SocketAddr) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(to).await.unwrap();
            for socket in [&client, &server] {
                socket.set_nodelay(true).unwrap();
            }
            let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
                (client.into_split(), server.into_split());
            tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
            let (sender, mut pieces) = mpsc::channel::<(Instant, Vec<u8>)>(10_000);
            tokio::spawn(async move {
                let mut bytes = vec![0; 65_536];
                while let Ok(count) = from_server.read(&mut bytes).await {
                    if count == 0 || sender.send((Instant::now() + DELAY, bytes[..count].to_vec())).await.is_err() {
                        return;
                    }
                }
            });
            tokio::spawn(async move {
                while let Some((at, piece)) = pieces.recv().await {
                    sleep_until(at).await;
                    if to_client.write_all(&piece).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures times, which have to be within 100 ms"]
async fn night_times_are_those_of_a_server_that_delays_by_50_ms_and_slow_readers_are_apart() {
    let origin = origin().await;
    let address = late(origin.address).await;
    let folder = Folder::new("loadtest-figures");
    let [json, page] = ["a.json", "a.html"].map(|name| folder.file(name));
    let groups = ["--clients", "envoy-ads-delta=5", "--clients", "slow-reader=2", "--duration", "2m"];
    let begun = Instant::now();
    let mut child = tokio::process::Command::new(env!("CARGO_BIN_EXE_weir-loadtest"))
        .args(["clients", &address, "--report", "--json", &json, "--html", &page])
        .args(groups)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // Slow readers need seconds for their first set, and changes before that are not measured.
    while let Some(line) = lines.next_line().await.unwrap() {
        if line.contains(" s left: 7 of 7 clients synced, 7 connections open") {
            break;
        }
    }
    let synced = begun.elapsed();
    for _ in 0..CHANGES {
        origin.touch(Kind::Cluster, 1);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    // The run would last longer. An interrupt ends it as its time does.
    let id = Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap());
    kill(id, Signal::SIGINT).unwrap();
    let mut text = String::new();
    while let Some(line) = lines.next_line().await.unwrap() {
        text.push_str(&line);
        text.push('\n');
    }
    let code = child.wait().await.unwrap().code();
    assert_eq!(code, Some(0), "{text}");
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let page = std::fs::read_to_string(&page).unwrap();
    let sample = &report["cells"][0]["samples"][0];
    let figure = |of: &serde_json::Value, name: &str| of[name].as_f64().unwrap_or_else(|| panic!("no {name}: {of}"));
    let all = &sample["figures"];
    let envoys = &sample["by_behaviour"]["envoy-ads-delta"];
    let slow = &sample["by_behaviour"]["slow-reader"];
    for name in ["received_p50_ms", "acked_p50_ms"] {
        let p50 = figure(envoys, name);
        assert!((50.0..150.0).contains(&p50), "{name} is {p50} ms, and the server delays by 50 ms");
        assert_eq!(figure(all, &format!("behaving_{name}")), p50, "those that behave are the Envoys alone");
        assert!(figure(slow, name) > 200.0, "{slow}");
    }
    // Clusters, endpoints, listeners and routes come one after another: four delays.
    let first = figure(envoys, "first_sync_p50_ms");
    let all_synced = synced.as_secs_f64() * 1000.0;
    assert!((200.0..all_synced).contains(&first), "first sync after {first} ms, and all after {all_synced}");
    assert!(figure(all, "received_max_ms") >= figure(slow, "received_max_ms"), "fields without `behaving` are of all");
    assert_eq!((figure(all, "synced"), figure(all, "behaving_synced"), figure(slow, "clients")), (7.0, 5.0, 2.0));
    for part in ["Clients that behave: times are p50 / p99 / max in ms", "Clients that misbehave", "duration"] {
        assert!(text.contains(part) && page.contains(part), "{part}: {text}");
    }
}

#[test]
fn results_of_checks_are_lines_of_json_where_that_is_wanted() {
    // It is skipped, as there is no control plane. So nothing is asked of the server.
    let output = program(&["conformance", "--target", "http://127.0.0.1:1", "--only", "DELTA-13", "--json"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!((output.status.code(), text.lines().count()), (Some(0), 1), "{text}");
    let result: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(result["verdict"] == "skipped" && result["variant"] == "delta", "{text}");
    assert_eq!(result["rules"], serde_json::json!(["DELTA-13"]));
    assert!(result["reason"].as_str().is_some_and(|reason| reason.contains("--plane")), "{text}");
}

#[test]
fn a_reader_that_closes_the_pipe_ends_the_program_quietly() {
    for arguments in [&["conformance", "--list"][..], &["hostile", "--list"], &["clients", "--help"]] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_weir-loadtest"))
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), text.as_str()), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn the_help_of_node_templates_has_their_placeholders() {
    let help = String::from_utf8(program(&["clients", "--help"]).stdout).unwrap();
    assert!(
        help.contains("{number} is the client's number") && help.contains("[default: loadtest-{number}]"),
        "{help}"
    );
}
