//! Outputs of libtorch that are resumed.

use gen_svc::load;
use tandem_common::pb::generate::v1::generate_service_client::GenerateServiceClient;
use tandem_common::serve::ServeArgs;
use tandem_core::engine::{Config, DeviceChoice, DtypeChoice};
use tandem_tests::resumed::{check_resumes, check_resumes_with_a_grammar};
use tandem_tests::{Generation, default_model};
use tandem_torch::Libtorch;

#[tokio::test(flavor = "multi_thread")]
async fn output_of_libtorch_resumes_unchanged() {
    let (threads, dtype, devices) = (1, DtypeChoice::F32, DeviceChoice::CpuTorch.into());
    let config = Config { threads, dtype, devices, ..Config::new(default_model()) };
    let load = || load::start(config, &Libtorch).expect("the model loads").0;
    let engine = tokio::task::spawn_blocking(load).await.expect("no panic");
    let service = Generation::serving(engine, ServeArgs::default()).await;
    let mut client = GenerateServiceClient::new(service.running.channel().await);
    check_resumes(&mut client.clone(), &mut client, &[7, 31]).await;
    check_resumes_with_a_grammar(&mut client).await;
}
