//! How streams of the contract hold what arrives and leaves.

use std::marker::PhantomData;

use prost::Message;
use tonic::codec::{BufferSettings, Codec};
use tonic_prost::ProstCodec;

/// Room that each direction of each call takes from its beginning, and grows by: an event has some hundred bytes. tonic's own
/// 8 KiB are memory that most calls never fill, and a coordinator has two long calls of every machine.
const ROOM: usize = 1 << 10;
/// Answers that are ready together leave together, up to so many bytes; tonic's own number.
const TOGETHER: usize = 32 << 10;

/// tonic's codec of prost messages, with small buffers.
#[derive(Debug)]
pub struct SmallCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for SmallCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T: Message + Send + 'static, U: Message + Default + Send + 'static> Codec for SmallCodec<T, U> {
    type Encode = T;
    type Decode = U;
    type Encoder = <ProstCodec<T, U> as Codec>::Encoder;
    type Decoder = <ProstCodec<T, U> as Codec>::Decoder;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::raw_encoder(BufferSettings::new(ROOM, TOGETHER))
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, U>::raw_decoder(BufferSettings::new(ROOM, TOGETHER))
    }
}
