//! The built program without a configuration, as a new user starts it.

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Instant;

use weir_testkit::folder::Folder;
use weir_testkit::raw_http::{ask, request};
use weir_testkit::running::{PATIENCE, Running, lines_of, stderr, stdout};

use crate::WEIR;

fn weir(folder: &Path, line: &str) -> Command {
    let mut command = Command::new(WEIR);
    command.args(line.split_whitespace()).current_dir(folder).env_remove("CARGO_MANIFEST_DIR").env_remove("WEIR_LOG");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The running program.
struct Relay {
    running: Running,
    log: mpsc::Receiver<String>,
    greeting: String,
}

impl Relay {
    fn start(folder: &Path, line: &str) -> Self {
        let mut running = Running::start(&mut weir(folder, line), stdout);
        let log = lines_of(running.child.stderr.take().unwrap());
        let greeting = running.until("With a control plane of your own");
        Self { running, log, greeting }
    }

    /// Returns the word that follows a text in the greeting.
    fn word_after(&self, before: &str) -> &str {
        let (_, rest) = self.greeting.split_once(before).unwrap_or_else(|| panic!("no {before} in {}", self.greeting));
        rest.split_whitespace().next().unwrap().trim_end_matches(',')
    }

    fn clients(&self) -> &str {
        self.word_after("  clients  ")
    }

    fn admin(&self) -> &str {
        self.word_after("admin    http://").split('/').next().unwrap()
    }

    /// Runs `weir get`, and returns exit code and output.
    fn get(&self, folder: &Path, line: &str) -> (i32, String) {
        let server = format!("get {line} --server http://{}", self.clients());
        let output = weir(folder, &server).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
    }

    fn becomes(&self, folder: &Path, line: &str, wanted: &str) {
        let start = Instant::now();
        while !self.get(folder, line).1.contains(wanted) {
            assert!(start.elapsed() < PATIENCE, "{line} does not become {wanted}");
        }
    }

    fn stop(&mut self) -> i32 {
        self.running.signal("-TERM");
        self.running.child.wait().unwrap().code().unwrap()
    }
}

fn fetch(address: &str, path: &str) -> String {
    ask(TcpStream::connect(address).unwrap(), &request(&format!("GET {path}"))).unwrap()
}

fn watch(folder: &Path, line: &str) -> Running {
    Running::start(weir(folder, &format!("watch {line}")).stderr(Stdio::inherit()), stdout)
}

fn edit(path: &Path, from: &str, to: &str) {
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.contains(from));
    std::fs::write(path, text.replace(from, to)).unwrap();
}

/// Returns a folder with the example resources, like a checkout, in which the addresses are unused ones.
fn checkout(name: &str) -> (Folder, PathBuf) {
    let folder = Folder::new(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/demo");
    let demo = folder.0.join("config/demo");
    std::fs::create_dir_all(demo.join("resources")).unwrap();
    for part in ["", "resources"] {
        for entry in std::fs::read_dir(source.join(part)).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_file() {
                std::fs::copy(entry.path(), demo.join(part).join(entry.file_name())).unwrap();
            }
        }
    }
    edit(&demo.join("relay.yaml"), "127.0.0.1:18000", "127.0.0.1:0");
    edit(&demo.join("relay.yaml"), "127.0.0.1:19000", "127.0.0.1:0");
    (folder, demo)
}

#[test]
fn without_a_checkout_copies_are_served_that_can_be_edited_and_stay_if_they_were() {
    let folder = Folder::new("installed");
    let mut relay = Relay::start(&folder.0, "--listen 127.0.0.1:0 --admin 127.0.0.1:0");
    let copies = PathBuf::from(relay.word_after("the example resources in "));
    let copies = copies.parent().unwrap();
    assert!(copies.is_absolute() && relay.greeting.contains("copies for you to edit"), "{}", relay.greeting);
    assert_eq!(relay.get(&folder.0, "cds -o names"), (0, "blue\ngreen\nweir-demo\n".into()));
    assert_eq!(relay.get(&folder.0, "listeners none").0, 1);

    // The endpoints contain the addresses of the relay.
    let admin = relay.admin().to_owned();
    let (_, endpoints) = relay.get(&folder.0, "eds blue -o json");
    let port: u16 = admin.rsplit_once(':').unwrap().1.parse().unwrap();
    assert!(endpoints.contains(&format!("\"portValue\": {port}")), "{endpoints}");
    let answer = fetch(&admin, "/healthz");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");

    edit(&copies.join("resources/routes.yaml"), "prefix_rewrite: /healthz", "prefix_rewrite: /clients");
    relay.becomes(&folder.0, "routes web", "prefixRewrite: /clients");
    assert_eq!(relay.stop(), 0);
    let farewell = format!("Your changes are still in {}.", copies.display());
    assert_eq!(relay.log.iter().last(), Some(farewell));
    std::fs::remove_dir_all(copies).unwrap();

    let mut relay = Relay::start(&folder.0, "--listen 127.0.0.1:0 --admin 127.0.0.1:0");
    let copies = PathBuf::from(relay.word_after("the example resources in "));
    assert!(copies.exists());
    assert_eq!(relay.stop(), 0);
    assert!(!copies.parent().unwrap().exists(), "nobody has touched them");
}

