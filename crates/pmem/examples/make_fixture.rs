//! Writes the pool files that `tests/it/pool/fixture.rs` opens, as images of the present format
//! version.
//!
//! `cargo run -p remanent-pmem --example make_fixture [DIRECTORY]`

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use remanent_pmem::pool::layout::FORMAT_VERSION;
use remanent_pmem::{Mapped, Pool};

#[path = "../tests/it/pool/image.rs"]
#[expect(dead_code, reason = "the tests use the rest")]
mod image;
#[path = "../tests/it/pool/slots.rs"]
#[expect(dead_code, reason = "the tests use the rest")]
mod slots;

use slots::Slots;

fn main() -> Result<(), Box<dyn Error>> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let to = std::env::args_os().nth(1).map_or(fixtures, PathBuf::from);
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("a.pool");
    let pool = Pool::options().size_max(1 << 30).create(&path)?;
    let numbers = pool.create_root::<Slots<Mapped>>("numbers")?;
    let texts = pool.create_root::<Slots<Mapped>>("texts")?;
    for index in 0..40_u64 {
        numbers.put(index, &(index * index).to_le_bytes())?;
        texts.put(index, format!("text number {index} ").repeat(index as usize).as_bytes())?;
    }
    // A large block, and blocks that were freed or are about to be.
    let mut large = vec![0; 70_000];
    (large[0], large[69_999]) = (1, 2);
    texts.put(30, &large)?;
    for gone in [3, 17] {
        numbers.clear(gone)?;
        texts.clear(gone)?;
    }
    // What is in the file now is what a process would leave that is killed here.
    let write = |kind: &str| -> Result<(), Box<dyn Error>> {
        let target = to.join(format!("format-{FORMAT_VERSION}-{kind}.image"));
        let image = image::read_image(&path)?;
        println!("{}: {} bytes", target.display(), image.len());
        Ok(fs::write(target, image)?)
    };
    write("crashed")?;
    let uuid = u128::from_be_bytes(pool.uuid());
    fs::write(to.join(format!("format-{FORMAT_VERSION}.uuid")), format!("{uuid:032x}\n"))?;
    drop((numbers, texts, pool));
    write("clean")
}
