//! Connections through a proxy, over sockets.

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};

use super::*;
use crate::upstream::{Proxy, ProxyCredentials};

/// What a proxy does with a request.
#[derive(Clone)]
enum Does {
    /// Connects to this address, whatever host it is asked for.
    Connects(SocketAddr),
    /// Says this, and no more.
    Says(Vec<u8>),
    Closes,
}

/// A proxy, and the heads of the requests that it had.
async fn proxy(does: Does) -> (SocketAddr, tokio::sync::mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (sender, requests) = tokio::sync::mpsc::unbounded_channel();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let (does, sender) = (does.clone(), sender.clone());
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(client.read_u8().await.unwrap());
                }
                let _ = sender.send(String::from_utf8(head).unwrap()); // unless no test looks at it
                match does {
                    Does::Connects(to) => {
                        let mut server = TcpStream::connect(to).await.unwrap();
                        client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.unwrap();
                        let _ = copy_bidirectional(&mut client, &mut server).await;
                    }
                    Does::Says(bytes) => {
                        client.write_all(&bytes).await.unwrap();
                        let mut rest = [0; 1024];
                        while client.read(&mut rest).await.is_ok_and(|length| length > 0) {}
                    }
                    Does::Closes => {}
                }
            });
        }
    });
    (address, requests)
}

/// A server whose name no look-up finds, behind a proxy.
fn behind(proxy: SocketAddr, credentials: Option<ProxyCredentials>) -> AdsServer {
    let proxy = Proxy { uri: format!("http://{proxy}").parse().unwrap(), tls: None, credentials };
    let uri = "http://control.invalid:18000".parse().unwrap();
    AdsServer { uri, proxy: Some(proxy), connect_timeout: LONG, ..AdsServer::undialed() }
}

#[tokio::test]
async fn a_proxy_is_asked_for_the_server_by_its_name_and_shown_its_credentials() {
    let server = good().await;
    let (address, mut requests) = proxy(Does::Connects(server.0)).await;
    let credentials = Some(ProxyCredentials::Given("user:pass".into()));
    let pool = pool(behind(address, credentials), Arc::default());
    let _slot = timeout(LONG, pool.slot(0)).await.unwrap().unwrap();
    assert_eq!(server.1.load(std::sync::atomic::Ordering::Relaxed), 1);
    let request = requests.recv().await.unwrap();
    let expected = "CONNECT control.invalid:18000 HTTP/1.1\r\nhost: control.invalid:18000\r\nproxy-authorization: Basic dXNlcjpwYXNz\r\n\r\n";
    assert_eq!(request, expected);
}

#[tokio::test]
async fn what_a_server_says_at_once_after_the_answer_of_its_proxy_is_not_lost() {
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let says = [b"HTTP/1.1 200 OK\r\n\r\n".as_slice(), &settings].concat();
    let pool = pool(behind(proxy(Does::Says(says)).await.0, None), Arc::default());
    timeout(LONG, pool.slot(0)).await.unwrap().unwrap();
}

#[tokio::test]
async fn what_a_proxy_answers_instead_of_a_connection_is_said() {
    for (does, expected) in [
        (
            Does::Says(b"HTTP/1.1 403 No\r\n\r\n".to_vec()),
            "the proxy answers 403 No; it does not permit connections to the server",
        ),
        (
            Does::Says(b"HTTP/1.1 407 Who\r\n\r\n".to_vec()),
            "the proxy answers 407 Who; it wants other credentials (proxy.credentials_file)",
        ),
        (Does::Says(b"220 mail.example ESMTP\r\n".to_vec()), "the proxy does not answer in HTTP"),
        (Does::Closes, "the proxy ends the connection: unexpected end of file"),
    ] {
        let address = proxy(does).await.0;
        let failed = timeout(LONG, dial(&behind(address, None), b"h2")).await.unwrap().err().unwrap();
        assert_eq!(failed.to_string(), format!("{address}: {expected}"));
    }
}

#[tokio::test]
async fn a_proxy_has_the_time_of_a_connection_for_its_answer() {
    for says in [b"".to_vec(), b"HTTP/1.1 2".to_vec()] {
        let address = proxy(Does::Says(says)).await.0;
        let server = AdsServer { connect_timeout: SHORT, ..behind(address, None) };
        let late = timeout(LONG, dial(&server, b"h2")).await.expect("it is given up").err().unwrap();
        assert_eq!(late.to_string(), format!("{address}: the proxy does not answer within 250ms"));
    }
}

#[tokio::test]
async fn credentials_that_cannot_be_read_fail_the_attempt_and_are_sent_to_none() {
    let (address, mut requests) = proxy(Does::Closes).await;
    let server = behind(address, Some(ProxyCredentials::File("/no/such/file".into())));
    let failed = timeout(LONG, dial(&server, b"h2")).await.unwrap().err().unwrap();
    assert_eq!(failed.to_string(), "cannot read the credentials for the proxy in /no/such/file");
    assert!(requests.try_recv().is_err());
}
