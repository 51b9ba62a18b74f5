//! The responses that are due on a stream: additions in the order in which types refer to one another, then removals in reverse order.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Bytes, BytesMut};

use super::faults::Fault;
use super::session::Session;
use super::world::{Name, World, encode, field};
use crate::bodies::{self, Stamp};
use crate::content::SDS;
use crate::kind::Kind;
use crate::wire::Variant;

/// One response in two parts; the second may be shared with other streams.
#[derive(Debug)]
pub struct Reply {
    pub head: Bytes,
    pub resources: Bytes,
    /// Whether only half of the reply is sent, and nothing after it.
    pub hangs: bool,
}

/// Changes after the stream's cursor are forgotten, since the stream is too far behind. The client has to open it again.
#[derive(Debug, PartialEq, Eq)]
pub struct TooFarBehind;

/// The resources of a response.
enum Resources {
    /// Everything that changed after this update; 0 means everything.
    Shared(u64),
    /// These names. A body is given if it differs from the current one.
    Single(BTreeMap<Name, Option<Bytes>>),
}

/// Returns everything that is due, from one state of the world.
pub fn burst(session: &mut Session, world: &mut World) -> Result<Vec<Reply>, TooFarBehind> {
    let replies = match session.variant {
        Variant::Sotw => sotw(session, world)?,
        Variant::Delta => delta(session, world)?,
    };
    for kind in Kind::ALL {
        let keeps_stated = session.keeps_stated(kind);
        let topic = &mut session.topics[kind as usize];
        if topic.is_subscribed {
            topic.cursor = world.update();
            topic.forced.clear();
            topic.stated.retain(|_, _| keeps_stated);
            topic.is_repeated = false;
        }
    }
    Ok(replies)
}

fn delta(session: &mut Session, world: &mut World) -> Result<Vec<Reply>, TooFarBehind> {
    let mut replies = Vec::new();
    let removals_first = session.faults.has(Fault::BreakBeforeMake);
    if removals_first {
        removals(session, world, &mut replies)?;
    }
    for kind in order(session) {
        let topic = &session.topics[kind as usize];
        if !topic.is_subscribed {
            continue;
        }
        let is_first = topic.cursor == 0 && topic.is_wildcard;
        let resources = if topic.is_wildcard && topic.stated.is_empty() && topic.forced.is_empty() {
            Resources::Shared(topic.cursor)
        } else {
            let stated = |name: &Name| topic.stated.get(name).cloned();
            let is_held = |name: &Name| world.set(kind).get(name).map(|item| item.version()) == stated(name);
            let mut due = due(session, world, kind)?;
            due.retain(|name, _| !is_held(name) || topic.cursor > 0);
            Resources::Single(due)
        };
        push(session, world, kind, resources, is_first, &mut replies)?;
    }
    if !removals_first && !session.faults.has(Fault::ForgetRemoval) {
        removals(session, world, &mut replies)?;
    }
    Ok(replies)
}

fn removals(session: &mut Session, world: &World, replies: &mut Vec<Reply>) -> Result<(), TooFarBehind> {
    let mut order = [Kind::Route, Kind::Listener, Kind::Endpoints, Kind::Cluster];
    if session.faults.has(Fault::BreakBeforeMake) {
        order.reverse();
    }
    for kind in order {
        let topic = &session.topics[kind as usize];
        if !topic.is_subscribed {
            continue;
        }
        let keeps_stated = session.keeps_stated(kind);
        let mut removed: BTreeSet<Name> = BTreeSet::new();
        if topic.cursor > 0 {
            removed.extend(world.removed_after(kind, topic.cursor).ok_or(TooFarBehind)?.into_keys());
            removed.retain(|name| topic.sees(name) && !(keeps_stated && topic.stated.contains_key(name)));
        }
        let stated = topic.stated.keys().filter(|_| !keeps_stated);
        let missing = topic.forced.iter().chain(stated).filter(|name| topic.sees(name));
        removed.extend(missing.filter(|name| !world.set(kind).contains_key(*name)).cloned());
        if !removed.is_empty() {
            let version = world.update().to_string();
            replies.push(reply(session, kind.url(), kind, &version, Bytes::new(), &removed));
        }
    }
    Ok(())
}

