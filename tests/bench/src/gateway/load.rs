//! Requests over one route for a time: as fast as the clients receive answers, or at a fixed rate.

use std::time::{Duration, Instant};
use std::{iter, thread};

use anyhow::Result;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::task::JoinSet;

use super::call::{Call, Caller, Route};
use super::services::{CpuTimes, Services};
use super::tasks::Tasks;
use crate::numbers::Numbers;
use crate::stats::Times;

/// Connections for requests at a fixed rate.
const CONNECTIONS: usize = 8;

/// The source of the requests.
#[derive(Debug, Clone, Copy)]
pub(super) enum Load {
    /// A number of clients, each with one request after another.
    Clients(usize),
    /// A number of requests per second at random times, independent of earlier answers.
    Rate(u32),
}

/// The result of a load.
#[derive(Debug, Default)]
pub(super) struct Sample {
    pub(super) requests: usize,
    pub(super) tokens: usize,
    /// Times to the first token.
    pub(super) first: Times,
    /// Times between tokens.
    pub(super) gaps: Times,
    /// Times to the last token.
    pub(super) last: Times,
    pub(super) took: Duration,
    /// CPU times during the load.
    pub(super) cpu: CpuTimes,
}

impl Sample {
    fn add(&mut self, call: &Call) {
        let times = &call.times;
        self.requests += 1;
        self.tokens += times.len();
        times.windows(2).for_each(|pair| self.gaps.add(pair[1] - pair[0]));
        times.first().into_iter().for_each(|&first| self.first.add(first));
        times.last().into_iter().for_each(|&last| self.last.add(last));
    }

    fn merge(&mut self, other: Self) {
        self.requests += other.requests;
        self.tokens += other.tokens;
        self.first.extend(other.first);
        self.gaps.extend(other.gaps);
        self.last.extend(other.last);
    }

    /// Returns answers per second.
    pub(super) fn rate(&self) -> f64 {
        self.requests as f64 / self.took.as_secs_f64()
    }

    /// Returns tokens per second.
    pub(super) fn token_rate(&self) -> f64 {
        self.tokens as f64 / self.took.as_secs_f64()
    }
}

impl Load {
    pub(super) async fn run(self, services: &Services, tasks: &Tasks, route: Route, time: Duration) -> Result<Sample> {
        let connections = match self {
            Self::Clients(clients) => clients,
            Self::Rate(_) => CONNECTIONS,
        };
        let mut callers = Vec::new();
        for _ in 0..connections {
            callers.push(services.caller(route).await?);
        }
        let (before, start) = (services.cpu_times(), Instant::now());
        let mut sample = match self {
            Self::Clients(_) => all_at_once(callers, tasks, time).await?,
            Self::Rate(rate) => paced(&callers, tasks, rate, time).await?,
        };
        sample.took = start.elapsed();
        sample.cpu = services.cpu_times().since(before);
        Ok(sample)
    }
}

async fn all_at_once(callers: Vec<Caller>, tasks: &Tasks, time: Duration) -> Result<Sample> {
    let until = Instant::now() + time;
    let mut clients = JoinSet::new();
    for (number, mut caller) in callers.into_iter().enumerate() {
        let tasks = tasks.clone();
        clients.spawn(async move {
            let mut sample = Sample::default();
            while Instant::now() < until {
                sample.add(&caller.measure(tasks.at(7 * number + sample.requests)).await?);
            }
            anyhow::Ok(sample)
        });
    }
    let mut all = Sample::default();
    while let Some(sample) = clients.join_next().await {
        all.merge(sample??);
    }
    Ok(all)
}

async fn paced(callers: &[Caller], tasks: &Tasks, rate: u32, time: Duration) -> Result<Sample> {
    let mut arrivals = arrivals(rate, time);
    let mut calls = JoinSet::new();
    while let Some(number) = arrivals.recv().await {
        let (mut caller, tasks) = (callers[number % callers.len()].clone(), tasks.clone());
        calls.spawn(async move { caller.measure(tasks.at(number)).await });
    }
    let mut all = Sample::default();
    while let Some(call) = calls.join_next().await {
        all.add(&call??);
    }
    Ok(all)
}

/// Returns a channel with the number of each request, at the time to send it. The times are random
/// and equal in every run. A separate thread sends them, because tokio's timers have a resolution
/// of milliseconds. They also fire when a token wakes the runtime, which is just after a step has
/// begun.
fn arrivals(rate: u32, time: Duration) -> UnboundedReceiver<usize> {
    let (sender, receiver) = mpsc::unbounded_channel();
    thread::spawn(move || {
        let start = Instant::now();
        for (number, at) in moments(rate).take_while(|at| *at < time).enumerate() {
            thread::sleep((start + at).saturating_duration_since(Instant::now()));
            if sender.send(number).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Returns the next interval of a Poisson process.
fn moments(rate: u32) -> impl Iterator<Item = Duration> {
    let (mut numbers, mut at) = (Numbers::new(), 0.0);
    iter::repeat_with(move || {
        at -= numbers.share().ln() / f64::from(rate);
        Duration::from_secs_f64(at)
    })
}
