//! Claims about both kinds of index.

use proptest::prelude::*;
use sha2::{Digest as _, Sha256};

use super::*;

/// Made by bmaptool 3.6 of an image of 70,000 bytes, sparse but for `hello` at 8192 and `end` at 69990; comments left out,
/// its own digest made again.
const BMAP: &str = r#"<?xml version="1.0" ?>
<!-- This file contains the block map for an image file. -->
<bmap version="2.0">
    <ImageSize> 70000 </ImageSize>
    <BlockSize> 4096 </BlockSize>
    <BlocksCount> 18 </BlocksCount>
    <!-- Count of mapped blocks: 8.0 KiB or 11.1%     -->
    <MappedBlocksCount> 2  </MappedBlocksCount>
    <ChecksumType> sha256 </ChecksumType>
    <BmapFileChecksum> @ </BmapFileChecksum>
    <BlockMap>
        <Range chksum="b15056c9a8db77ab5708d19b7f330fe13d88eeae3d0ab271081d3438c0f46264"> 2 </Range>
        <Range chksum="bbefcb98d7a08efa079dda6b0b68aa673272a0d1656728c6b1ca8c02ebf3bf07"> 17 </Range>
    </BlockMap>
</bmap>
"#;

/// With the digest of itself in the place of `@`.
fn sealed(bmap: &str) -> String {
    let digest = hex::encode(Sha256::digest(bmap.replace('@', &"0".repeat(64))));
    bmap.replace('@', &digest)
}

fn why<T: std::fmt::Debug>(result: Result<T, IndexError>) -> String {
    result.unwrap_err().to_string()
}

/// An index with a data chunk for each `true` and a zero chunk for each `false`; the last chunk is `last` bytes long.
fn packed(chunk_bytes: u64, data: &[bool], last: u64) -> Index {
    let (mut chunks, mut stored) = (Vec::<Chunk>::new(), 0);
    let raw_bytes = (data.len() as u64 - 1) * chunk_bytes + last;
    for (number, data) in data.iter().enumerate() {
        let start = number as u64 * chunk_bytes;
        let (raw, place) = (start..raw_bytes.min(start + chunk_bytes), stored..stored + 20 + number as u64);
        stored = place.end;
        let digest = Some(Sha256::digest(number.to_le_bytes()).into());
        let kind = if *data { ChunkKind::Data { stored_digest: digest, raw_digest: digest } } else { ChunkKind::Zero };
        match chunks.last_mut() {
            Some(run) if !data && !run.is_data() => (run.raw.end, run.stored.end) = (raw.end, stored),
            _ => chunks.push(Chunk { raw, stored: place, kind }),
        }
    }
    Index {
        raw_bytes,
        stored_bytes: stored + 17,
        format: StoredAs::Zstd,
        chunk_bytes,
        stored_digest: Some(Digest::from_sha256([1; 32])),
        raw_digest: Some(Digest::from_sha256([2; 32])),
        chunks,
    }
}

/// The promises of the type, written anew and without the code that checks them.
fn promised(index: &Index) {
    assert_eq!(index.chunks.first().unwrap().raw.start, 0);
    assert_eq!(index.chunks.last().unwrap().raw.end, index.raw_bytes);
    for pair in index.chunks.windows(2) {
        assert_eq!(pair[0].raw.end, pair[1].raw.start);
        assert_eq!(pair[0].raw.end % 4096, 0);
        assert!(pair[0].stored.end <= pair[1].stored.start);
    }
    for chunk in &index.chunks {
        assert!(chunk.raw.start < chunk.raw.end);
        match index.format {
            StoredAs::Zstd => {
                assert!(chunk.stored.start < chunk.stored.end && chunk.stored.end <= index.stored_bytes);
                assert!(!chunk.is_data() || chunk.raw_bytes() <= MAX_CHUNK_BYTES);
            }
            StoredAs::Linear => assert!(chunk.stored.is_empty()),
        }
        if let ChunkKind::Data { raw_digest, stored_digest } = chunk.kind {
            assert!(raw_digest.is_some() && stored_digest.is_some() == (index.format == StoredAs::Zstd));
        }
    }
}

