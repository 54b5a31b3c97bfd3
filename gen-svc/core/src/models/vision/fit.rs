//! Whether an image processor's results suit a tower.

use tandem_images::{ImagePlan, Layout, Processor};

use super::geometry::Geometry;
use super::tower::{Positions, TableOrder, Tower};

/// Sides of images whose plans are checked.
const SIDES: [(usize, usize); 4] = [(256, 256), (1024, 768), (300, 1000), (64, 48)];

impl Tower {
    /// Returns the first setting that does not suit, if there is one. Sides that the processor refuses
    /// are left out. If it does not resize, the sides of each image decide.
    pub(super) fn mismatch(&self, processor: &Processor) -> Option<String> {
        if !processor.resizes() {
            return None;
        }
        let plans =
            SIDES.iter().filter_map(|&(width, height)| Some((width, height, processor.plan(width, height).ok()?)));
        plans
            .filter_map(|(width, height, plan)| {
                Some(format!("{}, for an image of {width} x {height} pixels", self.mismatch_of(&plan)?))
            })
            .next()
    }

    /// Returns why the tower cannot take an image of this plan, if it cannot.
    pub(super) fn problem_of(&self, plan: &ImagePlan) -> Option<String> {
        let Positions::Axes { size, .. } = self.positions else { return self.mismatch_of(plan) };
        let geometry = self.geometry(plan);
        let longest = geometry.rows.max(geometry.columns);
        let problem = || format!("its longer side is {longest} patches, and the tower has positions for {size}");
        if longest > size { Some(problem()) } else { self.mismatch_of(plan) }
    }

    fn geometry(&self, plan: &ImagePlan) -> Geometry {
        Geometry::of(&plan.layout, &plan.shape, self.patches.side, self.head.pool.merge())
    }

    fn mismatch_of(&self, plan: &ImagePlan) -> Option<String> {
        let merge = self.head.pool.merge();
        let (tiles, length) = match plan.layout {
            Layout::Tiles | Layout::Crops => (plan.shape[0], None),
            Layout::Whole { .. } => (1, None),
            Layout::Patches { .. } | Layout::Grid { .. } => (1, plan.shape.get(1).copied()),
        };
        let numbers = self.patches.matrix.columns;
        if let Some(found) = length.filter(|found| *found != numbers) {
            return Some(format!("the processor has {found} numbers for a patch, the tower {numbers}"));
        }
        let geometry = self.geometry(plan);
        let patches = geometry.places.len();
        if let Positions::Table { shape, order: TableOrder::Index, .. } = &self.positions {
            let places = shape.iter().product::<usize>() / self.hidden - usize::from(self.class_token.is_some());
            if patches != places {
                return Some(format!("the processor has {patches} patches, the tower {places} positions"));
            }
        }
        let features = tiles * (geometry.rows / merge) * (geometry.columns / merge);
        let found = plan.order.as_ref().map_or(plan.expansion.tokens, |order| order.rows);
        (found != features).then(|| format!("the processor has {found} image tokens, the tower {features} features"))
    }
}
