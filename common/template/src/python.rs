//! What Python does with values: operators, attributes, calls, printing, and the methods of its types.

pub(crate) mod arithmetic;
pub(crate) mod attribute;
pub(crate) mod bytes;
pub(crate) mod call;
pub(crate) mod equal;
pub(crate) mod format;
pub(crate) mod json;
pub(crate) mod methods;
pub(crate) mod number;
pub(crate) mod order;
pub(crate) mod printf;
pub(crate) mod repr;
pub(crate) mod spec;
pub(crate) mod text;
