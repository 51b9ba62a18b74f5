use super::*;
use crate::proto::{Any, discovery};
use crate::protocol::upstream::RequestState;
use crate::protocol::view::{Completeness, SessionId};
use crate::xds::{BodyStore, Resource, TypeTable};

mod absence;
mod histories;
mod names;
mod sets;
mod settling;

const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const RDS: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
const VHDS: &str = "type.googleapis.com/envoy.config.route.v3.VirtualHost";
const BEGIN: Moment = Moment::START;

/// A local set that is reachable, and its view.
struct Bench {
    table: Arc<TypeTable>,
    snapshot: Arc<SourceSnapshot>,
    set: LocalSet,
    view: View,
}

impl Bench {
    fn new(authoritative: bool) -> Self {
        let (table, snapshot) = (Arc::new(TypeTable::new()), Arc::new(SourceSnapshot::default()));
        let view = View::new(table.clone(), Arc::default());
        let mut bench = Self { table, snapshot, set: LocalSet::new(authoritative, Arc::default()), view };
        bench.open();
        bench
    }

    fn open(&mut self) {
        let epoch = self.set.opened();
        self.set.on_snapshot(epoch, self.snapshot.clone());
    }

    /// Replaces the resources; each entry is `(type URL, name, content)`.
    fn hold(&mut self, resources: &[(&str, &str, &str)], complete: bool) {
        let mut items: BTreeMap<Type, Items> = BTreeMap::new();
        for (url, name, content) in resources {
            let kind = self.table.resolve(url);
            let (name, resource) = resource(&kind, name, content.as_bytes(), |_| {});
            items.entry(kind).or_default().insert(name, resource);
        }
        self.take(items, complete);
    }

    fn take(&mut self, items: BTreeMap<Type, Items>, complete: bool) {
        self.snapshot = Arc::new(self.snapshot.next(items, complete));
        if self.set.is_open() {
            self.set.on_snapshot(self.set.epoch, self.snapshot.clone());
        }
    }

    fn ask(&mut self, url: &str, on: &[&str], off: &[&str]) {
        let changes = off.iter().map(|name| (name, false)).chain(on.iter().map(|name| (name, true)));
        for (name, on) in changes {
            let selector = if *name == "*" { Selector::Wildcard } else { Selector::Name(Name::canonical(name)) };
            let change = InterestChange { kind: self.table.resolve(url), selector, on };
            self.view.change_interest(SessionId(1), change.clone(), BEGIN);
            self.set.want(change);
        }
    }

    fn end(&mut self) {
        let updates = self.set.ended(self.set.epoch, &self.view);
        self.view.apply(updates, BEGIN);
        assert!(self.set.next_parts(&self.view, BEGIN).is_empty() && self.set.next_deadline().is_none());
    }

    /// Returns everything that is due, as [`Self::say`] formats it.
    fn said(&mut self) -> Vec<String> {
        let mut said = Vec::new();
        while self.set.next_deadline() == Some(BEGIN) {
            said.extend(self.say(BEGIN));
        }
        said
    }

    /// Lets the view apply the next part. Returns it as `type +names -names`: with a star at the type if it is of `*`, with `...` if more of a
    /// set is to come, and with `all` at its end.
    fn say(&mut self, now: Moment) -> Option<String> {
        let part = self.set.next_part(&self.view, now).filter(|part| !part.updates.is_empty())?;
        let kind = part.summary.kind.name();
        let letter = kind.rsplit('.').next().unwrap().chars().next().unwrap();
        let mut text = vec![letter.to_string()];
        for update in &part.updates {
            if let Some((Class::Wildcard, _)) | None = update.subject().1 {
                text[0] = format!("{letter}*");
            }
            text.extend(match update {
                Update::Upsert { key, .. } => Some(format!("+{key}")),
                Update::Absent { key, .. } => Some(format!("-{key}")),
                Update::Progress { completeness: Completeness::Complete, .. } => Some("all".into()),
                Update::Progress { of, .. } => {
                    let known = self.view.tables().completeness_of(&part.summary.kind, of);
                    (known < Completeness::Complete).then(|| "...".into()) // it was complete before, and stays complete
                }
                Update::WithoutRoom { key, .. } => Some(format!("?{key}")),
                Update::Unreadable { names, .. } => Some(format!("lacks {}", names.len())),
                other => panic!("{other:?}"),
            });
        }
        self.view.apply(part.updates, now);
        Some(text.join(" "))
    }

    /// Returns the names of a type that the view has.
    fn names(&self, url: &str, class: Class) -> Vec<String> {
        let kind = self.table.resolve(url);
        self.view.holds().here(&kind, class).map(|(name, _)| name.to_string()).collect()
    }
}

fn resource(
    kind: &Type,
    name: &str,
    content: &[u8],
    change: impl FnOnce(&mut discovery::Resource),
) -> (Name, Arc<Resource>) {
    let any = Any { type_url: format!("x/{}", kind.name()), value: content.to_vec().into() };
    let mut wrapper = discovery::Resource { name: name.into(), resource: Some(any), ..Default::default() };
    change(&mut wrapper);
    let resource = Resource::from_wrapper(0, wrapper, kind, &BodyStore::default()).unwrap();
    (Name::canonical(name), Arc::new(resource))
}
