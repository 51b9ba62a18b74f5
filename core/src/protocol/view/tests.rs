use std::time::Duration;

use super::*;
use crate::proto::{Any, discovery};
use crate::xds::{BodyStore, Resource};

const URL: &str = "type.googleapis.com/own.Type";

/// Lets time pass until then, with each deadline on the way.
pub(super) fn pass_to(view: &mut View, now: &mut Moment, end: Moment) {
    while let Some(at) = view.next_deadline().filter(|at| *at <= end) {
        *now = at.max(*now);
        view.on_time(*now);
        view.publish();
    }
    *now = end;
    view.on_time(end);
    view.publish();
}

/// A view with one session of `*` and of a collection.
struct World {
    view: View,
    kind: Type,
    glob: Name,
}

impl World {
    fn new() -> Self {
        let table = Arc::new(TypeTable::new());
        let (kind, glob) = (table.resolve(URL), Name::from("xdstp://x/own.Type/f/*"));
        let mut world = Self { view: View::new(table, Arc::default()), kind, glob };
        for selector in [Selector::Wildcard, Selector::Name(world.glob.clone())] {
            let change = InterestChange { kind: world.kind.clone(), selector, on: true };
            world.view.change_interest(SessionId(1), change, Moment::START);
        }
        world.view.publish();
        world
    }

    fn resource(&self) -> Arc<Resource> {
        let any = Any { type_url: URL.into(), value: vec![1].into() };
        let wrapper = discovery::Resource { name: "a".into(), resource: Some(any), ..Default::default() };
        Arc::new(Resource::from_wrapper(0, wrapper, &self.kind, &BodyStore::default()).unwrap())
    }

    fn apply(&mut self, update: Update) {
        self.view.apply(vec![update], Moment::START);
    }
}

/// A session does not read a snapshot whose revision it has reached already.
#[test]
fn two_published_snapshots_never_have_one_revision_though_no_resource_has_changed() {
    let changes: [fn(&mut World); 6] = [
        |world| {
            let (kind, of) = (world.kind.clone(), Selector::Wildcard);
            world.apply(Update::Progress { kind, of, completeness: Completeness::FirstResponse });
        },
        |world| {
            let (kind, of) = (world.kind.clone(), Selector::Wildcard);
            world.apply(Update::Progress { kind, of, completeness: Completeness::Complete });
        },
        |world| world.apply(Update::Interrupted { kind: world.kind.clone(), of: Selector::Wildcard }),
        |world| {
            let (kind, of) = (world.kind.clone(), Selector::Name(world.glob.clone()));
            world.apply(Update::Progress { kind, of, completeness: Completeness::Arriving });
        },
        |world| {
            let (kind, of) = (world.kind.clone(), Selector::Wildcard);
            world.apply(Update::Unreadable { kind, of, names: ["bad".into()].into() });
        },
        |world| world.view.on_source([Authority::TopLevel].into(), false),
    ];
    let mut world = World::new();
    for (number, change) in changes.into_iter().enumerate() {
        let before = world.view.snapshot().clone();
        change(&mut world);
        world.view.publish();
        let after = world.view.snapshot();
        assert!(!Arc::ptr_eq(&before, after), "change {number} is published");
        assert!(before.revision < after.revision, "change {number}");
        world.view.publish();
        assert_eq!(world.view.snapshot().revision, world.view.revision(), "nothing is new after change {number}");
    }
}

/// Else each client that connects with what it holds would make the relay request it again.
#[test]
fn what_a_client_holds_is_requested_again_only_if_it_is_wanted_and_not_known() {
    let mut world = World::new();
    let (store, class) = (BodyStore::default(), Class::Wildcard);
    for name in ["known", "gone"] {
        let any = Any { type_url: URL.into(), value: name.as_bytes().into() };
        let wrapper = discovery::Resource { name: name.into(), resource: Some(any), ..Default::default() };
        let resource = Arc::new(Resource::from_wrapper(0, wrapper, &world.kind, &store).unwrap());
        world.apply(Update::Upsert { kind: world.kind.clone(), class, key: name.into(), resource });
    }
    let evidence = Evidence::Reported;
    world.apply(Update::Absent { kind: world.kind.clone(), class, key: "gone".into(), evidence });

    let mut seeks = |class, name: &str| {
        let before = world.view.sought().generation();
        let kind = world.kind.clone();
        world.view.add_claims(SessionId(1), vec![Claim { kind, of: Claimed::Name(class, name.into()) }]);
        world.view.sought().generation() != before
    };
    assert!(seeks(Class::Wildcard, "other"));
    assert!(!seeks(Class::Wildcard, "known"));
    assert!(!seeks(Class::Wildcard, "gone"), "the server has said so");
    assert!(!seeks(Class::Named, "other"), "no client subscribes to the name");
}

