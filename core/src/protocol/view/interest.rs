//! Counts which sessions of a view subscribe to what. The first subscription goes upstream; the upstream subscription ends some time after
//! the last one. It ends at once for a name that is known to be absent, and for endpoints that no cluster refers to any more, because some
//! servers are silent for as long as they are asked for something that they do not have. Such a name lingers too if its last client left with its
//! stream, since that client may be about to reconnect, or to poll again.

mod absent_names;
mod authorities;
mod name_map;
mod of_type;
mod watchers;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use self::absent_names::AbsentNames;
use self::authorities::WantedAuthorities;
use self::of_type::OfType;
use self::watchers::Watchers;
use super::lingering::{Scarcity, SubscriptionEnd};
use super::name_room::{NameRoom, Shares, listed_bytes};
use super::update::NoRoom;
use crate::protocol::keys::{Selector, SessionId};
use crate::protocol::moment::Moment;
use crate::protocol::view::options::ViewOptions;
use crate::protocol::visits::visit;
use crate::xds::{Authority, Name, Resource, Role, Type, TypeTable};

/// A session's subscription or unsubscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterestChange {
    /// The type.
    pub kind: Type,
    /// The subscribed name, collection or wildcard.
    pub selector: Selector,
    /// True for a subscription, false for an unsubscription.
    pub on: bool,
}

#[derive(Debug)]
pub(super) struct Interest {
    types: BTreeMap<Type, OfType>,
    authorities: WantedAuthorities,
    /// Interest without sessions, ordered by when it is dropped.
    lingering: BTreeSet<(Moment, Type, Selector)>,
    absent: AbsentNames,
    room: NameRoom,
    /// The bytes that a server takes for a list of names, if it takes whole lists.
    list_limit: Option<usize>,
    /// The limit for all resources, if they have reached it.
    full_cache: Option<usize>,
    /// How many names linger although nothing is cached for them.
    void: usize,
    /// How scarce memory is, which limits what may linger.
    pub(super) memory: Scarcity,
    changes: Vec<InterestChange>,
    options: Arc<ViewOptions>,
}

impl Interest {
    pub(crate) fn new(options: Arc<ViewOptions>) -> Self {
        let (types, lingering, absent, room, list_limit, full_cache, void, memory, changes) = Default::default();
        let authorities = WantedAuthorities::default();
        Self { types, authorities, lingering, absent, room, list_limit, full_cache, void, memory, changes, options }
    }

    /// Sets how many bytes of names of one type a server takes in a request, if it takes whole lists.
    pub(crate) fn set_list_limit(&mut self, limit: Option<usize>) {
        self.list_limit = limit;
    }

    /// Sets the limit for the bytes of all resources if it is reached: new names have no room, and nothing lingers.
    pub(crate) fn set_full_cache(&mut self, limit: Option<usize>) {
        self.full_cache = limit;
    }

    /// Returns the sessions that subscribe to anything of a type that an authority has; `*` is of the top level.
    pub(crate) fn sessions(&self, kind: &Type, authority: &Authority) -> BTreeSet<SessionId> {
        let Some(of) = self.types.get(kind) else { return BTreeSet::new() };
        let set = of.wildcard.iter().filter(|_| *authority == Authority::TopLevel);
        let names = of.names.iter().filter(|(name, _)| Authority::of(name) == *authority).map(|(_, of)| of);
        set.chain(names).flat_map(|of| of.sessions.iter().copied()).collect()
    }

    /// Returns how many subscriptions linger.
    pub(super) fn lingering_count(&self) -> usize {
        self.lingering.len()
    }

    /// Adds a session's subscription, unless there is no room for the name.
    pub(crate) fn subscribe(&mut self, session: SessionId, kind: &Type, selector: &Selector) -> Result<(), NoRoom> {
        if let Selector::Name(name) = selector
            && !self.has_name(kind, name)
        {
            self.admit(session, kind)?;
        }
        let watchers = self.watchers_or_ask(kind, selector);
        watchers.expected = false;
        let other = watchers.sessions.first().copied();
        let is_added = watchers.sessions.insert(session);
        watchers.is_over &= !is_added; // it is wanted without the cluster
        let (counts, count) = (is_added && watchers.absent, watchers.sessions.len());
        let was_void = std::mem::take(&mut watchers.is_void);
        if let Some(until) = watchers.until.take() {
            self.void -= usize::from(was_void);
            self.lingering.remove(&(until, kind.clone(), selector.clone()));
            self.note_lingering(kind, selector, false);
        }
        if let (true, Selector::Name(name)) = (is_added, selector) {
            self.room.on_subscribed(session, other, count, 1);
            if let Some(of) = self.types.get_mut(kind) {
                of.list.on_subscribed(session, other, count, listed_bytes(name));
            }
        }
        if counts {
            self.absent.note(session, true);
        }
        Ok(())
    }

