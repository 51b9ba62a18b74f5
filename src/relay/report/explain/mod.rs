//! What `/explain` shows: why a client has a resource, or lacks it. Each reason is one fact from the books of the session, the view or an upstream
//! stream; nothing is concluded here that they have not concluded.

mod around;
mod client;
mod server;
mod set;

use serde::Serialize;
use weir_core::protocol::moment::Moment;
use weir_core::protocol::session::{AckState, InRejected, LastSent, NameBook, NameInView, Obstacle};
use weir_core::protocol::upstream::NameRequest;
use weir_core::protocol::view::{Completeness, NameHolds};
use weir_core::protocol::wait::Wait;
use weir_core::xds::Name;

pub(crate) use self::around::{Around, OtherViews, Search};
pub(crate) use self::set::{SetExplanation, SetReport};
use super::WaitRow;
use super::upstreams::completeness_name;
use crate::relay::Blocker;
use crate::relay::audit::AuditReport;

/// The question: one resource of one client, at each of its streams.
#[derive(Debug, Clone)]
pub(crate) struct ExplainQuery {
    pub(crate) sessions: Vec<u64>,
    pub(crate) kind: weir_core::xds::Type,
    pub(crate) name: Name,
}

/// Why a client has a resource, or lacks it.
#[derive(Debug, Serialize)]
pub(crate) struct Explanation {
    pub(crate) session: u64,
    pub(crate) node: String,
    pub(crate) view: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) verdict: Verdict,
    /// The wildcard set, if the client subscribes to it.
    pub(crate) set: Option<SetReport>,
    /// What refers to it, what it refers to and the view lacks, and similar names. Empty for a set.
    #[serde(flatten)]
    pub(crate) around: Around,
    /// The reasons in order: from the client's subscription to the server, and back to the client.
    pub(crate) reasons: Vec<Reason>,
    /// What waits for or with the resource now.
    pub(crate) waits: Vec<WaitRow>,
}

/// The state of one resource at one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// It has accepted the newest version.
    Acked,
    /// It was sent the newest version, and has not answered.
    Unacked,
    /// It rejected a reply, and has accepted nothing newer.
    Nacked,
    /// It is still to be sent the newest version, or the removal.
    Waiting,
    /// The resource does not exist.
    Absent,
    /// Nothing is known of the resource.
    Unknown,
    /// The set that it would be in is complete, and does not have it.
    NotInSet,
    /// Like `NotInSet`, and something refers to the name.
    Missing,
    /// The client has what the view keeps, although the server has sent something else since.
    Held,
    NotSubscribed,
    NotAllowed,
    /// The name cannot be requested, or there is no room for it.
    Rejected,
}

/// One fact of the chain.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Reason {
    pub(crate) code: &'static str,
    pub(crate) text: String,
    /// For how long that has been so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) since_seconds: Option<f64>,
    /// After how long it ends at the latest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) until_seconds: Option<f64>,
    /// How long ago the server was last heard about the type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) heard_seconds: Option<f64>,
}

/// What a view task knows of a name.
#[derive(Debug)]
pub(crate) struct ViewExplanation {
    pub(crate) now: Moment,
    /// The servers' names, by their places in the plan.
    pub(crate) servers: Vec<String>,
    pub(crate) holds: NameHolds,
    /// How many resources refer to the name, if that is counted.
    pub(crate) references: Option<usize>,
    pub(crate) ladder: Option<LadderExplanation>,
    pub(crate) requests: Vec<ServerExplanation>,
    pub(crate) waits: Vec<Wait>,
}

/// The servers of the name's authority.
#[derive(Debug)]
pub(crate) struct LadderExplanation {
    pub(crate) authority: String,
    pub(crate) state: &'static str,
    pub(crate) server: Option<String>,
    pub(crate) since: Moment,
    /// Why no server further up is active.
    pub(crate) reason: Option<String>,
}

/// What one server was asked for, and what it has sent.
#[derive(Debug)]
pub(crate) struct ServerExplanation {
    pub(crate) server: String,
    pub(crate) connected: bool,
    pub(crate) is_active: bool,
    pub(crate) request: NameRequest,
}

/// What a session handle knows of a name.
#[derive(Debug)]
pub(crate) struct SessionExplanation {
    pub(crate) now: Moment,
    pub(crate) name: NameBook,
    pub(crate) obstruction: Option<(Blocker, Moment)>,
    /// How many resources of the wildcard set are present, if the client subscribes to it.
    pub(crate) present: usize,
    pub(crate) waits: Vec<Wait>,
}

/// All that is known of a name, from each place that knows something.
pub(crate) struct Books<'a> {
    pub(crate) session: &'a SessionExplanation,
    pub(crate) view: Option<&'a ViewExplanation>,
    pub(crate) around: &'a Around,
    /// The names of the view's servers, by their places in its plan. None if the view has ended.
    pub(crate) servers: &'a [String],
}

impl Reason {
    fn of(code: &'static str, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), since_seconds: None, until_seconds: None, heard_seconds: None }
    }

