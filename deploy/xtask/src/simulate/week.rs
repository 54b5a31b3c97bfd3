//! The simulation, second by second.

use std::collections::VecDeque;

use super::arrivals::{Random, share};
use super::autoscaler::{Autoscaler, DOWN_WINDOW, PERIOD, REMOVAL, TOLERANCE, UP_WINDOW, recommendation};
use super::figures::Figures;
use super::replicas::Replica;

/// Seconds of the week, and of one point of the plot.
const WEEK: u64 = 7 * 86_400;
pub(super) const POINT: u64 = 600;

/// The assumptions.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) peak: f64,
    pub(super) min: usize,
    pub(super) max: usize,
    pub(super) target_queued: f64,
    pub(super) target_kv_use: f64,
    pub(super) start_seconds: u64,
    pub(super) seed: u64,
}

impl Plan {
    pub(super) fn describe(&self) -> String {
        let Self { peak, min, max, target_queued, target_kv_use, start_seconds, seed } = self;
        let tolerance = TOLERANCE * 100.0;
        [
            format!("  {peak} tasks per minute at 14:00 of a working day, 5 % of it at night, 40 % by day at the weekend,"),
            format!("  twice as many on Wednesday from 14:00 to 14:30; a Poisson process with the seed {seed}"),
            "  tasks of equal size, without a common prefix; replicas of equal speed; no failures; an unlimited queue".to_owned(),
            "  the KV cache has room for as many tasks as the figures have at the same time".to_owned(),
            format!("  {min} to {max} replicas, ready {start_seconds} s after their start; an ending one finishes its tasks"),
            format!("  targets per replica: {target_queued} queued, {target_kv_use} of the KV cache; a look every {PERIOD} s, {tolerance} % tolerance"),
            format!("  more replicas after {UP_WINDOW} s, fewer after {DOWN_WINDOW} s, one every {REMOVAL} s"),
        ]
        .join("\n")
    }
}

/// One point of the plot.
#[derive(Debug, Default, Clone)]
pub(super) struct Point {
    pub(super) arrivals: f64,
    pub(super) replicas: f64,
    pub(super) queued: f64,
    pub(super) median: f64,
    pub(super) slowest: f64,
}

/// The result.
#[derive(Debug, Default)]
pub(super) struct Week {
    pub(super) points: Vec<Point>,
    latencies: Vec<f64>,
    replica_seconds: u64,
}

/// The state at a second.
#[derive(Debug)]
struct State {
    replicas: Vec<Replica>,
    queue: VecDeque<u64>,
    autoscaler: Autoscaler,
}

impl Week {
    pub(super) fn simulate(plan: &Plan, figures: &Figures) -> Self {
        let mut random = Random::new(plan.seed);
        let replicas = (0..plan.min).map(|_| Replica::new(0)).collect();
        let mut state = State { replicas, queue: VecDeque::new(), autoscaler: Autoscaler::default() };
        let (mut week, mut point, mut recent) = (Self::default(), Point::default(), Vec::new());
        for now in 0..WEEK {
            let arrivals = random.events(plan.peak / 60.0 * share(now));
            point.arrivals += arrivals as f64;
            state.queue.extend((0..arrivals).map(|_| now));
            recent.extend(state.second(now, figures));
            if now % PERIOD == 0 {
                state.scale(now, plan, figures);
            }
            let kept = state.replicas.iter().filter(|replica| replica.is_kept()).count();
            week.replica_seconds += state.replicas.len() as u64;
            point.replicas = point.replicas.max(kept as f64);
            point.queued = point.queued.max(state.queue.len() as f64);
            if (now + 1) % POINT == 0 {
                week.finish(std::mem::take(&mut point), std::mem::take(&mut recent));
            }
        }
        week
    }

    fn finish(&mut self, mut point: Point, mut latencies: Vec<f64>) {
        latencies.sort_by(f64::total_cmp);
        point.arrivals /= POINT as f64 / 60.0;
        point.median = quantile(&latencies, 0.5);
        point.slowest = quantile(&latencies, 0.95);
        self.latencies.extend(latencies);
        self.points.push(point);
    }

    pub(super) fn describe(&self, plan: &Plan) -> String {
        let mut sorted = self.latencies.clone();
        sorted.sort_by(f64::total_cmp);
        let [median, p95, p99] = [0.5, 0.95, 0.99].map(|part| quantile(&sorted, part));
        let queued = self.points.iter().map(|point| point.queued).fold(0.0, f64::max);
        let (hours, fixed) = (self.replica_seconds / 3600, plan.max as u64 * WEEK / 3600);
        [
            format!(
                "  {} tasks; latency: median {median:.1} s, 95 % below {p95:.1} s, 99 % below {p99:.1} s",
                sorted.len()
            ),
            format!("  longest queue {queued}; {hours} hours of replicas, {fixed} with {} all week", plan.max),
        ]
        .join("\n")
    }
}

impl State {
    /// Assigns the queue to the replicas, which compute for a second. Returns the finished latencies.
    fn second(&mut self, now: u64, figures: &Figures) -> Vec<f64> {
        while let Some(&arrived) = self.queue.front() {
            let ready = self.replicas.iter_mut().filter(|replica| replica.is_ready(now));
            let idlest = ready.min_by_key(|replica| replica.running());
            let Some(replica) = idlest.filter(|replica| replica.running() < figures.most()) else { break };
            replica.add(arrived);
            self.queue.pop_front();
        }
        let latencies = self.replicas.iter_mut().flat_map(|replica| replica.compute(now, figures)).collect();
        self.replicas.retain(|replica| !replica.is_over());
        latencies
    }

    /// Adds or removes replicas.
    fn scale(&mut self, now: u64, plan: &Plan, figures: &Figures) {
        let kept: Vec<_> = self.replicas.iter().filter(|replica| replica.is_kept()).collect();
        let count = kept.len();
        let running: usize = kept.iter().map(|replica| replica.running()).sum();
        let queued = recommendation(self.queue.len() as f64, plan.target_queued, count);
        let in_use = recommendation(running as f64 / figures.most() as f64, plan.target_kv_use, count);
        let wanted = self.autoscaler.decide(now, count, queued.max(in_use).clamp(plan.min, plan.max));
        self.replicas.extend((count..wanted).map(|_| Replica::new(now + plan.start_seconds)));
        let ending = self.replicas.iter_mut().rev().filter(|replica| replica.is_kept());
        ending.take(count.saturating_sub(wanted)).for_each(Replica::end);
    }
}

fn quantile(sorted: &[f64], part: f64) -> f64 {
    let at = ((sorted.len() as f64 * part) as usize).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or_default()
}
