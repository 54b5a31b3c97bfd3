//! Computes the tower of a description with libtorch.
//!
//! Shapes: n tiles or pictures of a run, N patches of each, with a class token one more; C, H, D, E
//! as in the description.

use std::collections::VecDeque;

use tandem_core::error::StepError;
use tandem_core::models::decoder::RequiredTensor;
use tandem_core::models::vision;
use tandem_core::models::vision::geometry::{Geometry, Windows, neighbours, whole_patches};
use tandem_core::models::vision::tower::{Axis, Positions, Rotary, TableOrder, Tower};
use tandem_core::models::{self, Features};
use tandem_core::weights::ModelFile;
use tandem_images::PreparedImage;
use tch::{Kind, Tensor};

use crate::decoder::load::Loader;
use crate::device;
use crate::device::event::Event;
use crate::device::in_flight::InFlight;
use crate::device::upload::{Later, Upload};
use crate::error::Error;
use crate::target::TorchTarget;

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
    /// `[1, 1, E]`
    own_row: Option<Tensor>,
    slice_patches: usize,
    /// The image that is computed through the port.
    current: Option<TowerRun>,
}

/// An image in computation. It is computed in slices.
#[derive(Debug)]
pub struct TowerRun {
    geometry: Geometry,
    windows: Option<Windows>,
    inputs: Inputs,
    /// The groups of tiles that are not computed, `[n, N, P]` each.
    groups: VecDeque<Tensor>,
    current: Option<Group>,
    /// The computed rows, `[rows, E]`: of the head, then of each deep head.
    rows: Vec<Vec<Tensor>>,
    tokens_per_slice: usize,
}

/// The inputs of an image, which travel to the device in one upload.
#[derive(Debug)]
struct Inputs {
    /// `[n, N, P]`
    patches: Tensor,
    rotation: Option<Rotation>,
    /// The embeddings of positions, `[N, C]`.
    positions: Option<Tensor>,
    /// The merged cells in the order of windows, and the place of each there.
    orders: Option<[Tensor; 2]>,
    /// The row of each image token.
    places: Option<Tensor>,
}

impl TorchTower {
    /// Loads the tower of a model with images. Returns None for a model without.
    ///
    /// # Errors
    /// The tower or one of its settings is not supported, or a tensor is missing or misshapen.
    pub fn open(file: &ModelFile, target: TorchTarget) -> Result<Option<Self>, Error> {
        vision::describe(file)?.map(|tower| Self::load(tower, file, target)).transpose()
    }

    /// Returns the bytes of the weights of a model's tower. 0 for a model without.
    ///
    /// # Errors
    /// The tower is not supported.
    pub(crate) fn weight_bytes(file: &ModelFile, target: TorchTarget) -> Result<u64, Error> {
        let Some(tower) = vision::describe(file)? else { return Ok(0) };
        let numbers: u64 = tower.tensors().iter().map(|(_, shape)| shape.iter().product::<usize>() as u64).sum();
        Ok(numbers.saturating_mul(target.dtype.elt_size_in_bytes() as u64))
    }

