//! Computes the tower of a description with libtorch.
//!
//! Shapes: n tiles or pictures of a run, N patches of each, with a class token one more; C, H, D, E
//! as in the description.

use std::collections::VecDeque;

use tandem_images::PreparedImage;
use tch::{Kind, Tensor};

use super::geometry::{Geometry, Windows, neighbours, whole_patches};
use super::tower::{Axis, Positions, Rotary, TableOrder, Tower};
use crate::device;
use crate::error::Error;
use crate::models::features::Features;
use crate::models::torch::load::Loader;
use crate::weights::{ModelFile, TorchTarget};

mod block;
mod head;
mod parts;
mod run;

use block::{Block, Rotation};
use head::Head;
use parts::{Linear, Norm};
use run::{Group, Part, Slicing, Stage};

/// The most patches of a slice on a GPU, by default.
const SLICE_PATCHES: usize = 1024;
/// The same on a CPU, which takes longer for them: running outputs wait for one slice.
const CPU_SLICE_PATCHES: usize = 256;

/// A loaded tower.
#[derive(Debug)]
pub struct TorchTower {
    tower: Tower,
    target: TorchTarget,
    patches: Linear,
    class_token: Option<Tensor>,
    table: Option<Tensor>,
    input_norm: Option<Norm>,
    blocks: Vec<Block>,
    final_norm: Option<Norm>,
    head: Head,
    deep: Vec<(usize, Head)>,
    slice_patches: usize,
}

/// An image in computation. It is computed in slices.
#[derive(Debug)]
pub struct TowerRun {
    geometry: Geometry,
    windows: Option<Windows>,
    rotation: Option<Rotation>,
    /// The embeddings of positions, `[N, C]`.
    positions: Option<Tensor>,
    /// The groups of tiles that are not computed, `[n, N, P]` each.
    groups: VecDeque<Tensor>,
    current: Option<Group>,
    /// The computed rows, `[rows, E]`: of the head, then of each deep head.
    rows: Vec<Vec<Tensor>>,
    tokens_per_slice: usize,
}

impl TorchTower {
    /// Returns the unused memory that libtorch keeps to the device.
    pub(crate) fn free_cache(&self) {
        device::free_cache(self.target.device);
    }

    /// Loads the tensors.
    pub(super) fn load(tower: Tower, file: &ModelFile, target: TorchTarget) -> Result<Self, Error> {
        let loader = Loader::new(file, target);
        let table = match &tower.positions {
            Positions::None => None,
            Positions::Table { name, shape, .. } => {
                Some(loader.tensor(name, shape)?.f_view([-1, tower.hidden as i64])?)
            }
            Positions::Axes { name, size } => Some(loader.tensor(name, &[2, *size, tower.hidden])?),
            Positions::Interpolated { name, side } => Some(loader.tensor(name, &[side * side, tower.hidden])?),
        };
        let vector = |name: &String| loader.tensor(name, &[1, 1, tower.hidden]);
        let norm = |norm| Norm::load(&loader, norm);
        let deep = tower.deep.iter().map(|(block, head)| Ok((*block, Head::load(&loader, head)?)));
        Ok(Self {
            patches: Linear::load_patches(&loader, &tower.patches)?,
            class_token: tower.class_token.as_ref().map(vector).transpose()?,
            table,
            input_norm: tower.input_norm.as_ref().map(norm).transpose()?,
            blocks: tower.blocks.iter().map(|block| Block::load(&loader, block)).collect::<Result<_, _>>()?,
            final_norm: tower.final_norm.as_ref().map(norm).transpose()?,
            head: Head::load(&loader, &tower.head)?,
            deep: deep.collect::<Result<_, Error>>()?,
            slice_patches: if target.device == tch::Device::Cpu { CPU_SLICE_PATCHES } else { SLICE_PATCHES },
            tower,
            target,
        })
    }

    /// Sets the most patches of a slice. A window, or a tile with a class token, is not divided.
    pub fn set_slice_patches(&mut self, patches: usize) {
        self.slice_patches = patches.max(1);
    }

