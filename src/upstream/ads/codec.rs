//! Encodes requests as messages and yields responses undecoded, since the parser reads them in slices.

use std::marker::PhantomData;

use prost::Message;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

use super::super::wire_message::WireMessage;

pub(super) struct RawResponses<Q>(PhantomData<Q>);

impl<Q> Default for RawResponses<Q> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<Q: Message + 'static> Codec for RawResponses<Q> {
    type Encode = Q;
    type Decode = WireMessage;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self::default()
    }

    fn decoder(&mut self) -> Self {
        Self::default()
    }
}

impl<Q: Message + 'static> Encoder for RawResponses<Q> {
    type Item = Q;
    type Error = Status;

    fn encode(&mut self, request: Q, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        request.encode(buffer).map_err(|error| Status::internal(error.to_string()))
    }
}

impl<Q: Message + 'static> Decoder for RawResponses<Q> {
    type Item = WireMessage;
    type Error = Status;

    /// Returns a slice of the buffer that joined the frames, without copying.
    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<WireMessage>, Status> {
        Ok(Some(WireMessage::decode(buffer)))
    }
}
