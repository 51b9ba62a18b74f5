mod histories;
mod made_up;
mod one_stream;
mod suspects;
mod trials;

use super::*;
use crate::xds::TypeTable;

const CLUSTERS: &str = "envoy.config.cluster.v3.Cluster";
const ROUTES: &str = "envoy.config.route.v3.RouteConfiguration";
const LISTENERS: &str = "envoy.config.listener.v3.Listener";
const OWN: &str = "own.Debug";

/// One stream, its server, and the time.
struct World {
    trials: TypeTrials,
    table: TypeTable,
    wanted: BTreeSet<Type>,
    opened: BTreeSet<Type>,
    now: Moment,
}

impl World {
    fn new(wanted: &[&str]) -> Self {
        let table = TypeTable::new();
        let wanted = wanted.iter().map(|name| table.resolve(name)).collect();
        Self { trials: TypeTrials::default(), table, wanted, opened: BTreeSet::new(), now: Moment::START }
    }

    /// Like `new`, with a stream on which the server has answered for clusters.
    fn live(wanted: &[&str]) -> Self {
        let mut world = Self::new(wanted);
        world.request();
        world.answer(CLUSTERS);
        world
    }

    /// Lets the server end the stream when routes are new on it, and answer on the next one.
    fn suspect_routes(&mut self) {
        self.want(ROUTES);
        self.request();
        self.end(UNKNOWN);
        self.request();
        self.answer(CLUSTERS);
    }

    fn kind(&self, name: &str) -> Type {
        self.table.resolve(name)
    }

    fn want(&mut self, name: &str) {
        self.wanted.insert(self.kind(name));
    }

    /// Writes what may be requested, and returns the types that are on the stream then.
    fn request(&mut self) -> Vec<&str> {
        let Self { trials, table, wanted, opened, now } = self;
        loop {
            trials.sort(wanted.iter().map(|kind| (kind, opened.contains(kind))), |kind| table.knows(kind.name()), *now);
            let Some(kind) = wanted.iter().find(|kind| !opened.contains(*kind) && !trials.is_apart(kind)) else {
                break;
            };
            trials.on_requested(kind, *now);
            opened.insert(kind.clone());
        }
        opened.iter().map(Type::name).collect()
    }

    fn answer(&mut self, name: &str) {
        self.trials.on_response(&self.kind(name));
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        let wanted = &self.wanted;
        self.trials.on_time(|kind| wanted.contains(kind), |kind| wanted.contains(kind), self.now);
    }

    /// Lets the server end the stream.
    fn end(&mut self, code: i32) {
        self.trials.on_ended(Some(&status(code)), self.now);
        self.trials.on_closed();
        self.opened.clear();
    }

    /// Begins the trial that is due, and returns its types.
    fn due(&mut self) -> Vec<String> {
        let Some(kinds) = self.trials.due(self.now) else { return Vec::new() };
        assert!(self.trials.compared().is_some());
        let names = kinds.iter().map(|kind| kind.name().to_owned()).collect();
        let serial = self.trials.begin(kinds, self.now);
        self.trials.on_begun(serial, self.now);
        names
    }

    fn tried(&mut self, end: TrialEnd) {
        self.trials.on_trial_end(self.trials.count, end, self.now);
    }

    /// Lets the server, which accepts second streams, end the trial of a type, so that the type is refused.
    fn refuse(&mut self, name: &str) {
        assert_eq!(self.due(), [name]);
        self.tried(refused());
        assert!(self.is_refused(name));
    }

    fn is_refused(&self, name: &str) -> bool {
        self.trials.refusal(&self.kind(name)).is_some()
    }
}

const UNKNOWN: i32 = 2;
const UNAVAILABLE: i32 = 14;
const UNAUTHENTICATED: i32 = 16;

fn refused() -> TrialEnd {
    TrialEnd::Refused(status(UNKNOWN))
}

/// The server has answered the first type, and left the stream open.
fn answered() -> TrialEnd {
    TrialEnd::Taken(BTreeSet::from([0]))
}

fn status(code: i32) -> ServerStatus {
    ServerStatus { code, message: String::new() }
}

const SOON: Duration = Duration::from_millis(10);

/// Names the types that clients make up, in the order in which they come.
fn made_up(at: usize) -> String {
    format!("own.MadeUp{at:04}")
}

fn owned(names: Vec<&str>) -> Vec<String> {
    names.into_iter().map(str::to_owned).collect()
}
