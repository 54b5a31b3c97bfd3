//! Elementwise functions: exponential, hyperbolic tangent, sigmoid, softplus and the activations.
//! Every ISA level returns the same bits.

use crate::isa::{Arithmetic, Isa, Kernel, LANES};

/// The activation of a gate, applied before the gate multiplies the up projection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// x / (1 + exp(-x)).
    Silu,
    /// x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))).
    GeluTanh,
}

impl Activation {
    #[inline(always)]
    pub(crate) fn apply<V: Copy, A: Arithmetic<V>>(self, isa: A, x: V) -> V {
        match self {
            Self::Silu => silu(isa, x),
            Self::GeluTanh => gelu_tanh(isa, x),
        }
    }
}

/// The smallest argument with a normal result. Below it the exponential is zero.
const EXP_LOW: f32 = -87.336_54;
/// The largest argument that is computed. The exponential of a larger argument is clamped to this
/// result.
const EXP_HIGH: f32 = 88.376_26;

/// Returns the exponential, within 2 units in the last place.
#[inline(always)]
pub(crate) fn exp<V: Copy, A: Arithmetic<V>>(isa: A, x: V) -> V {
    let low = isa.splat(EXP_LOW);
    let within = isa.max(low, isa.min(isa.splat(EXP_HIGH), x));
    isa.select_less(x, low, isa.splat(0.0), exp_within(isa, within))
}

/// Returns the same as `exp` for arguments up to zero and for NaN, with fewer operations.
#[inline(always)]
pub(crate) fn exp_up_to_one<V: Copy, A: Arithmetic<V>>(isa: A, x: V) -> V {
    exp_above(isa, x, EXP_LOW)
}

/// Returns the same as `exp_up_to_one`, but zero for arguments below `low`, which is at least
/// `EXP_LOW`.
#[inline(always)]
pub(crate) fn exp_above<V: Copy, A: Arithmetic<V>>(isa: A, x: V, low: f32) -> V {
    isa.select_less(x, isa.splat(low), isa.splat(0.0), exp_within(isa, x))
}

/// Returns the exponential of an argument within `EXP_LOW` and `EXP_HIGH`. Unspecified for others.
///
/// Algorithm of Cephes' `expf`: a power of two times a polynomial over ±ln(2)/2.
#[inline(always)]
fn exp_within<V: Copy, A: Arithmetic<V>>(isa: A, x: V) -> V {
    let power = isa.round(isa.mul(x, isa.splat(std::f32::consts::LOG2_E)));
    let rest = isa.fma(power, isa.splat(-0.693_359_4), x);
    let rest = isa.fma(power, isa.splat(2.121_944_4e-4), rest);
    let coefficients = [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5];
    let polynomial = horner(isa, rest, coefficients);
    let fraction = isa.fma(polynomial, isa.mul(rest, rest), isa.add(rest, isa.splat(1.0)));
    isa.mul(fraction, isa.exp2(power))
}

/// Returns the hyperbolic tangent by the algorithm of Cephes' `tanhf`: a polynomial near zero, the
/// exponential elsewhere.
#[inline(always)]
pub(crate) fn tanh<V: Copy, A: Arithmetic<V>>(isa: A, x: V) -> V {
    let (one, two) = (isa.splat(1.0), isa.splat(2.0));
    let magnitude = isa.abs(x);
    let far = isa.sub(one, isa.div(two, isa.add(exp(isa, isa.mul(two, magnitude)), one)));
    let far = isa.select_less(x, isa.splat(0.0), isa.sub(isa.splat(0.0), far), far);
    let square = isa.mul(x, x);
    let coefficients = [-5.704_989e-3, 2.063_909e-2, -5.373_971_5e-2, 1.333_144_2e-1, -3.333_328e-1];
    let near = isa.fma(isa.mul(horner(isa, square, coefficients), square), x, x);
    isa.select_less(magnitude, isa.splat(0.625), near, far)
}

