//! What a view receives of the files of a source.

use weir_core::protocol::sources::StreamId;

use super::*;
use crate::relay::{Connector, Link, LinkEvent, LinkId, LinkReport, ReportReceiver, report_channel};

async fn event(reports: &mut ReportReceiver<LinkReport>) -> LinkEvent {
    tokio::time::timeout(PATIENCE, reports.recv()).await.expect("no event").expect("the link has ended").event
}

#[tokio::test]
async fn each_time_that_its_files_go_away_a_source_ends_and_its_set_comes_when_they_are_there() {
    let folder = Folder::new();
    let source = FilesSource::start(options(vec![folder.at("one")]), parser());
    let (sender, mut reports) = report_channel(1);
    let id = LinkId { stream: StreamId { server: 0, at: 0 }, serial: 3 };
    let link = Link {
        id,
        variant: None,
        tenant: None,
        headers: Default::default(),
        reports: sender,
        reader: None,
        follows_another: false,
    };
    let task = FilesConnector::new(source).start(link);
    for round in 0..3 {
        let ended = event(&mut reports).await;
        let LinkEvent::Ended { reason, answered: false, .. } = &ended else { panic!("{round}: {ended:?}") };
        assert!(reason.contains("one: it does not exist"), "{round}: {reason}");
        fs::create_dir(folder.at("one")).unwrap();
        let there = event(&mut reports).await;
        assert!(matches!(there, LinkEvent::Snapshot(_)), "{round}: {there:?}");
        fs::remove_dir(folder.at("one")).unwrap();
    }
    drop(reports);
    tokio::time::timeout(PATIENCE, task).await.expect("it ends with its view").unwrap();
}
