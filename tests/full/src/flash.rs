//! An emulation of libtorch's flash attention over blocks, which runs on CUDA devices only. It checks
//! the requirements for arguments, and computes the result by its definition.

use std::cell::Cell;

use tandem_torch::{FLASH_BLOCK, FlashCall, FlashOperation};
use tch::{Kind, TchError, Tensor};

/// The emulation, with the dtypes of the operation.
pub const STRICT: FlashOperation = FlashOperation { dtypes: &[Kind::Half, Kind::BFloat16], call };

/// The emulation, also in f32, so that rounding hides no error.
pub const EXACT: FlashOperation = FlashOperation { dtypes: &[Kind::Half, Kind::BFloat16, Kind::Float], call };

thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
    static SEQUENCES: Cell<usize> = const { Cell::new(0) };
}

/// Returns the sequences of all calls on this thread since the last question.
#[must_use]
pub fn sequences() -> usize {
    SEQUENCES.take()
}

/// Returns the number of calls on this thread since the last question.
#[must_use]
pub fn calls() -> usize {
    CALLS.take()
}

/// # Panics
/// If the arguments break the contract.
fn call(call: &FlashCall<'_>) -> Result<Tensor, TchError> {
    CALLS.set(CALLS.get() + 1);
    SEQUENCES.set(SEQUENCES.get() + call.seqused_k.size()[0] as usize);
    check_numbers(call);
    check_sequences(call);
    check_table(call);
    compute(call)
}

fn check_numbers(call: &FlashCall<'_>) {
    let FlashCall { out, query, key, value, .. } = call;
    let (_, heads, size) = query.size3().expect("the query has rows, heads and numbers");
    let (blocks, positions, pair_heads, pair_size) = key.size4().expect("the keys are in blocks");
    assert_eq!(out.size(), query.size(), "the result has the query's shape");
    assert_eq!(value.size(), [blocks, positions, pair_heads, pair_size], "values have the keys' shape");
    assert_eq!(positions % FLASH_BLOCK as i64, 0, "positions of a block");
    assert_eq!(pair_size, size, "size of heads");
    assert!(size <= 256 && size % 8 == 0, "size of heads: {size}");
    assert_eq!(heads % pair_heads, 0, "groups of heads");
    for tensor in [out, query, key, value] {
        assert_eq!(tensor.kind(), query.kind(), "dtypes");
        let (sizes, strides, width) = (tensor.size(), tensor.stride(), tensor.kind().elt_size_in_bytes());
        assert_eq!(strides.last(), Some(&1), "the numbers of a head are adjacent");
        let outer = sizes.iter().zip(&strides).rev().skip(1).filter(|(size, _)| **size > 1);
        assert!(outer.into_iter().all(|(_, stride)| stride * width as i64 % 16 == 0), "heads are aligned: {strides:?}");
        assert_eq!(tensor.data_ptr() as usize % 16, 0, "the first number is aligned");
    }
    // In this case the operation packs the heads itself, and leaves its result in another tensor.
    let packs = call.max_q == 1 && heads > pair_heads && call.window_left.is_none();
    assert!(!packs, "the operation would not write to the result");
}

fn check_sequences(call: &FlashCall<'_>) {
    let starts = integers(call.cum_seq_q, 1);
    let lengths = integers(call.seqused_k, 1);
    assert_eq!(starts.len(), lengths.len() + 1, "sequences");
    assert!(!lengths.is_empty(), "there is a sequence");
    assert_eq!((starts[0], *starts.last().expect("an end")), (0, call.query.size()[0]), "rows");
    let rows: Vec<i64> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(rows.iter().all(|rows| *rows > 0), "every sequence has rows: {rows:?}");
    assert_eq!(rows.iter().max(), Some(&call.max_q), "the most rows");
    let sums = integers(call.cum_seq_k, 1);
    let used: Vec<i64> = sums.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!((sums[0], &used), (0, &lengths), "the sums of positions");
    assert_eq!(lengths.iter().max(), Some(&call.max_k), "the most positions");
    let is_whole = |(rows, length): (&i64, &i64)| !call.is_causal || rows <= length;
    assert!(rows.iter().zip(&lengths).all(is_whole), "the rows are among the positions");
}

