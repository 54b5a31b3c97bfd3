//! Products of rows with the matrices of their experts.
//!
//! libtorch has one operation for all experts. Where it has no kernel for that, it makes a product per expert.
//! On a GPU, the host then waits in each call, to read the ends of the experts' rows. There, they are read once
//! for all products of a layer, which are made here. A layer's experts are known after the layer before it, so
//! that no step can have fewer reads than layers.
//!
//! Shapes: X experts, R rows, sorted by their experts, O outputs, I inputs.

use tch::{Device, Kind, Tensor};

use crate::device;
use crate::error::Error;
use crate::target::TorchTarget;

/// The compute capabilities of GPUs, without their minor numbers, that have a kernel for all experts.
const WITH_KERNEL: [i32; 2] = [9, 10];

/// The products of experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Products {
    /// libtorch makes all of them in one call.
    Grouped,
    /// Each is a separate call. The host reads the ends of the experts' rows.
    Separate,
}

impl Products {
    pub(super) fn of(TorchTarget { device, dtype, separate_experts, .. }: TorchTarget) -> Self {
        let has_kernel = || {
            let capability = device::compute_capability(device);
            dtype == Kind::BFloat16 && capability.is_some_and(|major| WITH_KERNEL.contains(&major))
        };
        // On a CPU, a read is no wait.
        if !separate_experts && (device == Device::Cpu || has_kernel()) { Self::Grouped } else { Self::Separate }
    }
}

/// The experts of the rows of a product.
#[derive(Debug)]
pub(super) struct Sorted {
    /// `[R]`, ascending.
    pub(super) experts: Tensor,
    ends: Ends,
}

/// The ends of the rows of each expert.
#[derive(Debug)]
enum Ends {
    /// `[X]`
    OnDevice(Tensor),
    /// X numbers.
    OnHost(Vec<i32>),
}

impl Sorted {
    /// Creates the experts of rows, `[R]`, whose ends are `[X]`.
    pub(super) fn new(experts: Tensor, ends: Tensor) -> Self {
        Self { experts, ends: Ends::OnDevice(ends) }
    }

    /// Reads the ends, so that products do not. The host waits for the device.
    pub(super) fn read(self) -> Result<Self, Error> {
        let Ends::OnDevice(ends) = &self.ends else { return Ok(self) };
        let mut numbers = vec![0; ends.numel()];
        ends.f_to_device(Device::Cpu)?.f_copy_data(&mut numbers, ends.numel())?;
        Ok(Self { ends: Ends::OnHost(numbers), ..self })
    }

    /// Multiplies each row with the matrix of its expert: `[R, I], [X, O, I] -> [R, O]`
    pub(super) fn product(&self, x: &Tensor, matrices: &Tensor) -> Result<Tensor, Error> {
        let matrices = matrices.f_transpose(1, 2)?; // [X, I, O]
        match &self.ends {
            Ends::OnDevice(ends) => Ok(x.f_internal_grouped_mm(&matrices, Some(ends), None, None)?),
            Ends::OnHost(ends) => separate(x, &matrices, ends),
        }
    }
}

/// Makes a product for each expert that has rows: `[R, I], [X, I, O] -> [R, O]`
fn separate(x: &Tensor, matrices: &Tensor, ends: &[i32]) -> Result<Tensor, Error> {
    let product = Tensor::f_empty([x.size2()?.0, matrices.size3()?.2], (x.f_kind()?, x.device()))?;
    let mut start = 0;
    for (expert, end) in (0..).zip(ends.iter().map(|&end| i64::from(end))) {
        let rows = |all: &Tensor| all.f_narrow(0, start, end - start);
        if start < end {
            drop(rows(x)?.f_mm_out(&rows(&product)?, &matrices.f_select(0, expert)?)?);
        }
        start = end;
    }
    Ok(product)
}
