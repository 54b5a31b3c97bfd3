//! The thread team.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tandem_kernels::Team;

fn counts(team: &Team, tasks: usize) -> Vec<usize> {
    let counts: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
    team.run(tasks, &|task| {
        counts[task].fetch_add(1, Relaxed);
    });
    counts.into_iter().map(AtomicUsize::into_inner).collect()
}

#[test]
fn every_task_is_done_once() {
    for threads in [0, 1, 2, 5] {
        let team = Team::new(threads);
        assert_eq!(team.threads(), threads.max(1));
        for tasks in [0, 1, 2, 7, 1_000] {
            assert_eq!(counts(&team, tasks), vec![1; tasks], "{threads} threads");
        }
    }
}

#[test]
fn other_threads_take_the_tasks_of_a_slow_thread() {
    const TASKS: usize = 8;
    for slow in [0, TASKS / 2] {
        let (team, others) = (Team::new(2), AtomicUsize::new(0));
        team.run(TASKS, &|task| {
            if task != slow {
                others.fetch_add(1, Relaxed);
                return;
            }
            let start = Instant::now();
            while others.load(Relaxed) < TASKS - 1 {
                assert!(start.elapsed() < Duration::from_secs(60), "no thread takes the other tasks");
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        assert_eq!(others.load(Relaxed), TASKS - 1);
    }
}

#[test]
fn thread_team_runs_many_short_phases_in_sequence() {
    let team = Team::new(4);
    for phase in 0..20_000 {
        let tasks = phase % 9;
        let sum = AtomicUsize::new(0);
        team.run(tasks, &|task| {
            sum.fetch_add(task + phase, Relaxed);
        });
        assert_eq!(sum.into_inner(), (0..tasks).map(|task| task + phase).sum::<usize>());
    }
}

#[test]
fn sleeping_threads_are_woken() {
    let team = Team::new(3);
    for _ in 0..20 {
        assert_eq!(counts(&team, 12), [1; 12]);
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_caller_sleeps_until_the_last_task_is_done() {
    let team = Team::new(2);
    let done = AtomicUsize::new(0);
    team.run(4, &|_| {
        std::thread::sleep(Duration::from_millis(5));
        done.fetch_add(1, Relaxed);
    });
    assert_eq!(done.into_inner(), 4);
}

#[test]
fn a_panic_reaches_the_caller_after_all_tasks_and_the_team_stays_usable() {
    let team = Team::new(3);
    let done = AtomicUsize::new(0);
    let run = || {
        team.run(50, &|task| {
            assert!(task % 10 != 3, "task 3");
            done.fetch_add(1, Relaxed);
        });
    };
    let payload = catch_unwind(AssertUnwindSafe(run)).expect_err("a task panicked");
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"task 3"));
    assert_eq!(done.into_inner(), 45);
    assert_eq!(counts(&team, 50), [1; 50]);
    let threads = Mutex::new(HashSet::new());
    team.run(6, &|_| {
        std::thread::sleep(Duration::from_millis(10));
        threads.lock().expect("no panic").insert(std::thread::current().id());
    });
    assert!(threads.into_inner().expect("no panic").len() > 1, "the others still take part");
}

#[test]
fn task_can_run_nested_tasks_on_the_same_team() {
    let team = Team::new(3);
    let sum = AtomicUsize::new(0);
    team.run(6, &|_| {
        team.run(5, &|task| {
            sum.fetch_add(task, Relaxed);
        });
    });
    assert_eq!(sum.into_inner(), 60);
}

#[test]
fn each_chunk_is_processed_once() {
    let team = Team::new(3);
    let mut data = vec![0_usize; 1_003];
    team.run_on_chunks(&mut data, 10, &|index, chunk| {
        chunk.iter_mut().enumerate().for_each(|(i, value)| *value += 10 * index + i + 1);
    });
    assert_eq!(data, (1..=1_003).collect::<Vec<_>>());
}