    /// Starts the computation of an image.
    ///
    /// # Errors
    /// libtorch's.
    pub fn start(&self, image: &PreparedImage) -> Result<TowerRun, Error> {
        let merge = self.tower.head.pool.merge();
        let side = self.tower.patches.side;
        let geometry = Geometry::of(&image.plan.layout, &image.plan.shape, side, merge);
        let windows = self.tower.window.map(|side| geometry.windows(side, merge));
        let patches = self.to_patches(image)?;
        let slicing = self.slicing(&geometry, windows.as_ref());
        let (tiles, slices) = (slicing.tiles(), slicing.slices(&self.stages()));
        let rows = (tiles as usize).min(image.plan.shape[0].max(1)) * geometry.places.len();
        let rotation = self.tower.rotary.as_ref().map(|rotary| self.rotation(rotary, &geometry, windows.as_ref()));
        Ok(TowerRun {
            rotation: rotation.transpose()?,
            positions: self.positions(&geometry)?,
            groups: patches.f_split(tiles, 0)?.into(),
            geometry,
            windows,
            current: None,
            rows: (0..=self.deep.len()).map(|_| Vec::new()).collect(),
            tokens_per_slice: rows / slices.max(1),
        })
    }

    fn slicing<'a>(&self, geometry: &'a Geometry, windows: Option<&'a Windows>) -> Slicing<'a> {
        let merge = self.tower.head.pool.merge();
        Slicing { patches: self.slice_patches, geometry, windows, merge, has_class_token: self.class_token.is_some() }
    }

    /// Returns the stages, in order.
    fn stages(&self) -> VecDeque<Stage> {
        let blocks = self.blocks.iter().enumerate().flat_map(|(index, block)| {
            let stages = match block.has_windows() {
                true => vec![Stage::Window(index)],
                false => vec![Stage::Project(index), Stage::Attend(index)],
            };
            let deep = self.deep.iter().enumerate().filter(move |(_, (after, _))| *after == index);
            stages.into_iter().chain(deep.map(|(at, _)| Stage::Deep(at)))
        });
        [Stage::Embed].into_iter().chain(blocks).chain([Stage::Head]).collect()
    }

    /// `[n, N, P]`
    fn to_patches(&self, image: &PreparedImage) -> Result<Tensor, Error> {
        let pixels =
            Tensor::f_from_slice(&image.pixels())?.f_to_device(self.target.device)?.f_to_kind(self.target.dtype)?;
        let (p, columns) = (self.tower.patches.side as i64, self.tower.patches.matrix.columns as i64);
        let is_cut =
            matches!(image.plan.layout, tandem_images::Layout::Patches { .. } | tandem_images::Layout::Grid { .. });
        if is_cut {
            return Ok(pixels.f_view([1, -1, columns])?);
        }
        let sides = &image.plan.shape[image.plan.shape.len() - 2..];
        let [height, width] = whole_patches(sides, self.tower.patches.side).map(|count| count as i64);
        let pixels = pixels.f_view([-1, 3, sides[0] as i64, sides[1] as i64])?;
        // As in a convolution: pixels beside the last whole patch are left out.
        let whole = pixels.f_narrow(2, 0, height * p)?.f_narrow(3, 0, width * p)?;
        let cut = whole.f_reshape([-1, 3, height, p, width, p])?.f_permute([0, 2, 4, 1, 3, 5])?;
        Ok(cut.f_reshape([-1, height * width, columns])?)
    }

    /// The angles of each patch, in the order of computation.
    fn rotation(&self, rotary: &Rotary, geometry: &Geometry, windows: Option<&Windows>) -> Result<Rotation, Error> {
        let merged = self.tower.head.pool.merge().pow(2);
        let places: Vec<[usize; 2]> = match windows {
            None => geometry.places.clone(),
            Some(windows) => {
                let cell = |cell: &usize| geometry.places[cell * merged..(cell + 1) * merged].iter().copied();
                windows.order.iter().flat_map(cell).collect()
            }
        };
        let angle = |[row, column]: [usize; 2]| {
            rotary.pairs.iter().map(move |(axis, frequency)| match axis {
                Axis::Row => row as f32 * frequency,
                Axis::Column => column as f32 * frequency,
            })
        };
        let angles: Vec<f32> = places.into_iter().flat_map(angle).collect();
        Rotation::new(&angles, rotary, self.target)
    }

