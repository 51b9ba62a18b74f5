//! What views take over from those of an earlier process or configuration, and what they do not.

use std::collections::BTreeMap;

use futures_util::FutureExt;
use weir_core::proto::{Any, discovery};
use weir_core::protocol::session::{NackChange, Nacked};
use weir_core::protocol::sources::LowestOpen;
use weir_core::protocol::upstream::ServerStatus;
use weir_core::protocol::view::{BrakeRules, BrakeState, HeldRemoval, SavedResource, SavedSet, SetState};
use weir_core::xds::{
    Authority, ContentHash, IdentityPattern, KeyField, Network, PermissionRule, Permissions, Resource, SetVersion,
};

use super::*;
use crate::relay::brakes::BrakeNews;

const SERVER: &str = "http://server";
const HOUR: Duration = Duration::from_secs(3600);

/// Returns what an earlier process may have had of a view: one cluster with this name.
fn saved(views: &Views, name: &str) -> SavedView {
    let kind = views.shared.table.clusters();
    let any = Any { type_url: kind.name().into(), value: Bytes::new() };
    let wrapper = discovery::Resource { name: name.into(), resource: Some(any), ..Default::default() };
    let resource = Arc::new(Resource::from_wrapper(0, wrapper, &kind, &views.shared.store).unwrap());
    let resources = vec![SavedResource { key: name.into(), resource, server: 0, rank: 0 }];
    let (settled, past, brakes, lowest) = Default::default();
    let set = SavedSet { kind, class: Class::Named, settled, past, has_expired: false, resources };
    SavedView { key: key(views), sets: vec![set], brakes, lowest, counts_for_readiness: true, age: None }
}

/// The names that a view waits with for its first client.
fn waiting(views: &Views) -> Vec<String> {
    let kind = views.shared.table.clusters();
    let names = |waiting: &WaitingView| {
        let table = waiting.view.snapshot().resources(&kind, Class::Named).expect("an empty view");
        table.present_names().map(Name::to_string).collect()
    };
    views.map.waiting().look(&key(views), names).unwrap_or_default()
}

/// A view with what the earlier views leave.
async fn copied(views: &Views) -> Option<WaitingView> {
    let key = key(views);
    let turn = views.handovers.turn(&key).begins().await;
    successor::inherited(views, &key, turn).await.map(|(view, _)| view)
}

/// The names of a view that begins with what the earlier views leave.
async fn inherited(views: &Views) -> Vec<String> {
    let kind = views.shared.table.clusters();
    let view = copied(views).await;
    let names = view.and_then(|waiting| {
        let table = waiting.view.snapshot().resources(&kind, Class::Named)?;
        Some(table.present_names().map(Name::to_string).collect())
    });
    names.unwrap_or_default()
}

/// Views of a configuration, with something in one of them, and those of the next.
fn generations(next: impl Fn(ViewsOptions) -> ViewsOptions) -> (Arc<Views>, Views) {
    let first = Arc::new(views_to(SERVER));
    first.restore(saved(&first, "a"), HOUR).unwrap();
    let connectors = vec![Arc::new(wakes::Unreachable(SERVER)) as SharedConnector];
    let later = Views::new(next(options()), connectors).after(&first, HOUR);
    (first, later)
}

#[tokio::test]
async fn i9_a_view_is_handed_over_only_if_the_same_fields_make_its_key() {
    for (fields, expected) in [(None, vec!["a"]), (Some(vec![KeyField::Cluster, KeyField::Zone]), vec![])] {
        let rule = fields.map_or_else(KeyRule::default, KeyRule::of);
        let next = |options| ViewsOptions { rule: rule.clone(), ..options };
        let (_first, later) = generations(next);
        assert_eq!(inherited(&later).await, expected, "its first client comes");

        let (first, later) = generations(next);
        later.let_go_of(&first);
        assert_eq!(waiting(&later), expected, "the earlier one ends");
        assert!(later.before().is_none());

        // The same over a configuration between them, to which no client has come.
        let (_first, middle) = generations(next);
        let middle = Arc::new(middle);
        let last = Views::new(ViewsOptions { rule: rule.clone(), ..options() }, Vec::new()).after(&middle, HOUR);
        assert_eq!(inherited(&last).await, expected, "over two");
    }
}