#[test]
fn a_manifest_reads_back_as_what_was_written() {
    for data in [&[true][..], &[false], &[true, false, false, true, true, false], &[false, false, true]] {
        for last in [512, 4096, 8192] {
            let index = packed(8192, data, last);
            promised(&index);
            assert_eq!(Index::parse(index.to_json().unwrap().as_bytes()).unwrap(), index);
        }
    }
}

#[test]
fn the_manifest_is_the_one_its_documentation_shows() {
    let text = packed(4096, &[true, false, false], 512).to_json().unwrap();
    let digest = hex::encode(Sha256::digest(0_usize.to_le_bytes()));
    let expected = format!(
        "{{\"format\": \"landfall-index\", \"version\": 1, \"chunkBytes\": 4096, \"rawBytes\": 8704, \"storedBytes\": 80,\n \
         \"seekTableBytes\": 17, \"rawDigest\": \"sha256:{}\",\n \"storedDigest\": \"sha256:{}\", \"chunks\": [\n\
         [20, \"{digest}\", \"{digest}\"],\n[2, 43]\n]}}\n",
        "02".repeat(32),
        "01".repeat(32)
    );
    assert_eq!(text, expected);
}

#[test]
fn a_manifest_whose_numbers_do_not_add_up_is_refused() {
    let good = packed(8192, &[true, false, false, true], 4096).to_json().unwrap();
    for (from, to) in [
        ("\"rawBytes\": 28672", "\"rawBytes\": 32769"),
        ("\"rawBytes\": 28672", "\"rawBytes\": 24576"),
        ("\"rawBytes\": 28672", "\"rawBytes\": 0"),
        ("\"rawBytes\": 28672", "\"rawBytes\": 18446744073709551615"),
        ("\"storedBytes\": 103", "\"storedBytes\": 102"),
        ("\"seekTableBytes\": 17", "\"seekTableBytes\": 18446744073709551615"),
        ("\"chunkBytes\": 8192", "\"chunkBytes\": 12288"),
        ("\"chunkBytes\": 8192", "\"chunkBytes\": 2048"),
        ("\"chunkBytes\": 8192", "\"chunkBytes\": 33554432"),
        ("\"chunkBytes\": 8192", "\"chunkBytes\": 0"),
        ("[2, 43]", "[3, 43]"),
        ("[2, 43]", "[1, 43]"),
        ("[2, 43]", "[0, 43]"),
        ("[2, 43]", "[18446744073709551615, 43]"),
        ("[2, 43]", "[2, 18446744073709551615]"),
        ("[2, 43]", "[2, 43, 1]"),
        ("[2, 43]", "[2]"),
        ("[2, 43]", "[-2, 43]"),
        ("[20, \"", "[0, \""),
        ("[20, \"", "[20, \"z"),
        ("\"chunks\"", "\"more\": 1, \"chunks\""),
        ("]}", ""),
    ] {
        let bad = good.replacen(from, to, 1);
        assert_ne!(bad, good, "{from} is not there");
        let error = Index::parse(bad.as_bytes()).unwrap_err();
        assert!(matches!(error, IndexError::Damaged(_)), "{to}: {error}");
    }
}

