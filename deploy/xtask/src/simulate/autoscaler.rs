//! The rule of the chart's autoscaling, as a HorizontalPodAutoscaler evaluates it.

use std::collections::VecDeque;

/// Seconds between two looks.
pub(super) const PERIOD: u64 = 15;
/// The chart's `behavior`: seconds of both stabilization windows, and seconds per removed replica.
pub(super) const UP_WINDOW: u64 = 30;
pub(super) const DOWN_WINDOW: u64 = 600;
pub(super) const REMOVAL: u64 = 120;
/// A smaller deviation changes nothing.
pub(super) const TOLERANCE: f64 = 0.1;

/// The recommendations of the last minutes.
#[derive(Debug, Default)]
pub(super) struct Autoscaler {
    recommended: VecDeque<(u64, usize)>,
    removed_at: Option<u64>,
}

/// Returns the number of replicas for a metric: its total over the replicas, and its target for one.
pub(super) fn recommendation(total: f64, target: f64, replicas: usize) -> usize {
    let ratio = total / (target * replicas as f64);
    if (ratio - 1.0).abs() <= TOLERANCE { replicas } else { (total / target).ceil() as usize }
}

impl Autoscaler {
    /// Returns the new number of replicas.
    pub(super) fn decide(&mut self, now: u64, replicas: usize, recommended: usize) -> usize {
        self.recommended.push_back((now, recommended));
        while self.recommended.front().is_some_and(|&(at, _)| at + DOWN_WINDOW < now) {
            self.recommended.pop_front();
        }
        let since =
            |window: u64| self.recommended.iter().filter(move |&&(at, _)| at + window >= now).map(|&(_, it)| it);
        let fewest = since(UP_WINDOW).min().unwrap_or(replicas);
        if fewest > replicas {
            return fewest;
        }
        let most = since(DOWN_WINDOW).max().unwrap_or(replicas);
        let may_remove = self.removed_at.is_none_or(|at| at + REMOVAL <= now);
        if most < replicas && may_remove {
            self.removed_at = Some(now);
            return replicas - 1;
        }
        replicas
    }
}
