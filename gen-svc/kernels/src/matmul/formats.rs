//! Block formats as types, so that the compiler generates a kernel for each format.

#![allow(non_camel_case_types)] // as in `BlockFormat`

use crate::pack::{BlockFormat, Spec};

/// A format that is fixed when its kernel is compiled.
pub(super) trait StaticFormat {
    const FORMAT: BlockFormat;
    const SPEC: Spec = Self::FORMAT.spec();
}

pub(super) struct IQ4_XS;
pub(super) struct Q4_0;
pub(super) struct Q4_1;
pub(super) struct Q4_K;
pub(super) struct Q5_0;
pub(super) struct Q5_1;
pub(super) struct Q5_K;
pub(super) struct Q6_K;
pub(super) struct Q8_0;

macro_rules! known {
    ($($format:ident),*) => {$(
        impl StaticFormat for $format {
            const FORMAT: BlockFormat = BlockFormat::$format;
        }
    )*};
}

known!(IQ4_XS, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0);
