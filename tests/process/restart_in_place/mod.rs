//! The program with sockets that it inherits: a restart in place, which addresses the sockets are for, and what a service manager is sent.

mod overlapping;

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weir_core::protocol::session::Variant;
use weir_testkit::address::own_address;
use weir_testkit::client::{Client, PATIENCE};
use weir_testkit::folder::Folder;
use weir_testkit::one_cluster::CDS;
use weir_testkit::program::{Program, field};
use weir_testkit::raw_http::{ask, request};

use self::overlapping::JUST_ACCEPTED;
use crate::WEIR;

/// Returns a folder with one file of clusters.
fn folder_with_cluster(name: &str) -> Folder {
    let folder = Folder::with_short_path(&format!("restart-{name}"));
    folder.write("clusters.yaml", &format!("resources:\n- {{'@type': {CDS}, name: a}}\n"));
    folder
}

/// Returns a configuration that serves the file at these addresses.
fn config_of(folder: &Folder, listens: &str) -> String {
    format!("{listens}\nupstream: {{files: '{}'}}\nrest: {{timeout: 10s}}\n", folder.file("clusters.yaml"))
}

/// Returns a command that runs other shell commands, and then the program with at most two sockets, from file descriptor 3 on.
fn command_with(sockets: impl IntoIterator<Item = OwnedFd>, before: &str) -> Command {
    let sockets: Vec<_> = sockets.into_iter().collect();
    let script = format!("export LISTEN_PID=$$ LISTEN_FDS={}; {before}; exec \"$0\" \"$@\" {MOVED}", sockets.len());
    let mut shell = Command::new("sh");
    shell.args(["-c", &script, WEIR]);
    let mut sockets = sockets.into_iter();
    sockets.next().map(|first| shell.stdin(first));
    sockets.next().map(|second| shell.stdout(second));
    shell
}

const MOVED: &str = "3<&0 4<&1 0</dev/null 1>/dev/null";

fn bound() -> (TcpListener, SocketAddr) {
    bound_at(([127, 0, 0, 1], 0).into())
}

fn bound_at(address: SocketAddr) -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(address).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn start(name: &str, config: &str, sockets: impl IntoIterator<Item = OwnedFd>) -> Program {
    Program::start_by(command_with(sockets, "true"), &format!("restart-{name}.yaml"), config, PATIENCE)
}

/// Runs the program until it ends by itself, and returns its output.
fn refused(name: &str, config: &str, sockets: impl IntoIterator<Item = OwnedFd>) -> String {
    let (folder, file) = (Folder::new("restart"), format!("restart-{name}.yaml"));
    folder.write(&file, config);
    let mut command = command_with(sockets, "true");
    let done = command.arg("--config").arg(folder.file(&file)).args(["--log", "error"]).output().unwrap();
    assert_eq!(done.status.code(), Some(1));
    String::from_utf8(done.stderr).unwrap()
}

fn poll_request() -> String {
    let body = r#"{"node": {"id": "test", "cluster": "web"}}"#;
    let head =
        "POST /v3/discovery:clusters HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-type: application/json\r\n";
    format!("{head}content-length: {}\r\n\r\n{body}", body.len())
}

/// Polls once, on a connection of its own.
fn poll(address: SocketAddr) -> Result<(), String> {
    let answering = || {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        ask(stream, &poll_request())
    };
    match answering() {
        Ok(answer) if answer.starts_with("HTTP/1.1 200") && answer.contains("\"a\"") => Ok(()),
        other => Err(format!("poll: {other:?}")),
    }
}

/// Opens a stream on a connection of its own, and waits for its first response.
fn subscribe(address: SocketAddr, runtime: &tokio::runtime::Runtime) -> Result<(), String> {
    let answering = async {
        let stream = tokio::net::TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        let mut client = Client::over_as(stream, Variant::Delta).await.ok_or("no stream")?;
        client.ask(CDS, &[], Some("web"));
        match client.next_forever().await {
            Ok(Some(sent)) if sent.set == ["a"] => Ok(()),
            other => Err(format!("{other:?}")),
        }
    };
    let answered = runtime.block_on(async { tokio::time::timeout(PATIENCE, answering).await });
    answered.unwrap_or_else(|_| Err("no answer".into())).map_err(|error| format!("stream: {error}"))
}

/// Clients that connect continuously.
struct Crowd {
    is_over: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    clients: Vec<JoinHandle<Vec<String>>>,
}

