//! The client's end of the chain: what it subscribes to, what it was sent, what it answered.

use weir_core::protocol::moment::Moment;
use weir_core::protocol::session::{AckState, Delay, DelayReason, InRejected, LastSent, NameInView, Obstacle};
use weir_core::protocol::view::Completeness;

use super::{Reason, SessionExplanation};
use crate::relay::Blocker;

/// Returns how the client subscribes to the name, or why it cannot have the name at all.
pub(super) fn subscription(book: &SessionExplanation) -> Vec<Reason> {
    let of = &book.name.subscribed;
    let mut reasons = Vec::new();
    if !of.to_type {
        reasons.push(Reason::of("type_not_requested", "the client has not requested this type on this stream"));
    }
    if of.by_name {
        reasons.push(Reason::of("subscribed_by_name", "the client subscribes to the name"));
    }
    if of.by_wildcard {
        reasons.push(Reason::of("subscribed_by_wildcard", "the client subscribes to the wildcard"));
    }
    if let Some(glob) = &of.by_collection {
        reasons.push(Reason::of("subscribed_by_collection", format!("the client subscribes to the collection {glob}")));
    }
    if of.to_type && !of.is_any() && !matches!(book.name.obstacle, Some(Obstacle::Rejected(_))) {
        let instead = of.similar.as_ref().map(|name| format!("; it subscribes to {name}")).unwrap_or_default();
        reasons.push(Reason::of("not_subscribed", format!("the client does not subscribe to the name{instead}")));
    }
    reasons.extend(book.name.obstacle.as_ref().map(obstacle));
    reasons
}

fn obstacle(obstacle: &Obstacle) -> Reason {
    match obstacle {
        Obstacle::NotAllowed => {
            Reason::of("not_allowed", "permissions or access rules do not allow this client to have it")
        }
        Obstacle::Rejected(message) => Reason::of("name_rejected", format!("the name cannot be requested: {message}")),
        Obstacle::NoRoom => {
            let text = "there is no room for another name: a limit on names or cached bytes is reached (/metrics: weir_limit_reached)";
            Reason::of("no_room", text)
        }
        Obstacle::Unreadable => {
            Reason::of("unreadable", "the body has another name than the resource, which this client cannot read")
        }
    }
}

/// Returns what the client was sent, why it was sent no more, and how it answered.
pub(super) fn delivery(book: &SessionExplanation) -> Vec<Reason> {
    let mut reasons = vec![match (book.name.sent, &book.name.known) {
        (LastSent::Current, NameInView::Present { .. }) => Reason::of("sent", "the client was sent this version"),
        (LastSent::Current, _) => {
            Reason::of("removal_sent", "the client does not hold it: it was sent the removal, or never had it")
        }
        (LastSent::Earlier, NameInView::Absent { .. }) => {
            Reason::of("removal_not_sent", "the client holds it, and was not sent the removal")
        }
        (LastSent::Earlier, _) => Reason::of("earlier_sent", "the client was sent an earlier version"),
        (LastSent::HeldBefore, _) => {
            Reason::of("held_before", "the client may hold it, by what it stated or had of `*`; it was not sent since")
        }
        (LastSent::Nothing, _) => Reason::of("not_sent", "the client was not sent it on this stream"),
    }];
    let has_nothing_due = matches!(
        (book.name.sent, &book.name.known),
        (LastSent::Current, _) | (LastSent::Nothing, NameInView::Absent { suffices: true, .. })
    );
    if !has_nothing_due {
        reasons.extend(book.name.delay.as_ref().map(|of| delay(of, book.name.completeness, book.now)));
    }
    reasons.extend(book.obstruction.map(|(what, since)| obstruction(what, since, book.now)));
    reasons.extend(answers(&book.name.answer, book.now));
    reasons
}

pub(super) fn delay(delay: &Delay, completeness: Option<Completeness>, now: Moment) -> Reason {
    let (code, text) = match delay.reason {
        DelayReason::Unanswered => {
            ("waits_for_ack", "it waits until the client has ACKed or NACKed the last reply of the type")
        }
        DelayReason::RoutingHold => {
            ("routing_hold", "it waits until the client has the endpoints of clusters that it was sent")
        }
        DelayReason::ClustersFirst => {
            ("waits_for_clusters", "it waits until the clusters and endpoints before it are sent")
        }
        DelayReason::Incomplete if completeness.is_some() => {
            ("set_incomplete", "the set is not complete enough for this client: what it lacks might be deleted there")
        }
        DelayReason::Incomplete => ("names_unknown", "not everything that the client subscribes to is known"),
        DelayReason::AdditionsFirst => ("waits_for_additions", "removals wait until additions are sent"),
        DelayReason::SubscriptionsFirst => {
            ("waits_for_subscriptions", "removals wait until the newest subscriptions are counted")
        }
        DelayReason::NackedRouting => (
            "kept_for_old_routing",
            "the client has NACKed its routing, and what it uses instead may refer to what is removed",
        ),
    };
    Reason::of(code, text).until(delay.until, now)
}

pub(super) fn obstruction(what: Blocker, since: Moment, now: Moment) -> Reason {
    match what {
        Blocker::Unread => {
            Reason::of("unread", "a reply is on its way, and the client's connection has not taken all of it")
        }
        Blocker::Form => Reason::of("waits_for_form", "a reply waits a moment until it is compressed"),
        Blocker::Turn => Reason::of("waits_for_turn", "a large reply waits until those of other clients are sent"),
    }
    .since(since, now)
}

/// Returns how the client answered. If the resource is not in the rejected reply, its own state comes first.
fn answers(answer: &AckState, now: Moment) -> impl Iterator<Item = Reason> {
    let beside = match answer {
        AckState::Nacked { of: InRejected::Not { is_pending: true }, .. } => {
            Some(Reason::of("unacked", "the client has not answered a newer reply that may have it"))
        }
        AckState::Nacked { of: InRejected::Not { is_pending: false }, .. } => {
            Some(Reason::of("acked", "the client has accepted what it was sent of it"))
        }
        _ => None,
    };
    beside.into_iter().chain(self::answer(answer, UNKNOWN, now))
}

/// Returns how the client answered, with these words if it is not known what it rejects.
pub(super) fn answer(answer: &AckState, unknown: &str, now: Moment) -> Option<Reason> {
    match answer {
        AckState::None => None,
        AckState::Pending => Some(Reason::of("unacked", "the client has not answered the newest reply of the type")),
        AckState::Accepted => Some(Reason::of("acked", "the client has accepted the newest reply of the type")),
        AckState::Nacked { reason, since, of } => {
            let (code, what) = match of {
                InRejected::Quoted => ("nacked", "rejected a reply and named this resource"),
                InRejected::Alone => ("nacked", "rejected a reply that had this resource alone"),
                InRejected::Among { quotes_others: true } => {
                    ("type_nacked", "rejected a reply that had this resource too, and named another")
                }
                InRejected::Among { quotes_others: false } => {
                    ("type_nacked", "rejected a reply that had this resource and others")
                }
                InRejected::Unknown => ("type_nacked", unknown),
                InRejected::Not { .. } => ("others_nacked", "rejected a reply that did not have this resource"),
            };
            let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
            Some(Reason::of(code, format!("the client {what}{reason}")).since(*since, now))
        }
    }
}

const UNKNOWN: &str = "rejected a reply of the type, and it is not known whether because of this resource";
