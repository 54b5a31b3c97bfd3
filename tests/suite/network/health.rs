//! The health service beside many callers.

use std::net::SocketAddr;

use tandem_common::serve::ServeArgs;
use tandem_tests::failure::failed;
use tandem_tests::{ModelFolder, error_texts, render_service_with_args};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

/// The limit of concurrent watches.
const MAX_WATCHES: usize = 1024;
/// The limit of concurrent watches per address.
const PER_ADDRESS: usize = 768;
/// Connects from an address of this machine.
async fn connect(service: SocketAddr, from: [u8; 4]) -> HealthClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{service}")).expect("an address");
    HealthClient::new(endpoint.local_address(Some(from.into())).connect().await.expect("the service answers"))
}

/// Opens a watch, and returns the message of its refusal.
async fn refused(client: &mut HealthClient<Channel>) -> String {
    let status: Status = client.watch(HealthCheckRequest::default()).await.expect_err("one too many");
    let failure = failed(&status);
    assert_eq!((failure.code, failure.reason.as_str()), (Code::ResourceExhausted, "OVERLOADED"));
    status.message().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn health_is_checked_beside_the_maximum_number_of_watches() {
    let model = ModelFolder::new("tiny").with_template("{{ messages[0].content }}").with_tokenizer();
    let service = render_service_with_args(&[model.path()], ServeArgs::default()).await;
    let mut watches = Vec::new();
    let mut open = async |from, count| {
        let mut client = connect(service.address, from).await;
        for _ in 0..count {
            watches.push(client.watch(HealthCheckRequest::default()).await.expect("a stream"));
        }
        client
    };
    let mut first = open([127, 0, 0, 1], PER_ADDRESS).await;
    error_texts::check("network/watches-of-address", refused(&mut first).await);
    let mut client = open([127, 0, 0, 2], MAX_WATCHES - PER_ADDRESS).await;
    error_texts::check("network/watches", refused(&mut client).await);
    client.check(HealthCheckRequest::default()).await.expect("watches do not hinder checks");
}
