//! The server's end of the chain: which servers were asked, what they sent, and what the view holds back.

use weir_core::protocol::moment::Moment;
use weir_core::protocol::session::NameInView;
use weir_core::protocol::upstream::RequestState;
use weir_core::protocol::view::{AbsenceEvidence, HoldTimes};
use weir_core::xds::Name;

use super::{Around, LadderExplanation, Reason, ServerExplanation, SessionExplanation, ViewExplanation};

/// Returns what the view does about the name, and what its servers have sent.
pub(super) fn of_view(book: &ViewExplanation, known: &NameInView) -> Vec<Reason> {
    let now = book.now;
    let mut reasons = Vec::new();
    reasons.extend(book.ladder.as_ref().map(|ladder| of_ladder(ladder, now)));
    for server in book.requests.iter().filter(|server| server.is_active || server.connected) {
        reasons.extend(of_server(server, known, now));
    }
    let held =
        |code, text: String, held: &HoldTimes| Reason::of(code, text).since(held.since, now).until(held.until, now);
    let holds = &book.holds;
    if let Some(of) = &holds.braked {
        let text = "the server has removed it, or changed it together with removals, and a brake holds that (/brakes)";
        reasons.push(held("braked", text.into(), of));
    }
    if let Some(of) = &holds.after_outage {
        let text =
            "the server has removed it or its last usable host soon after an outage, and that is not believed at once";
        reasons.push(held("after_outage", text.into(), of));
    }
    if let Some(of) = &holds.deferred_removal {
        let text = "the server has removed it; it stays while something refers to it, or did until recently";
        reasons.push(held("removal_deferred", text.into(), of));
    }
    if let Some((clusters, of)) = &holds.deferred_change {
        let text = format!("the server has sent a newer version, which waits for missing clusters: {}", list(clusters));
        reasons.push(held("change_deferred", text, of));
    }
    reasons
}

fn of_ladder(ladder: &LadderExplanation, now: Moment) -> Reason {
    let LadderExplanation { authority, state, server, reason, .. } = ladder;
    let of = if authority.is_empty() { String::new() } else { format!(" of the authority {authority}") };
    let server = server.as_ref().map(|server| format!(": {server}")).unwrap_or_default();
    let reason = reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    let (code, text) = match *state {
        "active" if reason.is_empty() => ("server_active", format!("the server{of} is active{server}")),
        "active" => ("fallback_active", format!("a fallback server{of} is active{server}{reason}")),
        "cached" => ("server_unreachable", format!("the server{of} is unreachable, and the cache is served{reason}")),
        "down" => ("servers_down", format!("no server{of} is reachable{reason}")),
        "trying" => ("server_unheard", format!("no server{of} has responded yet{reason}")),
        _ => ("servers_idle", format!("no server{of} is in use")),
    };
    Reason::of(code, text).since(ladder.since, now)
}

fn of_server(book: &ServerExplanation, known: &NameInView, now: Moment) -> Vec<Reason> {
    let server = &book.server;
    let mut reasons = Vec::new();
    let is_present = matches!(known, NameInView::Present { .. });
    match book.request.state {
        RequestState::Waiting(until) if !is_present => {
            let text = match book.connected {
                true => format!("{server} was asked for the name, and has not answered"),
                false => format!("{server} will be asked for the name when it is connected"),
            };
            reasons.push(Reason::of("requested", text).until(until, now));
        }
        RequestState::Waiting(_) => {
            reasons.push(Reason::of("unconfirmed", format!("{server} has not sent it again since it was connected")));
        }
        RequestState::Silent => {
            reasons.push(Reason::of("server_silent", format!("{server} is there, and is silent about the name")));
        }
        RequestState::Absent => {
            reasons.push(Reason::of("server_reports_absent", format!("{server} reports that the name does not exist")));
        }
        RequestState::LeftOut => {
            reasons.push(Reason::of("no_room_in_request", format!("the request to {server} has no room for the name")));
        }
        RequestState::TypeRefused => {
            let status = book.request.error.as_deref().unwrap_or_default();
            let text =
                format!("{server} ends streams that request the type ({status}); it is tried again apart from others");
            return vec![Reason::of("type_refused", text)];
        }
        RequestState::TypeNotAsked => {
            let text = format!("{server} was not asked for the type yet: it is tried apart from others first");
            reasons.push(Reason::of("type_not_asked", text));
        }
        RequestState::Given | RequestState::OfWildcard => {}
    }
    if let Some(reason) = &book.request.rejected {
        let text = format!("{server} has sent a version that cannot be used, and the last good one stays: {reason}");
        reasons.push(Reason::of("resource_rejected", text));
    }
    if let Some(error) = &book.request.error {
        reasons.push(Reason::of("server_error", format!("{server} reports an error for the name: {error}")));
    }
    reasons
}

/// Returns what the view knows of the name.
pub(super) fn known(book: &SessionExplanation, around: &Around, servers: &[String]) -> Option<Reason> {
    let now = book.now;
    let similar = around.similar();
    Some(match &book.name.known {
        NameInView::Unknown if book.name.is_outside => {
            Reason::of("not_in_set", format!("the set of its server is complete and does not have it{similar}"))
        }
        NameInView::Unknown => Reason::of("unknown", format!("nothing is known of the name yet{similar}")),
        NameInView::Absent { evidence, since, suffices } => {
            let by = match evidence {
                AbsenceEvidence::Reported => "its server says so",
                AbsenceEvidence::Silence => "its server is there, and was silent about it",
                AbsenceEvidence::Expired => "its TTL is over",
            };
            let (code, more) = match suffices {
                true => ("absent", ""),
                false => ("absent_unproven", "; this client may hold it, and waits for better evidence"),
            };
            Reason::of(code, format!("it does not exist: {by}{more}{similar}")).since(*since, now)
        }
        NameInView::Present { version, server, since, from_disk } => {
            let by = servers.get(usize::from(*server)).map_or("unknown", String::as_str);
            let (code, text) = match from_disk {
                true => (
                    "from_disk",
                    format!(
                        "version {version}, loaded from disk or kept over a reload, and not confirmed; it came from {by}"
                    ),
                ),
                false => ("present", format!("version {version}, from {by}")),
            };
            Reason::of(code, text).since(*since, now)
        }
    })
}

fn list(names: &[Name]) -> String {
    names.iter().map(Name::to_string).collect::<Vec<_>>().join(", ")
}
