//! Attention by gathering keys and values into few buckets, on any device and in any dtype.

use tandem_core::models::SequenceChunk;
use tch::Tensor;

use super::attend::{Attended, PagedAttention, Scores};
use super::bucket::{Bucket, Members, Rules};
use super::buckets;
use super::paged::slots;
use super::reach::{Reach, Visible};
use super::workspace::Workspace;
use crate::device::upload::{Later, Upload};
use crate::error::Error;
use crate::target::TorchTarget;

/// The buckets of a call. Together, they have all tokens in order.
#[derive(Debug)]
pub(super) struct Buckets(Vec<Bucket>);

impl Buckets {
    /// Divides sorted chunks, whose blocks have `block` positions. Masks are kept as far as there is room.
    pub(super) fn plan(
        chunks: &[SequenceChunk<'_>],
        reach: Reach,
        block: usize,
        (target, workspace): (TorchTarget, Workspace),
        upload: &mut Upload,
    ) -> Later<Self> {
        let visible: Vec<Visible> = chunks.iter().map(|chunk| Visible::new(chunk, reach)).collect();
        let sizes: Vec<[usize; 2]> = visible.iter().map(Visible::size).collect();
        let divide = match (target.batch_invariant, reach.softcap()) {
            (false, _) => buckets::of_any_sizes,
            (true, None) => buckets::of_equal_sizes,
            (true, Some(_)) => buckets::of_one_sequence,
        };
        let rules = Rules { softcap: reach.softcap(), target, workspace };
        let (mut first_row, mut room) = (0, workspace.masks);
        let mut planned: Vec<Later<Bucket>> = Vec::new();
        for (range, size) in divide(&sizes, workspace) {
            let members = chunks[range.clone()].iter().zip(&visible[range.clone()]);
            let slots = members.map(|(chunk, visible)| slots(chunk, visible.positions.clone(), block).collect());
            let slots: Vec<Vec<i64>> = slots.collect();
            let members = Members { sequences: &visible[range.clone()], slots: &slots, size };
            let left = room.checked_sub(members.mask_numbers(rules));
            planned.push(Bucket::plan(first_row, members, (left.is_some(), rules), upload));
            room = left.unwrap_or(room);
            first_row += sizes[range].iter().map(|[tokens, _]| tokens).sum::<usize>();
        }
        Box::new(move |sent| Ok(Self(planned.into_iter().map(|bucket| bucket(sent)).collect::<Result<_, _>>()?)))
    }
}

impl PagedAttention for Buckets {
    fn attend(&self, q: &Tensor, pairs: &Tensor, scores: Scores) -> Result<Attended, Error> {
        let attend = |bucket: &Bucket| {
            let pairs = pairs.f_index_select(0, &bucket.slots)?; // [B * S, 2, K, D]
            bucket.attend(q, &pairs, scores)
        };
        Attended::join(self.0.iter().map(attend).collect::<Result<_, _>>()?, 0)
    }
}
