//! The log lines of an outage: one for each change of a server's state, and not one for each view and retry.

use std::fmt::Write;
use std::sync::{Arc, LazyLock, Mutex};

use tracing::field::{Field, Visit};
use tracing::subscriber::{DefaultGuard, Interest, set_default, set_global_default};
use tracing::{Event, Level, Metadata, Subscriber, span};

use super::evidence_crowd::ended;
use super::*;

const VIEWS: usize = 30;

/// Stores lines of a level and above, each with its level.
#[derive(Clone)]
pub(super) struct Lines(Arc<Mutex<Vec<(Level, String)>>>, Level);

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, "{}={value:?} ", field.name());
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("weir") && *metadata.level() <= self.1
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        self.0.lock().unwrap().push((*event.metadata().level(), text.0));
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// Stores only the lines of threads that read and write files, on which no test can set a subscriber. As the global default, it makes each call site
/// ask the subscriber of its own thread every time. Otherwise a call site that another thread reaches first, just as a test begins to store lines,
/// might cache the answer no.
///
/// A test cannot set one on the thread of a shard either. But the client chooses some words of a line, and these decide what its thread does there:
/// with [`PANICS`] it panics, with [`HANGS`] it waits.
struct AskEachTime;

static OF_FILES: LazyLock<Lines> = LazyLock::new(|| Lines(Arc::default(), Level::INFO));

/// Where lines with words of clients are: "poll rejected" and "method not served" have the path, "client NACKed a response" has the reason.
const OF_CLIENTS: [(&str, Level); 3] = [
    ("weir::downstream::rest", Level::DEBUG),
    ("weir::downstream::service", Level::DEBUG),
    ("weir::relay::client_log", Level::WARN),
];
pub(super) const PANICS: &str = "panics-on-purpose";
pub(super) const HANGS: &str = "hangs-on-purpose";
/// Locked by a test for as long as threads are to wait.
pub(super) static HANGING: Mutex<()> = Mutex::new(());

fn is_of_files(metadata: &Metadata<'_>) -> bool {
    let is_of = |part: &str| metadata.target().starts_with(part);
    ["weir::state", "weir::upstream::files"].into_iter().any(is_of) && OF_FILES.enabled(metadata)
}

impl Subscriber for AskEachTime {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        is_of_files(metadata) || OF_CLIENTS.contains(&(metadata.target(), *metadata.level()))
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn event(&self, event: &Event<'_>) {
        if is_of_files(event.metadata()) {
            return OF_FILES.event(event);
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        assert!(!text.0.contains(PANICS), "{PANICS}");
        if text.0.contains(HANGS) {
            drop(HANGING.lock());
        }
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// Makes each call site in the process ask the subscriber of its own thread every time.
pub(super) fn ask_each_time() {
    let _ = set_global_default(AskEachTime); // another test may have set it
}

impl Lines {
    /// Stores the lines of this thread, of level info and above, until the guard is dropped.
    pub(super) fn of_this_thread() -> (Self, DefaultGuard) {
        Self::down_to(Level::INFO)
    }

    /// Stores the lines of this thread, of this level and above, until the guard is dropped.
    pub(super) fn down_to(level: Level) -> (Self, DefaultGuard) {
        ask_each_time();
        let lines = Self(Arc::default(), level);
        let guard = set_default(lines.clone());
        (lines, guard)
    }

    /// Waits for a line about a file of state or resources that has this path and this text.
    pub(super) async fn of_file(path: &Path, part: &str) {
        let path = path.display().to_string();
        let is_there = async || OF_FILES.with(part).iter().any(|(_, line)| line.contains(&path));
        until(part, is_there).await;
    }

    pub(super) fn with(&self, part: &str) -> Vec<(Level, String)> {
        self.0.lock().unwrap().iter().filter(|(_, line)| line.contains(part)).cloned().collect()
    }
}

#[tokio::test]
async fn an_outage_of_thirty_views_is_a_few_lines_and_so_is_its_end() {
    let (lines, _guard) = Lines::of_this_thread();
    let mut plane = Plane::start(&BOTH).await;
    let times = ", variant: delta, backoff: {initial: 50ms, max: 100ms}";
    let relay = relay(plane.address, times).await;
    let mut clients = Vec::new();
    for view in 0..VIEWS {
        let mut client = Client::connect(relay.address, Variant::Delta).await;
        client.ask(CDS, &[], Some(&format!("view-{view}")));
        let stream = plane.stream().await;
        say(&stream, "1", &TWO, &TWO, &[]);
        client.sent().await;
        clients.push((client, stream));
    }
    assert_eq!(lines.with("server connected").len(), 1, "of thirty streams to one server");
    let streams = lines.with("client stream");
    assert!(!streams.is_empty() && streams.len() <= VIEWS, "{streams:?}");
    let address = plane.kill().await;
    let before = lines.0.lock().unwrap().len();
    until("the loss is logged", async || !lines.with("server connection lost").is_empty()).await;
    until("twenty retries of each view", async || ended(&relay).await >= 21 * VIEWS).await;
    let during: Vec<_> = lines.0.lock().unwrap()[before..].to_vec();
    let warnings: Vec<_> = during.iter().filter(|(level, _)| *level == Level::WARN).collect();
    assert!(warnings.len() <= 4, "{warnings:#?}");
    let mut back = Plane::start_at(address, &BOTH).await;
    back.stream().await;
    until("the return is logged", async || !lines.with("server connected again").is_empty()).await;
    assert_eq!(lines.with("server connected again").len(), 1);
}

#[tokio::test]
async fn i8_rejected_requests_are_a_few_lines_that_say_why() {
    let (lines, _guard) = Lines::of_this_thread();
    let plane = Plane::start(&BOTH).await;
    let limits = "views: {key: [cluster]}\nlimits: {name_bytes: 100}\n";
    let config = config(plane.address, ", variant: delta", limits);
    let relay = run(crate::bind(config).await.unwrap(), std::future::pending());
    let (start, long) = (std::time::Instant::now(), "x".repeat(101));
    for mut client in Client::connect_many(relay.address, 300).await {
        client.ask(EDS, &[&long], Some("web"));
        assert_eq!(client.ended().await, Code::ResourceExhausted);
    }
    let (logged, seconds) = (lines.with("request rejected"), start.elapsed().as_secs() as usize + 1);
    assert!(!logged.is_empty() && logged.len() <= 20 * seconds, "{} lines in {seconds} s", logged.len());
    assert!(
        logged.iter().all(|(level, line)| *level == Level::WARN && line.contains("limits.name_bytes")),
        "{logged:?}"
    );
}
