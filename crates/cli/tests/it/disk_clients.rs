//! Real clients of `remanent disk serve`: what they give back is free, and snapshots stay as they were.
//!
//! These tests need nbdinfo, nbdcopy and qemu-io (Debian: libnbd-bin, qemu-utils); `ci/test` installs them.

use std::fs;
use std::process::Command;

use super::clients::{available, run};
use super::common::{assert_whole, directory, remanent};
use super::disk::Server;

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
    if !["nbdinfo", "nbdcopy", "qemu-io"].iter().all(|program| available(program, &["--version"])) {
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
