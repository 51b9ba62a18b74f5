//! A stage that is added to the row of a view delays what it holds, and nothing else, at any position in the row.

use std::time::Duration;

use weir_core::protocol::moment::Moment;
use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::Variant;
use weir_core::protocol::view::{BrakeRules, RowPosition, Stage, StageFacts, UpdateUnit};

use super::support::{Bench, CDS, RDS, Set, lead_for};

const LATE: Duration = Duration::from_secs(1);

/// Holds all updates of one name for a second.
#[derive(Debug, Default)]
struct HoldsLate(Option<(Moment, Vec<UpdateUnit>)>);

impl Stage for HoldsLate {
    fn judge(&mut self, unit: UpdateUnit, _: StageFacts<'_>, now: Moment) -> Vec<UpdateUnit> {
        let UpdateUnit { origin, received, updates } = unit;
        let is_late = |update: &_| format!("{update:?}").contains("key: \"late\"");
        let (late, passing) = updates.into_iter().partition::<Vec<_>, _>(is_late);
        if !late.is_empty() {
            self.0.get_or_insert_with(|| (now + LATE, Vec::new())).1.push(UpdateUnit {
                origin,
                received,
                updates: late,
            });
        }
        vec![UpdateUnit { origin, received, updates: passing }]
    }

    fn on_time(&mut self, _: StageFacts<'_>, now: Moment) -> Vec<UpdateUnit> {
        self.0.take_if(|(due, _)| *due <= now).map(|(_, units)| units).unwrap_or_default()
    }

    fn next_deadline(&self) -> Option<Moment> {
        self.0.as_ref().map(|(due, _)| *due)
    }
}

#[test]
fn a_name_that_an_added_stage_holds_is_late_and_no_other_is() {
    for at in [RowPosition::Brakes, RowPosition::Order, RowPosition::Tables] {
        let types = ["envoy.config.cluster.v3.Cluster".into()].into();
        let brakes = BrakeRules { types, share: 50, count: 2, grace: LATE * 100, ..BrakeRules::default() };
        let mut bench = Bench::with(ProtocolOptions::default().with(|options| options.view.brakes = brakes)); // all stages are on
        let clients = [bench.client(Variant::Delta), bench.client(Variant::Sotw)];
        bench.delta(clients[0], CDS, &["*"], &[]);
        bench.delta(clients[0], RDS, &["*"], &[]);
        bench.sotw(clients[1], CDS, &[], "");
        bench.whole(CDS, &[("a", "1"), ("b", "1"), ("c", "1"), ("d", "1")]);
        lead_for(&mut bench, Set::All, "r", &["a"], None);
        bench.later(60_000);
        clients.iter().for_each(|client| drop(bench.said(*client)));
        bench.sotw(clients[1], CDS, &[], "1");
        bench.view.add_stage(at, Box::<HoldsLate>::default());

        // `late` is new, and a route comes to refer to it. The order sees the cluster once the stage releases it.
        bench.set(CDS, &[("late", "1"), ("e", "1")]);
        lead_for(&mut bench, Set::All, "r", &["a", "e"], None);
        assert_eq!(bench.said(clients[0]), ["C e"], "{at:?}");
        assert_eq!(bench.said(clients[1]), ["C a,b,c,d,e"], "{at:?}");
        bench.sotw(clients[1], CDS, &[], "2");
        bench.later(999);
        lead_for(&mut bench, Set::All, "r", &["late"], None);
        assert_eq!(bench.said(clients[1]), [""; 0], "{at:?}");
        bench.later(1);
        assert_eq!(bench.said(clients[1]), ["C a,b,c,d,e,late"], "{at:?}");
        bench.sotw(clients[1], CDS, &[], "3");
        bench.later(5_000);
        let said = bench.said(clients[0]);
        assert_eq!(said.first().map(String::as_str), Some("C late"), "{at:?}: {said:?}");

        // The cluster is removed. The order holds the removal while the route refers to it.
        bench.later(60_000);
        clients.iter().for_each(|client| drop(bench.said(*client)));
        lead_for(&mut bench, Set::All, "r", &["a"], None);
        bench.later(60_000);
        bench.said(clients[0]);
        bench.remove(CDS, "late");
        bench.later(999);
        assert_eq!(bench.said(clients[1]), [""; 0], "{at:?}");
        (0..20).for_each(|_| bench.later(500));
        assert_eq!(bench.said(clients[1]), ["C a,b,c,d,e"], "{at:?}");
    }
}
