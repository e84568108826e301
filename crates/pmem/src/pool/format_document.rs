//! Compares every number in the tables of `docs/pool-format.md` with the code.

use std::collections::BTreeMap;

use super::layout::{self, ChunkKind, ChunkState};
use super::roots;
use super::superblock::{self, Superblock};
use crate::Durability;
use crate::heap::layout as heap;

const DOCUMENT: &str = include_str!("../../../../docs/pool-format.md");

/// Name and number of the table rows whose first cell is a name in code quotes.
fn numbers() -> BTreeMap<&'static str, u64> {
    let rows = DOCUMENT.lines().filter_map(|line| line.strip_prefix("| `"));
    let cells = rows.filter_map(|row| row.split_once("` | "));
    let numbers = cells.filter_map(|(name, rest)| {
        Some((name, rest.split(' ').next().and_then(|number| number.parse().ok())?))
    });
    numbers.collect()
}

#[test]
fn constants_are_as_documented() {
    let code = [
        ("FORMAT_VERSION", u64::from(layout::FORMAT_VERSION)),
        ("WORD_LEN", crate::WORD_LEN),
        ("LINE_LEN", crate::LINE_LEN),
        ("CHUNK_LEN", layout::CHUNK_LEN),
        ("ZONE_CHUNKS", u64::from(layout::ZONE_CHUNKS)),
        ("DATA_FIRST", u64::from(layout::DATA_FIRST)),
        ("RUN_MAX", u64::from(layout::RUN_MAX)),
        ("SIZE_LIMIT", layout::SIZE_LIMIT),
        ("BLOCK_LEN_MIN", layout::BLOCK_LEN_MIN),
        ("BITMAP_LEN", layout::BITMAP_LEN),
        ("SUPERBLOCK_B", layout::SUPERBLOCK_B),
        ("ROOTS", layout::ROOTS),
        ("ROOT_LEN", layout::ROOT_LEN),
        ("HEADER_ROOT_COUNT", u64::from(layout::HEADER_ROOT_COUNT)),
        ("DIRECTORY_COUNT", u64::from(layout::DIRECTORY_COUNT)),
        ("DIRECTORY_ROOT_COUNT", u64::from(layout::DIRECTORY_ROOT_COUNT)),
        ("ROOT_COUNT", u64::from(layout::ROOT_COUNT)),
        ("root.state", roots::STATE),
        ("root.heap", roots::HEAP),
        ("root.layout", roots::LAYOUT),
        ("root.crc", roots::CRC),
        ("root.generation", roots::GENERATION),
        ("root.directory", layout::DIRECTORY),
        ("root.name", roots::NAME),
        ("root.type", roots::TYPE),
        ("HEADER_LEN", heap::HEADER_LEN),
        ("LANE_LEN", heap::LANE_LEN),
        ("LANE_COUNT", heap::LANE_COUNT as u64),
        ("CLASS_COUNT", heap::CLASS_COUNT as u64),
        ("SUSPECTS", heap::SUSPECTS),
        ("SUSPECT_COUNT", u64::from(heap::SUSPECT_COUNT)),
        ("RUN_SHIFT", u64::from(heap::RUN_SHIFT)),
        ("Free", ChunkKind::Free as u64),
        ("FreeDirty", ChunkKind::FreeDirty as u64),
        ("Small", ChunkKind::Small as u64),
        ("LargeHead", ChunkKind::LargeHead as u64),
        ("LargeBody", ChunkKind::LargeBody as u64),
        ("Heap", ChunkKind::Heap as u64),
        ("Directory", ChunkKind::Directory as u64),
    ];
    let mut documented = numbers();
    documented.retain(|name, _| !name.starts_with("superblock."));
    assert_eq!(documented, BTreeMap::from(code));
}

#[test]
fn superblock_fields_lie_where_the_document_says() {
    let superblock = Superblock {
        version: layout::FORMAT_VERSION,
        uuid: *b"0123456789abcdef",
        durability: Durability::Power,
        sequence: 0x5eed_0001,
        size_max: 0x5eed_0002_0000,
        size: 0x5eed_0003,
        created_unix_s: 0x5eed_0004,
        write_disturbance: true,
        clean: true,
        first_chunk: 0x5eed_0005,
        opens: 0x5eed_0006,
    };
    let bytes = superblock.encode();
    let crc = superblock::checksum(&bytes);
    let fields: [(&str, &[u8]); 13] = [
        ("magic", b"REMANENT"),
        ("version", &layout::FORMAT_VERSION.to_le_bytes()),
        ("uuid", b"0123456789abcdef"),
        ("durability", &1_u64.to_le_bytes()),
        ("sequence", &0x5eed_0001_u64.to_le_bytes()),
        ("size_max", &0x5eed_0002_0000_u64.to_le_bytes()),
        ("size", &0x5eed_0003_u64.to_le_bytes()),
        ("created_unix_s", &0x5eed_0004_u64.to_le_bytes()),
        ("medium", &1_u64.to_le_bytes()),
        ("state", &1_u64.to_le_bytes()),
        ("first_chunk", &0x5eed_0005_u64.to_le_bytes()),
        ("opens", &0x5eed_0006_u64.to_le_bytes()),
        ("crc", &crc.to_le_bytes()),
    ];
    let documented = numbers();
    let mut covered = vec![false; bytes.len()];
    for (name, value) in fields {
        let at = documented[&*format!("superblock.{name}")] as usize;
        assert_eq!(&bytes[at..at + value.len()], value, "{name} at {at}");
        covered[at..at + value.len()].fill(true);
    }
    let undocumented = bytes.iter().zip(covered).filter(|&(&byte, covered)| byte != 0 && !covered);
    assert_eq!(undocumented.count(), 0);
    assert!(crc <= u64::from(u32::MAX));
    assert_eq!(documented.keys().filter(|name| name.starts_with("superblock.")).count(), 13);
}

#[test]
fn size_classes_are_as_documented() {
    let rows = DOCUMENT.lines().skip_while(|line| !line.starts_with("| `CLASS_LEN`")).skip(2);
    let documented = rows.take_while(|line| line.starts_with('|')).flat_map(|line| {
        let lens = line.split('|').nth(2).expect("a second cell").split(", ");
        lens.map(|len| len.trim().parse::<u32>().expect("a number"))
    });
    assert_eq!(documented.collect::<Vec<_>>(), heap::CLASS_LEN);
}

#[test]
fn words_and_bitmaps_lie_where_the_document_says() {
    for formula in ["at 65536 + 8 · (*c* mod 65536) bytes", "at 589824 + 256 · (*c* mod 65536)"] {
        assert!(DOCUMENT.contains(formula), "{formula}");
    }
    for number in [0, 265, 65_535, 65_536, 200_000] {
        let chunk = layout::ChunkId(number);
        let zone = u64::from(number / 65_536) << 32;
        assert_eq!(chunk.state(), zone + 65_536 + 8 * u64::from(number % 65_536));
        assert_eq!(chunk.bitmap(), zone + 589_824 + 256 * u64::from(number % 65_536));
    }
    let state = ChunkState { kind: ChunkKind::LargeHead, class: 7, owner: 0xabcd, run: 0x1234 };
    assert_eq!(state.encode(), 0x1234 << 32 | 0xabcd << 16 | 7 << 8 | 3);
}
