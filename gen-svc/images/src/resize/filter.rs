//! The kernels.

use std::f64::consts::PI;

/// The kernel that weighs the pixels of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filter {
    /// Windowed sinc over 6 pixels.
    Lanczos,
    /// Linear, over 2 pixels.
    Bilinear,
    /// Cubic with a = -0.5, over 4 pixels.
    Bicubic,
}

impl Filter {
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