#[test]
fn what_came_and_cannot_be_read_is_requested_again_for_those_that_hold_it_though_it_was_absent_before() {
    let mut world = World::new();
    let is_sought = |world: &mut World| {
        let of = Claimed::Name(Class::Wildcard, "old".into());
        world.view.add_claims(SessionId(1), vec![Claim { kind: world.kind.clone(), of }]);
        world.view.sought().has(&world.kind, Class::Wildcard, &"old".into())
    };
    assert!(is_sought(&mut world));
    let (kind, evidence) = (world.kind.clone(), Evidence::Reported);
    world.apply(Update::Absent { kind: kind.clone(), class: Class::Wildcard, key: "old".into(), evidence });
    assert!(!is_sought(&mut world), "the server has answered");
    world.apply(Update::Unreadable { kind, of: Selector::Wildcard, names: ["old".into()].into() });
    assert!(is_sought(&mut world), "it may exist now");
}

#[test]
fn fb_24_a_snapshot_names_the_server_that_gives_the_same_now_and_wakes_nobody() {
    let mut world = World::new();
    let resource = world.resource();
    let mut given = |server| {
        let (kind, key) = (world.kind.clone(), resource.name.clone());
        let update = Update::Upsert { kind, class: Class::Wildcard, key, resource: resource.clone() };
        world.view.apply_from(Origin { server, ..Origin::default() }, vec![update], Moment::START);
        let woken = world.view.publish().0.len();
        let snapshot = world.view.snapshot();
        let table = snapshot.resources(&world.kind, Class::Wildcard).unwrap();
        (woken, snapshot.revision, table.get(&resource.name).unwrap().origin.server)
    };
    let (woken, revision, server) = given(0);
    assert_eq!((woken, server), (1, 0));
    assert_eq!(given(1), (0, revision, 1));
    assert_eq!(given(1), (0, revision, 1));
    assert_eq!(given(0), (0, revision, 0));
}

#[test]
fn what_an_earlier_opening_said_twice_is_no_evidence_on_the_next() {
    let mut world = World::new();
    let (class, resource, evidence) = (Class::Wildcard, world.resource(), Evidence::Reported);
    let key = resource.name.clone();
    world.apply(Update::Upsert { kind: world.kind.clone(), class, key: key.clone(), resource });
    for _ in 0..2 {
        world.apply(Update::Absent { kind: world.kind.clone(), class, key: key.clone(), evidence });
        world.view.publish();
        assert!(is_absent_by_evidence(&world, &key));
    }
    world.apply(Update::Interrupted { kind: world.kind.clone(), of: Selector::Wildcard });
    assert!(!is_absent_by_evidence(&world, &key));
    world.apply(Update::Absent { kind: world.kind.clone(), class, key: key.clone(), evidence });
    assert!(is_absent_by_evidence(&world, &key));
}

fn is_absent_by_evidence(world: &World, name: &Name) -> bool {
    let table = world.view.tables().table(&world.kind, Class::Wildcard).unwrap();
    table.coverage().is_absent_by_evidence(table.get(name).unwrap())
}

/// Otherwise the file of an earlier process keeps names to which no client subscribes any more, and they are served after a restart.
#[test]
fn a_table_that_is_made_again_does_not_remember_what_the_one_before_forgot() {
    let mut world = World::new();
    let named = |world: &World| world.view.tables().table(&world.kind, Class::Named).unwrap().clone();
    let (before, key) = (named(&world), Name::from("xdstp://x/own.Type/f/a"));
    let (kind, resource) = (world.kind.clone(), world.resource());
    world.apply(Update::Upsert { kind: kind.clone(), class: Class::Named, key, resource });
    let revision = world.view.revision();
    let change = |on| InterestChange { kind: kind.clone(), selector: Selector::Name(world.glob.clone()), on };
    world.view.change_interest(SessionId(1), change(false), Moment::START);
    world.view.on_time(Moment::START + Duration::from_secs(3600));
    assert!(world.view.tables().table(&kind, Class::Named).is_none());
    world.view.change_interest(SessionId(1), change(true), Moment::START);
    assert!(!named(&world).journal().remembers_since(revision, before.journal().forgotten_at()));
}
