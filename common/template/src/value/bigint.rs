//! Integers beyond 128 bits. Smaller ones are minijinja's.

use num_bigint::{BigInt as Digits, Sign};

/// An integer that does not fit in 128 bits.
#[derive(Debug)]
pub(crate) struct BigInt(Digits);

impl BigInt {
    pub(crate) fn digits(&self) -> &Digits {
        &self.0
    }

    /// Returns the nearest float; infinity if there is none.
    pub(crate) fn to_f64(&self) -> f64 {
        // The highest bits, and one bit for the rest, are rounded by the conversion.
        const KEPT_BITS: u64 = 66;
        let shift = self.0.bits().saturating_sub(KEPT_BITS);
        let magnitude = self.0.magnitude();
        let (kept, lost) = (magnitude >> shift, magnitude.trailing_zeros().unwrap_or(0) < shift);
        let kept = i128::try_from(kept << 1_u8).unwrap_or(i128::MAX) | i128::from(lost);
        let exponent = i32::try_from(shift).map_or(i32::MAX, |shift| shift - 1);
        let float = kept as f64 * 2_f64.powi(exponent);
        if self.0.sign() == Sign::Minus { -float } else { float }
    }
}

impl From<Digits> for BigInt {
    fn from(digits: Digits) -> Self {
        Self(digits)
    }
}

/// Returns the integer that equals a float, if there is one.
pub(crate) fn exact_int(float: f64) -> Option<Digits> {
    if !float.is_finite() || float.fract() != 0.0 {
        return None;
    }
    if float.abs() < 1e30 {
        return Some(Digits::from(float as i128));
    }
    // The mantissa, shifted: floats of this size have no digits behind the point.
    const MANTISSA_BITS: u32 = f64::MANTISSA_DIGITS - 1;
    let bits = float.to_bits();
    let mantissa = bits & ((1 << MANTISSA_BITS) - 1) | 1 << MANTISSA_BITS;
    let exponent = bits >> MANTISSA_BITS & 0x7ff;
    let magnitude = Digits::from(mantissa) << (exponent - 1023 - u64::from(MANTISSA_BITS));
    Some(if float < 0.0 { -magnitude } else { magnitude })
}
