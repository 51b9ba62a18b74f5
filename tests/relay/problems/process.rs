//! Problems of the process: its limits, files and certificates.

use super::super::certificates::Authority;
use super::super::client_tls;
use super::super::reload::{World, text};
use super::*;
use weir_testkit::folder::Folder;

#[tokio::test]
async fn limit_reached_is_there_while_it_is_reached() {
    let plane = Plane::start(&BOTH).await;
    let relay = run_with(&plane, "limits: {streams: 1}").await;
    let first = Client::connect(relay.address, Variant::Delta).await;
    first.ask(CDS, &[], Some("web"));
    // A reached limit is a problem only while clients are rejected, so another one tries all the time.
    let again_and_again = async {
        loop {
            if let Some(mut second) = Client::try_connect(relay.address, Variant::Delta).await {
                second.ask(CDS, &[], Some("web"));
                let _ = tokio::time::timeout(Duration::from_millis(200), second.ended()).await; // the first stream may not be open yet
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let looked_at = async {
        until("it is a problem", async || of_kind(relay.admin, "limit_reached").await.is_some()).await;
        let reached = of_kind(relay.admin, "limit_reached").await.unwrap();
        assert_eq!(reached["subject"], "limits.streams");
        assert!(reached["times"].as_u64().unwrap() > 0, "{reached:#}");
        next(relay.admin, "limit_reached").await;
    };
    tokio::select! {
        () = again_and_again => {}
        () = looked_at => {}
    }
    goes(relay.admin, "limit_reached").await;
}

#[tokio::test]
async fn reload_failed_has_the_reason_until_a_file_is_taken() {
    let plane = Plane::start(&BOTH).await;
    let world = World::start("problems", &text(&[plane.address], "")).await;
    world.write("views: {nonsense: 1}\n");
    assert!(world.reloads.reload().await.is_err());
    let failed = appears(world.relay.admin, "reload_failed").await;
    assert!(failed["reason"].as_str().unwrap().contains("nonsense"), "{failed:#}");
    assert_eq!(
        failed["next"],
        serde_json::json!(["weir", "check", world.folder.0.join("relay.yaml").display().to_string()])
    );
    world.change(&text(&[plane.address], "")).await;
    goes(world.relay.admin, "reload_failed").await;
}

#[tokio::test]
async fn state_not_written_has_the_file_and_the_reason() {
    let folder = Folder::with_short_path("tls");
    let plane = Plane::start(&BOTH).await;
    let path = folder.0.join("missing/state");
    let relay = run_with(&plane, &format!("state: {{path: {}}}", path.display())).await;
    let fault = appears(relay.admin, "state_not_written").await;
    assert_eq!(fault["subject"], path.display().to_string());
    assert_eq!(fault["next"][0], "ls");
}

#[tokio::test]
async fn certificate_ending_is_a_problem_in_its_last_week() {
    let (folder, own, plane) = (Folder::with_short_path("tls"), Authority::named("own"), Plane::start(&BOTH).await);
    client_tls::write_server(&folder, &own.sign_for("localhost", Duration::from_secs(24 * 3600)));
    let config = client_tls::config(&folder, &plane, "", "");
    let relay = run(crate::bind(config).await.unwrap(), std::future::pending());
    let ending = appears(relay.admin, "certificate_ending").await;
    assert!(ending["subject"].as_str().unwrap().ends_with("server.pem"), "{ending:#}");
    assert!(ending["reason"].as_str().unwrap().starts_with("it ends at "), "{ending:#}");
    assert_eq!(ending["next"][0], "openssl");
    client_tls::write_server(&folder, &own.sign("localhost"));
    until("the renewed one is in use", async || of_kind(relay.admin, "certificate_ending").await.is_none()).await;
}
