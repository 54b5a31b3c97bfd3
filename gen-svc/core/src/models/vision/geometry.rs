//! The order and the coordinates of an image's patches.

use tandem_images::Layout;

/// The patches of a tile or a picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Geometry {
    /// Patches in a column, and in a row.
    pub rows: usize,
    pub columns: usize,
    /// The row and the column of each patch, in the order of the sequence.
    pub places: Vec<[usize; 2]>,
}

/// Groups of patches that attend to each other only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Windows {
    /// The index of each merged cell before the windows were formed, in the order of the windows.
    pub order: Vec<usize>,
    /// Consecutive windows of one size: how many there are, and their patches.
    pub groups: Vec<[usize; 2]>,
}

impl Geometry {
    /// Returns patches row by row.
    pub fn raster(rows: usize, columns: usize) -> Self {
        let places = (0..rows * columns).map(|i| [i / columns, i % columns]).collect();
        Self { rows, columns, places }
    }

    /// Returns patches block by block, each block of `side` x `side` patches.
    pub fn blocks(rows: usize, columns: usize, side: usize) -> Self {
        let cells = Self::raster(rows / side, columns / side).places;
        let inside = Self::raster(side, side).places;
        let place = |[row, column]: [usize; 2], [y, x]: [usize; 2]| [row * side + y, column * side + x];
        let places = cells.iter().flat_map(|cell| inside.iter().map(|at| place(*cell, *at))).collect();
        Self { rows, columns, places }
    }

    /// Returns the patches of an image, where a tile has `tile` patches in a row.
    pub fn of(layout: &Layout, shape: &[usize], side: usize, merge: usize) -> Self {
        match *layout {
            Layout::Tiles => {
                let [rows, columns] = whole_patches(shape, side);
                Self::raster(rows, columns)
            }
            Layout::Crops => {
                // The projector of Gemma 3 takes the sequence as a square, whatever the image's sides are.
                let [rows, columns] = whole_patches(shape, side);
                let root = (rows * columns).isqrt();
                if root * root == rows * columns { Self::raster(root, root) } else { Self::raster(rows, columns) }
            }
            Layout::Whole { height, width } => Self::raster(height / side, width / side),
            Layout::Patches { rows, columns } => Self::raster(rows, columns),
            Layout::Grid { rows, columns, .. } => Self::blocks(rows, columns, merge),
        }
    }

    /// Divides the merged cells of `merge` x `merge` patches into windows of `side` x `side` cells.
    /// Windows at the right and lower edge are smaller. Windows of one size are adjacent.
    pub fn windows(&self, side: usize, merge: usize) -> Windows {
        let (rows, columns) = (self.rows / merge, self.columns / merge);
        let starts = |end: usize| (0..end).step_by(side);
        let window = |top: usize, left: usize| -> Vec<usize> {
            let (bottom, right) = ((top + side).min(rows), (left + side).min(columns));
            (top..bottom).flat_map(|row| (left..right).map(move |column| row * columns + column)).collect()
        };
        let mut windows: Vec<_> =
            starts(rows).flat_map(|top| starts(columns).map(move |left| window(top, left))).collect();
        windows.sort_by_key(Vec::len);
        let same = windows.chunk_by(|one, next| one.len() == next.len());
        let groups = same.map(|group| [group.len(), group[0].len() * merge * merge]).collect();
        Windows { order: windows.concat(), groups }
    }
}

/// Returns the whole patches in a column and in a row of pixels of this shape.
pub fn whole_patches(shape: &[usize], side: usize) -> [usize; 2] {
    [shape[shape.len() - 2] / side, shape[shape.len() - 1] / side]
}

/// Returns the four neighbours of each patch in a table for `side` x `side` patches, with their
/// weights. The corners of both grids coincide.
pub fn neighbours(geometry: &Geometry, side: usize) -> [(Vec<i64>, Vec<f32>); 4] {
    let at = |place: usize, count: usize| {
        let last = (side - 1) as f32;
        let exact = if count > 1 { place as f32 * (last / (count - 1) as f32) } else { 0.0 };
        let low = exact.floor();
        (low as i64, ((low + 1.0).min(last)) as i64, exact - low)
    };
    let mut all: [(Vec<i64>, Vec<f32>); 4] = Default::default();
    for [row, column] in &geometry.places {
        let ((top, bottom, down), (left, right, across)) = (at(*row, geometry.rows), at(*column, geometry.columns));
        let corners = [
            (top, left, (1.0 - down) * (1.0 - across)),
            (top, right, (1.0 - down) * across),
            (bottom, left, down * (1.0 - across)),
            (bottom, right, down * across),
        ];
        for ((indexes, weights), (row, column, weight)) in all.iter_mut().zip(corners) {
            indexes.push(row * side as i64 + column);
            weights.push(weight);
        }
    }
    all
}