fn check_table(call: &FlashCall<'_>) {
    let (sequences, width) = call.block_table.size2().expect("a row for each sequence");
    let table = integers(call.block_table, 2);
    let (blocks, positions) = (call.key.size()[0], call.key.size()[1]);
    assert!(table.iter().all(|block| (0..blocks).contains(block)), "blocks below {blocks}: {table:?}");
    let lengths = integers(call.seqused_k, 1);
    assert_eq!(sequences, lengths.len() as i64, "rows of the table");
    for (blocks, length) in table.chunks(width as usize).zip(lengths) {
        let used = (length + positions - 1) / positions;
        assert!((1..=width).contains(&used), "{length} positions in {width} blocks");
        let mut own = blocks[..used as usize].to_vec();
        own.sort_unstable();
        own.dedup();
        assert_eq!(own.len() as i64, used, "a sequence has different blocks");
    }
}

/// Returns 32-bit integers that are adjacent.
fn integers(tensor: &Tensor, dimensions: usize) -> Vec<i64> {
    assert_eq!((tensor.kind(), tensor.dim()), (Kind::Int, dimensions), "integers of 32 bits");
    assert!(tensor.is_contiguous(), "the integers are adjacent");
    Vec::<i32>::try_from(tensor.reshape([-1])).expect("integers").into_iter().map(i64::from).collect()
}

fn compute(call: &FlashCall<'_>) -> Result<Tensor, TchError> {
    let (rows, heads, _) = call.query.size3()?;
    let log_sums = Tensor::f_empty([heads, rows], (Kind::Float, call.query.device()))?;
    let (starts, lengths) = (integers(call.cum_seq_q, 1), integers(call.seqused_k, 1));
    for (i, (rows, length)) in starts.windows(2).zip(lengths).enumerate() {
        let (first, count) = (rows[0], rows[1] - rows[0]);
        let blocks = call.block_table.get(i as i64).to_kind(Kind::Int64);
        let [k, v] = [call.key, call.value].map(|pool| gathered(pool, &blocks, length, heads));
        let q = call.query.narrow(0, first, count).to_kind(Kind::Float).transpose(0, 1); // [H, r, D]
        let scores = q.f_matmul(&k.transpose(1, 2))?.f_mul_scalar(call.scale)?;
        let scores = scores.masked_fill(&hidden(call, count, length), f64::NEG_INFINITY); // [H, r, n]
        let averages = scores.softmax(-1, Kind::Float).f_matmul(&v)?.transpose(0, 1);
        call.out.narrow(0, first, count).f_copy_(&averages.to_kind(call.out.kind()))?;
        log_sums.narrow(1, first, count).f_copy_(&scores.logsumexp([-1], false))?;
    }
    Ok(log_sums)
}

/// Returns the first `length` positions of a sequence's blocks, for each query head: `[H, n, D]`
fn gathered(pool: &Tensor, blocks: &Tensor, length: i64, heads: i64) -> Tensor {
    let (_, positions, pair_heads, size) = pool.size4().expect("blocks");
    let used = blocks.narrow(0, 0, (length + positions - 1) / positions);
    let own = pool.index_select(0, &used).reshape([-1, pair_heads, size]).narrow(0, 0, length);
    own.repeat_interleave_self_int(heads / pair_heads, 1, None).to_kind(Kind::Float).transpose(0, 1)
}

/// Returns true where a row must not look: `[r, n]`. The last row belongs to the last position.
fn hidden(call: &FlashCall<'_>, rows: i64, length: i64) -> Tensor {
    let options = (Kind::Int64, call.query.device());
    let own = Tensor::arange(rows, options).unsqueeze(1) + (length - rows);
    let other = Tensor::arange(length, options).unsqueeze(0);
    let later = other.gt_tensor(&own).logical_and(&Tensor::from(call.is_causal || call.window_left.is_some()));
    match call.window_left {
        None => later,
        Some(left) => later.logical_or(&other.lt_tensor(&(own - left))),
    }
}
