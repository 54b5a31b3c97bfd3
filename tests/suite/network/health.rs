//! The health service beside many callers.

use tandem_common::serve::ServeArgs;
use tandem_tests::failure::failed;
use tandem_tests::{ModelFolder, error_texts, render_service_with_args};
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

/// The limit of concurrent watches.
const MAX_WATCHES: usize = 1024;
/// The limit of concurrent watches per connection.
const PER_CONNECTION: usize = 16;

#[tokio::test(flavor = "multi_thread")]
async fn health_is_checked_beside_the_maximum_number_of_watches() {
    let model = ModelFolder::new("tiny").with_template("{{ messages[0].content }}").with_tokenizer();
    let service = render_service_with_args(&[model.path()], ServeArgs::default()).await;
    let mut watches = Vec::new();
    let mut channel = service.channel().await;
    for number in 0..MAX_WATCHES {
        if number % PER_CONNECTION == 0 {
            channel = service.channel().await;
        }
        let watch = HealthClient::new(channel.clone()).watch(HealthCheckRequest::default()).await;
        watches.push(watch.expect("a stream"));
    }
    let mut same = HealthClient::new(channel);
    let status = same.watch(HealthCheckRequest::default()).await.expect_err("one too many on a connection");
    assert_eq!(failed(&status).reason, "OVERLOADED");
    let mut client = HealthClient::new(service.channel().await);
    let status = client.watch(HealthCheckRequest::default()).await.expect_err("one too many");
    let failure = failed(&status);
    assert_eq!((failure.code, failure.reason.as_str()), (Code::ResourceExhausted, "OVERLOADED"));
    error_texts::check("network/watches", status.message());
    client.check(HealthCheckRequest::default()).await.expect("checks have no limit");
}
