//! What an audit needs to know of a view.

use std::sync::Arc;

use weir_core::protocol::audit::{NotAuditable, Offer, choose};
use weir_core::protocol::members::Member;
use weir_core::protocol::sources::ServerPlan;
use weir_core::protocol::upstream::ServerQuirks;
use weir_core::protocol::view::Snapshot;
use weir_core::xds::MemberNode;

use super::Inspection;
use crate::relay::key_headers::KeyHeaders;
use crate::relay::link::SharedConnector;

/// A view that can be audited, as it is now, and the member for which the audit asks.
pub(in crate::relay) struct AuditSubject {
    /// The node that the server is shown.
    pub(in crate::relay) shown: MemberNode,
    pub(in crate::relay) member: MemberNode,
    pub(in crate::relay) offer: Offer,
    pub(in crate::relay) connector: SharedConnector,
    pub(in crate::relay) quirks: Arc<ServerQuirks>,
    pub(in crate::relay) tenant: Option<Arc<str>>,
    pub(in crate::relay) headers: KeyHeaders,
}

/// Returns the view if it can be audited now. Its member is the one that was given something else before, or else one by a random number.
pub(in crate::relay) fn audit_subject(
    of: &Inspection<'_>,
    found: Option<&MemberNode>,
    random: u64,
) -> Result<AuditSubject, NotAuditable> {
    let shown = shown_now(of).ok_or(NotAuditable::NoneShown)?;
    let members = of.members.present().map(Member::node);
    let member = choose(members, shown, found, random).ok_or(NotAuditable::AllEqual)?;
    let offer = Offer::of(of.view, of.sources)?;
    let (connector, plan) = (&of.shared.connectors[offer.server], &of.shared.plan.servers[offer.server]);
    let ServerPlan::Streams { quirks, .. } = plan else { return Err(NotAuditable::NoServer) };
    if connector.is_hub() {
        return Err(NotAuditable::NoServer);
    }
    let (tenant, headers) = of.links.shown_for();
    Ok(AuditSubject {
        shown: shown.clone(),
        member: member.clone(),
        offer,
        connector: connector.clone(),
        quirks: quirks.clone(),
        tenant,
        headers,
    })
}

/// The view's side of the comparison with what a member was given.
pub(in crate::relay) struct AuditedSide {
    pub(in crate::relay) offer: Offer,
    pub(in crate::relay) snapshot: Arc<Snapshot>,
}

/// Returns what the view has now, if it can still be audited. Changes that it has not published do not count.
pub(in crate::relay) fn audited_side(of: &Inspection<'_>) -> Result<AuditedSide, NotAuditable> {
    let (offer, snapshot) = (Offer::of(of.view, of.sources)?, of.view.snapshot().clone());
    if snapshot.revision != of.view.revision() {
        return Err(NotAuditable::Incomplete);
    }
    Ok(AuditedSide { offer, snapshot })
}

/// Whether the server is still shown this node, and a member with the other node is present.
pub(in crate::relay) fn are_shown_and_present(of: &Inspection<'_>, shown: &MemberNode, member: &MemberNode) -> bool {
    shown_now(of) == Some(shown) && of.members.present().any(|of| of.node() == member)
}

/// Whether a finding about the view at a server no longer holds, whatever another audit would find: all clients that are present have the node
/// that the server is shown, or the view now has another server, or a relay as its server.
pub(in crate::relay) fn is_finding_over(of: &Inspection<'_>, server: &str) -> bool {
    let are_equal = |shown: &MemberNode| of.members.present().all(|member| member.node() == shown);
    let is_elsewhere = || match Offer::of(of.view, of.sources) {
        Ok(offer) => of.shared.connectors[offer.server].describe() != server,
        Err(why) => why == NotAuditable::Relay,
    };
    shown_now(of).is_some_and(are_equal) || is_elsewhere()
}

/// Returns the node that servers are shown, if a client that is present has that node.
fn shown_now<'a>(of: &Inspection<'a>) -> Option<&'a MemberNode> {
    of.members.shown().filter(|_| !of.members.has_left())
}