    /// Embeds some patches, `[n, N, P] -> [n, M, C]`, and adds their positions.
    fn embed(&self, patches: &Tensor, part: &Part, run: &TowerRun) -> Result<Tensor, Error> {
        let super::tower::Patches { scale, offset, .. } = self.tower.patches;
        let patches = part.rows(patches)?;
        let patches =
            if (scale, offset) == (1.0, 0.0) { patches } else { patches.f_mul_scalar(scale)?.f_add_scalar(offset)? };
        let mut x = self.patches.forward(&patches)?;
        if let Some(token) = &self.class_token {
            let (count, _, hidden) = x.size3()?;
            x = Tensor::f_cat(&[&token.f_expand([count, 1, hidden], false)?, &x], 1)?;
        }
        if let Some(positions) = &run.positions {
            // With a class token, the slice has all patches.
            x = x.f_add(&positions.f_narrow(0, part.start, x.size3()?.1)?)?;
        }
        self.input_norm.as_ref().map_or(Ok(x.shallow_clone()), |norm| norm.forward(&x))
    }

    /// `[N, C]`
    fn positions(&self, geometry: &Geometry) -> Result<Option<Tensor>, Error> {
        let Some(table) = &self.table else { return Ok(None) };
        let Geometry { rows, columns, places } = geometry;
        let select = |table: &Tensor, indexes: Vec<i64>| {
            Ok::<_, Error>(table.f_index_select(0, &Tensor::f_from_slice(&indexes)?.f_to_device(self.target.device)?)?)
        };
        let index = |index: usize| index as i64;
        Ok(Some(match &self.tower.positions {
            Positions::None => return Ok(None),
            Positions::Table { order: TableOrder::Index, .. } => table.shallow_clone(),
            Positions::Table { order: TableOrder::Fraction, shape, .. } => {
                let side = shape[0].isqrt();
                let (down, across) = (fractions(*rows, side)?, fractions(*columns, side)?);
                let row = |[row, column]: &[usize; 2]| down[*row] * index(side) + across[*column];
                select(table, places.iter().map(row).collect())?
            }
            Positions::Axes { .. } => {
                let of_columns = select(&table.f_get(0)?, places.iter().map(|[_, column]| index(*column)).collect())?;
                of_columns.f_add(&select(&table.f_get(1)?, places.iter().map(|[row, _]| index(*row)).collect())?)?
            }
            Positions::Interpolated { side, .. } => {
                let mut sum = None;
                for (indexes, weights) in neighbours(geometry, *side) {
                    let weights = Tensor::f_from_slice(&weights)?
                        .f_to_device(self.target.device)?
                        .f_to_kind(self.target.dtype)?;
                    let part = select(table, indexes)?.f_mul(&weights.f_unsqueeze(1)?)?;
                    sum = Some(sum.map_or(Ok(part.shallow_clone()), |sum: Tensor| sum.f_add(&part))?);
                }
                return Ok(sum);
            }
        }))
    }

    /// Reorders the merged cells of `[1, N, C]`.
    fn select_cells(&self, x: &Tensor, order: &[usize]) -> Result<Tensor, Error> {
        let (_, patches, hidden) = x.size3()?;
        let order: Vec<i64> = order.iter().map(|&cell| cell as i64).collect();
        let order = Tensor::f_from_slice(&order)?.f_to_device(self.target.device)?;
        let cells = x.f_view([order.size()[0], -1, hidden])?;
        Ok(cells.f_index_select(0, &order)?.f_reshape([1, patches, hidden])?)
    }

    /// Returns the rows of a head for some rows of patches, `[rows, E]`.
    fn head(
        &self,
        (norm, head): (Option<&Norm>, &Head),
        x: &Tensor,
        part: &Part,
        run: &TowerRun,
    ) -> Result<Tensor, Error> {
        let x = match &self.class_token {
            None => part.rows(x)?,
            Some(_) => part.rows(&x.f_narrow(1, 1, x.size3()?.1 - 1)?)?,
        };
        let x = norm.map_or(Ok(x.shallow_clone()), |norm| norm.forward(&x))?;
        let columns = run.geometry.columns;
        head.forward(&x, [part.count as usize / columns.max(1), columns])
    }

    /// Returns a head's rows in the order of the image.
    fn in_order(&self, rows: Tensor, run: &TowerRun) -> Result<Tensor, Error> {
        let Some(Windows { order, .. }) = &run.windows else { return Ok(rows) };
        let mut places = vec![0; order.len()];
        order.iter().zip(0..).for_each(|(&cell, at)| places[cell] = at);
        Ok(rows.f_index_select(0, &Tensor::f_from_slice(&places)?.f_to_device(self.target.device)?)?)
    }

