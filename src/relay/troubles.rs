//! The problems of each view, as its task last reported them. They are read every second without asking the views.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use weir_core::xds::{Name, Type};

use super::nack_watch::{NackWatch, Reasons};

/// One for the process, shared by the views and the hub.
#[derive(Debug, Default)]
pub(crate) struct TroubleWatch {
    views: Mutex<BTreeMap<u64, Arc<WatchedView>>>,
    next_view: AtomicU64,
}

/// A view, from its start to its end.
#[derive(Debug)]
pub(crate) struct WatchedView {
    /// Distinguishes the view from all others of the process.
    pub(crate) number: u64,
    /// The hash of its sharing key.
    pub(crate) view: Arc<str>,
    pub(crate) words: String,
    clients: AtomicUsize,
    troubles: Mutex<ViewTroubles>,
    nacks: Arc<NackWatch>,
}

/// What is wrong in a view.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct ViewTroubles {
    pub(crate) away: Vec<AwayServer>,
    /// The status code and text by which a server refuses the view.
    pub(crate) refused: Option<(i32, String)>,
    /// The same by type.
    pub(crate) refused_types: BTreeMap<Type, (i32, String)>,
    /// Clusters that routing refers to and that do not exist: the first few, and how many there are.
    pub(crate) dangling: Vec<Name>,
    pub(crate) dangling_count: usize,
}

/// A server that gives the view nothing, though it should.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AwayServer {
    pub(crate) server: String,
    pub(crate) error: String,
    pub(crate) instead: ServedInstead,
}

/// What the view serves instead while a server is away. The worst case for clients comes last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ServedInstead {
    Fallback,
    Cache,
    Nothing,
}

/// One view's part, removed with the view.
#[derive(Debug)]
pub(crate) struct TroubleReporter {
    watch: Arc<TroubleWatch>,
    view: Arc<WatchedView>,
    /// Whether anything was wrong when it was last reported.
    is_ill: bool,
}

impl TroubleWatch {
    pub(crate) fn view(self: &Arc<Self>, view: Arc<str>, words: String, nacks: Arc<NackWatch>) -> TroubleReporter {
        let number = self.next_view.fetch_add(1, Ordering::Relaxed);
        let (clients, troubles) = Default::default();
        let view = Arc::new(WatchedView { number, view, words, clients, troubles, nacks });
        self.views.lock().unwrap_or_else(PoisonError::into_inner).insert(number, view.clone());
        TroubleReporter { watch: self.clone(), view, is_ill: false }
    }

    /// Returns all views.
    pub(crate) fn views(&self) -> Vec<Arc<WatchedView>> {
        self.views.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

impl WatchedView {
    pub(crate) fn clients(&self) -> usize {
        self.clients.load(Ordering::Relaxed)
    }

    pub(crate) fn troubles(&self) -> ViewTroubles {
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns why the view's clients NACK, and how many streams do.
    pub(crate) fn nacks(&self) -> Vec<(Type, Reasons)> {
        self.nacks.reasons()
    }
}

impl TroubleReporter {
    pub(crate) fn report(&mut self, clients: usize, troubles: ViewTroubles) {
        self.view.clients.store(clients, Ordering::Relaxed);
        let is_ill = troubles != ViewTroubles::default();
        if is_ill || self.is_ill {
            *self.view.troubles.lock().unwrap_or_else(PoisonError::into_inner) = troubles;
        }
        self.is_ill = is_ill;
    }
}

impl Drop for TroubleReporter {
    fn drop(&mut self) {
        self.watch.views.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.view.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_has_what_its_task_said_last_and_is_gone_with_it() {
        let watch = Arc::new(TroubleWatch::default());
        let mut one = watch.view("1a".into(), "cluster=a".into(), Arc::default());
        let _other = watch.view("2b".into(), "cluster=b".into(), Arc::default());
        let troubles = ViewTroubles { refused: Some((2, "no".into())), ..ViewTroubles::default() };
        one.report(7, troubles.clone());
        let seen = watch.views();
        assert_eq!((seen[0].clients(), seen[0].troubles()), (7, troubles));
        assert_eq!((seen[1].clients(), seen[1].troubles()), (0, ViewTroubles::default()));
        one.report(6, ViewTroubles::default());
        assert_eq!((seen[0].clients(), seen[0].troubles()), (6, ViewTroubles::default()));
        drop(one);
        assert_eq!(watch.views().iter().map(|view| view.words.as_str()).collect::<Vec<_>>(), ["cluster=b"]);
    }
}
