//! The queue, cancellation, and a drain.

use tandem_common::pb::generate::v1::generate_response::Event;
use tandem_common::pb::generate::v1::{GenerateRequest, Sampling, Stop};
use tandem_tests::failure::is_failed;
use tandem_tests::wait_until;
use tonic::Code;

use tandem_tests::llama::Llama;

use super::engines::{asking, bridge, client, generate};

fn endless() -> GenerateRequest {
    let stop = Stop { max_new_tokens: Some(1900), ignore_eos: true, ..Stop::default() };
    GenerateRequest { stop: Some(stop), ..asking("Write a very long story.", 1900) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_call_frees_the_engines_slot_and_a_full_queue_is_said() {
    let llama = Llama::start(1);
    let process = bridge(&llama, &["--max-queue", "4"]);
    let mut client = client(&process).await;
    let mut running = client.generate(endless()).await.expect("it starts").into_inner();
    let first = running.message().await.expect("an event").expect("an event");
    assert!(matches!(first.event, Some(Event::Accepted(_))), "{first:?}");
    // One runs, and a caller has three quarters of the queue.
    let mut waiting = Vec::new();
    for _ in 0..3 {
        waiting.push(client.generate(endless()).await.expect("it waits").into_inner());
    }
    let progress = waiting[2].message().await.expect("an event").expect("an event");
    assert!(
        matches!(progress.event, Some(Event::Progress(progress)) if progress.queue_place == Some(3)),
        "{progress:?}"
    );
    is_failed("bridge/queue", generate(&mut client, endless()).await, Code::ResourceExhausted, "QUEUE_FULL", None);
    assert_eq!(llama.requests(), (1, 0), "the queue is the bridge's");
    drop((running, waiting));
    wait_until("the slot is free", || llama.requests() == (0, 0));
    let (outputs, _) = generate(&mut client, asking("What is the capital of France?", 20)).await.expect("an answer");
    assert_eq!(outputs[0].text, "The capital of France is Paris.");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_ends_the_output_with_its_event() {
    let llama = Llama::start(1);
    let process = bridge(&llama, &[]);
    let mut client = client(&process).await;
    let mut request = tonic::Request::new(endless());
    request.set_timeout(std::time::Duration::from_secs(2));
    let mut stream = client.generate(request).await.expect("it starts").into_inner();
    let mut ended = None;
    while let Some(response) = stream.message().await.expect("the event comes before the deadline") {
        if let Some(Event::Finished(finished)) = response.event {
            ended = Some(finished.reason());
        }
    }
    assert_eq!(ended, Some(tandem_common::pb::generate::v1::FinishReason::Deadline));
    wait_until("the slot is free", || llama.requests() == (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn outputs_beyond_the_engines_slots_wait_in_the_bridge() {
    let llama = Llama::start(2);
    let process = bridge(&llama, &[]);
    let mut client = client(&process).await;
    let request = GenerateRequest {
        sampling: Some(Sampling { n: Some(6), seed: Some(7), ..Sampling::default() }),
        stop: Some(Stop { max_new_tokens: Some(30), ignore_eos: true, ..Stop::default() }),
        ..asking("Write a story.", 30)
    };
    let answer = tokio::spawn(async move { generate(&mut client, request).await });
    let mut most = 0;
    while !answer.is_finished() {
        let (running, waiting) = llama.requests();
        assert_eq!(waiting, 0, "the queue is the bridge's");
        most = most.max(running);
    }
    let (outputs, _) = answer.await.expect("no panic").expect("an answer");
    assert_eq!(outputs.iter().map(|output| output.ids.len()).collect::<Vec<_>>(), [30; 6]);
    assert_eq!(most, 2, "both slots are used");
}
