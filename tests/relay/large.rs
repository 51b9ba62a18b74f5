//! Large responses and requests.

use super::*;

#[tokio::test]
async fn trn_16_a_response_of_twelve_megabytes_reaches_the_client() {
    let _turn = super::HEAVY.lock().await;
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, ", variant: sotw").await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    let names: Vec<_> = (0..100_000).map(|number| format!("cluster-{number:06}")).collect();
    let content = "x".repeat(120);
    let mut whole: Vec<_> = names.iter().map(|name| (name.as_str(), content.as_str())).collect();
    say(&stream, "1", &whole, &[], &[]);
    let mut received = 0;
    while received < names.len() {
        received += client.sent().await.set.len(); // in responses of some 2 MiB (DELTA-48)
    }
    assert_eq!(received, names.len());
    let mut in_sotw = Client::connect(relay.address, Variant::Sotw).await;
    in_sotw.ask(CDS, &[], Some("web"));
    assert_eq!(in_sotw.sent().await.set.len(), names.len(), "in one piece");
    whole[50_000].1 = "changed";
    say(&stream, "2", &whole, &[], &[]);
    assert_eq!(client.sent().await.set, ["cluster-050000"], "XLAT-10: one of all is different");
}

#[tokio::test]
async fn trn_16_a_first_request_of_six_megabytes_is_read() {
    let _turn = super::HEAVY.lock().await;
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, "").await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    let Client::Delta(requests, _) = &client else { unreachable!() };
    let stated = (0..100_000).map(|number| (format!("cluster-{number:06}"), "v".repeat(40))).collect();
    let request = DeltaDiscoveryRequest {
        node: client::node("web"),
        type_url: CDS.into(),
        initial_resource_versions: stated,
        ..Default::default()
    };
    requests.send(request).unwrap();
    let stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    assert_eq!(client.sent().await.set, ["a", "b"]);
}
