//! What a history is made of. Everything follows from its number.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use weir_core::protocol::ladder::{FallbackTimers, Rule};
use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::Variant;
use weir_core::protocol::sources::{AuthorityPlan, Plan, ServerPlan};
use weir_core::protocol::upstream::{InitialSet, OnResourceTimeout, ServerQuirks};
use weir_core::protocol::view::BrakeRules;

use crate::content::Kind;
use crate::random::Random;
use crate::server::{Habit, Removals, Stated};

/// How a history ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// All servers are well, and remain so.
    Well,
    /// The control plane goes away, and does not come back.
    Away,
}

#[derive(Debug, Clone)]
pub struct Options {
    pub tiers: usize,
    pub habits: Vec<Habit>,
    /// The variant in which each tier requests.
    pub variants: Vec<Variant>,
    pub quirks: Vec<ServerQuirks>,
    pub rule: Rule,
    pub hold_down: Duration,
    pub holds_missing: bool,
    pub protocol: ProtocolOptions,
    /// The longest time that a message takes.
    pub lag: u64,
    pub clients: u64,
    /// Some clients poll. Interest in what they request has to outlive the time between two polls.
    pub polls: bool,
    /// How many faults and changes there are, and within how many seconds.
    pub troubles: u64,
    pub span: u64,
    /// Connections and servers fail, too. Otherwise only contents and clients change.
    pub harsh: bool,
    pub ending: Ending,
    /// A client requests names that do not exist, again and again, even at the end.
    pub guesses: bool,
    /// The history is watched for a long time after its end.
    pub watches: bool,
    /// Types of a client that are never answered.
    pub unanswered: BTreeSet<Kind>,
}

impl Options {
    pub fn of(random: &mut Random) -> Self {
        let tiers = random.pick(&[1, 1, 2, 2, 3]);
        let servers = random.pick(&[1, 1, 1, 2, 3]);
        let unanswered = if random.one_in(3) { BTreeSet::from([Kind::Scopes]) } else { BTreeSet::new() };
        let honest = random.one_in(2);
        let (removes_unknown, removes_first) = (random.one_in(3), random.one_in(3));
        let habits = (0..servers).map(|_| Habit {
            compares: honest || random.one_in(2),
            removes_stated: Stated::IfItCompares,
            says_nothing_is_new: random.one_in(2),
            removes_unknown,
            replicas: !honest && random.one_in(4),
            pieces: (!honest && random.one_in(3)).then(|| random.pick(&[200, 1000, 7000].map(Duration::from_millis))),
            removals: if removes_first { Removals::InFirstPiece } else { Removals::InLastPiece },
            unanswered: unanswered.clone(),
        });
        let habits: Vec<Habit> = habits.collect();
        let sotw = random.one_in(4);
        let variants = (0..tiers).map(|tier| match tier == 0 && sotw || tier > 0 && random.one_in(8) {
            true => Variant::Sotw,
            false => Variant::Delta,
        });
        let variants = variants.collect();
        let ignore_deletions = random.one_in(5);
        let longest_pause = habits.iter().filter_map(|habit| habit.pieces).max().unwrap_or_default();
        let quirks = (0..tiers).map(|tier| ServerQuirks {
            // The question for the end of a set relies on removals that do not come long before additions of the same answer.
            initial_set: match tier == 0 && removes_first && longest_pause > Duration::ZERO {
                true => InitialSet::Pieces,
                false => InitialSet::Auto,
            },
            ignore_deletions: ignore_deletions && tier == 0,
            on_resource_timeout: match random.one_in(3) {
                true => OnResourceTimeout::TransientError,
                false => OnResourceTimeout::Absent,
            },
            ..ServerQuirks::default()
        });
        let quirks = quirks.collect();
        let harsh = random.one_in(2);
        let polls = random.one_in(2);
        let protocol = ProtocolOptions::default().with(|options| {
            options.view.linger = Duration::from_secs(if polls { 60 } else { random.pick(&[2, 30]) });
            options.hold_referenced(Duration::from_secs(random.pick(&[0, 5, 5])));
            // Longer than any pause of the server.
            options.upstream.second_silence = Duration::from_secs(if longest_pause < Duration::from_secs(1) {
                random.pick(&[2, 120, 120])
            } else {
                120
            });
            options.view.sought_names = random.pick(&[2, 100_000]);
            options.view.brakes = brakes(random);
        });
        Self {
            tiers,
            habits,
            variants,
            quirks,
            rule: if random.one_in(2) { Rule::Uncached } else { Rule::Reachability },
            hold_down: Duration::from_secs(random.pick(&[0, 10])),
            holds_missing: random.one_in(2),
            protocol,
            lag: random.pick(&[2, 20, 60]),
            clients: 1 + random.below(4),
            polls,
            troubles: random.pick(&[1, 2, 3, 5, 8, 20]),
            span: random.pick(&[5, 20, 60]),
            harsh,
            ending: if random.one_in(3) && servers == 1 && tiers == 1 && !harsh { Ending::Away } else { Ending::Well },
            guesses: random.one_in(4),
            watches: random.one_in(8),
            unanswered,
        }
    }

    /// Returns the options of control planes and relays that behave as usual, without faults.
    pub fn calm(tiers: usize) -> Self {
        let habit = Habit {
            compares: true,
            removes_stated: Stated::IfItCompares,
            says_nothing_is_new: true,
            removes_unknown: false,
            replicas: false,
            pieces: None,
            removals: Removals::InLastPiece,
            unanswered: BTreeSet::new(),
        };
        Self {
            tiers,
            habits: vec![habit],
            variants: vec![Variant::Delta; tiers],
            quirks: vec![ServerQuirks::default(); tiers],
            rule: Rule::Reachability,
            hold_down: Duration::ZERO,
            holds_missing: true,
            protocol: ProtocolOptions::default(),
            lag: 2,
            clients: 0,
            polls: false,
            troubles: 0,
            span: 30,
            harsh: false,
            ending: Ending::Well,
            guesses: false,
            watches: false,
            unanswered: BTreeSet::new(),
        }
    }

    /// Returns the plan of a tier. Tier 0 requests from the servers. Each other tier has one server: the tier before it.
    pub fn plan(&self, tier: usize) -> Arc<Plan> {
        let servers = if tier == 0 { self.habits.len() } else { 1 };
        let (variant, quirks) = (self.variants[tier], Arc::new(self.quirks[tier].clone()));
        Arc::new(Plan {
            servers: (0..servers).map(|_| ServerPlan::Streams { variant, quirks: quirks.clone() }).collect(),
            top: AuthorityPlan { servers: (0..servers).collect(), rule: self.rule },
            timers: FallbackTimers { delay: Duration::ZERO, hold_down: self.hold_down },
            holds_missing: self.holds_missing,
            ..Plan::single(variant, ServerQuirks::default())
        })
    }

    /// Whether all servers compare what they have with what is stated, and send everything at once.
    pub fn is_honest(&self) -> bool {
        self.habits.iter().all(|habit| habit.compares && !habit.replicas && habit.pieces.is_none())
    }
}

fn brakes(random: &mut Random) -> BrakeRules {
    if !random.one_in(6) {
        return BrakeRules::default();
    }
    BrakeRules {
        types: [Kind::Clusters.url().rsplit_once('/').expect("a type").1.into()].into(),
        share: 50,
        count: 2,
        window: Duration::from_secs(60),
        grace: Duration::from_secs(20),
        empty_grace: Duration::from_secs(40),
        agree_after: Duration::from_secs(5),
        ..BrakeRules::default()
    }
}