    /// Says that an audit of the client's view has found something. It does not name the resource, which only users see who may see the view.
    pub(crate) fn of_audit(report: &AuditReport) -> Option<Self> {
        let AuditReport { server, differences_count, node_fields, .. } = report;
        let fields = match node_fields.is_empty() {
            true => String::new(),
            false => format!(", perhaps one of {}", node_fields.join(", ")),
        };
        let text = format!(
            "an audit has found that {server} gives a client of the view something else (/upstreams): views.key lacks a field{fields}"
        );
        (*differences_count > 0).then(|| Self::of("audit_differs", text))
    }

    fn since(self, since: impl Into<Option<Moment>>, now: Moment) -> Self {
        Self { since_seconds: since.into().map(|since| (now - since).as_secs_f64()), ..self }
    }

    fn until(self, until: impl Into<Option<Moment>>, now: Moment) -> Self {
        Self { until_seconds: until.into().map(|until| (until - now).as_secs_f64()), ..self }
    }
}

impl SessionExplanation {
    /// Whether the client subscribes to the resource and could have it, and it is not present.
    pub(crate) fn lacks_it(&self) -> bool {
        !matches!(self.name.known, NameInView::Present { .. })
            && self.name.obstacle.is_none()
            && self.name.subscribed.is_any()
    }
}

impl ViewExplanation {
    /// Returns how long ago the active server was last heard about the type.
    fn heard_seconds(&self) -> Option<f64> {
        let heard = self.requests.iter().filter(|server| server.is_active).find_map(|server| server.request.heard);
        heard.map(|heard| (self.now - heard).as_secs_f64())
    }
}

impl Verdict {
    /// Sums up what the session knows of a name.
    pub(crate) fn of(book: &NameBook) -> Self {
        match (&book.obstacle, book.subscribed.is_any()) {
            (Some(Obstacle::Rejected(_)), _) => return Self::Rejected,
            (_, false) => return Self::NotSubscribed,
            (Some(Obstacle::NotAllowed | Obstacle::Unreadable), _) => return Self::NotAllowed,
            (Some(Obstacle::NoRoom), _) => return Self::Rejected,
            (None, _) => {}
        }
        match (&book.known, book.sent, &book.answer) {
            (NameInView::Present { .. }, LastSent::Current, AckState::Pending) => Self::Unacked,
            (
                NameInView::Present { .. },
                LastSent::Current,
                AckState::Nacked { of: InRejected::Not { is_pending: true }, .. },
            ) => Self::Unacked,
            (_, LastSent::Current | LastSent::Earlier, AckState::Nacked { of, .. })
                if !matches!(of, InRejected::Not { .. }) =>
            {
                Self::Nacked
            }
            (NameInView::Present { .. }, LastSent::Current, _) => Self::Acked,
            (NameInView::Absent { suffices: true, .. }, LastSent::Current | LastSent::Nothing, _) => Self::Absent,
            (NameInView::Unknown, LastSent::Nothing | LastSent::HeldBefore, _) => Self::Unknown,
            _ => Self::Waiting,
        }
    }
}

impl Books<'_> {
    /// Returns the state of the resource at the client.
    pub(crate) fn verdict(&self) -> Verdict {
        let book = &self.session.name;
        let is_held = self.view.is_some_and(|view| view.holds.is_any());
        match Verdict::of(book) {
            Verdict::Acked | Verdict::Unacked if is_held => Verdict::Held,
            Verdict::Unknown if book.is_outside && self.around.from_count > 0 => Verdict::Missing,
            Verdict::Unknown if book.is_outside => Verdict::NotInSet,
            verdict => verdict,
        }
    }

    /// Returns the wildcard set, if the client subscribes to it and something of it has arrived.
    pub(crate) fn set(&self) -> Option<SetReport> {
        let SessionExplanation { name, present, .. } = self.session;
        let completeness = name.completeness.filter(|of| *of > Completeness::Unknown)?;
        let heard_seconds = self.view.and_then(ViewExplanation::heard_seconds);
        Some(SetReport { cached: *present, completeness: completeness_name(completeness), heard_seconds })
    }

    /// Returns the chain of reasons.
    pub(crate) fn reasons(&self) -> Vec<Reason> {
        let Self { session, view, around, servers } = self;
        let verdict = self.verdict();
        let mut reasons = client::subscription(session);
        if matches!(verdict, Verdict::NotAllowed | Verdict::Rejected) {
            return reasons;
        }
        reasons.extend(view.iter().flat_map(|view| server::of_view(view, &session.name.known)));
        reasons.extend(server::known(session, around, servers));
        let is_there = matches!(session.name.known, NameInView::Present { .. });
        reasons.extend(self.set().filter(|_| !is_there).map(|set| set.reason()));
        reasons.extend(around.reasons());
        if verdict != Verdict::NotSubscribed {
            reasons.extend(client::delivery(session));
        }
        reasons
    }
}