fn sotw(session: &mut Session, world: &mut World) -> Result<Vec<Reply>, TooFarBehind> {
    let mut replies = Vec::new();
    let mut reduced = None;
    for kind in order(session) {
        let topic = &session.topics[kind as usize];
        if !topic.is_subscribed {
            continue;
        }
        if !kind.is_full_state() {
            let due = due(session, world, kind)?;
            push(session, world, kind, Resources::Single(due), false, &mut replies)?;
            continue;
        }
        let mut removed = match topic.cursor {
            0 => BTreeMap::new(),
            cursor => world.removed_after(kind, cursor).ok_or(TooFarBehind)?,
        };
        removed.retain(|name, _| topic.sees(name));
        let is_due = topic.cursor == 0 || topic.is_repeated || !topic.forced.is_empty() || {
            let mut changes = world.changes_after(kind, topic.cursor).ok_or(TooFarBehind)?;
            changes.any(|entry| topic.sees(&entry.name))
        };
        if !is_due {
            continue;
        }
        let makes_first = kind == Kind::Cluster && !removed.is_empty() && !session.faults.has(Fault::BreakBeforeMake);
        let resources = full_set(session, world, kind, if makes_first { removed } else { BTreeMap::new() });
        push(session, world, kind, resources, true, &mut replies)?;
        reduced = reduced.or(makes_first.then_some(kind));
    }
    if let Some(kind) = reduced {
        let resources = full_set(session, world, kind, BTreeMap::new());
        push(session, world, kind, resources, true, &mut replies)?;
    }
    Ok(replies)
}

/// Returns the complete set. Removed resources stay in it until everything that refers to them has changed.
fn full_set(session: &Session, world: &World, kind: Kind, removed: BTreeMap<Name, Bytes>) -> Resources {
    let topic = &session.topics[kind as usize];
    if topic.is_wildcard && removed.is_empty() {
        return Resources::Shared(0);
    }
    let present = world.set(kind).keys().map(|name| (name.clone(), None));
    let removed = removed.into_iter().map(|(name, body)| (name, Some(body)));
    Resources::Single(present.chain(removed).filter(|(name, _)| topic.sees(name)).collect())
}

/// Returns the names of a type that are due one by one: changed ones, forced ones, and the endpoints of changed clusters.
fn due(session: &Session, world: &World, kind: Kind) -> Result<BTreeMap<Name, Option<Bytes>>, TooFarBehind> {
    let topic = &session.topics[kind as usize];
    let mut due: BTreeSet<Name> = topic.forced.clone();
    if topic.cursor > 0 {
        due.extend(world.changed_after(kind, topic.cursor).ok_or(TooFarBehind)?);
        let clusters = &session.topics[Kind::Cluster as usize];
        if kind == Kind::Endpoints && clusters.cursor > 0 {
            due.extend(world.changed_after(Kind::Cluster, clusters.cursor).ok_or(TooFarBehind)?);
        }
    } else if topic.is_wildcard {
        due.extend(world.set(kind).keys().cloned());
    }
    due.retain(|name| topic.sees(name) && world.set(kind).contains_key(name));
    Ok(due.into_iter().map(|name| (name, None)).collect())
}

fn order(session: &Session) -> [Kind; 4] {
    match session.faults.has(Fault::RouteBeforeCluster) {
        true => [Kind::Listener, Kind::Route, Kind::Cluster, Kind::Endpoints],
        false => Kind::ALL,
    }
}

/// Adds a response. An empty one is added only if `even_if_empty` is set. Faults that change responses apply here.
fn push(
    session: &mut Session,
    world: &mut World,
    kind: Kind,
    mut resources: Resources,
    even_if_empty: bool,
    replies: &mut Vec<Reply>,
) -> Result<(), TooFarBehind> {
    let cursor = session.topics[kind as usize].cursor;
    misselect(session, world, kind, &mut resources)?;
    let version = match &resources {
        Resources::Single(due) if due.values().any(Option::is_some) => format!("{}.more", world.update()),
        _ => world.update().to_string(),
    };
    let bytes = match &resources {
        Resources::Shared(after) => world.shared(kind, session.variant, *after).ok_or(TooFarBehind)?,
        Resources::Single(due) => {
            let mut buffer = BytesMut::new();
            for (name, other) in due {
                match (other, world.set(kind).get(name)) {
                    (Some(body), _) => encode(&mut buffer, kind, name, "removed", body, session.variant),
                    (None, Some(item)) => item.encode(&mut buffer, kind, name, session.variant),
                    (None, None) => {}
                }
            }
            buffer.freeze()
        }
    };
    if bytes.is_empty() && !even_if_empty {
        return Ok(());
    }
    if session.faults.has(Fault::ResendAfterNack) {
        let topic = &mut session.topics[kind as usize];
        topic.last_sent = world.set(kind).keys().filter(|name| topic.sees(name)).cloned().collect();
    }
    let url = if session.faults.has(Fault::WrongType) && kind == Kind::Endpoints { SDS } else { kind.url() };
    let bytes = with_extra(session, world, kind, bytes);
    replies.push(reply(session, url, kind, &version, bytes, &BTreeSet::new()));
    if session.faults.has(Fault::OlderVersion) && kind == Kind::Cluster && cursor > 0 {
        let older = older(session, world);
        replies.push(reply(session, url, kind, "older", older, &BTreeSet::new()));
    }
    Ok(())
}

