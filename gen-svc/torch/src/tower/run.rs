//! The stages of a tower for some tiles of an image, and the slices of a stage.
//!
//! A stage ends before the next one begins, because attention needs the keys of all patches. Within a
//! stage, patches do not depend on each other, or only on those of their window. So it is computed in
//! slices, and running sequences wait for one slice only.

use std::collections::VecDeque;

use tandem_core::models::vision::geometry::{Geometry, Windows};
use tch::Tensor;

use super::block::{Block, Rotation};
use crate::error::Error;

/// A computation for all patches. It ends before the next one begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The embeddings of patches.
    Embed,
    /// Queries, keys and values of a block.
    Project(usize),
    /// The rest of a block.
    Attend(usize),
    /// A block that attends in windows.
    Window(usize),
    /// A head after a block: its index among the deep heads.
    Deep(usize),
    /// The last norm and the head.
    Head,
}

/// The patches of a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) start: i64,
    pub(super) count: i64,
    /// The patches of each window, if there are windows.
    window: Option<i64>,
}

impl Part {
    pub(super) fn rows(&self, x: &Tensor) -> Result<Tensor, Error> {
        Ok(x.f_narrow(1, self.start, self.count)?)
    }
}

/// Some tiles in computation: one tile, or several that fit into a slice together.
#[derive(Debug)]
pub(super) struct Group {
    /// The result of the last stage, `[n, N, ..]`.
    pub(super) x: Tensor,
    /// Queries, keys and values of the current block, `[n, N, H, D]` each.
    qkv: Vec<Tensor>,
    stages: VecDeque<Stage>,
    /// The slices of the first stage that are left.
    parts: VecDeque<Part>,
    /// The results of the others.
    done: Vec<Vec<Tensor>>,
}

/// The facts that determine the slices of a group.
#[derive(Debug)]
pub(super) struct Slicing<'a> {
    /// The most patches of a slice, unless what cannot be divided has more.
    pub(super) patches: usize,
    pub(super) geometry: &'a Geometry,
    pub(super) windows: Option<&'a Windows>,
    /// The side of the squares of patches that a head merges.
    pub(super) merge: usize,
    /// True if a token precedes the patches, from the first block on.
    pub(super) has_class_token: bool,
}

impl Slicing<'_> {
    /// Returns the slices of a stage.
    pub(super) fn parts(&self, stage: Stage) -> VecDeque<Part> {
        let all = self.geometry.places.len();
        match (stage, self.windows) {
            (Stage::Window(_), Some(windows)) => window_parts(windows, self.patches),
            (Stage::Embed, _) if self.has_class_token => ranges(all, all, 1),
            (Stage::Embed, _) => ranges(all, self.patches, 1),
            (Stage::Deep(_) | Stage::Head, _) => ranges(all, self.patches, self.geometry.columns * self.merge),
            _ => {
                let token = usize::from(self.has_class_token);
                ranges(all + token, self.patches + token, 1)
            }
        }
    }

    /// Returns the number of tiles of a group.
    pub(super) fn tiles(&self) -> i64 {
        (self.patches / self.geometry.places.len().max(1)).max(1) as i64
    }

    /// Returns the number of slices of these stages.
    pub(super) fn slices(&self, stages: &VecDeque<Stage>) -> usize {
        stages.iter().map(|&stage| self.parts(stage).len()).sum()
    }
}

/// Divides patches into slices of at most `most`, or of one unit. All have about the same number of
/// units of `unit` patches.
fn ranges(all: usize, most: usize, unit: usize) -> VecDeque<Part> {
    let unit = unit.max(1);
    let units = all.div_ceil(unit);
    let slices = units.div_ceil((most / unit).max(1));
    let step = units.div_ceil(slices.max(1)).max(1) * unit;
    let part = |start| Part { start: start as i64, count: step.min(all - start) as i64, window: None };
    (0..all).step_by(step).map(part).collect()
}

fn window_parts(windows: &Windows, most: usize) -> VecDeque<Part> {
    let mut start = 0;
    let mut parts = VecDeque::new();
    for &[count, patches] in &windows.groups {
        let at_once = (most / patches.max(1)).max(1);
        for first in (0..count).step_by(at_once) {
            let windows = at_once.min(count - first);
            let rows = (windows * patches) as i64;
            parts.push_back(Part { start, count: rows, window: Some(patches as i64) });
            start += rows;
        }
    }
    parts
}

impl Group {
    /// Starts with the first stage.
    pub(super) fn new(patches: Tensor, stages: VecDeque<Stage>, slicing: &Slicing<'_>) -> Self {
        let parts = stages.front().map(|&stage| slicing.parts(stage)).unwrap_or_default();
        Self { x: patches, qkv: Vec::new(), stages, parts, done: Vec::new() }
    }

    /// Returns the tensors that are held between two slices.
    pub(super) fn held(&self) -> impl Iterator<Item = &Tensor> {
        [&self.x].into_iter().chain(&self.qkv).chain(self.done.iter().flatten())
    }

    /// Returns the next slice.
    pub(super) fn next(&mut self) -> Option<(Stage, Part)> {
        Some((*self.stages.front()?, self.parts.pop_front()?))
    }

    /// Adds the result of a slice. Returns the results of the stage after its last slice, joined
    /// along `dimension`.
    pub(super) fn add(&mut self, results: Vec<Tensor>, dimension: i64) -> Result<Option<Vec<Tensor>>, Error> {
        self.done.push(results);
        if !self.parts.is_empty() {
            return Ok(None);
        }
        let done = std::mem::take(&mut self.done);
        if let [_] = done.as_slice() {
            return Ok(done.into_iter().next());
        }
        let join = |index: usize| {
            let parts: Vec<&Tensor> = done.iter().map(|results| &results[index]).collect();
            Ok(Tensor::f_cat(&parts, dimension)?)
        };
        (0..done[0].len()).map(join).collect::<Result<_, Error>>().map(Some)
    }

    /// Starts the next stage. Returns false after the last one.
    pub(super) fn start_next(&mut self, slicing: &Slicing<'_>) -> bool {
        self.stages.pop_front();
        let Some(&stage) = self.stages.front() else { return false };
        self.parts = slicing.parts(stage);
        true
    }

    /// Computes a slice of a block. The last stage's results replace the hidden states, or are the
    /// queries, keys and values of the next stage.
    pub(super) fn block(
        &self,
        block: &Block,
        stage: Stage,
        part: &Part,
        rotation: Option<&Rotation>,
    ) -> Result<Vec<Tensor>, Error> {
        let x = part.rows(&self.x)?;
        let rotation = rotation.map(|rotation| rotation.part(part.start, part.count)).transpose()?;
        match (part.window, stage, self.qkv.as_slice()) {
            (Some(patches), ..) => Ok(vec![block.in_windows(&x, rotation.as_ref(), patches)?]),
            (None, Stage::Attend(_), [q, k, v]) => Ok(vec![block.attend(&x, &part.rows(q)?, k, v)?]),
            _ => Ok(block.project(&x, rotation.as_ref())?.into()),
        }
    }

    /// Keeps the results of a block's stage.
    pub(super) fn keep(&mut self, stage: Stage, results: Vec<Tensor>) {
        if matches!(stage, Stage::Project(_)) {
            self.qkv = results;
        } else if let Some(x) = results.into_iter().next() {
            self.x = x;
            self.qkv.clear();
        }
    }
}
