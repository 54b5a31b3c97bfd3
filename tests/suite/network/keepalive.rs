//! TCP keepalive of accepted connections, as the operating system reports it.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use tandem_tests::{ModelFolder, render_service};
use tokio::net::TcpStream;

/// The state ESTABLISHED and the keepalive timer in `/proc/net/tcp`.
const ESTABLISHED: &str = "01";
const KEEPALIVE: &str = "02";

/// Returns the time to the keepalive probe of the connection from `local` to `remote`, if its timer
/// runs. The columns of `/proc/net/tcp`: number, local and remote address, state, queues,
/// `timer:time`. The time is in hundredths of a second.
fn keepalive(local: SocketAddr, remote: SocketAddr) -> Option<Duration> {
    let hex = |address: SocketAddr| format!("{:08X}:{:04X}", u32::from(Ipv4Addr::LOCALHOST).to_be(), address.port());
    let table = fs::read_to_string("/proc/self/net/tcp").expect("a table of connections");
    table.lines().find_map(|line| {
        let columns: Vec<_> = line.split_ascii_whitespace().collect();
        let [_, from, to, state, _, timer, ..] = columns[..] else { return None };
        let (kind, time) = timer.split_once(':')?;
        let is_it = from == hex(local) && to == hex(remote) && state == ESTABLISHED && kind == KEEPALIVE;
        let time = u64::from_str_radix(time, 16).ok()?;
        is_it.then(|| Duration::from_millis(time * 10))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_connection_is_probed_after_a_minute() {
    let model = ModelFolder::new("tiny").with_template("{{ messages[0].content }}");
    let service = render_service(&[model.path()], None).await;
    let stream = TcpStream::connect(service.address).await.expect("it connects");
    let client = stream.local_addr().expect("an address");
    let limit = Instant::now() + Duration::from_secs(8);
    let time = loop {
        if let Some(time) = keepalive(service.address, client) {
            break time;
        }
        assert!(Instant::now() < limit, "no keepalive timer");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(time <= Duration::from_secs(60) && time > Duration::from_secs(45), "{time:?}");
    assert_eq!(keepalive(client, service.address), None, "the test's own socket has none");
}