    fn admit(&self, session: SessionId, kind: &Type) -> Result<(), NoRoom> {
        if let Some(limit) = self.full_cache {
            return Err(NoRoom::InCache(limit));
        }
        let limit = self.options.names_per_view;
        if !self.room.admits(session, self.lingering.len(), &Shares::of_names(limit)) {
            return Err(NoRoom::InView(limit));
        }
        match (self.list_limit, self.types.get(kind)) {
            (Some(limit), Some(of)) if !of.list.admits(session, of.lingering, &Shares::of_list(limit)) => {
                Err(NoRoom::InRequest(limit))
            }
            _ => Ok(()),
        }
    }

    /// Counts the bytes of a name that begins or ceases to linger.
    fn note_lingering(&mut self, kind: &Type, selector: &Selector, lingers: bool) {
        let (Selector::Name(name), Some(of)) = (selector, self.types.get_mut(kind)) else { return };
        let bytes = listed_bytes(name);
        of.lingering = if lingers { of.lingering + bytes } else { of.lingering.saturating_sub(bytes) };
    }

    /// Forgets what is counted for a session that has left.
    pub(crate) fn on_left(&mut self, session: SessionId) {
        self.room.on_left(session);
        self.types.values_mut().for_each(|of| of.list.on_left(session));
    }

    /// Ends a session's subscription.
    pub(super) fn unsubscribe(
        &mut self,
        session: SessionId,
        kind: &Type,
        selector: &Selector,
        how: SubscriptionEnd,
        now: Moment,
    ) {
        let (lingers_until, memory, void) = (now + self.options.linger, self.memory, self.void);
        let Some(watchers) = self.watchers(kind, selector) else { return };
        let left = watchers.sessions.remove(&session);
        let counted = left && watchers.absent;
        let (last, others) = (watchers.sessions.first().copied(), watchers.sessions.len());
        if left && watchers.sessions.is_empty() {
            let is_over = watchers.is_over && !how.with_stream; // a client that reconnects may want it for another cluster
            let lingers = !is_over && how.lingers(watchers.absent, memory, void);
            let until = if lingers { lingers_until } else { ENDED };
            (watchers.may_return, watchers.until) = (how.with_stream && lingers, Some(until));
            watchers.is_void = !how.has_any;
            self.void += usize::from(!how.has_any);
            self.lingering.insert((until, kind.clone(), selector.clone()));
            self.note_lingering(kind, selector, true);
        }
        if let (true, Selector::Name(name)) = (left, selector) {
            self.room.on_unsubscribed(session, last, others, 1);
            if let Some(of) = self.types.get_mut(kind) {
                of.list.on_unsubscribed(session, last, others, listed_bytes(name));
            }
        }
        if counted {
            self.absent.note(session, false);
        }
    }

    /// Requests the endpoints of clusters early: before the clients that are sent these clusters request them.
    pub(crate) fn prefetch_endpoints(&mut self, kind: &Type, sent: &[Arc<Resource>], types: &TypeTable, now: Moment) {
        let Some(referred) = types.referred_by(kind).filter(|kind| kind.is(Role::Endpoints)) else { return };
        if self.any_name(&referred) {
            let names = sent.iter().filter_map(|resource| resource.refers_to.as_ref());
            let until = now + self.options.linger;
            names.for_each(|name| self.expect(&referred, &Selector::Name(name.clone()), until));
        }
    }

    /// Requests what sessions are expected to subscribe to, even if its interest has just ended. It is dropped at `until` if no session has subscribed.
    pub(crate) fn expect(&mut self, kind: &Type, selector: &Selector, until: Moment) {
        let watchers = self.watchers_or_ask(kind, selector);
        watchers.is_over = false;
        watchers.expected = watchers.sessions.is_empty();
        if watchers.expected && watchers.until.is_none_or(|until| until == ENDED) {
            match watchers.until.replace(until) {
                Some(ended) => drop(self.lingering.remove(&(ended, kind.clone(), selector.clone()))),
                None => self.note_lingering(kind, selector, true),
            }
            self.lingering.insert((until, kind.clone(), selector.clone()));
        }
    }

