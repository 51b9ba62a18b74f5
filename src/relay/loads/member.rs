//! One client stream among those of a pool: its reports are counted, and it is sent the server's orders, which are its LRS responses.

use prost::Message;
use weir_core::proto::code;
use weir_core::proto::loads::LoadStatsRequest;
use weir_core::proto::node::Node;
use weir_core::protocol::session::Identity;
use weir_core::xds::Peer;

use super::pool::ALL_CLUSTERS;
use super::pools::Membership;
use super::{LoadEnd, LoadLink};
use crate::limit::Limit;
use crate::relay::admission::AdmissionError;

/// Passes a client's reports to its pool, and orders to the client.
pub(super) async fn converse(
    member: Membership,
    first: LoadStatsRequest,
    peer: &Peer,
    mut identity: Identity,
    mut link: LoadLink,
) -> LoadEnd {
    let (pool, id) = (&member.pool, member.id);
    let done = || LoadEnd::Said { code: code::OK, message: String::new() };
    let node = Node::decode(first.node.clone().unwrap_or_default()).unwrap_or_default();
    let reads_all = node.client_features.iter().any(|feature| feature == ALL_CLUSTERS);
    if !first.cluster_stats.is_empty() {
        pool.report(id, &first);
    }
    let mut orders = pool.orders();
    let mut reported = None;
    loop {
        let order = orders.borrow_and_update().clone();
        let due = order.as_ref().map(|order| match reads_all || !order.is_for_all_clusters() {
            true => order.encoded().clone(),
            false => order.listing(pool.clusters(peer, &identity)),
        });
        let look_again = async {
            match &order {
                Some(order) if !reads_all => tokio::time::sleep(order.interval()).await,
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            report = link.reports.recv() => match report.map(LoadStatsRequest::decode) {
                Some(Ok(report)) => match report.node.as_ref().map_or(Ok(true), |node| identity.still_is(node)) {
                    Ok(true) => pool.report(id, &report),
                    Ok(false) => return LoadEnd::Moved("node changed to another sharing key; reconnect"),
                    Err(denied) => return LoadEnd::Refused(AdmissionError::Denied(Box::new(denied))),
                },
                Some(Err(_)) => return LoadEnd::Unreadable,
                None => return done(),
            },
            room = link.answers.reserve(), if due.is_some() && due != reported => {
                let (Ok(room), Some(due)) = (room, due) else { return done() };
                room.send(due.clone());
                reported = Some(due);
            }
            limit = pool.has_made_room() => return made_room(limit),
            // A member keeps its pool alive, and so the sender.
            _ = orders.changed() => {}
            () = look_again => {} // the clusters of the view may have changed
        }
    }
}

fn made_room(limit: usize) -> LoadEnd {
    let key = Limit::Views.key();
    LoadEnd::Exhausted(format!(
        "too many views with load reports: the limit is {limit} ({key}), and this connection has most; retry later"
    ))
}
