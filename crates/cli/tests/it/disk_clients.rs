//! Real clients of `remanent disk serve`: what they give back is free, and snapshots stay as they
//! were.
//!
//! These tests need nbdinfo, nbdcopy, qemu-img, qemu-io and fio (Debian: libnbd-bin, qemu-utils,
//! fio); `ci/test` installs them.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::clients::{available, run};
use super::disk::Server;
use super::support::{Random, assert_whole, directory, remanent};

const KIB: u64 = 1 << 10;
const SIZE: u64 = 1 << 20;

impl Server {
    fn uri(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.socket.display())
    }

    /// What qemu-io does; discards reach the disk.
    fn qemu_io(&self, commands: &[&str]) {
        let commands = commands.iter().flat_map(|command| ["-c", command]);
        let mut qemu_io = Command::new("qemu-io");
        let printed =
            run(qemu_io.args(["-d", "unmap", "-f", "raw"]).args(commands).arg(self.uri("disk")));
        assert!(!printed.contains("failed"), "{printed}");
    }

    /// Offset, length and kind of each piece: 0 for data, 3 for a hole that reads as zeroes.
    fn map(&self, export: &str) -> Vec<[u64; 3]> {
        let printed = run(Command::new("nbdinfo").args(["--map", "--json"]).arg(self.uri(export)));
        let map: serde_json::Value = serde_json::from_str(&printed).expect("JSON");
        let pieces = map.as_array().expect("a list").iter();
        let keys = ["offset", "length", "type"];
        pieces.map(|piece| keys.map(|key| piece[key].as_u64().expect("a number"))).collect()
    }
}

#[test]
fn trimmed_and_zeroed_blocks_become_holes_of_a_served_disk() {
    if !are_available(&["nbdinfo", "nbdcopy", "qemu-io"]) {
        return;
    }
    let directory = directory();
    let pool = directory.path().join("clients.pool");
    let path = pool.to_str().expect("a path in UTF-8");
    assert!(remanent(&["disk", "create", path, "--size", "1M"]).status.success());
    let server = Server::start(&pool, &[]);
    assert_eq!(server.map("disk"), [[0, SIZE, 3]]);
    server.qemu_io(&["write -P 0xab 0 64k", "flush"]);
    assert_eq!(server.map("disk"), [[0, 64 * KIB, 0], [64 * KIB, SIZE - 64 * KIB, 3]]);
    server.stop();
    assert!(remanent(&["disk", "snapshot", path, "first"]).status.success());

    let server = Server::start(&pool, &[]);
    // Zeroes take space unless the client allows that they do not.
    server.qemu_io(&["discard 16k 16k", "write -z 32k 8k", "write -z -u 48k 8k"]);
    let expected = [(0, 16, 0), (16, 16, 3), (32, 16, 0), (48, 8, 3), (56, 8, 0), (64, 960, 3)];
    assert_eq!(server.map("disk"), expected.map(|(at, len, kind)| [at * KIB, len * KIB, kind]));
    server.qemu_io(&[
        "read -P 0xab 0 16k",
        "read -P 0 16k 24k",
        "read -P 0xab 40k 8k",
        "read -P 0 48k 8k",
        "read -P 0xab 56k 8k",
    ]);
    assert_eq!(server.map("disk@first"), [[0, 64 * KIB, 0], [64 * KIB, SIZE - 64 * KIB, 3]]);
    let copy = directory.path().join("copy");
    run(Command::new("nbdcopy").arg(server.uri("disk@first")).arg(&copy));
    let mut expected = vec![0; SIZE as usize];
    expected[..64 << 10].fill(0xab);
    assert!(fs::read(&copy).expect("a copy") == expected, "the snapshot has changed");
    server.stop();
    assert_whole(&pool);
    assert!(remanent(&["disk", "check", path]).status.success());
}

/// Whether all these clients are there.
fn are_available(programs: &[&str]) -> bool {
    programs.iter().all(|program| available(program, &["--version"]))
}