/// Its task has handled nothing yet. If the process ends now, the next one begins with what was saved.
#[tokio::test]
async fn fb_31_what_waits_for_its_first_client_is_saved_and_so_is_a_view_whose_first_client_has_just_come() {
    let mut options = options();
    let types = [options.table.clusters().name().into()].into();
    options.protocol.view.brakes = BrakeRules { types, grace: HOUR, empty_grace: HOUR, ..BrakeRules::default() };
    let views = Views::new(options, vec![Arc::new(wakes::Unreachable(SERVER)) as SharedConnector]);
    let lowest = BTreeMap::from([(Authority::TopLevel, LowestOpen { server: 0, rank: 3 })]);
    let kind = views.shared.table.clusters();
    let (name, age) = ("a".into(), Duration::from_secs(1));
    let set = SetState {
        type_name: kind.name().into(),
        glob: None,
        sizes: Vec::new(),
        is_stopped: false,
        start_size: 10,
        empty_for: None,
        removals: vec![HeldRemoval { name, age, generation: 7, emptied: false, server: 0, rank: 0 }],
    };
    let brakes = BrakeState { sets: vec![set] };
    let mut restored = SavedView { lowest: lowest.clone(), brakes: brakes.clone(), ..saved(&views, "a") };
    restored.sets[0].class = Class::Wildcard;
    views.restore(restored, HOUR).unwrap();
    let mut entrance = None;
    for round in ["it waits", "a client has come"] {
        let [view] = <[_; 1]>::try_from(views.to_save()).ok().expect("one view");
        assert_eq!((view.lowest, view.brakes.changes), (lowest.clone(), 0), "{round}");
        assert!(view.brakes.state.holds_the_same(&brakes), "{round}: {:?}", view.brakes.state);
        entrance.get_or_insert_with(|| views.enter_new(&key(&views), &first_request(), &visit()).unwrap());
    }
}

#[tokio::test]
async fn a_view_that_is_refused_leaves_nothing_and_neither_do_those_before_it() {
    for is_refused in [true, false] {
        let (first, middle) = generations(|options| options);
        let middle = Arc::new(middle);
        let last = views_to(SERVER).after(&middle, HOUR);
        // A view that has begun empty, although there is one of an earlier configuration.
        let _entrance = middle.enter_new(&key(&middle), &first_request(), &visit()).unwrap();
        let status = ServerStatus { code: 7, message: "revoked".into() };
        let published = middle.map.published(&key(&middle)).unwrap();
        published.note_refusal(is_refused.then(|| Arc::new(status)));
        let saved: Vec<_> = middle.to_save().iter().map(|view| view.is_refused).collect();
        assert_eq!(saved, [is_refused], "whoever saves views removes it");
        assert_eq!(copied(&last).await.is_some(), !is_refused);
        assert_eq!(waiting(&first), ["a"]);
    }
}

#[tokio::test]
async fn configurations_end_in_any_order_and_the_last_one_has_what_is_left() {
    for ends_in_order in [true, false] {
        let (first, middle) = generations(|options| options);
        let middle = Arc::new(middle);
        let last = views_to(SERVER).after(&middle, HOUR);
        if ends_in_order {
            last.let_go_of(&first);
            assert_eq!((waiting(&middle), waiting(&last).len()), (vec!["a".into()], 0));
            assert!(middle.before().is_none());
            last.let_go_of(&middle);
        } else {
            last.let_go_of(&middle);
            assert!(Arc::ptr_eq(&last.before().unwrap(), &first), "the first has clients still");
            last.let_go_of(&first);
        }
        assert_eq!(waiting(&last), ["a"], "{ends_in_order}");
        assert!(last.before().is_none());
    }
}

