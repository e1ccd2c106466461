//! Zstandard: frame after frame, skippable ones among them.

use zstd::stream::raw::{DParameter, InBuffer, Operation, OutBuffer};

use super::{DecodeError, Input, Sink, WINDOW_MAX};

pub(super) fn decode(input: &mut dyn Input, sink: &mut Sink) -> Result<(), DecodeError> {
    let mut context = zstd::stream::raw::Decoder::new().map_err(|e| bad(format!("zstd does not start: {e}")))?;
    let limit = DParameter::WindowLogMax(WINDOW_MAX.ilog2());
    context.set_parameter(limit).map_err(|e| bad(format!("zstd takes no window limit: {e}")))?;
    // In the middle of a frame; and whether the output was filled to its last byte, so that more may wait inside.
    let (mut within, mut full) = (false, false);
    loop {
        let bytes = input.fill()?;
        if bytes.is_empty() && !(within && full) {
            break;
        }
        let mut from = InBuffer::around(bytes);
        let mut to = OutBuffer::around(sink.space());
        let hint = context.run(&mut from, &mut to).map_err(|error| {
            bad(format!(
                "its zstd stream cannot be decoded: {error} (windows up to {} MiB are taken)",
                WINDOW_MAX >> 20
            ))
        })?;
        let (taken, made) = (from.pos(), to.pos());
        within = hint != 0;
        full = made == to.capacity();
        if taken == 0 && made == 0 {
            if bytes.is_empty() {
                break;
            }
            return Err(bad("its zstd stream does not go on".into()));
        }
        input.consume(taken);
        sink.filled(made)?;
    }
    if within { Err(DecodeError::Unfinished("it stops in the middle of a zstd frame".into())) } else { Ok(()) }
}

fn bad(reason: String) -> DecodeError {
    DecodeError::Bad(reason)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        super::testing::{check_format, decode_all, sample},
        *,
    };
    use crate::Format;

    fn skippable(length: u32) -> Vec<u8> {
        let mut frame = 0x184d_2a53_u32.to_le_bytes().to_vec();
        frame.extend(length.to_le_bytes());
        frame.resize(8 + length as usize, 9);
        frame
    }

    #[test]
    fn one_frame_decodes_and_what_is_cut_or_longer_does_not() {
        check_format(Format::Zstd, &zstd::encode_all(&sample()[..], 3).unwrap(), &sample());
    }

    #[test]
    fn any_number_of_frames_and_skippable_ones_decode() {
        let data = sample();
        let mut stored = skippable(100);
        stored.extend(zstd::encode_all(&data[..70_000], 3).unwrap());
        stored.extend(skippable(3));
        stored.extend(zstd::encode_all(&data[70_000..], 3).unwrap());
        stored.extend(skippable(0));
        for step in [1, 7, 4096, stored.len()] {
            assert!(decode_all(Format::Zstd, &stored, step).unwrap() == data, "step {step}");
        }
    }

    #[test]
    fn a_window_over_the_limit_is_refused_before_any_output() {
        let mut encoder = zstd::stream::raw::Encoder::new(1).unwrap();
        encoder.set_parameter(zstd::stream::raw::CParameter::WindowLog(28)).unwrap();
        let mut stored = Vec::new();
        let mut writer = zstd::stream::zio::Writer::new(&mut stored, encoder);
        std::io::Write::write_all(&mut writer, &sample()).unwrap();
        writer.finish().unwrap();
        let error = decode_all(Format::Zstd, &stored, 4096).unwrap_err();
        assert!(matches!(error, DecodeError::Bad(why) if why.contains("128 MiB")));
    }

    proptest! {
        #[test]
        fn arbitrary_frames_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let mut stored = 0xfd2f_b528_u32.to_le_bytes().to_vec();
            stored.extend(bytes);
            // Whether it decodes is not the point here.
            let _ = decode_all(Format::Zstd, &stored, 64);
        }
    }
}