/// Serves a disk of 16 MiB over a socket and over TCP, lets clients at it by both names, and checks
/// it afterwards. `test` gets a file that no disk has held yet, with a hole in the middle.
fn with_served_disk(test: impl Fn(&Server, &[String; 2], &Path)) {
    let directory = directory();
    let pool = directory.path().join("clients.pool");
    let path = pool.to_str().expect("a path in UTF-8");
    assert!(remanent(&["disk", "create", path, "--size", "16M"]).status.success());
    let file = directory.path().join("in");
    let mut content = vec![0; 16 << 20];
    let mut random = Random::new(7);
    for half in [0..4 << 20, 12 << 20..16 << 20] {
        content[half].fill_with(|| random.next() as u8);
    }
    fs::write(&file, content).expect("space");
    let server = Server::start(&pool, &["--listen", "127.0.0.1:0"]);
    let uris = [server.uri("disk"), format!("nbd://{}/disk", server.address())];
    test(&server, &uris, &file);
    server.stop();
    assert_whole(&pool);
    assert!(remanent(&["disk", "check", path]).status.success());
}

#[test]
fn nbdcopy_and_qemu_img_find_on_a_served_disk_what_they_wrote() {
    if !are_available(&["nbdcopy", "qemu-img"]) {
        return;
    }
    with_served_disk(|server, uris, file| {
        let copy = file.with_extension("copy");
        let image = ["-f", "raw", "-F", "raw"];
        for uri in uris {
            run(Command::new("nbdcopy").arg(file).arg(uri));
            run(Command::new("nbdcopy").args(["--connections=4", uri]).arg(&copy));
            assert!(fs::read(&copy).expect("a copy") == fs::read(file).expect("the file"));
            run(Command::new("qemu-img").arg("compare").args(image).arg(uri).arg(file));
            let zeroed = ["write -z -u 0 16M", "read -P 0 0 16M"];
            server.qemu_io(&zeroed);
            let convert = ["convert", "-n", "-f", "raw", "-O", "raw"];
            run(Command::new("qemu-img").args(convert).arg(file).arg(uri));
            run(Command::new("qemu-img").arg("compare").args(image).arg(uri).arg(file));
        }
    });
}

/// An image of QEMU's own has structures that it checks.
#[test]
fn qemu_keeps_an_image_of_its_format_whole_on_a_served_disk() {
    if !are_available(&["qemu-img"]) {
        return;
    }
    with_served_disk(|_, uris, file| {
        let small = file.with_extension("small");
        fs::write(&small, &fs::read(file).expect("the file")[..8 << 20]).expect("space");
        for uri in uris {
            run(Command::new("qemu-img").args(["create", "-f", "qcow2", uri, "8M"]));
            run(Command::new("qemu-img")
                .args(["convert", "-n", "-O", "qcow2"])
                .arg(&small)
                .arg(uri));
            run(Command::new("qemu-img").args(["check", "-f", "qcow2", uri]));
            let compare = ["compare", "-f", "qcow2", "-F", "raw", uri];
            run(Command::new("qemu-img").args(compare).arg(&small));
        }
    });
}

#[test]
fn fio_verifies_what_it_writes_to_a_served_disk() {
    if !are_available(&["fio"]) {
        return;
    }
    with_served_disk(|_, [uri, _], _| {
        for (depth, block_size) in [(1, "4k"), (16, "4k"), (4, "1m")] {
            let mut fio = Command::new("fio");
            fio.args(["--name=served", "--ioengine=nbd", "--rw=randwrite", "--size=16m"])
                .args(["--verify=crc32c", "--do_verify=1", "--verify_fatal=1", "--fsync=64"])
                // Or fio leaves a file of its state in the working directory.
                .arg("--verify_state_save=0")
                .arg(format!("--uri={uri}"))
                .arg(format!("--iodepth={depth}"))
                .arg(format!("--bs={block_size}"));
            let printed = run(&mut fio);
            assert!(printed.contains("err= 0"), "{printed}");
        }
    });
}
