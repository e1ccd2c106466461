//! Decoders, chosen by content, never by name.

use zstd::stream::raw::{DParameter, InBuffer, Operation, OutBuffer};

use crate::Format;

/// The largest window a zstd frame may ask for, as a power of two: 128 MiB. Our memory is bounded by 64 MiB plus this.
const WINDOW_LOG_MAX: u32 = 27;

const ZSTD: u32 = 0xfd2f_b528;
const ZSTD_SKIPPABLE: std::ops::RangeInclusive<u32> = 0x184d_2a50..=0x184d_2a5f;

/// Formats that are told by name rather than written to a disk as if they were raw.
const KNOWN: [(&str, &[u8]); 9] = [
    ("gzip", &[0x1f, 0x8b]),
    ("xz", &[0xfd, b'7', b'z', b'X', b'Z', 0]),
    ("bzip2", b"BZh"),
    ("lz4", &[0x04, 0x22, 0x4d, 0x18]),
    ("qcow2", b"QFI\xfb"),
    ("VMDK", b"KDMV"),
    ("VHDX", b"vhdxfile"),
    ("ZIP", b"PK\x03\x04"),
    ("HTML", b"<!DOCTYPE"),
];

/// A decoder in the middle of a stream.
pub(super) enum Decoder {
    /// Bytes as they are.
    Raw,
    /// Zstandard frames, one after another.
    Zstd {
        context: Box<zstd::stream::raw::Decoder<'static>>,
        /// In the middle of a frame.
        within: bool,
        /// The output was filled to its last byte: more may be waiting inside.
        full: bool,
    },
}

/// The format of content that starts like this.
fn format_of(start: &[u8]) -> Result<Format, String> {
    if let Some((name, _)) = KNOWN.iter().find(|(_, magic)| start.starts_with(magic)) {
        return Err(format!("it is {name}, which is not supported; give it raw or zstd"));
    }
    let magic = start.get(..4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
    let zstd = magic.is_some_and(|magic| magic == ZSTD || ZSTD_SKIPPABLE.contains(&magic));
    Ok(if zstd { Format::Zstd } else { Format::Raw })
}

impl Decoder {
    /// A decoder for content that starts like this; `wanted` must agree with it.
    pub(super) fn for_content(start: &[u8], wanted: Option<Format>) -> Result<Self, String> {
        let found = format_of(start)?;
        if let Some(wanted) = wanted.filter(|wanted| *wanted != found) {
            return Err(format!("the template says {wanted} and the content is {found}"));
        }
        match found {
            Format::Raw => Ok(Self::Raw),
            Format::Zstd => {
                let mut context = zstd::stream::raw::Decoder::new().map_err(|e| format!("zstd does not start: {e}"))?;
                let limit = DParameter::WindowLogMax(WINDOW_LOG_MAX);
                context.set_parameter(limit).map_err(|e| format!("zstd takes no window limit: {e}"))?;
                Ok(Self::Zstd { context: Box::new(context), within: false, full: false })
            }
        }
    }

    /// Whether output may be waiting although no input is left.
    pub(super) fn has_more(&self) -> bool {
        matches!(self, Self::Zstd { full: true, within: true, .. })
    }

    /// Decodes some: (bytes taken, bytes made).
    pub(super) fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<(usize, usize), String> {
        match self {
            Self::Raw => {
                let n = input.len().min(output.len());
                output[..n].copy_from_slice(&input[..n]);
                Ok((n, n))
            }
            Self::Zstd { context, within, full } => {
                let mut from = InBuffer::around(input);
                let mut to = OutBuffer::around(output);
                let hint = context.run(&mut from, &mut to).map_err(|error| {
                    format!("its zstd stream cannot be decoded: {error} (windows up to {} MiB are taken)", {
                        (1_u64 << WINDOW_LOG_MAX) >> 20
                    })
                })?;
                let (taken, made) = (from.pos(), to.pos());
                *within = hint != 0;
                *full = made == to.capacity();
                if taken == 0 && made == 0 && !input.is_empty() {
                    return Err("its zstd stream does not go on".into());
                }
                Ok((taken, made))
            }
        }
    }

    /// What is missing, if the input ended now.
    pub(super) fn unfinished(&self) -> Option<String> {
        match self {
            Self::Zstd { within: true, .. } => Some("it stops in the middle of a zstd frame".into()),
            Self::Raw | Self::Zstd { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Everything `input` decodes to, fed in pieces of `step` bytes; and what is missing.
    fn decode(input: &[u8], step: usize) -> Result<(Vec<u8>, Option<String>), String> {
        let mut decoder = Decoder::for_content(input, None)?;
        let (mut all, mut out) = (Vec::new(), vec![0; 1000]);
        for piece in input.chunks(step) {
            let mut rest = piece;
            while !rest.is_empty() || decoder.has_more() {
                let (taken, made) = decoder.step(rest, &mut out)?;
                rest = &rest[taken..];
                all.extend_from_slice(&out[..made]);
            }
        }
        Ok((all, decoder.unfinished()))
    }

    fn sample() -> Vec<u8> {
        (0..50_000_u32).flat_map(|i| (i / 7).to_le_bytes()).collect()
    }

    fn skippable(length: u32) -> Vec<u8> {
        let mut frame = 0x184d_2a53_u32.to_le_bytes().to_vec();
        frame.extend(length.to_le_bytes());
        frame.resize(8 + length as usize, 9);
        frame
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
            assert_eq!(decode(&stored, step).unwrap(), (data.clone(), None), "step {step}");
        }
    }

    #[test]
    fn truncated_input_is_unfinished_at_every_length() {
        let stored = zstd::encode_all(&sample()[..], 3).unwrap();
        for length in (4..stored.len()).step_by(97).chain([stored.len() - 1]) {
            assert!(decode(&stored[..length], 4096).unwrap().1.is_some(), "length {length}");
        }
    }

    #[test]
    fn garbage_after_the_last_frame_is_an_error() {
        for garbage in [&b"x"[..], b"garbage", &[0], &[0; 600]] {
            let mut stored = zstd::encode_all(&sample()[..], 3).unwrap();
            stored.extend(garbage);
            let result = decode(&stored, 4096);
            assert!(result.is_err() || result.is_ok_and(|(_, missing)| missing.is_some()), "{garbage:?}");
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
        assert!(decode(&stored, 4096).unwrap_err().contains("128 MiB"));
    }

    #[test]
    fn what_is_neither_raw_nor_zstd_is_refused_by_name() {
        assert!(decode(&[0x1f, 0x8b, 8, 0], 9).unwrap_err().contains("gzip"));
        assert!(Decoder::for_content(&[0; 16], Some(Format::Zstd)).is_err_and(|e| e.contains("says zstd")));
    }

    proptest! {
        #[test]
        fn arbitrary_frames_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let mut stored = ZSTD.to_le_bytes().to_vec();
            stored.extend(bytes);
            // Whether it decodes is not the point here.
            let _ = decode(&stored, 64);
        }
    }
}