/// Evaluates a polynomial; the coefficient of the highest power comes first.
#[inline(always)]
fn horner<V: Copy, A: Arithmetic<V>, const N: usize>(isa: A, x: V, coefficients: [f32; N]) -> V {
    let mut sum = isa.splat(coefficients[0]);
    for coefficient in &coefficients[1..] {
        sum = isa.fma(sum, x, isa.splat(*coefficient));
    }
    sum
}

/// Returns 1 / (1 + exp(-x)).
#[inline(always)]
pub(crate) fn sigmoid<V: Copy, A: Arithmetic<V>>(isa: A, x: V) -> V {
    let one = isa.splat(1.0);
    isa.div(one, isa.add(one, exp(isa, isa.sub(isa.splat(0.0), x))))
}

/// Returns ln(1 + exp(x)), within 3 units in the last place, as max(x, 0) + ln(1 + exp(-|x|)).
/// Zero for arguments below `EXP_LOW`.
///
/// Algorithm: ln(1 + u) = 2 * artanh(u / (2 + u)), and the series of artanh. Its argument is at most
/// 1/3, so eight terms suffice.
#[inline(always)]
pub(crate) fn softplus<V: Copy, A: Arithmetic<V>>(isa: A, x: V) -> V {
    let zero = isa.splat(0.0);
    let u = exp_up_to_one(isa, isa.sub(zero, isa.abs(x)));
    let s = isa.div(u, isa.add(isa.splat(2.0), u));
    let odd = [1.0 / 15.0, 1.0 / 13.0, 1.0 / 11.0, 1.0 / 9.0, 1.0 / 7.0, 0.2, 1.0 / 3.0];
    let square = isa.mul(s, s);
    let artanh = isa.fma(isa.mul(horner(isa, square, odd), square), s, s);
    isa.fma(artanh, isa.splat(2.0), isa.max(zero, x))
}

#[inline(always)]
pub(crate) fn silu<V: Copy, A: Arithmetic<V>>(isa: A, x: V) -> V {
    isa.div(x, isa.add(isa.splat(1.0), exp(isa, isa.sub(isa.splat(0.0), x))))
}

#[inline(always)]
fn gelu_tanh<V: Copy, A: Arithmetic<V>>(isa: A, x: V) -> V {
    let cube = isa.mul(isa.mul(x, x), x);
    let inner = isa.mul(isa.splat(0.797_884_6), isa.fma(isa.splat(0.044_715), cube, x));
    isa.mul(isa.mul(isa.splat(0.5), x), isa.add(isa.splat(1.0), tanh(isa, inner)))
}

/// Returns `limit` * tanh(x / `limit`).
#[inline(always)]
pub(crate) fn soft_cap<V: Copy, A: Arithmetic<V>>(isa: A, x: V, limit: f32) -> V {
    isa.mul(tanh(isa, isa.div(x, isa.splat(limit))), isa.splat(limit))
}

/// Multiplication of every number by a factor.
pub(crate) struct Scale(pub(crate) f32);

/// Soft cap of every number at a limit.
pub(crate) struct SoftCap(pub(crate) f32);

impl Map for Scale {
    #[inline(always)]
    fn map<I: Isa>(&self, isa: I, x: I::F) -> I::F {
        isa.mul(x, isa.splat(self.0))
    }
}

impl Map for SoftCap {
    #[inline(always)]
    fn map<I: Isa>(&self, isa: I, x: I::F) -> I::F {
        soft_cap(isa, x, self.0)
    }
}

/// A function of one number.
pub(crate) trait Map {
    fn map<I: Isa>(&self, isa: I, x: I::F) -> I::F;
}

/// The kernel that replaces every number by the function's value.
pub(crate) struct MapInPlace<'a, M>(pub(crate) &'a mut [f32], pub(crate) M);

impl<M: Map> Kernel for MapInPlace<'_, M> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        for lanes in self.0.chunks_mut(LANES) {
            let x = isa.load_part(lanes, 0.0);
            isa.store_part(self.1.map(isa, x), lanes);
        }
    }
}
