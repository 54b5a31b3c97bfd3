//! 16-bit floats: IEEE half precision and bfloat16. Conversion to f32 is exact; conversion from f32
//! rounds to nearest, ties to even.
//!
//! The crate `half` is not used, because it chooses an instruction at run time. A kernel needs code
//! that is inlined into its own instruction set, with the same bits on every ISA level.

/// Converts as `vcvtph2ps` does; NaN becomes quiet.
#[inline(always)]
pub(crate) fn f16_to_f32(half: u16) -> f32 {
    let bits = u32::from(half);
    let (sign, exponent, fraction) = (bits >> 15 << 31, bits >> 10 & 31, bits & 1023);
    match exponent {
        0 => f32::from_bits(sign | (fraction as f32 * 2.0_f32.powi(-24)).to_bits()),
        31 if fraction > 0 => f32::from_bits(sign | 0x7fc0_0000 | fraction << 13),
        31 => f32::from_bits(sign | 0x7f80_0000),
        _ => f32::from_bits(sign | (exponent + 112) << 23 | fraction << 13),
    }
}

/// Converts as `vcvtps2ph` does; NaN becomes quiet.
#[inline(always)]
pub(crate) fn f32_to_f16(value: f32) -> u16 {
    let bits = value.to_bits();
    let (sign, magnitude) = ((bits >> 16 & 0x8000) as u16, bits & 0x7fff_ffff);
    sign | match magnitude {
        0x7f80_0001.. => 0x7e00 | (magnitude >> 13 & 0x3ff) as u16,
        0x4780_0000.. => 0x7c00,
        // Adding 0.5 shifts the subnormal's units to the lowest bits of the sum; the addition
        // itself rounds.
        ..0x3880_0000 => ((f32::from_bits(magnitude) + 0.5).to_bits() - 0.5_f32.to_bits()) as u16,
        _ => ((magnitude + 0xfff + (magnitude >> 13 & 1) - 0x3800_0000) >> 13) as u16,
    }
}

#[inline(always)]
pub(crate) fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

#[inline(always)]
pub(crate) fn f32_to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() { (bits >> 16) as u16 | 0x40 } else { ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16 }
}

/// The least magnitude of the numbers that [`f32_to_tame_bf16`] keeps: 2^-55.
pub(crate) const LEAST_TAME: f32 = f32::from_bits((127 - 55) << 23);

/// Replaces numbers below 2^-55 in magnitude by zero. All others are rounded. Products of two such
/// numbers are [tame](crate::isa::is_tame).
#[inline(always)]
pub(crate) fn f32_to_tame_bf16(value: f32) -> u16 {
    f32_to_bf16(if value.abs() < LEAST_TAME { 0.0 } else { value })
}
