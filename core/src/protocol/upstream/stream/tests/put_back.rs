//! Types that are put back on the view's stream, if the server takes no second stream.

use super::*;
use crate::protocol::upstream::PROOF;

const ONE_STREAM: Duration = Duration::from_secs(600);

/// Writes the requests that are due, and returns their types.
fn requested(stream: &mut Stream, now: Moment) -> Vec<String> {
    let requests: Vec<_> = std::iter::from_fn(|| stream.next_request(now)).collect();
    stream.written(now);
    requests.iter().map(|request| request.type_url().trim_start_matches("type.googleapis.com/").to_owned()).collect()
}

/// SotW has no collections, so nothing can be requested of a type of which only a collection is wanted.
#[test]
fn a_type_of_which_nothing_can_be_requested_keeps_no_other_off_the_stream() {
    for (idle, other) in [("own.A", "own.B"), ("own.B", "own.A")] {
        let table = Arc::new(TypeTable::new());
        let quirks = Arc::new(ServerQuirks { tries_types_apart: true, ..ServerQuirks::default() });
        let mut stream = Stream::new(Variant::Sotw, Bytes::new(), quirks, table.clone(), Arc::default());
        let view = View::new(table.clone(), Arc::default());
        let change = |kind: &str, name: &str, on: bool| {
            let selector = Selector::Name(name.into());
            InterestChange { kind: table.resolve(kind), selector, on }
        };
        let collection = format!("xdstp://a/{idle}/x/*");
        for (kind, name) in [(EDS, "e"), (idle, "x"), (idle, collection.as_str()), (other, "y")] {
            stream.want(change(kind, name, true), false);
        }
        stream.opened();
        let mut now = Moment::START;
        assert_eq!(requested(&mut stream, now).len(), 1, "the others are not tried yet");
        stream.subscriptions.trials_mut().one_stream_until = Some(now + ONE_STREAM);
        stream.want(change(idle, "x", false), false);
        now = now + PROOF;
        stream.on_time(&ViewContext::single_server(&view), now);
        assert_eq!(requested(&mut stream, now), [other], "{idle} waits");
    }
}