/// Applies faults that leave something out.
fn misselect(session: &mut Session, world: &World, kind: Kind, resources: &mut Resources) -> Result<(), TooFarBehind> {
    if session.faults.has(Fault::DropFromFullSet) && kind == Kind::Cluster {
        if let Resources::Shared(after) = resources {
            let changed = match after {
                0 => world.set(kind).keys().cloned().collect(),
                after => world.changed_after(kind, *after).ok_or(TooFarBehind)?,
            };
            *resources = Resources::Single(changed.into_iter().map(|name| (name, None)).collect());
        }
        if let (Resources::Single(due), Some((last, _))) = (&mut *resources, world.set(kind).last_key_value()) {
            due.remove(last);
        }
    }
    let Resources::Single(due) = resources else { return Ok(()) };
    if kind != Kind::Endpoints || !session.faults.has(Fault::ForgetChange) {
        return Ok(());
    }
    let topic = &session.topics[kind as usize];
    let changed = match topic.cursor {
        0 => BTreeSet::new(),
        cursor => world.changed_after(kind, cursor).ok_or(TooFarBehind)?,
    };
    if let Some(name) = due.keys().rev().find(|name| changed.contains(*name))
        && session.faults.is_first(Fault::ForgetChange)
    {
        session.forgotten = Some(name.clone());
    }
    if let Some(name) = &session.forgotten {
        due.remove(name);
    }
    Ok(())
}

/// Applies faults that add something.
fn with_extra(session: &Session, world: &World, kind: Kind, bytes: Bytes) -> Bytes {
    let mut buffer = BytesMut::new();
    if session.faults.has(Fault::UnaskedName) && kind == Kind::Endpoints {
        let body = bodies::write(kind, "unasked", &[], Stamp::now(world.update()), 0);
        encode(&mut buffer, kind, "unasked", "1", &body, session.variant);
    }
    if session.faults.has(Fault::DuplicateResource) && kind == Kind::Cluster {
        // The first resource of the set twice, whether or not the response already has it.
        for (name, item) in world.set(kind).iter().take(1) {
            item.encode(&mut buffer, kind, name, session.variant);
            item.encode(&mut buffer, kind, name, session.variant);
        }
    }
    if buffer.is_empty() {
        return bytes;
    }
    buffer.extend_from_slice(&bytes);
    buffer.freeze()
}

/// Returns the clusters as they were one change before: the set, or in delta the changed ones.
fn older(session: &Session, world: &World) -> Bytes {
    let mut buffer = BytesMut::new();
    for (name, item) in world.set(Kind::Cluster) {
        let body = item.previous.as_ref().unwrap_or(&item.body);
        encode(&mut buffer, Kind::Cluster, name, "older", body, session.variant);
    }
    buffer.freeze()
}

