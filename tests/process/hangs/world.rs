//! The things on which the program depends, and how each of them is stopped. A second relay is the control plane of one authority, over TLS, with
//! a token, at a name that has to be resolved.

use std::fs;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use weir_core::proto::discovery::DeltaDiscoveryRequest;
use weir_core::protocol::session::Variant;
use weir_testkit::address::any_address;
use weir_testkit::admin::metric;
use weir_testkit::certificates::Authority;
use weir_testkit::client::{Client, PATIENCE};
use weir_testkit::folder::Folder;
use weir_testkit::last_errors;
use weir_testkit::one_cluster::CDS;
use weir_testkit::plane::Plane;
use weir_testkit::program::Program;
use weir_testkit::wait::until;

use crate::WEIR;

const LEANED: &str = "xdstp://leaned.test/envoy.config.cluster.v3.Cluster/a";
pub const DRAIN: Duration = Duration::from_secs(1);
/// The time limit for recovery after the things continue.
const WELL: Duration = Duration::from_secs(10);
const SCRAPERS: usize = 10;
/// A JSON web token that is valid until 2100.
const TOKEN: &str = "eyJhbGciOiJub25lIn0.eyJleHAiOjQxMDI0NDQ4MDB9.c2ln";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thing {
    Disk,
    Log,
    Resolver,
    Token,
    Certificate,
    Bootstrap,
    Collector,
    Plane,
    Scraper,
}

pub const ALL: &[Thing] = &[
    Thing::Disk,
    Thing::Log,
    Thing::Resolver,
    Thing::Token,
    Thing::Certificate,
    Thing::Bootstrap,
    Thing::Collector,
    Thing::Plane,
    Thing::Scraper,
];

impl Thing {
    /// Returns the file that stops the thing while it exists.
    fn file(self) -> Option<&'static str> {
        match self {
            Self::Disk => Some("disk"),
            Self::Resolver => Some("resolver"),
            Self::Token => Some("token"),
            Self::Certificate => Some("ca.pem"),
            Self::Bootstrap => Some("bootstrap.json"),
            Self::Log | Self::Collector | Self::Plane | Self::Scraper => None,
        }
    }
}

pub struct World {
    folder: Folder,
    /// The control plane for names without an authority. It never stops.
    pub plane: Plane,
    leaned_address: SocketAddr,
    leaned: Option<Program>,
    /// A listener that never accepts.
    collector: TcpListener,
    scrapers: Mutex<Vec<TcpStream>>,
    /// When everything that was stopped last continued.
    went_on: Mutex<Instant>,
    values: AtomicU64,
}

/// A client of the second relay's resource, and the value that it has received.
pub struct Leaning {
    value: Arc<Mutex<String>>,
    task: JoinHandle<()>,
}

impl Drop for Leaning {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl World {
    pub async fn new() -> Self {
        let folder = Folder::new("hangs");
        for part in ["hung", "volume", "leaned"] {
            fs::create_dir_all(folder.0.join(part)).unwrap();
        }
        let authority = Authority::new();
        let identity = authority.sign("leaned.test");
        let leaned_address = any_address().await; // the port remains free while nothing listens
        let mut world = Self {
            folder,
            plane: Plane::start(&[Variant::Sotw, Variant::Delta]).await,
            leaned_address,
            leaned: None,
            collector: TcpListener::bind("127.0.0.1:0").unwrap(),
            scrapers: Mutex::default(),
            went_on: Mutex::new(Instant::now()),
            values: AtomicU64::new(0),
        };
        let written = [
            ("ca.pem", authority.pem.clone()),
            ("token", TOKEN.into()),
            ("leaned/cert.pem", identity.certificate),
            ("leaned/key.pem", identity.key),
            ("leaned/none.yaml", "resources: []\n".into()),
            ("bootstrap.json", world.bootstrap()),
        ];
        for (name, text) in written {
            world.folder.write(name, &text);
        }
        let (source, library) =
            (concat!(env!("CARGO_MANIFEST_DIR"), "/tests/process/hangs/hung.c"), world.folder.file("hung.so"));
        assert!(
            Command::new("cc").args(["-shared", "-fPIC", "-o", &library, source, "-ldl"]).status().unwrap().success()
        );
        world.next_value();
        world.start_leaned();
        world
    }