/// `views.key` was changed by mistake, and put back while the first views still serve clients. Those of the mistake have other resources.
#[tokio::test]
async fn a_key_that_is_put_back_goes_on_with_the_views_before_the_other_one_whichever_ends_first() {
    let rule = KeyRule::of(vec![KeyField::Cluster, KeyField::Zone]);
    for ends_in_order in [true, false] {
        let (first, other) = generations(|options| ViewsOptions { rule: rule.clone(), ..options });
        let other = Arc::new(other);
        other.restore(saved(&other, "b"), HOUR).unwrap();
        let last = views_to(SERVER).after(&other, HOUR);
        assert_eq!(found(&last).await, ["a"], "its first client comes");

        let last = views_to(SERVER).after(&other, HOUR);
        if ends_in_order {
            last.let_go_of(&first);
            assert_eq!((waiting(&last), waiting(&other)), (vec!["a".into()], vec!["b".into()]));
            assert!(other.before().is_none());
            last.let_go_of(&other);
        } else {
            last.let_go_of(&other);
            assert_eq!(waiting(&last).len(), 0, "the first has it still");
            assert!(Arc::ptr_eq(&last.before().unwrap(), &first));
            last.let_go_of(&first);
        }
        assert_eq!(waiting(&last), ["a"], "{ends_in_order}");
        assert!(last.before().is_none());
    }
}

/// A file that another process had may be read when clients have come.
#[tokio::test]
async fn what_comes_from_disk_does_not_replace_what_is_here() {
    let views = views_to(SERVER);
    views.restore(saved(&views, "a"), HOUR).unwrap();
    assert!(views.restore(saved(&views, "b"), HOUR).is_none());
    assert_eq!(waiting(&views), ["a"]);
    let first = first_request();
    let _entrance = views.enter_new(&key(&views), &first, &visit()).unwrap();
    assert!(views.restore(saved(&views, "b"), HOUR).is_none(), "it runs");
    assert_eq!((views.to_save().len(), views.map.waiting().keys().len()), (1, 0));
}

#[tokio::test]
async fn a_view_whose_clients_do_not_come_is_dropped_after_its_time_and_is_from_disk_until_then() {
    let views = views_to(SERVER);
    views.restore(saved(&views, "a"), HOUR).unwrap();
    assert_eq!(views.loaded_from_disk(), 1);
    views.map.waiting().retire(HOUR);
    assert_eq!((waiting(&views), views.loaded_from_disk()), (vec!["a".into()], 1));
    views.map.waiting().retire(Duration::ZERO);
    assert_eq!((waiting(&views).len(), views.loaded_from_disk()), (0, 0));
    // One that runs is from disk for as long as no server has confirmed it.
    views.restore(saved(&views, "a"), HOUR).unwrap();
    let _entrance = views.enter_new(&key(&views), &first_request(), &visit()).unwrap();
    views.map.waiting().retire(Duration::ZERO);
    assert_eq!(views.loaded_from_disk(), 1);
}

#[tokio::test]
async fn what_belongs_to_the_process_goes_on_and_new_limits_and_types_count_from_then_on() {
    let next = |mut options: ViewsOptions| {
        options.protocol.view.brakes.types = ["a.B".into()].into();
        ViewsOptions { max_in_metrics: 2, ..options }
    };
    let (first, later) = generations(next);
    let _label = first.shared.metric_labels.assign("one");
    assert_eq!(later.shared.metric_labels.assign("two").name().as_deref(), Some("two"), "there is a second label now");
    assert_eq!(later.incidents().brakes.engaged().get("a.B"), Some(&0), "its series begins");
    // The quota of an identity holds for its views of both.
    let (before, after) = (first.quota(Some("x")), later.quota(Some("x")));
    before.views().add(&key(&first));
    assert_eq!(after.views().of_identity.unwrap().count(), 1);
    first.counters().rejected(&AdmissionError::NoNode);
    assert!(later.counters().rejections().any(|(reason, count)| (reason, count) == ("no_node", 1)));
    let mut held = later.incidents().brakes.view("view");
    let news = BrakeNews { server: SERVER.into(), type_name: "a.B".into(), reason: None, removals: 1, generation: 1 };
    held.update([("a.B".to_owned(), 1)].into(), vec![news]);
    assert_eq!((first.incidents().brakes.views(), first.incidents().brakes.engaged()["a.B"]), (1, 1));
    first.readiness().drain();
    assert!(later.readiness().is_draining());
    assert!(Arc::ptr_eq(first.permissions(), later.permissions()));
}

