//! A view task that panics ends its own view alone: the streams of its clients end, and they reconnect to a new view.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;

use weir_core::protocol::view::{InterestChange, Selector};
use weir_core::xds::Name;

use crate::relay::incidents::Incidents;

/// Runs a view task until the last command sender is dropped, or the task panics. Shared state stays consistent after a panic: each of its
/// locks is held for a single change.
pub(super) async fn supervise(view_id: &str, incidents: &Incidents, task: impl Future<Output = ()>) {
    let mut task = Box::pin(task);
    let end = std::future::poll_fn(|cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(cx)));
        polled.map_or_else(|panic| Poll::Ready(Err(panic)), |poll| poll.map(Ok))
    });
    if let Err(panic) = end.await {
        incidents.view_panicked();
        let error = text_of(&*panic);
        tracing::error!(
            view = view_id,
            error,
            "view panicked; its client streams are ended, and its next client starts a new one"
        );
    }
}

/// Panics if the name is requested at which a test lets views panic.
pub(super) fn panic_at(name: Option<&Name>, changes: &[InterestChange]) {
    let is_it = |change: &InterestChange| matches!(&change.selector, Selector::Name(of) if Some(of) == name);
    assert!(name.is_none() || !changes.iter().any(is_it), "a test lets this view panic");
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_has_the_message_of_a_panic_whether_it_was_composed_or_not() {
        let name = "x";
        let panics: [fn(&str); 3] =
            [|_| panic!("fixed"), |name| panic!("composed of {name}"), |_| std::panic::panic_any(1)];
        let texts = panics.map(|panics| text_of(&*catch_unwind(|| panics(name)).unwrap_err()).to_owned());
        assert_eq!(texts, ["fixed", "composed of x", "without a message"]);
    }
}