fn reply(
    session: &mut Session,
    url: &str,
    kind: Kind,
    version: &str,
    resources: Bytes,
    removed: &BTreeSet<Name>,
) -> Reply {
    let nonce = session.next_nonce();
    let mut head = BytesMut::new();
    field(&mut head, 1, version.as_bytes());
    field(&mut head, 4, url.as_bytes());
    field(&mut head, 5, nonce.as_bytes());
    removed.iter().for_each(|name| field(&mut head, 6, name.as_bytes()));
    session.topics[kind as usize].last_nonce = nonce;
    let hangs = session.replies > 5 && session.faults.is_first(Fault::HangMidMessage);
    Reply { head: head.freeze(), resources, hangs }
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use weir_core::proto::Request;
    use weir_core::proto::discovery::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};

    use super::super::faults::Faults;
    use super::super::layout::{Counts, Layout};
    use super::super::world::Change;
    use super::*;

    struct Stream {
        session: Session,
        world: World,
    }

    impl Stream {
        fn open() -> Self {
            let mut world = World::new(20, false);
            world.apply(Layout::new(Counts { clusters: 3, routes: 1, listeners: 1, size: 20 }).initial());
            Self { session: Session::new(Variant::Delta, 1, Faults::new(None)), world }
        }

        fn request(&mut self, kind: Kind, request: DeltaDiscoveryRequest) -> Vec<DeltaDiscoveryResponse> {
            let request = DeltaDiscoveryRequest { type_url: kind.url().into(), ..request };
            self.session.on_request(&Request::Delta(request), None);
            let replies = burst(&mut self.session, &mut self.world).unwrap();
            let decode =
                |reply: Reply| DeltaDiscoveryResponse::decode([reply.head, reply.resources].concat().as_slice());
            replies.into_iter().map(|reply| decode(reply).unwrap()).collect()
        }

        /// Requests a route, of which the client states an older version.
        fn request_route(&mut self) -> Vec<DeltaDiscoveryResponse> {
            let route = self.world.set(Kind::Route).keys().next().unwrap().to_string();
            let request = DeltaDiscoveryRequest {
                resource_names_subscribe: vec![route.clone()],
                initial_resource_versions: [(route, "older".to_owned())].into(),
                ..Default::default()
            };
            self.request(Kind::Route, request)
        }

        /// Continues a subscription to all clusters, of which one is gone.
        fn state_clusters(&mut self) -> Vec<DeltaDiscoveryResponse> {
            let initial_resource_versions = [("gone".to_owned(), "1".to_owned())].into();
            self.request(Kind::Cluster, DeltaDiscoveryRequest { initial_resource_versions, ..Default::default() })
        }
    }

    /// Returns the types and names of removals. They come in the last response.
    fn removed(replies: &[DeltaDiscoveryResponse]) -> Vec<(&str, &str)> {
        let (last, others) = replies.split_last().expect("a response");
        assert!(others.iter().all(|reply| reply.removed_resources.is_empty()), "{others:?}");
        last.removed_resources.iter().map(|name| (&*last.type_url, &**name)).collect()
    }

    #[test]
    fn a_stated_cluster_is_removed_once_the_routes_are_requested_and_after_them() {
        let mut stream = Stream::open();
        let replies = stream.state_clusters();
        assert_eq!((replies.len(), removed(&replies)), (1, Vec::new()));
        let replies = stream.request(Kind::Listener, DeltaDiscoveryRequest::default());
        assert_eq!((replies.len(), removed(&replies)), (1, Vec::new()));
        let replies = stream.request_route();
        assert_eq!(
            replies.iter().map(|reply| &*reply.type_url).collect::<Vec<_>>(),
            [Kind::Route.url(), Kind::Cluster.url()]
        );
        assert_eq!(removed(&replies), [(Kind::Cluster.url(), "gone")]);
        assert!(
            stream.request(Kind::Listener, DeltaDiscoveryRequest::default()).is_empty(),
            "nothing is removed twice"
        );
    }

    #[test]
    fn a_stated_cluster_that_is_removed_before_the_routes_are_requested_is_kept_until_then_too() {
        let mut stream = Stream::open();
        let name = stream.world.set(Kind::Cluster).keys().next().unwrap().clone();
        let initial_resource_versions = [(name.to_string(), "older".to_owned())].into();
        stream.request(Kind::Cluster, DeltaDiscoveryRequest { initial_resource_versions, ..Default::default() });
        stream.world.apply([Change::Remove(Kind::Cluster, name.clone())]);
        assert_eq!(removed(&stream.request(Kind::Listener, DeltaDiscoveryRequest::default())), []);
        let replies = stream.request_route();
        assert_eq!(removed(&replies), [(Kind::Cluster.url(), &*name)]);
        assert!(
            stream.request(Kind::Listener, DeltaDiscoveryRequest::default()).is_empty(),
            "nothing is removed twice"
        );
    }

    #[test]
    fn a_stated_cluster_is_removed_once_a_client_without_routes_answers() {
        let mut stream = Stream::open();
        let replies = stream.state_clusters();
        assert_eq!((replies.len(), removed(&replies)), (1, Vec::new()));
        let answer = DeltaDiscoveryRequest { response_nonce: replies[0].nonce.clone(), ..Default::default() };
        let replies = stream.request(Kind::Cluster, answer);
        assert_eq!(removed(&replies), [(Kind::Cluster.url(), "gone")]);
    }
}