    fn bootstrap(&self) -> String {
        let (ca, token) = (self.folder.file("ca.pem"), self.folder.file("token"));
        format!(
            r#"{{"xds_servers": [{{"server_uri": "{}", "channel_creds": [{{"type": "insecure"}}]}}],
"authorities": {{"leaned.test": {{"xds_servers": [{{"server_uri": "leaned.test:{}",
"channel_creds": [{{"type": "tls", "config": {{"ca_certificate_file": "{ca}"}}}}],
"call_creds": [{{"type": "jwt_token_file", "config": {{"jwt_token_file": "{token}"}}}}]}}]}}}}}}"#,
            self.plane.address,
            self.leaned_address.port()
        )
    }

    fn start_leaned(&mut self) {
        self.leaned = None;
        let config = format!(
            "listen: [{{address: '{}', tls: {{certificate: {}, key: {}}}}}]\nadmin: {{address: '127.0.0.1:0'}}\n\
             upstream: {{files: {}, authorities: {{leaned.test: {{servers: [{{files: {}}}]}}}}}}\n",
            self.leaned_address,
            self.folder.file("leaned/cert.pem"),
            self.folder.file("leaned/key.pem"),
            self.folder.file("leaned/none.yaml"),
            self.folder.file("leaned/value.yaml")
        );
        let name = format!("{}-leaned.yaml", self.folder.0.file_name().unwrap().display());
        self.leaned = Some(Program::start(WEIR, &name, &config, PATIENCE));
    }

    /// Gives the second relay a new value, and returns it.
    fn next_value(&self) -> String {
        let value = format!("v{:05}", self.values.fetch_add(1, Ordering::Relaxed));
        let text = format!("resources:\n- \"@type\": {CDS}\n  name: {LEANED}\n  alt_stat_name: {value}\n");
        self.folder.write("leaned/next", &text);
        fs::rename(self.folder.file("leaned/next"), self.folder.file("leaned/value.yaml")).unwrap();
        value
    }

    pub fn start(&self) -> Program {
        let config = format!(
            "listen: [{{address: '127.0.0.1:0'}}]\nadmin: {{address: '127.0.0.1:0'}}\nviews: {{key: [cluster]}}\n\
             drain: {{grace: 0s, spread: 1s}}\nstate: {{path: {}}}\n\
             upstream: {{bootstrap: {}, backoff: {{initial: 100ms, max: 1s}}}}\n",
            self.folder.file("volume/state"),
            self.folder.file("bootstrap.json")
        );
        let environment = format!(
            "export LD_PRELOAD='{}' HUNG='{}' VOLUME='{}' LEANED='{}' OTEL_EXPORTER_OTLP_ENDPOINT='http://{}'",
            self.folder.file("hung.so"),
            self.folder.file("hung"),
            self.folder.file("volume"),
            self.leaned_address.ip(),
            self.collector.local_addr().unwrap()
        );
        let name = format!("{}.yaml", self.folder.0.file_name().unwrap().display());
        let program = Program::start_after(WEIR, &environment, &name, &config, PATIENCE);
        last_errors::note(program.admin.parse().unwrap());
        program
    }

    /// Connects a client that subscribes to the second relay's resource.
    pub async fn lean(&self, program: &Program) -> Leaning {
        let mut client = Client::connect(program.address.parse().unwrap(), Variant::Delta).await;
        client.ask(CDS, &[LEANED], Some("leaning"));
        let value = Arc::<Mutex<String>>::default();
        let of_task = value.clone();
        let task = tokio::spawn(async move {
            let Client::Delta(requests, replies) = &mut client else { unreachable!() };
            while let Ok(Some(reply)) = replies.message().await {
                assert_eq!(reply.removed_resources, [""; 0], "nobody has removed it");
                for resource in &reply.resources {
                    let bytes = &resource.resource.as_ref().unwrap().value;
                    *of_task.lock().unwrap() = String::from_utf8_lossy(&bytes[bytes.len() - 6..]).into_owned();
                }
                let nonce = reply.nonce;
                let ack = DeltaDiscoveryRequest { type_url: CDS.into(), response_nonce: nonce, ..Default::default() };
                let _ = requests.send(ack); // the stream may have ended
            }
        });
        Leaning { value, task }
    }

    /// Stops those of the things that can be stopped before the program starts.
    pub fn stop_before(&self, things: &[Thing]) {
        for thing in things {
            if let Some(file) = thing.file() {
                fs::write(self.folder.0.join("hung").join(file), "").unwrap();
            }
            if *thing == Thing::Plane {
                self.leaned.as_ref().unwrap().signal("-STOP");
            }
        }
    }

    /// Stops the things, and makes the program use them meanwhile.
    pub async fn stop(&mut self, things: &[Thing], program: &mut Program) {
        let reads_for_connections = [Thing::Resolver, Thing::Token, Thing::Certificate];
        if things.iter().any(|thing| reads_for_connections.contains(thing)) {
            self.leaned.take(); // a new one is started at once
            for thing in things.iter().filter(|thing| reads_for_connections.contains(thing)) {
                fs::write(self.folder.0.join("hung").join(thing.file().unwrap()), "").unwrap();
            }
            self.start_leaned();
        }
        self.stop_before(things);
        if things.contains(&Thing::Scraper) {
            for _ in 0..SCRAPERS {
                let mut scraper = TcpStream::connect(&program.admin).unwrap();
                scraper.write_all(&b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(20)).unwrap();
                self.scrapers.lock().unwrap().push(scraper);
            }
        }
        if things.contains(&Thing::Bootstrap) {
            program.signal("-HUP");
        }
        if things.contains(&Thing::Log) {
            program.leave_log_unread();
        }
    }

    pub fn go_on(&self, things: &[Thing], program: &Program) {
        *self.went_on.lock().unwrap() = Instant::now();
        for thing in things {
            match thing {
                Thing::Log => program.read_log(),
                Thing::Plane => self.leaned.as_ref().unwrap().signal("-CONT"),
                Thing::Scraper => self.scrapers.lock().unwrap().clear(),
                _ => {}
            }
            if let Some(file) = thing.file() {
                fs::remove_file(self.folder.0.join("hung").join(file)).unwrap();
            }
        }
    }

    /// Waits until the things work again.
    pub async fn is_well(&self, things: &[Thing], program: &Program, leaning: &Leaning) {
        let went_on = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
        let value = self.next_value();
        let reloads = program.logged(RELOADED).len();
        if things.iter().any(|thing| matches!(thing, Thing::Log | Thing::Bootstrap)) {
            program.signal("-HUP");
        }
        for thing in things {
            let is_well = async || match thing {
                Thing::Disk => metric(&program.admin, "weir_state_current_timestamp_seconds").await > Some(went_on),
                Thing::Log | Thing::Bootstrap => program.logged(RELOADED).len() > reloads,
                Thing::Resolver | Thing::Token | Thing::Certificate | Thing::Plane => {
                    *leaning.value.lock().unwrap() == value
                }
                Thing::Collector | Thing::Scraper => metric(&program.admin, "weir_workers").await > Some(0.0),
            };
            until(&format!("{thing:?} is well"), is_well).await;
        }
        let elapsed = self.went_on.lock().unwrap().elapsed();
        assert!(elapsed < WELL, "{things:?}: well after {elapsed:?}");
    }
}

/// The log line of a reload.
const RELOADED: &str = "configuration read again";

pub fn threads(program: &Program) -> usize {
    fs::read_dir(format!("/proc/{}/task", program.child.id())).unwrap().count()
}

pub fn files(program: &Program) -> usize {
    fs::read_dir(format!("/proc/{}/fd", program.child.id())).unwrap().count()
}
