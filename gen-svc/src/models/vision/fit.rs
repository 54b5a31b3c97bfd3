//! Whether an image processor's results suit a tower.

use tandem_images::{ImagePlan, Layout, Processor};

use super::geometry::Geometry;
use super::tower::{Positions, TableOrder, Tower};

/// Sides of images whose plans are checked.
const SIDES: [(usize, usize); 4] = [(256, 256), (1024, 768), (300, 1000), (64, 48)];

impl Tower {
    /// Returns what does not suit, if anything. Sides that the processor refuses are left out.
    pub(super) fn mismatch(&self, processor: &Processor) -> Option<String> {
        let plans =
            SIDES.iter().filter_map(|&(width, height)| Some((width, height, processor.plan(width, height).ok()?)));
        plans
            .filter_map(|(width, height, plan)| {
                Some(format!("{}, for an image of {width} x {height} pixels", self.mismatch_of(&plan)?))
            })
            .next()
    }

    fn mismatch_of(&self, plan: &ImagePlan) -> Option<String> {
        let (side, merge) = (self.patches.side, self.head.pool.merge());
        let (tiles, length) = match plan.layout {
            Layout::Tiles { .. } | Layout::Crops { .. } => (plan.shape[0], None),
            Layout::Whole { .. } => (1, None),
            Layout::Patches { .. } | Layout::Grid { .. } => (1, plan.shape.get(1).copied()),
        };
        let numbers = self.patches.matrix.columns;
        if let Some(found) = length.filter(|found| *found != numbers) {
            return Some(format!("the processor has {found} numbers for a patch, the tower {numbers}"));
        }
        let [height, width] = [plan.shape.len().saturating_sub(2), plan.shape.len() - 1].map(|axis| plan.shape[axis]);
        if length.is_none() && (height % side > 0 || width % side > 0) {
            return Some(format!("the processor's {width} x {height} pixels are not patches of {side} x {side}"));
        }
        let geometry = Geometry::of(&plan.layout, &plan.shape, side, merge);
        let patches = geometry.places.len();
        if let Positions::Table { shape, order: TableOrder::Index, .. } = &self.positions {
            let places = shape.iter().product::<usize>() / self.hidden - usize::from(self.class_token.is_some());
            if patches != places {
                return Some(format!("the processor has {patches} patches, the tower {places} positions"));
            }
        }
        let (found, features) = (plan.expansion.tokens, tiles * patches / (merge * merge));
        (found != features).then(|| format!("the processor has {found} image tokens, the tower {features} features"))
    }
}