    /// Loads the tensors.
    fn load(tower: Tower, file: &ModelFile, target: TorchTarget) -> Result<Self, Error> {
        let in_flight = InFlight::default();
        let loader = Loader::new(file, target, &in_flight);
        let table = match &tower.positions {
            Positions::None => None,
            Positions::Table { name, shape, .. } => {
                Some(loader.tensor(name, shape)?.f_view([-1, tower.hidden as i64])?)
            }
            Positions::Axes { name, size } => Some(loader.tensor(name, &[2, *size, tower.hidden])?),
            Positions::Interpolated { name, side } => Some(loader.tensor(name, &[side * side, tower.hidden])?),
        };
        let vector = |(name, shape): &RequiredTensor| Ok::<_, Error>(loader.tensor(name, shape)?.f_view([1, 1, -1])?);
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
            own_row: tower.own_row.as_ref().map(vector).transpose()?,
            slice_patches: if target.device == tch::Device::Cpu { CPU_SLICE_PATCHES } else { SLICE_PATCHES },
            tower,
            target,
            current: None,
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
        let inputs = self.inputs(image, &geometry, windows.as_ref())?;
        let slicing = self.slicing(&geometry, windows.as_ref());
        let (tiles, slices) = (slicing.tiles(), slicing.slices(&self.stages()));
        let rows = (tiles as usize).min(image.plan.shape[0].max(1)) * geometry.places.len();
        Ok(TowerRun {
            groups: inputs.patches.f_split(tiles, 0)?.into(),
            inputs,
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

    fn inputs(&self, image: &PreparedImage, geometry: &Geometry, windows: Option<&Windows>) -> Result<Inputs, Error> {
        let mut upload = Upload::default();
        let pixels = upload.add(image.pixels());
        let rotary = self.tower.rotary.as_ref();
        let rotation = rotary.map(|rotary| {
            let angles = self.angles(rotary, geometry, windows);
            Rotation::plan(angles, rotary, self.target, &mut upload)
        });
        let positions = self.positions(geometry, &mut upload)?;
        let orders = windows.map(|windows| orders(windows, &mut upload));
        let places = image.plan.order.as_ref();
        let places = places.map(|order| upload.add(order.places.iter().map(|&place| i64::from(place))));
        let sent = upload.send(self.target.device)?;
        Ok(Inputs {
            patches: self.to_patches(&sent.get(pixels)?, image)?,
            rotation: rotation.map(|rotation| rotation(&sent)).transpose()?,
            positions: positions.map(|positions| positions(&sent)).transpose()?,
            orders: orders.map(|orders| orders(&sent)).transpose()?,
            places: places.map(|places| sent.get(places)).transpose()?,
        })
    }

    /// Cuts the pixels of an image: `[n, N, P]`
    fn to_patches(&self, pixels: &Tensor, image: &PreparedImage) -> Result<Tensor, Error> {
        let pixels = pixels.f_to_kind(self.target.dtype)?;
        let (p, columns) = (self.tower.patches.side as i64, self.tower.patches.matrix.columns as i64);
        let is_cut =
            matches!(image.plan.layout, tandem_images::Layout::Patches { .. } | tandem_images::Layout::Grid { .. });
        if is_cut {
            return Ok(pixels.f_view([1, -1, columns])?);
        }
        let sides = &image.plan.shape[image.plan.shape.len() - 2..];
        let [height, width] = whole_patches(sides, self.tower.patches.side).map(|count| count as i64);
        let pixels = pixels.f_view([-1, 3, sides[0] as i64, sides[1] as i64])?;
        // As in a convolution: pixels after the last whole patch are left out.
        let whole = pixels.f_narrow(2, 0, height * p)?.f_narrow(3, 0, width * p)?;
        let cut = whole.f_reshape([-1, 3, height, p, width, p])?.f_permute([0, 2, 4, 1, 3, 5])?;
        Ok(cut.f_reshape([-1, height * width, columns])?)
    }

    /// The angles of each patch, in the order of computation.
    fn angles(&self, rotary: &Rotary, geometry: &Geometry, windows: Option<&Windows>) -> Vec<f32> {
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
        places.into_iter().flat_map(angle).collect()
    }

    /// Embeds some patches, `[n, N, P] -> [n, M, C]`, and adds their positions.
    fn embed(&self, patches: &Tensor, part: &Part, run: &TowerRun) -> Result<Tensor, Error> {
        let tandem_core::models::vision::tower::Patches { scale, offset, .. } = self.tower.patches;
        let patches = part.rows(patches)?;
        let patches =
            if (scale, offset) == (1.0, 0.0) { patches } else { patches.f_mul_scalar(scale)?.f_add_scalar(offset)? };
        let mut x = self.patches.forward(&patches)?;
        if let Some(token) = &self.class_token {
            let (count, _, hidden) = x.size3()?;
            x = Tensor::f_cat(&[&token.f_expand([count, 1, hidden], false)?, &x], 1)?;
        }
        if let Some(positions) = &run.inputs.positions {
            // With a class token, the slice has all patches.
            x = x.f_add(&positions.f_narrow(0, part.start, x.size3()?.1)?)?;
        }
        self.input_norm.as_ref().map_or(Ok(x.shallow_clone()), |norm| norm.forward(&x))
    }

    /// Plans the embeddings of positions, `[N, C]`.
    fn positions(&self, geometry: &Geometry, upload: &mut Upload) -> Result<Option<Later<Tensor>>, Error> {
        let Some(table) = &self.table else { return Ok(None) };
        let table = table.shallow_clone();
        let Geometry { rows, columns, places } = geometry;
        let index = |index: usize| index as i64;
        Ok(Some(match &self.tower.positions {
            Positions::None => return Ok(None),
            Positions::Table { order: TableOrder::Index, .. } => Box::new(move |_| Ok(table)),
            Positions::Table { order: TableOrder::Fraction, shape, .. } => {
                let side = shape[0].isqrt();
                let (down, across) = (fractions(*rows, side)?, fractions(*columns, side)?);
                let row = |[row, column]: &[usize; 2]| down[*row] * index(side) + across[*column];
                let selected = upload.add(places.iter().map(row));
                Box::new(move |sent| Ok(table.f_index_select(0, &sent.get(selected)?)?))
            }
            Positions::Axes { .. } => {
                let of_columns = upload.add(places.iter().map(|[_, column]| index(*column)));
                let of_rows = upload.add(places.iter().map(|[row, _]| index(*row)));
                Box::new(move |sent| {
                    let select =
                        |axis, part| table.f_get(axis)?.f_index_select(0, &sent.get(part)?).map_err(Error::from);
                    Ok(select(0, of_columns)?.f_add(&select(1, of_rows)?)?)
                })
            }
            Positions::Interpolated { side, .. } => interpolated(geometry, *side, (table, self.target), upload),
        }))
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

    /// Computes a slice. The rows of heads are joined along the first dimension, the others along the
    /// second.
    fn slice(&self, group: &Group, stage: Stage, part: &Part, run: &TowerRun) -> Result<(Vec<Tensor>, i64), Error> {
        let x = &group.x;
        Ok(match stage {
            Stage::Embed => (vec![self.embed(x, part, run)?], 1),
            Stage::Project(index) | Stage::Attend(index) | Stage::Window(index) => {
                (group.block(&self.blocks[index], stage, part, run.inputs.rotation.as_ref())?, 1)
            }
            Stage::Deep(index) => (vec![self.head((None, &self.deep[index].1), x, part, run)?], 0),
            Stage::Head => (vec![self.head((self.final_norm.as_ref(), &self.head), x, part, run)?], 0),
        })
    }
}

/// Reorders the merged cells of `[1, N, C]`.
fn select_cells(x: &Tensor, order: &Tensor) -> Result<Tensor, Error> {
    let (_, patches, hidden) = x.size3()?;
    let cells = x.f_view([order.size()[0], -1, hidden])?;
    Ok(cells.f_index_select(0, order)?.f_reshape([1, patches, hidden])?)
}

/// Plans the merged cells in the order of windows, and the place of each there.
fn orders(Windows { order, .. }: &Windows, upload: &mut Upload) -> Later<[Tensor; 2]> {
    let mut places = vec![0_i64; order.len()];
    order.iter().zip(0..).for_each(|(&cell, at)| places[cell] = at);
    let order = upload.add(order.iter().map(|&cell| cell as i64));
    let places = upload.add(places);
    Box::new(move |sent| Ok([sent.get(order)?, sent.get(places)?]))
}

/// Plans the embeddings of positions between the rows of a table, `[N, C]`.
fn interpolated(
    geometry: &Geometry,
    side: usize,
    (table, target): (Tensor, TorchTarget),
    upload: &mut Upload,
) -> Later<Tensor> {
    let corners = neighbours(geometry, side).map(|(indexes, weights)| (upload.add(indexes), upload.add(weights)));
    Box::new(move |sent| {
        let corner = |(indexes, weights)| {
            let weights = sent.column(weights)?.f_to_kind(target.dtype)?;
            Ok::<_, Error>(table.f_index_select(0, &sent.get(indexes)?)?.f_mul(&weights)?)
        };
        let [first, others @ ..] = corners;
        others.into_iter().try_fold(corner(first)?, |sum, next| Ok(sum.f_add(&corner(next)?)?))
    })
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

    /// Returns the bytes that are held between two slices.
    pub(crate) fn held_bytes(&self) -> usize {
        let of_groups = self.groups.iter().chain(self.current.iter().flat_map(Group::held));
        let tensors = of_groups.chain(self.rows.iter().flatten());
        tensors.map(|tensor| tensor.numel() * tensor.kind().elt_size_in_bytes()).sum()
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
                None => return self.finish(tower).map(Some),
            },
        };
        let Some((stage, part)) = group.next() else { return Err(Error::Step(StepError::Broken)) };
        let (results, dimension) = tower.slice(&group, stage, &part, self)?;
        let has_more = match group.add(results, dimension)? {
            None => true,
            Some(results) => {
                self.end_stage(&mut group, stage, results)?;
                group.start_next(&tower.slicing(&self.geometry, self.windows.as_ref()))
            }
        };
        if has_more {
            self.current = Some(group);
        } else if self.groups.is_empty() {
            return self.finish(tower).map(Some);
        }
        Ok(None)
    }

    fn end_stage(&mut self, group: &mut Group, stage: Stage, mut results: Vec<Tensor>) -> Result<(), Error> {
        let head = match stage {
            Stage::Head => 0,
            Stage::Deep(index) => 1 + index,
            _ => {
                if let (Stage::Embed, Some([order, _]), Some(x)) = (stage, &self.inputs.orders, results.first_mut()) {
                    *x = select_cells(x, order)?;
                }
                group.keep(stage, results);
                return Ok(());
            }
        };
        for rows in results {
            let rows = match &self.inputs.orders {
                Some([_, places]) => rows.f_index_select(0, places)?,
                None => rows,
            };
            self.rows[head].push(rows);
        }
        Ok(())
    }

    /// Puts the rows in the order of the image tokens.
    fn ordered(&self, rows: &[Tensor], tower: &TorchTower) -> Result<Tensor, Error> {
        let own = tower.own_row.as_ref().map(|row| row.f_view([1, -1])).transpose()?;
        let rows: Vec<&Tensor> = rows.iter().chain(&own).collect();
        let rows = Tensor::f_cat(&rows, 0)?;
        self.inputs.places.as_ref().map_or(Ok(rows.shallow_clone()), |places| Ok(rows.f_index_select(0, places)?))
    }

    fn finish(&self, tower: &TorchTower) -> Result<Features, Error> {
        let mut all = self.rows.iter().map(|rows| {
            let rows =
                self.ordered(rows, tower)?.f_to_kind(Kind::Float)?.f_contiguous()?.f_to_device(tch::Device::Cpu)?;
            let mut values = vec![0.0; rows.numel()];
            rows.f_copy_data(&mut values, rows.numel())?;
            Ok::<_, Error>((rows.size()[1] as usize, values))
        });
        let (width, rows) = all.next().unwrap_or_else(|| Ok((0, Vec::new())))?;
        Ok(Features { width, rows, deep: all.map(|rows| Ok(rows?.1)).collect::<Result<_, Error>>()? })
    }
}

impl models::Tower for TorchTower {
    fn start(&mut self, image: &PreparedImage) -> Result<(), StepError> {
        let _no_grad = tch::no_grad_guard();
        self.current = None;
        self.current = Some(Self::start(self, image)?);
        Ok(())
    }

    fn slice_tokens(&self) -> usize {
        self.current.as_ref().map_or(0, TowerRun::slice_tokens)
    }

    fn advance(&mut self) -> Result<Option<Features>, StepError> {
        let _no_grad = tch::no_grad_guard();
        let mut run = self.current.take().ok_or(StepError::Broken)?;
        let features = run.advance(self)?;
        // A GPU computes later.
        Event::record(self.target.device)?.map_or(Ok(()), Event::wait)?;
        self.current = features.is_none().then_some(run);
        Ok(features)
    }

    fn held_bytes(&self) -> usize {
        self.current.as_ref().map_or(0, TowerRun::held_bytes)
    }

    fn stop(&mut self) {
        self.current = None;
    }

    fn free_cache(&mut self) {
        device::free_cache(self.target.device);
    }
}