    /// Computes a slice. The rows of heads are joined along the first dimension, the others along the
    /// second.
    fn slice(&self, group: &Group, stage: Stage, part: &Part, run: &TowerRun) -> Result<(Vec<Tensor>, i64), Error> {
        let x = &group.x;
        Ok(match stage {
            Stage::Embed => (vec![self.embed(x, part, run)?], 1),
            Stage::Project(index) | Stage::Attend(index) | Stage::Window(index) => {
                (group.block(&self.blocks[index], stage, part, run.rotation.as_ref())?, 1)
            }
            Stage::Deep(index) => (vec![self.head((None, &self.deep[index].1), x, part, run)?], 0),
            Stage::Head => (vec![self.head((self.final_norm.as_ref(), &self.head), x, part, run)?], 0),
        })
    }
}

/// Returns the table indexes of `count` patches in a row, for a table of `side` patches in a row: the
/// number of multiples of 1 / side up to each patch's fractional coordinate. libtorch computes them as
/// for transformers: their rounding in 32-bit floats makes some neighbours equal.
fn fractions(count: usize, side: usize) -> Result<Vec<i64>, Error> {
    let (step, options) = (1.0 / side as f64, (Kind::Float, tch::Device::Cpu));
    let bounds = Tensor::f_arange_start_step(step, 1.0, step, options)?;
    let coordinates = Tensor::f_arange(count as i64, options)?.f_mul_scalar(f64::from(1.0 / count as f32))?;
    Ok(coordinates.f_clamp_max(1.0 - 1e-6)?.f_bucketize(&bounds, false, true)?.try_into()?)
}

impl TowerRun {
    /// Returns how many tokens of text one slice counts as. All slices of an image count as its patches.
    #[must_use]
    pub fn slice_tokens(&self) -> usize {
        self.tokens_per_slice
    }

    /// Computes one slice. Returns the features after the last one.
    ///
    /// # Errors
    /// libtorch's.
    pub fn advance(&mut self, tower: &TorchTower) -> Result<Option<Features>, Error> {
        let slicing = tower.slicing(&self.geometry, self.windows.as_ref());
        let mut group = match self.current.take() {
            Some(group) => group,
            None => match self.groups.pop_front() {
                Some(patches) => Group::new(patches, tower.stages(), &slicing),
                None => return self.finish().map(Some),
            },
        };
        let Some((stage, part)) = group.next() else { return Err(Error::EngineFailed) };
        let (results, dimension) = tower.slice(&group, stage, &part, self)?;
        let has_more = match group.add(results, dimension)? {
            None => true,
            Some(results) => {
                self.end_stage(tower, &mut group, stage, results)?;
                group.start_next(&tower.slicing(&self.geometry, self.windows.as_ref()))
            }
        };
        if has_more {
            self.current = Some(group);
        } else if self.groups.is_empty() {
            return self.finish().map(Some);
        }
        Ok(None)
    }

    fn end_stage(
        &mut self,
        tower: &TorchTower,
        group: &mut Group,
        stage: Stage,
        mut results: Vec<Tensor>,
    ) -> Result<(), Error> {
        let head = match stage {
            Stage::Head => 0,
            Stage::Deep(index) => 1 + index,
            _ => {
                if let (Stage::Embed, Some(windows), Some(x)) = (stage, &self.windows, results.first_mut()) {
                    *x = tower.select_cells(x, &windows.order)?;
                }
                group.keep(stage, results);
                return Ok(());
            }
        };
        for rows in results {
            let rows = tower.in_order(rows, self)?;
            self.rows[head].push(rows);
        }
        Ok(())
    }

    fn finish(&self) -> Result<Features, Error> {
        let mut all = self.rows.iter().map(|rows| {
            let rows = Tensor::f_cat(rows, 0)?.f_to_kind(Kind::Float)?.f_contiguous()?.f_to_device(tch::Device::Cpu)?;
            let mut values = vec![0.0; rows.numel()];
            rows.f_copy_data(&mut values, rows.numel())?;
            Ok::<_, Error>((rows.size()[1] as usize, values))
        });
        let (width, rows) = all.next().unwrap_or_else(|| Ok((0, Vec::new())))?;
        Ok(Features { width, rows, deep: all.map(|rows| Ok(rows?.1)).collect::<Result<_, Error>>()? })
    }
}