/// A key of before with the rules of after could give a client what belongs to others: no check has seen both.
#[tokio::test]
async fn i9_views_accept_nobody_by_permissions_that_came_with_a_later_configuration() {
    let named = |name: &str| {
        let identities = vec![IdentityPattern::Network(Network::parse("127.0.0.0/8").unwrap())];
        let (node, names, secrets, relays_for) = Default::default();
        let (name, types, tenant, client_status) = (name.into(), None, None, false);
        let rule = PermissionRule {
            name,
            identities,
            node,
            types,
            names,
            secrets,
            tenant,
            relays_for,
            client_status,
            share: 1,
        };
        Permissions::of(vec![rule])
    };
    let judged = |views: &Views| views.identify(&visit().peer, &Default::default(), first_request().node()).map(drop);
    let refused: Result<(), _> = Err(AdmissionError::ConfigurationChanged);
    let first = Arc::new(Views::new(ViewsOptions { permissions: named("a"), ..options() }, Vec::new()));
    let permissions = first.permissions().clone();
    assert_eq!(permissions.replace_with_generation(named("a")), Ok(false));
    let second = Arc::new(views().after(&first, HOUR));
    assert_eq!([judged(&first), judged(&second)], [Ok(()), Ok(())], "both were checked with these");
    assert_eq!(permissions.replace(named("b")), Ok(true));
    assert_eq!([judged(&first), judged(&second)], [refused.clone(), Ok(())], "they go with the newest configuration");
    assert_eq!(permissions.replace_with_generation(named("c")), Ok(true));
    assert_eq!(judged(&second), refused, "the next views are not there yet");
    let third = views().after(&second, HOUR);
    assert_eq!([judged(&second), judged(&third)], [refused, Ok(())]);
}

#[tokio::test]
async fn nacks_of_the_clients_of_an_earlier_configuration_and_of_what_views_share_are_counted() {
    let hub = Arc::new(views_to(SERVER).into_hub());
    let first = Arc::new(views_to(SERVER));
    let later = views_to(SERVER).with_hub(hub.clone()).after(&first, HOUR);
    let version = SetVersion::of("a", ContentHash::of_body("t", b"b"));
    for (views, count) in [(&*first, 1), (&later, 2), (&hub, 4)] {
        let entrance = views.enter_new(&key(views), &first_request(), &visit()).unwrap();
        for kind in [CLUSTER, "made.Up"] {
            let kind = views.shared.table.resolve(kind);
            let change = NackChange { kind, ended: None, began: Some(Nacked { version, reason: "no".into() }) };
            (0..count).for_each(|_| entrance.nacks.apply(vec![change.clone()], std::time::Instant::now()));
        }
    }
    let nacking = questions::nacking_streams(&later);
    assert_eq!((nacking[CLUSTER], nacking["other"]), (7, 7));
    assert_eq!(nacking["envoy.config.listener.v3.Listener"], 0, "the series of a type is there without NACKs");
}

/// The names that a client finds in its view when it enters.
async fn found(views: &Views) -> Vec<String> {
    let entrance = open::enter(views, &key(views), &first_request(), &visit()).await.unwrap();
    let snapshot = entrance.published.newest();
    let table = snapshot.resources(&views.shared.table.clusters(), Class::Named);
    table.map(|table| table.present_names().map(Name::to_string).collect()).unwrap_or_default()
}

#[tokio::test]
async fn a_handover_leaves_nothing_behind_though_the_view_has_ended_before_its_turn() {
    for ends in [true, false] {
        let (first, later) = generations(|options| options);
        let key = key(&later);
        let begun = later.handovers.turn(&key).begins().await;
        let mut enters = std::pin::pin!(found(&later));
        assert!(enters.as_mut().now_or_never().is_none(), "it is not its turn");
        if ends {
            first.map.waiting().retire(Duration::ZERO);
        }
        drop(begun);
        let names: &[&str] = if ends { &[] } else { &["a"] };
        assert_eq!(enters.await, names);
        assert_eq!((waiting(&later).len(), later.handovers.len()), (0, 0));
    }
}

#[tokio::test]
async fn a_client_that_leaves_before_it_has_its_view_ends_no_turn_of_another_and_leaves_nothing_of_its_own() {
    let (_first, later) = generations(|options| options);
    let key = key(&later);
    let begun = later.handovers.turn(&key).begins().await;
    let mut enters = Box::pin(found(&later));
    assert!(enters.as_mut().now_or_never().is_none(), "it is not its turn");
    drop(enters);
    assert_eq!(later.handovers.len(), 1, "who comes now waits for the other one");
    drop(begun);
    assert_eq!(later.handovers.len(), 0);

    let mut enters = Box::pin(found(&later));
    let _ = enters.as_mut().now_or_never(); // a thread copies the view, and is seldom done by now
    drop(enters);
    let ends = async {
        while later.handovers.len() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), ends).await.expect("the turn ends with the copy");
}

