//! Tasks while one of three replicas is stuck: every answer equals the undisturbed one. The longest
//! time without an event is printed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tandem_common::pb::task::v1::RunTaskRequest;
use tandem_common::pb::task::v1::task_service_client::TaskServiceClient;
use tandem_common::process::Signal;
use tandem_tests::fakes::replica::Replica;
use tandem_tests::{Process, default_catalog};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};
use tonic::transport::Channel;

use super::super::{Answer, generation, task};
use super::front_of;
use super::proxy::{Proxy, Way};

/// The number of different tasks.
const KINDS: usize = 16;
/// Tasks that run at once.
const WORKERS: usize = 6;
/// Maximum number of tokens of a task.
const TOKENS: u32 = 24;
/// Time before the replica gets stuck.
const UNDISTURBED: Duration = Duration::from_secs(1);
/// Time after which no task should meet the stuck replica.
const LEARNT: Duration = Duration::from_secs(10);
/// A task that waits so long has met the stuck replica.
const MET: Duration = Duration::from_secs(2);

/// How the third replica is stuck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// SIGSTOP.
    Stopped,
    /// Its connections are half-open.
    HalfOpen,
    /// It answers health checks only, from the start.
    Mute,
}

/// An answer, and the times at its caller.
struct Timed {
    number: usize,
    answer: Answer,
    start: Instant,
    silence: Duration,
}

async fn run(mut client: TaskServiceClient<Channel>, number: usize, task: RunTaskRequest) -> Timed {
    let (mut answer, mut silence, start) = (Answer::default(), Duration::ZERO, Instant::now());
    let mut last = start;
    let mut stream = client.run_task(task).await.expect("accepted").into_inner();
    while let Some(response) = stream.message().await.expect("an answer without an error") {
        silence = silence.max(last.elapsed());
        last = Instant::now();
        answer.add(response.event.expect("an event"));
    }
    Timed { number, answer, start, silence }
}

/// Runs this number of tasks, and as many as last for `time`.
async fn run_all(client: &TaskServiceClient<Channel>, count: usize, time: Duration) -> Vec<Timed> {
    let (next, until) = (Arc::new(Mutex::new(0)), Instant::now() + time);
    let workers: Vec<_> = (0..WORKERS)
        .map(|_| {
            let (client, next) = (client.clone(), Arc::clone(&next));
            tokio::spawn(async move {
                let mut done = Vec::new();
                loop {
                    let number = {
                        let mut next = next.lock().await;
                        *next += 1;
                        *next - 1
                    };
                    if number >= count && Instant::now() >= until {
                        return done;
                    }
                    // The salt decides which replica the task prefers.
                    let task = RunTaskRequest { cache_salt: number.to_string(), ..task(number % KINDS, TOKENS) };
                    done.push(run(client.clone(), number, task).await);
                }
            })
        })
        .collect();
    let mut all = Vec::new();
    for worker in workers {
        all.extend(worker.await.expect("no task fails"));
    }
    all
}

/// The figures of one run.
struct Figures {
    fault: Fault,
    tasks: usize,
    took: Duration,
    silence: Duration,
    met: usize,
    /// Tasks that began [`LEARNT`] later and met the stuck replica.
    met_late: usize,
    calls: usize,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fault, tasks, took, silence, met, met_late, calls } = self;
        write!(
            f,
            "{fault:?}: {tasks} tasks in {took:.1?}, all equal; longest silence {silence:.2?}; {met} met the replica, \
             {met_late} of them begun 10 s after the fault"
        )?;
        if *fault == Fault::Mute { write!(f, "; it got {calls} calls") } else { Ok(()) }
    }
}

/// Runs at least this number of tasks, for at least `time`.
async fn check(fault: Fault, count: usize, time: Duration) -> Figures {
    let start = || (0..3).map(|_| generation()).collect::<Vec<Process>>();
    let mut replicas = tokio::task::spawn_blocking(start).await.expect("they start");
    let (mute, proxy) = (Replica::mute(), Proxy::start(replicas[2].address.clone()).await);
    let good = [replicas[0].address.clone(), replicas[1].address.clone()];
    let third = match fault {
        Fault::Stopped => replicas[2].address.clone(),
        Fault::HalfOpen => proxy.address.clone(),
        Fault::Mute => mute.serve().await,
    };
    let catalog = default_catalog();
    let (_reference, client) = front_of(Arc::clone(&catalog), &good.each_ref().map(String::as_str)).await;
    let mut undisturbed = Vec::new();
    for number in 0..KINDS {
        undisturbed.push(run(client.clone(), number, task(number, TOKENS)).await.answer);
    }
    let (_service, client) = front_of(catalog, &[&good[0], &good[1], &third]).await;
    let began = Instant::now();
    let running = tokio::spawn(async move { run_all(&client, count, time).await });
    sleep(UNDISTURBED).await;
    match fault {
        Fault::Stopped => replicas[2].signal(Signal::STOP),
        Fault::HalfOpen => proxy.set(Way::HalfOpen),
        Fault::Mute => {}
    }
    let broke = Instant::now();
    let all = running.await.expect("no task fails");
    for Timed { number, answer, .. } in &all {
        assert_eq!(answer, &undisturbed[number % KINDS], "{fault:?}: task {number}");
    }
    let met = all.iter().filter(|timed| timed.silence >= MET);
    let figures = Figures {
        fault,
        tasks: all.len(),
        took: began.elapsed(),
        silence: all.iter().map(|timed| timed.silence).max().unwrap_or_default(),
        met: met.clone().count(),
        met_late: met.filter(|timed| timed.start > broke + LEARNT).count(),
        calls: mute.calls(),
    };
    eprintln!("{figures}");
    figures
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_equal_the_undisturbed_ones_while_a_replica_is_stopped() {
    check(Fault::Stopped, 32, Duration::from_secs(3)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_equal_the_undisturbed_ones_while_a_replica_is_half_open() {
    check(Fault::HalfOpen, 32, Duration::from_secs(3)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes, and measures times"]
async fn three_hundred_tasks_run_beside_a_stuck_replica() {
    for fault in [Fault::Stopped, Fault::HalfOpen, Fault::Mute] {
        let figures = check(fault, 300, Duration::from_secs(25)).await;
        let is_probed = fault == Fault::Mute;
        assert!(figures.met_late <= usize::from(is_probed) * 2, "{figures}");
    }
}