#[test]
fn a_manifest_of_a_later_version_says_what_to_do() {
    let error = why(Index::parse(br#"{"format": "landfall-index", "version": 2, "pieces": {}}"#));
    assert!(error.contains("version 2") && error.contains("newer Landfall"), "{error}");
    for other in ["{}", r#"{"format": "deb", "version": 1}"#, "hello", "", "\u{feff} ", "<html></html>"] {
        assert_eq!(Index::parse(other.as_bytes()), Err(IndexError::Unknown), "{other}");
    }
}

#[test]
fn an_index_over_the_limit_is_refused_unread() {
    let large = vec![b'{'; usize::try_from(MAX_INDEX_BYTES).unwrap() + 1];
    assert!(matches!(Index::parse(&large), Err(IndexError::TooLarge { .. })));
    let many =
        format!(r#"{{"format": "landfall-index", "version": 1, "chunks": [[1, 1]{}]}}"#, ",[1,1]".repeat(MAX_CHUNKS));
    assert!(why(Index::parse(many.as_bytes())).contains("1048576 chunks"));
}

#[test]
fn only_an_index_that_keeps_its_promises_is_written() {
    let good = packed(8192, &[true, false, true], 4096);
    let spoil: [fn(&mut Index); 7] = [
        |index| index.chunks[1].raw.start += 4096,
        |index| index.chunks[2].raw.end += 4096,
        |index| index.chunks[0].stored.end += 1,
        |index| index.stored_bytes = 30,
        |index| index.chunks[0].kind = ChunkKind::Data { stored_digest: None, raw_digest: Some([0; 32]) },
        |index| index.raw_digest = None,
        |index| index.format = StoredAs::Linear,
    ];
    for (number, spoil) in spoil.iter().enumerate() {
        let mut bad = good.clone();
        spoil(&mut bad);
        assert!(bad.to_json().is_err(), "spoiled by {number}");
    }
}

#[test]
fn a_bmap_covers_exactly_the_image() {
    for version in ["2.0", "1.4"] {
        let index = Index::parse(sealed(&BMAP.replace("2.0", version)).as_bytes()).unwrap();
        promised(&index);
        let found: Vec<_> = index.chunks.iter().map(|chunk| (chunk.raw.clone(), chunk.is_data())).collect();
        assert_eq!(found, [(0..8192, false), (8192..12288, true), (12288..69632, false), (69632..70000, true)]);
        let mut block = vec![0; 4096];
        block[..5].copy_from_slice(b"hello");
        let mut last = vec![0; 368];
        last[358..361].copy_from_slice(b"end");
        for (chunk, bytes) in [(1, block), (3, last)] {
            let raw_digest = Some(Sha256::digest(bytes).into());
            assert_eq!(index.chunks[chunk].kind, ChunkKind::Data { stored_digest: None, raw_digest });
        }
    }
}

#[test]
fn a_bmap_that_was_altered_is_refused() {
    let good = sealed(BMAP);
    for (from, to) in [(" 70000 ", " 70001 "), (" 2 </Range>", " 3 </Range>"), ("11.1%", "11.2%"), ("b15056", "b15057")]
    {
        assert!(why(Index::parse(good.replacen(from, to, 1).as_bytes())).contains("BmapFileChecksum"), "{to}");
    }
}

#[test]
fn a_contradictory_bmap_is_refused_even_with_a_correct_digest() {
    for (from, to, said) in [
        (" 2 </Range>", " 17 </Range>", "out of order"),
        (" 17 </Range>", " 17-18 </Range>", "behind the end"),
        (" 17 </Range>", " 18 </Range>", "behind the end"),
        (" 2 </Range>", " 3-2 </Range>", "not a range"),
        (" 2 </Range>", " +2 </Range>", "not a range"),
        (" 2 </Range>", " 2-18446744073709551615 </Range>", "not a range"),
        (" 2  </Mapped", " 3 </Mapped", "maps 2 blocks but states 3"),
        (" 18 </Blocks", " 19 </Blocks", "not an image of"),
        (" 70000 ", " 18446744073709551615 ", "not an image of"),
        (" 70000 ", " x ", "not a number"),
        ("b15056", "15056", "no SHA-256"),
        ("<ImageSize> 70000 </ImageSize>", "", "no ImageSize"),
        ("<BlockSize> 4096", "<BlockSize> 4096 </BlockSize><BlockSize> 4096", "more than one BlockSize"),
        (" sha256 ", " sha1 ", "only sha256"),
        ("<BlockSize> 4096", "<BlockSize> 512", "multiples of 4096"),
        ("<BlockSize> 4096", "<BlockSize> 0", "multiples of 4096"),
        ("</bmap>", "", "as XML"),
    ] {
        let bad = BMAP.replacen(from, to, 1);
        assert_ne!(bad, BMAP, "{from} is not there");
        let error = why(Index::parse(sealed(&bad).as_bytes()));
        assert!(error.contains(said), "{to}: {error}");
    }
}

#[test]
fn old_bmaps_are_refused_with_the_reason() {
    for (version, said) in [("1.2", "no digest"), ("1.3", "SHA-1"), ("3.0", "version 3.0"), ("", "version ")] {
        let error = why(Index::parse(sealed(&BMAP.replace("2.0", version)).as_bytes()));
        assert!(error.contains(said) && error.contains("bmaptool create"), "{error}");
    }
}

#[test]
fn xml_that_is_expensive_to_parse_is_refused_first() {
    let attributes: String = (0..20).map(|n| format!(" a{n}=\">\"")).collect();
    for (xml, said) in [
        (format!("<bmap{attributes}/>"), "attributes"),
        ("<a>".repeat(400_001), "tags"),
        ("<bmap xmlns:a='b'/>".to_owned(), "namespaces"),
        ("<!DOCTYPE a [<!ENTITY b 'c'>]><bmap>&b;</bmap>".to_owned(), "DTD"),
        (format!("<{}", " ".repeat(16 << 20)), "bytes"),
    ] {
        let error = why(Index::parse(xml.as_bytes()));
        assert!(error.contains(said), "{said}: {error}");
    }
    // Deep is allowed, and no reason to overflow a stack.
    let deep = "<a>".repeat(190_000) + &"</a>".repeat(190_000);
    assert_eq!(Index::parse(deep.as_bytes()), Err(IndexError::Unknown));
}

/// A byte changed, taken out or doubled, or a number made large: what damage and malice do to a good index.
fn mutated(good: &str, edits: &[(usize, u8, u8)]) -> Vec<u8> {
    let mut bytes = good.as_bytes().to_vec();
    for (place, byte, how) in edits {
        if bytes.is_empty() {
            break;
        }
        let place = place % bytes.len();
        match how % 4 {
            0 => bytes[place] = *byte,
            1 => drop(bytes.remove(place)),
            2 => bytes.insert(place, b'0' + byte % 10),
            _ => drop(bytes.splice(place..place, *b"18446744073709551615")),
        }
    }
    bytes
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), start in 0..3) {
        let mut text: Vec<u8> = [&b"{"[..], b"<bmap version=\"2.0\">", b""][usize::try_from(start).unwrap()].to_vec();
        text.extend(bytes);
        if let Ok(index) = Index::parse(&text) {
            promised(&index);
        }
    }

    #[test]
    fn any_index_reads_back(
        shift in 12_u32..=24,
        data in prop::collection::vec(any::<bool>(), 1..200),
        last in 1_u64..8,
    ) {
        let index = packed(1 << shift, &data, last * 512);
        promised(&index);
        prop_assert_eq!(Index::parse(index.to_json().unwrap().as_bytes()), Ok(index));
    }

    #[test]
    fn what_is_left_of_a_mutated_manifest_keeps_the_promises(
        edits in prop::collection::vec((any::<usize>(), any::<u8>(), any::<u8>()), 0..4),
    ) {
        let good = packed(4096, &[true, false, false, true, false], 512).to_json().unwrap();
        if let Ok(index) = Index::parse(&mutated(&good, &edits)) {
            promised(&index);
        }
    }

    #[test]
    fn what_is_left_of_a_mutated_bmap_keeps_the_promises(
        edits in prop::collection::vec((any::<usize>(), any::<u8>(), any::<u8>()), 0..4),
    ) {
        // Sealed after the damage: the digest must not be what hides the rest from this test.
        let bytes = mutated(BMAP, &edits);
        let text = String::from_utf8_lossy(&bytes);
        if let Ok(index) = Index::parse(sealed(&text).as_bytes()) {
            promised(&index);
        }
    }
}