#[tokio::test]
async fn nothing_is_copied_for_a_client_whose_place_was_taken_while_it_waited_for_its_turn() {
    let (_first, later) = generations(|options| options);
    let later = Views { limits: ViewLimits { views: 1, ..later.limits }, ..later };
    let (key, first, by) = (key(&later), first_request(), visit());
    let begun = later.handovers.turn(&key).begins().await;
    let mut enters = std::pin::pin!(open::enter(&later, &key, &first, &by));
    assert!(enters.as_mut().now_or_never().is_none(), "it is not its turn");
    let _stays = later.try_enter("other", &[], &visit()).unwrap();
    drop(begun);
    let refused = enters.now_or_never().expect("no thread copies anything").err();
    assert!(matches!(refused, Some(AdmissionError::TooManyViews { limit: 1, .. })), "{refused:?}");
}

/// I3: what a client would have been given that was refused is older than what the next one is given.
#[tokio::test]
async fn a_client_that_is_refused_leaves_no_copy_of_the_earlier_view_for_those_who_come_later() {
    let (first, later) = generations(|options| options);
    let later = Views { limits: ViewLimits { views: 0, ..later.limits }, ..later };
    let refused = open::enter(&later, &key(&later), &first_request(), &visit()).await.err();
    assert_eq!(refused, Some(AdmissionError::TooManyViews { limit: 0, split: None }));
    assert_eq!((waiting(&later).len(), later.handovers.len()), (0, 0));
    first.map.waiting().retire(Duration::ZERO);
    first.restore(saved(&first, "b"), HOUR).unwrap();
    let later = Views { limits: first.limits, ..later };
    assert_eq!(found(&later).await, ["b"]);
}

/// Views of a configuration with these limits.
fn limited(per_connection: usize, per_identity: usize) -> Views {
    let limits = ViewsOptions {
        max_views: 10,
        max_views_per_connection: per_connection,
        max_views_per_identity: per_identity,
        ..options()
    };
    Views::new(limits, vec![Arc::new(wakes::Unreachable(SERVER))])
}

/// Lets a client enter the view of a cluster.
async fn entered(views: &Views, cluster: &str, by: &ClientInfo) -> Result<Entrance, AdmissionError> {
    let first = request_of(cluster, &[]);
    let identity = views.identify(&by.peer, &Default::default(), first.node()).unwrap();
    open::enter(views, identity.key(), &first, by).await
}

#[tokio::test]
async fn a_client_with_as_many_views_as_it_may_have_has_them_in_the_next_configuration_too_and_no_others() {
    for (per_connection, per_identity, limit) in [(2, 9, "views_per_connection"), (0, 2, "views_per_identity")] {
        let first = Arc::new(limited(per_connection, per_identity));
        let later = limited(per_connection, per_identity).after(&first, HOUR);
        let client = ClientInfo { quota: first.quota(Some("x")).into(), ..visit() };
        let _before = ["1", "2"].map(|cluster| first.try_enter(cluster, &[], &client).unwrap());
        let _one = entered(&later, "1", &client).await.unwrap();
        let refused = entered(&later, "3", &client).await.err().unwrap().to_string();
        assert!(refused.contains(limit), "{refused}");
        assert!(entered(&later, "2", &client).await.is_ok());
    }
}

#[tokio::test]
async fn a_lower_limit_on_views_counts_also_for_those_that_the_earlier_configuration_has() {
    let first = Arc::new(limited(0, 2));
    let later = limited(0, 1).after(&first, HOUR);
    let client = ClientInfo { quota: first.quota(Some("x")).into(), ..visit() };
    let _before = ["1", "2"].map(|cluster| first.try_enter(cluster, &[], &client).unwrap());
    let one = entered(&later, "1", &client).await.unwrap();
    let refused = entered(&later, "2", &client).await.err();
    assert!(matches!(refused, Some(AdmissionError::TooManyViewsOfIdentity { limit: 1, .. })), "{refused:?}");
    drop(one);
    assert!(entered(&later, "2", &client).await.is_ok(), "the unused one makes room");
}
