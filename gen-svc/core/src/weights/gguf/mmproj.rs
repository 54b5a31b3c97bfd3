//! An `mmproj` file, read as the tensors of the tower that it was converted from, under their names
//! in transformers.

use super::super::stored::{RowOrder, Stored};
use super::header::GgufHeader;
use super::projector::{GgufBlocks, GgufProjector};
use crate::error::LoadError;

/// The first and the last matrix of a block's MLP. Early converters exchanged the names.
const MLP: [&str; 2] = ["ffn_up", "ffn_down"];

/// The tower in an `mmproj` file.
#[derive(Debug)]
pub(in crate::weights) struct MmprojModel {
    header: GgufHeader,
    projector: GgufProjector,
    /// True if the names of [`MLP`] are exchanged.
    is_swapped: bool,
}

impl MmprojModel {
    /// # Errors
    /// A value of the header has the wrong type.
    pub(in crate::weights) fn new(header: GgufHeader, projector: GgufProjector) -> Result<Self, LoadError> {
        let hidden = header.find::<u32>("vision.embedding_length")?.map(|size| size as usize);
        let last = header.file().tensor(&format!("v.blk.0.{}.weight", MLP[1]));
        let is_swapped = last.is_some_and(
            |last| matches!(last.dims, [rows, columns] if Some(*columns) == hidden && Some(*rows) != hidden),
        );
        Ok(Self { header, projector, is_swapped })
    }

    /// Returns a tensor of the tower. `None`: the name is not that of a tower's tensor.
    pub(in crate::weights) fn stored(&self, name: &str) -> Option<Result<Stored<'_>, LoadError>> {
        let name = self.place(name)?;
        let Some(info) = self.header.file().tensor(&name) else { return Some(Err(LoadError::TensorMissing { name })) };
        Some(Ok(Stored::new(name, info.dtype, info.dims, info.data, RowOrder::AsIs)))
    }

    /// Returns the names in the file of all tensors.
    pub(in crate::weights) fn names(&self) -> Vec<String> {
        self.header.file().tensors().map(|tensor| tensor.name.to_owned()).collect()
    }

    /// Returns the bytes of all tensors.
    pub(in crate::weights) fn bytes(&self) -> u64 {
        self.header.tensor_bytes()
    }

    /// Returns the name in the file.
    fn place(&self, name: &str) -> Option<String> {
        let GgufProjector { tensors, blocks, .. } = self.projector;
        if let Some((_, stored)) = tensors.iter().find(|(here, _)| *here == name) {
            return Some((*stored).to_owned());
        }
        let (module, kind) = name.rsplit_once('.')?;
        if let Some((_, stored)) = tensors.iter().find(|(here, _)| *here == module) {
            return Some(format!("{stored}.{kind}"));
        }
        blocks.iter().find_map(|GgufBlocks { path: (here, there), tensors }| {
            let (number, part) = module.strip_prefix(here)?.strip_prefix('.')?.split_once('.')?;
            let (_, stored) = tensors.iter().find(|(here, _)| *here == part)?;
            Some(format!("{there}.{number}.{}.{kind}", self.unswapped(stored)))
        })
    }

    fn unswapped(&self, stored: &'static str) -> &'static str {
        match MLP.iter().position(|name| *name == stored) {
            Some(at) if self.is_swapped => MLP[1 - at],
            _ => stored,
        }
    }
}