    /// A server has removed or replaced the last cluster that led to these endpoints: they do not linger, unless they are expected again.
    pub(crate) fn note_over(&mut self, kind: &Type, name: &Name) {
        let watchers = self.types.get_mut(kind).and_then(|of| of.names.get_mut(name));
        let Some(watchers) = watchers else { return };
        watchers.is_over = true;
        self.end_lingering(kind, name);
    }

    /// Requests again what is already subscribed upstream.
    pub(crate) fn ask_again(&mut self, kind: &Type, selector: &Selector) {
        self.changes.push(InterestChange { kind: kind.clone(), selector: selector.clone(), on: true });
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (&Type, Selector)> {
        self.types.iter().flat_map(|(kind, of)| {
            let wildcard = of.wildcard.iter().map(|_| Selector::Wildcard);
            let names = of.names.iter().map(|(name, _)| Selector::Name(name.clone()));
            wildcard.chain(names).inspect(|_| visit()).map(move |selector| (kind, selector))
        })
    }

    pub(crate) fn is_any(&self) -> bool {
        !self.types.is_empty()
    }

    /// Whether anything of an authority is wanted.
    pub(crate) fn is_any_of(&self, authority: &Authority) -> bool {
        self.authorities.has(authority)
    }

    pub(crate) fn any_name(&self, kind: &Type) -> bool {
        self.types.get(kind).is_some_and(|of| !of.names.is_empty())
    }

    pub(crate) fn has_wildcard(&self, kind: &Type) -> bool {
        self.types.get(kind).is_some_and(|of| of.wildcard.is_some())
    }

    pub(crate) fn has_name(&self, kind: &Type, name: &Name) -> bool {
        self.types.get(kind).is_some_and(|of| of.names.contains(name))
    }

    /// Returns whether a name is wanted, by itself or as a member of a collection.
    pub(crate) fn covers(&self, kind: &Type, name: &Name) -> bool {
        self.has_name(kind, name) || self.collection(kind, name).is_some()
    }

    /// Returns the wanted collection that a name is in.
    pub(crate) fn collection(&self, kind: &Type, name: &Name) -> Option<Name> {
        let of = self.types.get(kind).filter(|of| of.globs > 0)?;
        name.collection().filter(|glob| of.names.contains(glob))
    }

    pub(crate) fn wildcard_sessions(&self, kind: &Type) -> impl Iterator<Item = SessionId> {
        let watchers = self.types.get(kind).and_then(|of| of.wildcard.as_ref());
        watchers.into_iter().flat_map(Watchers::sessions)
    }

    pub(crate) fn sessions_of(&self, kind: &Type, name: &Name) -> impl Iterator<Item = SessionId> {
        let of = |name: &Name| self.types.get(kind).and_then(|of| of.names.get(name));
        let watchers = of(name).into_iter().chain(self.collection(kind, name).and_then(|glob| of(&glob)));
        watchers.flat_map(Watchers::sessions)
    }

    /// Returns whether a session waits for this and may trigger a fallback (FB-6). Sessions that request more absent names than the
    /// limit may not, except by a wildcard.
    pub(crate) fn awaits(&self, kind: &Type, selector: &Selector) -> bool {
        let Some(of) = self.types.get(kind) else { return false };
        let may = |session: SessionId| self.absent.is_within(session, self.options.absent_names_per_stream);
        match selector {
            Selector::Wildcard => of.wildcard.as_ref().is_some_and(|watchers| !watchers.sessions.is_empty()),
            Selector::Name(name) => {
                of.names.get(name).is_some_and(|watchers| watchers.expected || watchers.sessions().any(may))
            }
        }
    }

    /// Returns how many sessions request more absent names than the limit.
    pub(crate) fn over_absent_limit(&self) -> usize {
        self.absent.sessions_over(self.options.absent_names_per_stream)
    }

    /// Records whether a name is known to be absent. One that is ends lingering, unless its subscribers are expected or may return.
    pub(crate) fn note_absence(&mut self, kind: &Type, name: &Name, absent: bool) {
        let Some(watchers) = self.types.get_mut(kind).and_then(|of| of.names.get_mut(name)) else { return };
        if std::mem::replace(&mut watchers.absent, absent) != absent {
            watchers.sessions().for_each(|session| self.absent.note(session, absent));
        }
        if absent && !watchers.expected && !watchers.may_return {
            self.end_lingering(kind, name);
        }
    }

    /// Ends the interest in a name that no session subscribes to.
    fn end_lingering(&mut self, kind: &Type, name: &Name) {
        let watchers = self.types.get_mut(kind).and_then(|of| of.names.get_mut(name));
        let Some(until) = watchers.and_then(|watchers| watchers.until.as_mut()) else { return };
        let (selector, until) = (Selector::Name(name.clone()), std::mem::replace(until, ENDED));
        self.lingering.remove(&(until, kind.clone(), selector.clone()));
        self.lingering.insert((ENDED, kind.clone(), selector));
    }

    pub(crate) fn everyone(&self) -> impl Iterator<Item = SessionId> {
        let watchers = self.types.values().flat_map(|of| of.wildcard.iter().chain(of.names.iter().map(|(_, of)| of)));
        watchers.inspect(|_| visit()).flat_map(Watchers::sessions)
    }

    pub(crate) fn next_deadline(&self) -> Option<Moment> {
        let first = self.lingering.first()?.0;
        let all = self.memory == Scarcity::Full || self.full_cache.is_some();
        Some(if all { Moment::START } else { first })
    }

    /// Removes and returns interest that has lingered long enough, and the oldest if too much lingers. One client may leave very much at
    /// once, so it ends in parts, and others are served in between.
    pub(crate) fn expire(&mut self, now: Moment) -> Vec<(Type, Selector)> {
        let mut expired = Vec::new();
        while self.lingering.len() > self.options.lingering
            || self.room.is_above(self.options.names_per_view)
            || expired.len() < ENDS_AT_ONCE && self.next_deadline().is_some_and(|until| until <= now)
        {
            let Some((_, kind, selector)) = self.lingering.pop_first() else { break };
            if let Some(of) = self.types.get_mut(&kind) {
                match &selector {
                    Selector::Wildcard => of.wildcard = None,
                    Selector::Name(name) => {
                        let ended = of.names.remove(name);
                        if let Some(ended) = ended {
                            self.void -= usize::from(ended.is_void);
                            of.globs -= usize::from(name.is_glob());
                            self.room.on_name_ended(1);
                            of.list.on_name_ended(listed_bytes(name));
                            of.lingering = of.lingering.saturating_sub(listed_bytes(name));
                        }
                    }
                }
                if of.wildcard.is_none() && of.names.is_empty() {
                    self.types.remove(&kind);
                }
            }
            self.authorities.note(&selector, false);
            self.changes.push(InterestChange { kind: kind.clone(), selector: selector.clone(), on: false });
            expired.push((kind, selector));
        }
        expired
    }

    pub(crate) fn take_changes(&mut self) -> Vec<InterestChange> {
        std::mem::take(&mut self.changes)
    }

    fn watchers(&mut self, kind: &Type, selector: &Selector) -> Option<&mut Watchers> {
        let of = self.types.get_mut(kind)?;
        match selector {
            Selector::Wildcard => of.wildcard.as_mut(),
            Selector::Name(name) => of.names.get_mut(name),
        }
    }

    fn watchers_or_ask(&mut self, kind: &Type, selector: &Selector) -> &mut Watchers {
        let of = self.types.entry(kind.clone()).or_default();
        let mut ask = || {
            self.authorities.note(selector, true);
            self.changes.push(InterestChange { kind: kind.clone(), selector: selector.clone(), on: true });
        };
        match selector {
            Selector::Wildcard => of.wildcard.get_or_insert_with(|| {
                ask();
                Watchers::default()
            }),
            Selector::Name(name) => of.names.get_or_insert_with(name, || {
                ask();
                self.room.on_new_name(1);
                of.list.on_new_name(listed_bytes(name));
                of.globs += usize::from(name.is_glob());
                Watchers::default()
            }),
        }
    }
}

/// The end of what does not linger.
const ENDED: Moment = Moment::START;
/// How many names end at a time.
const ENDS_AT_ONCE: usize = 128;

#[cfg(test)]
mod tests;
