//! The codec of all contracts: protobuf, with large messages off the threads that serve.

use std::marker::PhantomData;
use std::sync::LazyLock;
use std::thread::available_parallelism;

use prost::Message;
use prost::bytes::Buf as _;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;
use tonic::Status;
use tonic::codec::{BufferSettings, DecodeBuf, EncodeBuf};
use tonic_prost::{ProstDecoder, ProstEncoder};

/// The size in bytes from which a message is large. A smaller one is converted in less than 0.1 ms.
const LARGE_BYTES: usize = 128 << 10;

/// The codec. `T` is encoded, `U` decoded.
#[derive(Debug)]
pub(crate) struct Codec<T, U>(PhantomData<fn() -> (T, U)>);

impl<T, U> Default for Codec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> tonic::codec::Codec for Codec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = Encoder<T>;
    type Decoder = Decoder<U>;

    fn encoder(&mut self) -> Encoder<T> {
        Encoder(ProstEncoder::default())
    }

    fn decoder(&mut self) -> Decoder<U> {
        Decoder(ProstDecoder::default())
    }
}

/// Encodes messages.
#[derive(Debug)]
pub(crate) struct Encoder<T>(ProstEncoder<T>);

impl<T: Message> tonic::codec::Encoder for Encoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, message: T, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        beside_serving(message.encoded_len(), || self.0.encode(message, buffer))
    }

    fn buffer_settings(&self) -> BufferSettings {
        self.0.buffer_settings()
    }
}

/// Decodes messages.
#[derive(Debug)]
pub(crate) struct Decoder<U>(ProstDecoder<U>);

impl<U: Message + Default> tonic::codec::Decoder for Decoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        beside_serving(buffer.remaining(), || self.0.decode(buffer))
    }

    fn buffer_settings(&self) -> BufferSettings {
        self.0.buffer_settings()
    }
}

/// The concurrent conversions of large messages: one less than cores, so that a core is left for calls.
static CONVERSIONS: LazyLock<Semaphore> = LazyLock::new(|| {
    let cores = available_parallelism().map_or(1, usize::from);
    Semaphore::new(cores.saturating_sub(1).max(1))
});

/// Runs `work` for a message of this size. For a large one, another thread takes over the other
/// calls of this thread.
fn beside_serving<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    let runtime = Handle::try_current().ok().filter(|it| it.runtime_flavor() == RuntimeFlavor::MultiThread);
    match runtime.filter(|_| bytes >= LARGE_BYTES) {
        Some(runtime) => tokio::task::block_in_place(|| {
            let _permit = runtime.block_on(CONVERSIONS.acquire());
            work()
        }),
        None => work(),
    }
}
