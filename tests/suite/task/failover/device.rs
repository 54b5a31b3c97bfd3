//! A replica whose GPU fails during an answer: another replica completes the answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use render_svc::args::GenerationArgs;
use tandem_common::pb::task::v1::task_service_client::TaskServiceClient;
use tandem_common::serve::ServeArgs;
use tandem_core::engine::{Config, Engine};
use tandem_tests::Generation;
use tandem_tests::served_model::served_with_all_tokens;
use tandem_tests::{default_catalog, default_model, serve_catalog_with_generation};
use tandem_tests_full::faulty_model::{DEVICE_LOST, FaultyModel};
use tokio::sync::watch;

use super::{Answer, ask, task};

/// The steps of all replicas together before one of them fails.
const STEPS_BEFORE_FAILURE: usize = 25;

/// Starts a replica whose device fails in the step of this number, counted over all replicas.
async fn replica(steps: &Arc<AtomicUsize>, failing_step: usize) -> Generation {
    let (served, steps) = (served_with_all_tokens(), Arc::clone(steps));
    let (model, _) = FaultyModel::boxed(&served, move |_| {
        (steps.fetch_add(1, Ordering::SeqCst) == failing_step).then_some(DEVICE_LOST)
    });
    let config = Config { kv_memory: Some(1 << 20), ..Config::new(default_model()) };
    let (engine, _thread) = Engine::start_with(config, move |_| Ok((served, model))).expect("starts");
    Generation::serving(engine, ServeArgs::default()).await
}

/// Runs a task on two replicas, one of which fails if the step of this number is computed.
async fn answer(number: usize, failing_step: usize) -> (Answer, usize) {
    let steps = Arc::default();
    let replicas = [replica(&steps, failing_step).await, replica(&steps, failing_step).await];
    let generate = replicas.iter().map(|it| format!("http://{}", it.running.address).parse().expect("an address"));
    let args =
        GenerationArgs { generate: generate.collect(), generate_patience_seconds: 60, ..GenerationArgs::default() };
    let service = serve_catalog_with_generation(default_catalog(), args, ServeArgs::default()).await;
    let client = TaskServiceClient::new(service.channel().await);
    let answer = ask(client, task(number, 60), watch::Sender::new(0)).await.expect("an answer");
    let failed = replicas.iter().filter(|it| it.engine.lifecycle().check_serving().is_err()).count();
    (answer, failed)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_continues_on_another_replica_after_a_failed_device() {
    for number in [0, 1, 3] {
        let (undisturbed, none) = answer(number, usize::MAX).await;
        let (resumed, failed) = answer(number, STEPS_BEFORE_FAILURE).await;
        assert_eq!((none, failed), (0, 1));
        assert_eq!(resumed, undisturbed, "task {number}");
    }
}