impl Crowd {
    fn new(address: SocketAddr) -> Self {
        let (is_over, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let client = |once: Box<dyn Fn() -> Result<(), String> + Send>| {
            let (is_over, answered) = (is_over.clone(), answered.clone());
            std::thread::spawn(move || {
                let mut failed = Vec::new();
                while !is_over.load(Ordering::Relaxed) {
                    match once() {
                        Ok(()) => drop(answered.fetch_add(1, Ordering::Relaxed)),
                        Err(error) => failed.push(error),
                    }
                    std::thread::sleep(PAUSE);
                }
                failed
            })
        };
        let streaming = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            client(Box::new(move || subscribe(address, &runtime)))
        };
        let polling = || client(Box::new(move || poll(address)));
        let clients = vec![polling(), polling(), polling(), streaming(), streaming()];
        Self { is_over, answered, clients }
    }

    /// Waits until this many more clients were answered.
    fn goes_on(&self, more: usize) {
        let (before, begun) = (self.answered.load(Ordering::Relaxed), Instant::now());
        while self.answered.load(Ordering::Relaxed) < before + more {
            assert!(begun.elapsed() < PATIENCE, "clients are not answered");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Stops the clients, and returns their errors.
    fn end(self) -> Vec<String> {
        self.is_over.store(true, Ordering::Relaxed);
        self.clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    }
}

/// The pause between connections, so that other tests have ports.
const PAUSE: Duration = Duration::from_millis(3);

#[test]
fn no_connection_is_lost_while_one_relay_follows_another() {
    let folder = folder_with_cluster("follows");
    let (listener, address) = bound();
    let listens = format!(
        "listen: [{{address: '{address}'}}]\ndrain: {{delay: 1h, spread: 200ms}}\nlimits: {{new_connections_per_second: 20}}"
    );
    let config = config_of(&folder, &listens);
    let socket = || [OwnedFd::from(listener.try_clone().unwrap())];
    let mut relay = start("follows", &config, socket());
    let crowd = Crowd::new(address);
    for round in 0..6 {
        crowd.goes_on(30);
        relay.signal("-TERM");
        let next = if round % 2 == 0 {
            assert!(relay.has_succeeded(PATIENCE)); // clients wait in the backlog meanwhile
            start("follows", &config, socket())
        } else {
            relay.says("SIGTERM received", PATIENCE);
            let next = start("follows", &config, socket());
            assert!(relay.has_succeeded(PATIENCE));
            next
        };
        relay = next;
    }
    crowd.goes_on(30);
    assert_eq!(crowd.end(), [""; 0]);
}

#[test]
fn an_inherited_socket_stops_accepting_at_once_while_another_one_waits_for_the_delay() {
    let folder = folder_with_cluster("mixed");
    let (listener, address) = bound();
    let listens = format!("listen: [{{address: '{address}'}}, {{address: '127.0.0.1:0'}}]\ndrain: {{delay: 1h}}");
    let relay = start("mixed", &config_of(&folder, &listens), [listener.try_clone().unwrap().into()]);
    let started = relay.says("weir started", PATIENCE);
    let own =
        started.split_once(&format!("listen=\"{address} ")).unwrap().1.split('"').next().unwrap().parse().unwrap();
    poll(address).unwrap();
    relay.signal("-TERM");
    relay.says("waiting for the drain delay", PATIENCE);
    poll(own).unwrap();
    let waiting: Vec<_> = (0..10).map(|_| TcpStream::connect(address).unwrap()).collect();
    poll(own).unwrap();
    for _ in waiting {
        listener.accept().expect("the relay has accepted it"); // does not wait, because the relay has set the socket to that mode
    }
}

#[test]
fn an_address_that_was_not_inherited_is_waited_for_while_the_others_are_served() {
    let folder = folder_with_cluster("overlap");
    let ((listener, address), (own, own_address), (probes, probes_address)) =
        (bound(), bound_at(own_address()), bound_at(own_address()));
    drop((own, probes));
    let listens = format!(
        "listen: [{{address: '{address}'}}, {{address: '{own_address}'}}]\nprobes: {{address: '{probes_address}'}}\n\
         drain: {{delay: 0s, grace: 1s, spread: 0s}}"
    );
    let config = config_of(&folder, &listens);
    let mut old = start("overlap-old", &config, [listener.try_clone().unwrap().into()]);
    // The grace of the new process decides for how long it waits.
    let config = config.replace("grace: 1s", "grace: 50s");
    let new = start("overlap-new", &config, [listener.try_clone().unwrap().into()]);
    let waits = new.says("address in use; waiting for the process that has it", PATIENCE);
    assert!(waits.contains("limit=\"57s\""), "{waits}");
    poll(address).unwrap();
    old.signal("-TERM");
    assert!(old.has_succeeded(PATIENCE));
    poll(address).unwrap(); // the new process, which is the only one
    new.says(&format!("address free; listening address={own_address}"), PATIENCE);
    poll(own_address).unwrap();
    new.says(&format!("address free; listening address={probes_address}"), PATIENCE);
    let ready = request("GET /ready");
    let asking = || ask(TcpStream::connect(probes_address).ok()?, &ready).ok();
    let begun = Instant::now();
    while !asking().is_some_and(|answer| answer.starts_with("HTTP/1.1 200")) {
        assert!(begun.elapsed() < PATIENCE, "nobody answers probes");
    }
    assert_eq!(new.logged("address in use").len(), 2, "each is said once");
}

#[test]
fn unix_sockets_of_clients_and_operators_are_waited_for_and_the_service_manager_hears_which() {
    let folder = folder_with_cluster("unix-late");
    let (listener, address) = bound();
    let (clients, operators) = (folder.0.join("clients"), folder.0.join("admin"));
    let (shown_clients, shown_operators) = (clients.display(), operators.display());
    let config = config_of(
        &folder,
        &format!(
            "listen: [{{address: '{address}'}}, {{address: 'unix:{shown_clients}'}}]\nadmin: {{socket: '{shown_operators}'}}\n\
         drain: {{delay: 0s, grace: 1s, spread: 0s}}"
        ),
    );
    let mut old = start("unix-late-old", &config, [listener.try_clone().unwrap().into()]);
    let manager_at = folder.0.join("notify");
    let manager = UnixDatagram::bind(&manager_at).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let hears = || {
        let mut message = [0; 4096];
        let length = manager.recv(&mut message).expect("no message");
        String::from_utf8_lossy(&message[..length]).into_owned()
    };
    let config = config.replace("grace: 1s", "grace: 50s"); // so long that it waits for the old one
    let mut command = command_with([listener.try_clone().unwrap().into()], "true");
    command.env("NOTIFY_SOCKET", &manager_at);
    let new = Program::start_by(command, "restart-unix-late-new.yaml", &config, PATIENCE);
    let late = format!("another process still has unix:{shown_clients} unix:{shown_operators}");
    assert_eq!(hears(), format!("READY=1\nSTATUS=serving {address}; {late}\n"));
    let status = request("GET /ready");
    let asks = |path: &Path, request: &str| ask(UnixStream::connect(path).ok()?, request).ok();
    assert!(asks(&operators, &status).is_some(), "the old one answers there");
    old.signal("-TERM");
    assert!(old.has_succeeded(PATIENCE));
    for (path, request) in [(&clients, poll_request()), (&operators, status.clone())] {
        new.says(&format!("address free; listening address=unix:{}", path.display()), PATIENCE);
        let answer = asks(path, &request).unwrap_or_default();
        assert!(answer.starts_with("HTTP/1.1 200"), "{}: {answer}", path.display());
    }
    assert_eq!(hears(), format!("STATUS=serving {address} unix:{shown_clients}\n"));
    let info = asks(&operators, &status.replace("/ready", "/server_info")).unwrap();
    assert_eq!(info.matches("\"open\":true").count() + info.matches("\"open\": true").count(), 3, "{info}");
}

#[test]
fn an_address_that_stays_in_use_ends_the_process_when_the_other_one_had_its_time_and_at_once_without_inherited_sockets()
{
    let folder = folder_with_cluster("kept");
    let ((listener, address), (_keeper, kept)) = (bound(), bound());
    let config = config_of(
        &folder,
        &format!(
            "listen: [{{address: '{address}'}}, {{address: '{kept}'}}]\ndrain: {{delay: 0s, grace: 0s, spread: 0s}}"
        ),
    );
    let relay = start("kept", &config, [listener.into()]);
    poll(address).unwrap();
    let mut relay = relay;
    assert!(!relay.has_succeeded(PATIENCE));
    relay.says(&format!("cannot listen on {kept}"), PATIENCE);
    let alone = config_of(&folder, &format!("listen: [{{address: '127.0.0.1:0'}}, {{address: '{kept}'}}]"));
    let said = refused("kept-alone", &alone, []);
    assert!(said.contains(&format!("error: cannot listen on {kept}: Address already in use")), "{said}");
}

#[test]
fn trn_19_connections_that_were_accepted_before_the_drain_are_answered() {
    let folder = folder_with_cluster("accepted");
    assert!((0..5).any(|_| are_answered_in_a_drain(&folder)), "requests are sent too late each time");
}

/// Checks that connections which were accepted before the drain are answered. Returns false if their requests were sent later than the relay waits.
fn are_answered_in_a_drain(folder: &Folder) -> bool {
    let (listener, address) = bound();
    let config = config_of(folder, &format!("listen: [{{address: '{address}'}}]\ndrain: {{spread: 0s}}"));
    let mut relay = start("accepted", &config, [listener.into()]);
    let early: Vec<_> = (0..10).map(|_| TcpStream::connect(address).unwrap()).collect();
    poll(address).unwrap(); // so that earlier connections were accepted before this
    let begun = Instant::now();
    relay.signal("-TERM");
    relay.says("closing listeners and ending client streams", PATIENCE);
    for mut stream in &early {
        let _ = stream.write_all(poll_request().as_bytes()); // fails if the relay has closed it
    }
    let is_in_time = begun.elapsed() < JUST_ACCEPTED;
    for stream in early {
        let answer = ask(stream, "");
        let is_answered = answer.as_ref().is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"));
        assert!(is_answered || !is_in_time, "{answer:?}");
    }
    assert!(relay.has_succeeded(PATIENCE));
    is_in_time
}

#[test]
fn sockets_are_used_by_their_addresses_and_not_by_their_order() {
    let folder = folder_with_cluster("order");
    let ((clients, address), (admin, admin_address)) = (bound(), bound());
    let listens = format!("listen: [{{address: '{address}'}}]\nadmin: {{address: '{admin_address}'}}");
    let relay = start("order", &config_of(&folder, &listens), [admin.into(), clients.into()]);
    assert_eq!((relay.address.clone(), relay.admin.clone()), (address.to_string(), admin_address.to_string()));
    assert_eq!(relay.logged("inherited socket used").len(), 2);
    poll(address).unwrap();
    let ready = request("GET /ready");
    let answer = ask(TcpStream::connect(admin_address).unwrap(), &ready).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn a_socket_that_is_not_configured_is_an_error() {
    let folder = folder_with_cluster("unused");
    let ((clients, address), (other, other_address)) = (bound(), bound());
    let config = config_of(&folder, &format!("listen: [{{address: '{address}'}}]"));
    let said = refused("unused", &config, [clients.into(), other.into()]);
    assert!(said.contains(&format!("error: inherited socket {other_address} is not configured: expected ")), "{said}");
    let file = std::fs::File::open(folder.0.join("clusters.yaml")).unwrap();
    let said = refused("unused", &config, [file.into()]);
    assert!(said.contains("inherited file descriptor 3 is not a listening TCP or Unix socket"), "{said}");
}

#[test]
fn sockets_of_another_process_are_left_alone() {
    let folder = folder_with_cluster("other");
    let (listener, _) = bound();
    let command = command_with([listener.into()], "LISTEN_PID=1");
    let config = config_of(&folder, "listen: [{address: '127.0.0.1:0'}]");
    let relay = Program::start_by(command, "restart-other.yaml", &config, PATIENCE);
    assert_eq!(relay.logged("inherited socket used"), [""; 0]);
    poll(relay.address.parse().unwrap()).unwrap();
}

#[test]
fn an_inherited_unix_socket_stays_where_it_is() {
    let folder = folder_with_cluster("unix");
    let path = folder.0.join("weir.sock");
    let listener = UnixListener::bind(&path).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o660)).unwrap();
    let listens = |mode: &str| format!("listen: [{{address: 'unix:{}'{mode}}}]\ndrain: {{spread: 0s}}", path.display());
    let said = refused("unix", &config_of(&folder, &listens("")), [listener.try_clone().unwrap().into()]);
    assert!(said.contains("has mode 0660: expected 0600 or less, as configured"), "{said}");
    let config = config_of(&folder, &listens(", mode: '0660'"));
    for _ in 0..2 {
        let mut relay = start("unix", &config, [listener.try_clone().unwrap().into()]);
        assert_eq!(field(&relay.says("weir started", PATIENCE), "listen"), Some(format!("unix:{}", path.display())));
        let answer = ask(UnixStream::connect(&path).unwrap(), &poll_request()).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        relay.signal("-TERM");
        assert!(relay.has_succeeded(PATIENCE));
        assert!(path.exists());
    }
}

#[test]
fn a_service_manager_hears_when_the_relay_is_ready_reloads_and_stops() {
    let folder = folder_with_cluster("notify");
    let path = folder.0.join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let hears = || {
        let mut message = [0; 4096];
        let length = manager.recv(&mut message).expect("no message");
        String::from_utf8(message[..length].to_vec()).unwrap()
    };
    let mut command = Command::new(WEIR);
    command.env("NOTIFY_SOCKET", &path);
    let config = config_of(&folder, "listen: [{address: '127.0.0.1:0'}]\ndrain: {spread: 0s}");
    let mut relay = Program::start_by(command, "restart-notify.yaml", &config, PATIENCE);
    assert_eq!(hears(), format!("READY=1\nSTATUS=serving {}\n", relay.address));
    for (content, status) in [
        (config.clone(), "serving; configuration read again"),
        (format!("{config}limits: {{header_bytes: 8KiB}}\n"), "serving; a restart is needed for limits.header_bytes"),
        ("listen: []\n".into(), "serving; invalid configuration, see the log; the one before goes on"),
    ] {
        relay.write_config(&content);
        relay.signal("-HUP");
        let begun = hears();
        let rest = begun.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap_or_else(|| panic!("{begun}"));
        assert!(rest.split_once('\n').unwrap().0.parse::<u64>().unwrap() > 0, "{begun}");
        assert_eq!(hears(), format!("READY=1\nSTATUS={status}\n"));
    }
    std::fs::remove_file(&path).unwrap(); // nothing can be sent from now on
    relay.signal("-HUP");
    relay.says("cannot notify the service manager", PATIENCE);
    assert!(relay.child.try_wait().unwrap().is_none(), "it has ended");
    let again = UnixDatagram::bind(&path).unwrap();
    again.set_read_timeout(Some(PATIENCE)).unwrap();
    relay.signal("-TERM");
    let mut message = [0; 4096];
    let mut heard = String::new();
    while !heard.contains("STOPPING=1\nSTATUS=draining\n") {
        let length = again.recv(&mut message).expect("no message");
        heard += &String::from_utf8_lossy(&message[..length]);
    }
    assert!(relay.has_succeeded(PATIENCE));
}

/// A service that stops is not ready again because its configuration is read again.
#[test]
fn a_service_manager_that_was_sent_that_the_relay_stops_hears_of_no_reload() {
    let folder = folder_with_cluster("stopping");
    let path = folder.0.join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let hears = || {
        let mut message = [0; 4096];
        let length = manager.recv(&mut message).expect("no message");
        String::from_utf8(message[..length].to_vec()).unwrap()
    };
    let mut command = Command::new(WEIR);
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "30000000");
    let config = config_of(&folder, "listen: [{address: '127.0.0.1:0'}]\ndrain: {delay: 1h}");
    let relay = Program::start_by(command, "restart-stopping.yaml", &config, PATIENCE);
    relay.signal("-TERM");
    while hears() != "STOPPING=1\nSTATUS=draining\n" {}
    // The second reload begins when the first has been reported.
    for reload in 1..=2 {
        relay.signal("-HUP");
        let begun = Instant::now();
        while relay.logged("configuration read again").len() < reload {
            assert!(begun.elapsed() < PATIENCE, "{:?}", relay.logged(""));
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    manager.set_nonblocking(true).unwrap();
    let (mut message, mut heard) = ([0; 4096], String::new());
    while let Ok(length) = manager.recv(&mut message) {
        heard += &String::from_utf8_lossy(&message[..length]);
    }
    manager.set_nonblocking(false).unwrap();
    // One of these is sent each second, so the second one comes after all that was sent before.
    heard += &(hears() + &hears());
    assert_eq!(heard.replace("WATCHDOG=1\n", ""), "");
}

#[test]
fn a_service_manager_that_wants_to_know_hears_again_and_again_that_the_relay_gets_on() {
    let folder = folder_with_cluster("watchdog");
    let path = folder.0.join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut command = Command::new(WEIR);
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "30000000");
    let config = config_of(&folder, "listen: [{address: '127.0.0.1:0'}]\ndrain: {spread: 0s}");
    let _relay = Program::start_by(command, "restart-watchdog.yaml", &config, PATIENCE);
    let (mut message, mut heard) = ([0; 4096], String::new());
    while !heard.ends_with("WATCHDOG=1\nWATCHDOG=1\n") {
        let length = manager.recv(&mut message).expect("no message");
        heard += &String::from_utf8_lossy(&message[..length]);
    }
    assert!(heard.starts_with("READY=1\n"), "{heard}");
}
