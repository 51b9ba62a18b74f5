//! The program on a disk that accepts writes and never finishes one, or that does not answer, at the start or later. Clients are served as ever,
//! operators see the problem, and the program ends when it has to.

use std::fs;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use weir_core::protocol::session::Variant;
use weir_testkit::address::any_address;
use weir_testkit::admin::{get, metric};
use weir_testkit::client::{Client, PATIENCE};
use weir_testkit::folder::Folder;
use weir_testkit::last_errors;
use weir_testkit::one_cluster::{CDS, receives, send};
use weir_testkit::plane::Plane;
use weir_testkit::program::Program;
use weir_testkit::wait::until;

use crate::WEIR;

/// A library that makes the disk hang: writes to the disk wait while one file exists, and opening a file of a volume waits while another
/// does. While a third one exists, reads of a database are slow.
const HANGING_SYNC: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static int is_there(const char *variable) {
    const char *file = getenv(variable);
    return file && access(file, F_OK) == 0;
}
static void wait_for_disk(void) {
    while (is_there("HUNG_DISK")) usleep(10000);
}
int open64(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    int mode = va_arg(more, int);
    va_end(more);
    const char *volume = getenv("VOLUME");
    if (volume && strncmp(path, volume, strlen(volume)) == 0)
        while (is_there("HUNG_VOLUME")) usleep(10000);
    return syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
ssize_t pread64(int fd, void *bytes, size_t length, off_t at) {
    if (is_there("SLOW_READS")) usleep(200000);
    return syscall(SYS_pread64, fd, bytes, length, at);
}
int fdatasync(int fd) { wait_for_disk(); return syscall(SYS_fdatasync, fd); }
int fsync(int fd) { wait_for_disk(); return syscall(SYS_fsync, fd); }
"#;

fn built_library(folder: &Folder) -> String {
    let (source, library) = (folder.file("sync.c"), folder.file("sync.so"));
    fs::write(&source, HANGING_SYNC).unwrap();
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o", &library, &source]).status().unwrap();
    assert!(built.success());
    library
}

/// Whether it is a problem that the file is not written.
async fn is_problem(program: &Program) -> bool {
    metric(&program.admin, "weir_problems{kind=\"state_not_written\"}").await == Some(1.0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_hangs_delays_nothing_but_the_file() {
    let folder = Folder::new("hung-disk-writes");
    let mut plane = Plane::start(&[Variant::Sotw]).await;
    let config = format!(
        "listen: [{{address: '127.0.0.1:0'}}]\nadmin: {{address: '127.0.0.1:0'}}\nviews: {{key: [cluster]}}\n\
         drain: {{grace: 0s, spread: 0s}}\nstate: {{path: {}}}\n\
         upstream: {{servers: [{{uri: 'http://{}', variant: sotw}}]}}\n",
        folder.file("state"),
        plane.address
    );
    let (library, hung) = (built_library(&folder), folder.file("hung"));
    let environment = format!("export LD_PRELOAD='{library}' HUNG_DISK='{hung}'");
    let mut program = Program::start_after(WEIR, &environment, "hung-disk.yaml", &config, PATIENCE);
    last_errors::note(program.admin.parse().unwrap());
    let address: SocketAddr = program.address.parse().unwrap();
    let current =
        async |program: &Program| metric(&program.admin, "weir_state_current_timestamp_seconds").await.unwrap();
    until("the file is current", async || current(&program).await > 0.0).await;

    fs::write(&hung, "").unwrap();
    let mut client = Client::connect(address, Variant::Sotw).await;
    client.ask(CDS, &[], Some("web"));
    let mut stream = plane.stream().await;
    stream.request().await;
    for version in ["one", "two", "three"] {
        send(&stream, version);
        receives(&mut client, version).await;
    }
    until("it is logged", async || !program.logged("the disk is slow").is_empty()).await;
    until("it is a problem", async || is_problem(&program).await).await;
    assert!(metric(&program.admin, "weir_state_failures_total").await >= Some(1.0), "for the alert");
    let stands_at = current(&program).await;
    send(&stream, "four");
    receives(&mut client, "four").await;
    let mut newcomer = Client::connect(address, Variant::Sotw).await;
    newcomer.ask(CDS, &[], Some("web"));
    receives(&mut newcomer, "four").await;
    assert_eq!(current(&program).await, stands_at, "nothing has reached the disk");
    assert_eq!(program.logged("the disk is slow").len(), 1);

    fs::remove_file(&hung).unwrap();
    until("the file is current again", async || current(&program).await > stands_at).await;
    until("it is no problem any more", async || !is_problem(&program).await).await;

    // The disk hangs from here on, while there is something to write.
    fs::write(&hung, "").unwrap();
    send(&stream, "five");
    receives(&mut client, "five").await;
    program.signal("-TERM");
    until("the program ends", async || program.child.try_wait().unwrap().is_some()).await;
    program.says("the last state could not be written in time", PATIENCE);
    assert_eq!(program.logged("the last state could not be written in time").len(), 1);
}

/// The program, with its state on a volume of its own.
struct World {
    folder: Folder,
    plane: Plane,
    environment: String,
    config: String,
}

impl World {
    /// Starts with the state of an earlier process, which has saved the set "one" of two views.
    async fn with_state(name: &str) -> Self {
        let (folder, plane) = (Folder::new(&format!("hung-disk-{name}")), Plane::start(&[Variant::Sotw]).await);
        fs::create_dir(folder.file("volume")).unwrap();
        let config = format!(
            "listen: [{{address: '127.0.0.1:0'}}]\nadmin: {{address: '127.0.0.1:0'}}\nviews: {{key: [cluster]}}\n\
             drain: {{grace: 0s, spread: 0s}}\nstate: {{path: {}}}\n\
             upstream: {{servers: [{{uri: 'http://{}', variant: sotw}}]}}\n",
            folder.file("volume/state"),
            plane.address
        );
        let environment = format!(
            "export LD_PRELOAD='{}' VOLUME='{}' HUNG_VOLUME='{}' SLOW_READS='{}'",
            built_library(&folder),
            folder.file("volume"),
            folder.file("hung"),
            folder.file("slow")
        );
        let mut world = Self { folder, plane, environment, config };
        let mut first = world.start();
        let mut open = Vec::new();
        for view in ["web", "batch"] {
            let mut client = world.client(&first, view).await;
            let mut stream = world.plane.stream().await;
            stream.request().await;
            send(&stream, "one");
            receives(&mut client, "one").await;
            open.push((client, stream));
        }
        // The set of a view is saved once the view was quiet for a while.
        until("both are saved", async || {
            let (_, upstreams) = get(&first.admin, "/upstreams").await;
            let known = ["settled", "complete"].map(|known| format!("\"completeness\": \"{known}\""));
            known.iter().map(|known| upstreams.matches(known).count()).sum::<usize>() == 2
        })
        .await;
        let settled = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
        until("the file is current", async || {
            metric(&first.admin, "weir_state_current_timestamp_seconds").await.unwrap() > settled
        })
        .await;
        first.signal("-TERM");
        assert!(first.has_succeeded(PATIENCE));
        world
    }

    /// Starts the program and waits until it listens.
    fn start(&self) -> Program {
        let name = format!("{}.yaml", self.folder.0.file_name().unwrap().display());
        let program = Program::start_after(WEIR, &self.environment, &name, &self.config, PATIENCE);
        last_errors::note(program.admin.parse().unwrap());
        program
    }

    async fn client(&self, program: &Program, view: &str) -> Client {
        let client = Client::connect(program.address.parse().unwrap(), Variant::Sotw).await;
        client.ask(CDS, &[], Some(view));
        client
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_that_hangs_at_the_start_costs_the_state_and_nothing_else() {
    let mut world = World::with_state("start").await;
    fs::write(world.folder.file("hung"), "").unwrap();
    let mut program = world.start(); // returns although the volume hangs, once it listens
    assert_eq!(get(&program.admin, "/healthz").await.0, 200);
    let mut client = world.client(&program, "web").await;
    let stream = world.plane.stream().await;
    send(&stream, "two");
    receives(&mut client, "two").await;
    program.says("the state file is not loaded; serving without it", PATIENCE);
    assert_eq!(program.logged("the state file is not loaded; serving without it").len(), 1);
    until("it is ready", async || get(&program.admin, "/ready").await.0 == 200).await;
    until("it is a problem", async || is_problem(&program).await).await;

    // State that is loaded late is only used for views that have not begun.
    fs::remove_file(world.folder.file("hung")).unwrap();
    until("it is loaded", async || !program.logged("has answered after all").is_empty()).await;
    until("it is no problem any more", async || !is_problem(&program).await).await;
    let mut newcomer = world.client(&program, "web").await;
    receives(&mut newcomer, "two").await;
    let mut other = world.client(&program, "batch").await;
    receives(&mut other, "one").await;
    send(&stream, "three");
    receives(&mut client, "three").await;
    program.signal("-TERM");
    assert!(program.has_succeeded(PATIENCE));

    // The disk hangs from here on.
    fs::write(world.folder.file("hung"), "").unwrap();
    let mut program = world.start();
    program.signal("-TERM");
    assert!(program.has_succeeded(PATIENCE));
    program.says("the state file was never loaded; it stays as it is", PATIENCE);
    assert_eq!(program.logged("the state file was never loaded; it stays as it is").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_wait_for_a_disk_that_is_slow_and_get_what_is_on_it() {
    let mut world = World::with_state("slow").await;
    fs::write(world.folder.file("slow"), "").unwrap();
    let program = world.start();
    let (status, reason) = get(&program.admin, "/ready").await;
    assert_eq!((status, reason.lines().next()), (503, Some("the state file is being loaded")));
    assert_eq!(get(&program.admin, "/healthz").await.0, 200);
    let mut client = world.client(&program, "web").await;
    assert_eq!(get(&program.admin, "/ready").await.0, 503, "the disk answers: it is waited for");
    fs::remove_file(world.folder.file("slow")).unwrap();
    receives(&mut client, "one").await;
    until("it is ready", async || get(&program.admin, "/ready").await.0 == 200).await;
    assert!(program.logged("the state file is not loaded").is_empty());
    // The view begins once the state is loaded, and requests its set from the server only then.
    let mut stream = world.plane.stream().await;
    stream.request().await;
    send(&stream, "two");
    receives(&mut client, "two").await;
}

/// Resource files of a volume are the first server, and a control plane is the second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resource_files_that_hang_at_the_start_leave_the_ladder_to_the_next_and_those_that_hang_later_are_served() {
    let (folder, mut plane) = (Folder::new("hung-disk-files"), Plane::start(&[Variant::Sotw]).await);
    let (volume, hung) = (folder.file("volume"), folder.file("hung"));
    fs::create_dir(&volume).unwrap();
    let put = |version: &str| {
        let cluster = format!("{{\"@type\": \"{CDS}\", \"name\": \"a\", \"alt_stat_name\": \"{version}\"}}");
        folder.write("next", &cluster);
        fs::rename(folder.file("next"), folder.file("volume/a.json")).unwrap();
    };
    put("one");
    let config = format!(
        "listen: [{{address: '127.0.0.1:0'}}]\nadmin: {{address: '127.0.0.1:0'}}\nviews: {{key: [cluster]}}\n\
         upstream: {{servers: [{{files: '{volume}'}}, {{uri: 'http://{}', variant: sotw}}]}}\n",
        plane.address
    );
    let environment = format!("export LD_PRELOAD='{}' VOLUME='{volume}' HUNG_VOLUME='{hung}'", built_library(&folder));
    let late = "a.json: the disk has not answered within 10s";
    let (hangs, answers) =
        ("the disk of resource files does not answer", "the disk of resource files has answered after all");

    // The disk hangs at the start, for `weir check` too.
    fs::write(&hung, "").unwrap();
    folder.write("relay.yaml", &config);
    let mut check = Command::new("sh");
    check.args(["-c", &format!("{environment}; exec \"$0\" \"$@\""), WEIR, "check", "--config"]);
    check.arg(folder.file("relay.yaml")).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut check = check.spawn().unwrap();
    let program = Program::start_after(WEIR, &environment, "hung-disk-files.yaml", &config, PATIENCE);
    last_errors::note(program.admin.parse().unwrap());
    let address: SocketAddr = program.address.parse().unwrap();
    let metric_of_errors = format!("weir_resource_file_errors{{source=\"{volume}\"}}");
    let errors = async |count: f64| metric(&program.admin, &metric_of_errors).await == Some(count);
    let mut client = Client::connect(address, Variant::Sotw).await;
    client.ask(CDS, &[], Some("web"));
    let mut stream = plane.stream().await;
    stream.request().await;
    send(&stream, "two");
    receives(&mut client, "two").await;
    let (_, files) = get(&program.admin, "/files").await;
    assert!(files.contains("\"missing\"") && files.contains(late), "{files}");
    until("it is an error", async || errors(1.0).await).await;
    until("the check ends", async || check.try_wait().unwrap().is_some()).await;
    let checked = check.wait_with_output().unwrap();
    let faults = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.code() == Some(1) && faults.contains(late), "{faults}");
    fs::remove_file(&hung).unwrap();
    receives(&mut client, "one").await;
    until("it is no error any more", async || errors(0.0).await).await;

    // It hangs later.
    fs::write(&hung, "").unwrap();
    put("three");
    until("it is an error again", async || errors(1.0).await).await;
    let (_, files) = get(&program.admin, "/files").await;
    assert!(files.contains("\"ready\""), "{files}");
    let mut newcomer = Client::connect(address, Variant::Sotw).await;
    newcomer.ask(CDS, &[], Some("web"));
    receives(&mut newcomer, "one").await;
    fs::remove_file(&hung).unwrap();
    receives(&mut client, "three").await;
    receives(&mut newcomer, "three").await;
    until("it is no error", async || errors(0.0).await).await;
    until("it is logged", async || [hangs, answers].map(|line| program.logged(line).len()) == [2, 2]).await;
}

/// Whether the process catches a signal, by its number.
fn catches(process: u32, signal: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() & (1 << (signal - 1)) != 0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_hangs_is_ended_by_a_signal() {
    const SIGHUP: u32 = 1;
    for (signal, number) in [("-TERM", 15), ("-INT", 2)] {
        let folder = Folder::new(&format!("hung-disk-signal-{number}"));
        let pipe = folder.file("relay.yaml");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let mut child = Command::new(WEIR).args(["--config", &pipe]).spawn().unwrap();
        let id = child.id();
        until("it hears signals", async || catches(id, SIGHUP) && catches(id, number)).await;
        let send =
            |signal: &str| assert!(Command::new("kill").args([signal, &id.to_string()]).status().unwrap().success());
        send("-HUP");
        send(signal);
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < PATIENCE, "it does not end");
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        assert!(status.success(), "{status}");
    }
}

/// At once: the volume of the state, the reader of the log, and the files of the first server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_that_is_leaned_on_hangs_at_once_and_clients_get_every_change() {
    let mut world = World::with_state("all").await;
    fs::write(world.folder.file("hung"), "").unwrap();
    assert!(Command::new("mkfifo").arg(world.folder.file("ca.pem")).status().unwrap().success());
    let (address, admin) = (any_address().await, any_address().await.to_string());
    let first = "{uri: 'https://127.0.0.1:1', connect_timeout: 300ms, tls: {ca: ca.pem, server_name: a.b}}, {uri:";
    let config = world.config.replacen("127.0.0.1:0", &address.to_string(), 1).replacen("127.0.0.1:0", &admin, 1);
    let path = world.folder.file("relay.yaml");
    fs::write(&path, config.replacen("{uri:", first, 1)).unwrap();
    let (_unread, stderr) = std::io::pipe().unwrap();
    fill(&stderr).await;
    let program = ["-c", &format!("{}; exec \"$0\" \"$@\"", world.environment), WEIR];
    let mut command = Command::new("sh");
    command.args(program).args(["--config", &path, "--log", "debug"]).stderr(stderr);
    let mut child = command.spawn().unwrap();
    let begun = Instant::now();
    until("it listens", async || tokio::net::TcpStream::connect(&admin).await.is_ok()).await;
    assert!(begun.elapsed() < Duration::from_secs(9), "{:?}: what hangs is given up after 10 s", begun.elapsed());

    let mut client = Client::connect(address, Variant::Sotw).await;
    client.ask(CDS, &[], Some("web"));
    let mut stream = world.plane.stream().await; // from the second server
    stream.request().await;
    for version in 0..100 {
        let version = format!("{version:03}");
        send(&stream, &version);
        receives(&mut client, &version).await;
        assert_eq!(get(&admin, "/healthz").await.0, 200);
    }
    assert!(metric(&admin, "weir_log_lines_dropped_total").await.unwrap() >= 0.0);
    let threads = fs::read_dir(format!("/proc/{}/task", child.id())).unwrap().count();
    let workers = std::thread::available_parallelism().unwrap().get();
    assert!(threads < 40 + 3 * workers, "{threads} threads"); // a shard for each worker, too
    let ends = Instant::now();
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    until("it ends", async || child.try_wait().unwrap().is_some()).await;
    assert!(ends.elapsed() < Duration::from_secs(15), "{:?}", ends.elapsed());
}

/// Writes in a thread until the pipe is full, and then waits for room.
async fn fill(pipe: &std::io::PipeWriter) {
    use std::io::Write;
    let (mut pipe, written) = (pipe.try_clone().unwrap(), Arc::new(AtomicUsize::new(0)));
    let of_thread = written.clone();
    std::thread::spawn(move || {
        while pipe.write_all(&[b'.'; 1024]).is_ok() {
            of_thread.fetch_add(1024, Ordering::Relaxed);
        }
    });
    until("the pipe is full", async || written.load(Ordering::Relaxed) >= PIPE).await;
}

/// The capacity of a pipe.
const PIPE: usize = 64 << 10;