#[test]
fn whoever_reads_the_greeting_may_have_had_enough() {
    let folder = Folder::new("head");
    let mut child = weir(&folder.0, "--listen 127.0.0.1:0 --admin 127.0.0.1:0").spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let resources = first.split_once("the example resources in ").unwrap().1.split(',').next().unwrap();
    std::fs::write(Path::new(resources).join("more.yaml"), "[]").unwrap();
    // The program reports the folder of the changed resources when it ends.
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    std::fs::remove_dir_all(Path::new(resources).parent().unwrap()).unwrap();
}

#[test]
fn in_a_checkout_its_own_files_are_served_and_followed() {
    let (folder, demo) = checkout("checkout");
    let relay = Relay::start(&folder.0, "");
    assert!(relay.greeting.contains("in config/demo/resources.\n"), "{}", relay.greeting);
    assert!(
        include_str!("../../docs/try.md").contains(&as_by_default(&relay.greeting)),
        "{}",
        as_by_default(&relay.greeting)
    );
    assert!(relay.get(&folder.0, "routes web").1.contains("weight: 3"));
    edit(&demo.join("resources/routes.yaml"), "weight: 3", "weight: 7");
    relay.becomes(&folder.0, "routes web", "weight: 7");
    drop(relay);

    // As cargo runs the program: from any folder.
    let elsewhere = Folder::new("elsewhere");
    let mut command = weir(&elsewhere.0, "");
    let mut child = command.env("CARGO_MANIFEST_DIR", &folder.0).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(first, format!("Weir serves the example resources in {}/resources.\n", demo.display()));
}

/// Returns the text of docs/try.md between two markers.
fn page(from: &str, to: &str) -> &'static str {
    let (_, rest) = include_str!("../../docs/try.md").split_once(from).unwrap_or_else(|| panic!("no {from}"));
    rest.split_once(to).unwrap_or_else(|| panic!("no {to} after {from}")).0
}

#[test]
fn the_transcripts_of_the_page_are_what_the_program_prints() {
    let (folder, demo) = checkout("readme");
    let relay = Relay::start(&folder.0, "");
    let routes = watch(&folder.0, &format!("routes web --server http://{}", relay.clients()));
    routes.until("weight: 3");
    edit(&demo.join("resources/routes.yaml"), "weight: 3", "weight: 0");
    let change = page("config/demo/resources/routes.yaml\n...\n", "```");
    assert!(change.starts_with("@@ ") && change.contains("+            weight: 0\n"), "{change}");
    routes.until(change);

    let config = page("cat > shared.yaml <<'END'\n", "END\n").replace("127.0.0.1:18000", relay.clients());
    let config = config.replace("127.0.0.1:18001", "127.0.0.1:0").replace("127.0.0.1:19001", "127.0.0.1:0");
    std::fs::write(folder.0.join("shared.yaml"), config).unwrap();
    let second = Running::start(&mut weir(&folder.0, "--config shared.yaml"), stderr);
    let started = second.until("weir started");
    let field = |name: &str| {
        let (_, rest) = started.split_once(&format!(" {name}=")).unwrap_or_else(|| panic!("no {name} in {started}"));
        rest.split_whitespace().next().unwrap().trim_matches('"').to_owned()
    };
    let client = |id: &str| {
        let client = format!("routes web --server {} --id {id} --cluster shop", field("listen"));
        watch(&folder.0, &client)
    };
    let clients = [client("one"), client("two")];
    clients.iter().for_each(|client| drop(client.until("weight: 0")));
    let shown = |address: &str, path: &str, keys: &[&str]| {
        let page = fetch(address, path);
        let lines = page.lines().filter(|line| keys.iter().any(|key| line.contains(key)));
        lines.map(|line| format!("{line}\n")).collect::<String>()
    };
    let upstreams = shown(&field("admin"), "/upstreams", &["\"clients\"", "\"connected\""]);
    assert_eq!(upstreams, page("# two clients, one upstream stream\n", "$ curl"));
    let nodes = shown(relay.admin(), "/clients", &["\"node\": \"weir-"]);
    assert_eq!(nodes, page("# what the control plane sees\n", "```"));
}

/// Returns the greeting of an installed program, with the addresses that the example has.
fn as_by_default(greeting: &str) -> String {
    let after = |before: &str| greeting.split_once(before).unwrap().1.split([' ', '/']).next().unwrap();
    let (clients, admin) = (after("  clients  "), after("admin    http://"));
    let default = greeting.replace(&format!(" --server http://{clients}"), "").replace(clients, "127.0.0.1:18000");
    default.replace(admin, "127.0.0.1:19000").replace(WEIR, "target/debug/weir")
}

#[test]
fn an_address_in_use_is_reported_and_nothing_is_left_behind() {
    let folder = Folder::new("taken");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let output = weir(&folder.0, &format!("--listen {address} --admin 127.0.0.1:0")).env("TMPDIR", &folder.0).output();
    let output = output.unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout), (Some(1), Vec::new()));
    assert!(
        errors.contains(&format!("cannot listen on {address}")) && errors.contains("--listen and --admin"),
        "{errors}"
    );
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 0);
}
