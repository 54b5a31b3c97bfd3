//! Replicas that run tasks.

use super::figures::Figures;

/// A running task.
#[derive(Debug)]
struct Task {
    arrived: u64,
    /// The done share of the work.
    done: f64,
}

/// A replica. It takes tasks from the second `ready_at`.
#[derive(Debug)]
pub(super) struct Replica {
    ready_at: u64,
    tasks: Vec<Task>,
    /// A replica that ends finishes its tasks and takes no others.
    is_ending: bool,
}

impl Replica {
    pub(super) fn new(ready_at: u64) -> Self {
        Self { ready_at, tasks: Vec::new(), is_ending: false }
    }

    pub(super) fn end(&mut self) {
        self.is_ending = true;
    }

    pub(super) fn is_kept(&self) -> bool {
        !self.is_ending
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_ending && self.tasks.is_empty()
    }

    pub(super) fn is_ready(&self, now: u64) -> bool {
        now >= self.ready_at && !self.is_ending
    }

    pub(super) fn running(&self) -> usize {
        self.tasks.len()
    }

    pub(super) fn add(&mut self, arrived: u64) {
        self.tasks.push(Task { arrived, done: 0.0 });
    }

    /// Computes for one second. Returns the latencies of the tasks that it finishes.
    pub(super) fn compute(&mut self, now: u64, figures: &Figures) -> Vec<f64> {
        let share = 1.0 / figures.seconds(self.tasks.len());
        let mut latencies = Vec::new();
        self.tasks.retain_mut(|task| {
            let rest = (1.0 - task.done) / share;
            task.done += share;
            if task.done >= 1.0 {
                latencies.push((now - task.arrived) as f64 + rest);
            }
            task.done < 1.0
        });
        latencies
    }
}
