//! `weir check --against`: its report on a file, compared with the effect of a reload with the same file.

use weir::reload::ReloadReport;

use super::client::PATIENCE;
use super::reload::{World, text};
use super::status::weir;
use super::*;

/// Returns what `weir check --against` reports that the file of this world would change, with the exit code.
async fn foretold(world: &World, more: &[&str]) -> (i32, String, String) {
    let file = world.folder.0.join("relay.yaml").display().to_string();
    let admin = format!("unix:{}", world.folder.0.join("admin.sock").display());
    weir(&[&["check", &*file, "--against", &*admin, "--quiet"], more].concat()).await
}

/// Returns the keys in the line that begins with this title.
fn keys(said: &str, title: &str) -> Vec<String> {
    let line = said.lines().find_map(|line| line.strip_prefix(&format!("  {title}")));
    line.map(|keys| keys.trim().split(", ").map(str::to_owned).collect()).unwrap_or_default()
}

#[tokio::test]
async fn what_is_foretold_is_what_the_reload_does_and_the_relay_is_only_read() {
    let plane = Plane::start(&BOTH).await;
    let world = World::start("against", &text(&[plane.address], "")).await;
    let mut client = Client::connect(world.relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    until("its stream is open", async || get(world.relay.admin, "/clients").await.contains("\"open\": 1")).await;

    let (code, said, _) = foretold(&world, &[]).await;
    assert!(code == 0 && said.contains("\n  nothing changes\n"), "{said}");

    let rest = "limits: {linger: 1m, streams: 5000, header_bytes: 32KiB}\nreload: {spread: 7s}\n";
    world.write(&text(&[plane.address], rest));
    let (code, said, _) = foretold(&world, &[]).await;
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("  the open stream ends within 7s; one without a response is kept for 0s more\n"), "{said}");
    assert!(said.ends_with(": valid\n") || said.contains(": valid, "), "{said}");
    let config = get(world.relay.admin, "/config").await;
    assert!(!config.contains("32KiB") && config.contains("\"pending\": []"), "nothing has changed: {config}");

    let ReloadReport { changed, pending } = world.reloads.reload().await.unwrap();
    let mut said_changed = [keys(&said, "at once"), keys(&said, "new streams")].concat();
    said_changed.sort();
    assert_eq!((said_changed, keys(&said, "a restart")), (changed, pending), "{said}");
    let (_, said, _) = foretold(&world, &[]).await;
    assert_eq!(keys(&said, "a restart"), ["limits.header_bytes"], "it still waits");
    let ended = tokio::time::timeout(PATIENCE, client.end()).await.expect("its stream ends");
    assert_eq!(ended.0, Code::Unavailable);
}

#[tokio::test]
async fn a_file_that_the_relay_would_not_take_and_a_relay_that_cannot_be_asked_are_told_apart() {
    let plane = Plane::start(&BOTH).await;
    let with = |limits: &str| text(&[plane.address], limits);
    let world =
        World::start("against-refused", &with("limits: {incomplete_request_bytes: 32MiB, message_bytes: 16MiB}\n"))
            .await;
    world.write(&with(""));
    let (code, said, error) = foretold(&world, &[]).await;
    assert!(code == 1 && said.ends_with("relay.yaml: 1 fault\n"), "{said}");
    assert!(
        error.contains("would not take it: valid only with a restart: without the changes that need one"),
        "{error}"
    );
    assert_eq!(world.post_reload().await.0, 422);

    let file = world.folder.0.join("relay.yaml").display().to_string();
    let plane = plane.kill().await;
    let (code, said, error) = weir(&["check", &file, "--against", &plane.to_string(), "--quiet"]).await;
    assert!(code == 2 && said.ends_with("relay.yaml: valid\n"), "{said}");
    assert!(error.starts_with(&format!("error: cannot reach http://{plane}: ")), "{error}");
}
