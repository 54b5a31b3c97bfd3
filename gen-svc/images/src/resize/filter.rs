//! The filters, and the kernels of the filters that weigh pixels.

use std::f64::consts::PI;

/// How a pixel of the result is computed from the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filter {
    /// The pixel at its center. Not antialiased.
    Nearest,
    /// The pixel at its upper left corner. Not antialiased.
    NearestCorner,
    /// Linear, over 2 pixels.
    Bilinear,
    /// Cubic with a = -0.5, over 4 pixels.
    Bicubic,
    /// Windowed sinc over 6 pixels.
    Lanczos,
}

/// The kernel that weighs the pixels of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kernel {
    Bilinear,
    Bicubic,
    Lanczos,
}

impl Filter {
    /// Returns the kernel, or `None` if each result is one pixel of the source.
    pub(super) fn kernel(self) -> Option<Kernel> {
        match self {
            Self::Nearest | Self::NearestCorner => None,
            Self::Bilinear => Some(Kernel::Bilinear),
            Self::Bicubic => Some(Kernel::Bicubic),
            Self::Lanczos => Some(Kernel::Lanczos),
        }
    }
}

impl Kernel {
    /// How far the kernel reaches from its center, in pixels.
    pub(super) fn reach(self) -> f64 {
        match self {
            Self::Bilinear => 1.0,
            Self::Bicubic => 2.0,
            Self::Lanczos => 3.0,
        }
    }

    /// Returns the weight at a distance from the kernel's center.
    pub(super) fn at(self, x: f64) -> f64 {
        match self {
            Self::Bilinear => (1.0 - x.abs()).max(0.0),
            Self::Bicubic => cubic(x.abs()),
            Self::Lanczos if (-3.0..3.0).contains(&x) => sinc(x) * sinc(x / 3.0),
            Self::Lanczos => 0.0,
        }
    }
}

fn cubic(x: f64) -> f64 {
    const A: f64 = -0.5;
    if x < 1.0 {
        ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        (((x - 5.0) * x + 8.0) * x - 4.0) * A
    } else {
        0.0
    }
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 { 1.0 } else { (PI * x).sin() / (PI * x) }
}
