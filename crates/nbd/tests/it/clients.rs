//! Real clients: libnbd's tools, QEMU's, and fio, over a Unix socket and over TCP, on disks in
//! memory.
//!
//! These tests need nbdinfo and nbdcopy, qemu-img and qemu-io, and fio (Debian: libnbd-bin,
//! qemu-utils, fio); `ci/test` installs them.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use remanent_nbd::{Export, Exports, REQUEST_LEN_MAX};
use serde_json::Value;

use super::ram::{PAGE, Ram};
use super::sockets::{Place, with_server};

const SIZE: u64 = 16 << 20;
/// What `full` says of itself.
const DESCRIPTION: &str = "random";
/// What lengths and offsets in `sectors` are multiples of.
const SECTOR_LEN: u32 = 512;

/// Whether clients are there. Where they must be, the absence of one is a failure; else it is said.
fn available(programs: &[&str]) -> bool {
    let required =
        ["CI", "REMANENT_REQUIRE_CLIENTS"].iter().any(|name| std::env::var_os(name).is_some());
    programs.iter().all(|program| {
        let found = Command::new(program).arg("--version").output();
        let found = found.is_ok_and(|output| output.status.success());
        assert!(
            found || !required,
            "{program} does not run here; install libnbd-bin, qemu-utils and fio, for example with \
             ci/test"
        );
        if !found {
            eprintln!("not run: {program} is missing");
        }
        found
    })
}

/// What a client prints, which must succeed.
fn run(directory: &Path, program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    let (printed, said) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program} {arguments:?}\n{printed}\n{said}");
    printed.into_owned()
}

fn json(directory: &Path, program: &str, arguments: &[&str]) -> Value {
    let printed = run(directory, program, arguments);
    serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}"))
}

/// Bytes that look like nothing in particular, with a hole in the middle.
fn content() -> Vec<u8> {
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    let mut bytes: Vec<u8> = (0..SIZE / 8)
        .flat_map(|_| {
            state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
            (state >> 7).to_be_bytes()
        })
        .collect();
    bytes[4 << 20..12 << 20].fill(0);
    bytes
}

/// Runs a test on an empty disk, on `full`, which holds what [`content`] returns and cannot be
/// written, and on another empty one, `sectors`.
fn with_disks(test: impl Fn(&Place)) {
    let description = DESCRIPTION.to_owned();
    let full = Ram { is_read_only: true, description, ..Ram::with(&content()) };
    full.trim(4 << 20, 8 << 20).expect("there is no fault");
    let sectors = Ram { block_size_min: SECTOR_LEN, ..Ram::new(SIZE) };
    let mut exports = Exports::new();
    for (name, ram) in [("disk", Ram::new(SIZE)), ("full", full), ("sectors", sectors)] {
        exports.add(name, Arc::new(ram)).expect("a good name");
    }
    with_server(exports, test);
}

impl Place {
    /// How clients are told of an export: over the Unix socket, and over TCP.
    fn uris(&self, export: &str) -> [String; 2] {
        let (socket, address) = (self.socket.display(), self.address);
        [format!("nbd+unix:///{export}?socket={socket}"), format!("nbd://{address}/{export}")]
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }
}

#[test]
fn nbdinfo_sees_everything() {
    if !available(&["nbdinfo"]) {
        return;
    }
    with_disks(|place| {
        for uri in place.uris("full") {
            let info = json(place.path(), "nbdinfo", &["--json", &uri]);
            assert_eq!(info["protocol"], "newstyle-fixed");
            assert_eq!(info["structured"], true);
            let export = &info["exports"][0];
            let expected = [
                ("export-name", Value::from("full")),
                ("description", DESCRIPTION.into()),
                ("export-size", SIZE.into()),
                ("is_read_only", true.into()),
                ("can_multi_conn", true.into()),
                ("can_df", true.into()),
                ("can_flush", true.into()),
                ("can_fua", true.into()),
                ("can_cache", true.into()),
                ("can_trim", false.into()),
                ("can_zero", false.into()),
                ("can_fast_zero", false.into()),
                ("block_size_minimum", 1.into()),
                ("block_size_preferred", 4096.into()),
                ("block_size_maximum", REQUEST_LEN_MAX.into()),
            ];
            for (key, value) in expected {
                assert_eq!(export[key], value, "{key} in {export}");
            }
            assert_eq!(export["contexts"], Value::from(vec!["base:allocation"]));
            let map = json(place.path(), "nbdinfo", &["--map", "--json", &uri]);
            let pieces: Vec<[u64; 3]> = map
                .as_array()
                .expect("a list")
                .iter()
                .map(|piece| ["offset", "length", "type"].map(|key| piece[key].as_u64().unwrap()))
                .collect();
            let [a, b] = [4 << 20, 12 << 20];
            assert_eq!(pieces, [[0, a, 0], [a, b - a, 3], [b, SIZE - b, 0]]);
        }
        for uri in place.uris("") {
            let list = json(place.path(), "nbdinfo", &["--list", "--json", &uri]);
            let exports = list["exports"].as_array().expect("a list");
            let names: Vec<_> = exports.iter().map(|export| &export["export-name"]).collect();
            assert_eq!(names, ["disk", "full", "sectors"]);
            assert_eq!(exports[2]["block_size_minimum"], SECTOR_LEN);
            let size = run(place.path(), "nbdinfo", &["--size", &uri]);
            assert_eq!(size.trim(), SIZE.to_string());
            for can in ["write", "trim", "zero", "fua"] {
                run(place.path(), "nbdinfo", &["--can", can, &uri]);
            }
        }
    });
}

#[test]
fn nbdcopy_copies_both_ways() {
    if !available(&["nbdcopy", "nbdinfo"]) {
        return;
    }
    with_disks(|place| {
        let file = |name: &str| place.path().join(name);
        fs::write(file("in"), content()).expect("space");
        for (round, to) in place.uris("disk").iter().enumerate() {
            run(place.path(), "nbdcopy", &["in", to]);
            run(place.path(), "nbdcopy", &[to, "out"]);
            assert!(fs::read(file("out")).expect("a copy") == content(), "round {round}");
            // From one connection to several others, and without requests for the status.
            let [from, _] = place.uris("full");
            run(place.path(), "nbdcopy", &["--connections=4", "--no-extents", &from, to]);
            run(place.path(), "nbdcopy", &["--synchronous", "--allocated", to, "out"]);
            assert!(fs::read(file("out")).expect("a copy") == content(), "round {round}");
            run(place.path(), "nbdcopy", &["--flush", "--destination-is-zero", &from, to]);
        }
        let [sectors, _] = place.uris("sectors");
        run(place.path(), "nbdcopy", &["in", &sectors]);
        run(place.path(), "nbdcopy", &[&sectors, "out"]);
        assert!(fs::read(file("out")).expect("a copy") == content());
    });
}

#[test]
fn qemu_converts_and_compares() {
    if !available(&["qemu-img"]) {
        return;
    }
    with_disks(|place| {
        fs::write(place.path().join("in"), content()).expect("space");
        let [full, _] = place.uris("full");
        for uri in place.uris("disk").iter().chain([&place.uris("sectors")[0]]) {
            let info = json(place.path(), "qemu-img", &["info", "--output=json", uri]);
            assert_eq!((&info["format"], &info["virtual-size"]), (&"raw".into(), &SIZE.into()));
            let convert = ["convert", "-n", "-f", "raw", "-O", "raw"];
            run(place.path(), "qemu-img", &[&convert[..], &["in", uri]].concat());
            run(place.path(), "qemu-img", &["compare", "-f", "raw", "-F", "raw", uri, "in"]);
            run(place.path(), "qemu-img", &["compare", "-f", "raw", "-F", "raw", uri, &full]);
            run(place.path(), "qemu-img", &["convert", "-f", "raw", "-O", "qcow2", uri, "out"]);
            run(place.path(), "qemu-img", &["compare", "-f", "raw", "-F", "qcow2", uri, "out"]);
            run(place.path(), "qemu-img", &["check", "out"]);
        }
        let map = json(place.path(), "qemu-img", &["map", "--output=json", "-f", "raw", &full]);
        let pieces: Vec<_> = map
            .as_array()
            .expect("a list")
            .iter()
            .map(|piece| (piece["start"].as_u64(), piece["zero"].as_bool()))
            .collect();
        let piece = |start, zero| (Some(start), Some(zero));
        assert_eq!(pieces, [piece(0, false), piece(4 << 20, true), piece(12 << 20, false)]);
    });
}

/// One with structures of its own, on the export.
#[test]
fn qemu_keeps_an_image_of_its_format_whole() {
    if !available(&["qemu-img"]) {
        return;
    }
    with_disks(|place| {
        fs::write(place.path().join("in"), &content()[..8 << 20]).expect("space");
        for uri in place.uris("disk") {
            run(place.path(), "qemu-img", &["create", "-f", "qcow2", &uri, "8M"]);
            run(place.path(), "qemu-img", &["convert", "-n", "-O", "qcow2", "in", &uri]);
            run(place.path(), "qemu-img", &["check", "-f", "qcow2", &uri]);
            run(place.path(), "qemu-img", &["compare", "-f", "qcow2", "-F", "raw", &uri, "in"]);
        }
    });
}

#[test]
fn qemu_io_reads_what_it_has_written() {
    if !available(&["qemu-io"]) {
        return;
    }
    with_disks(|place| {
        for uri in place.uris("disk").iter().chain([&place.uris("sectors")[0]]) {
            let commands = [
                "write -P 0xab 0 64k",
                "write -f -P 0xcd 1000 7000",
                "flush",
                "read -P 0xab 0 1000",
                "read -P 0xcd 1000 7000",
                "write -z 4k 8k",
                "write -z -u 16k 8k",
                "read -P 0 4k 8k",
                "read -P 0 16k 8k",
                "read -P 0xab 24k 40k",
                "discard 24k 8k",
                "aio_write -P 0x11 1M 1M",
                "aio_write -P 0x22 2M 1M",
                "aio_read -P 0 3M 1M",
                "aio_flush",
                "read -P 0x11 1M 1M",
                "read -P 0x22 2M 1M",
                "read -P 0 3M 33k",
            ];
            // Else QEMU drops discards.
            let mut arguments = vec!["-d", "unmap", "-f", "raw"];
            arguments.extend(commands.iter().flat_map(|command| ["-c", command]));
            arguments.push(uri);
            let printed = run(place.path(), "qemu-io", &arguments);
            assert!(!printed.contains("failed"), "{printed}");
        }
        let [full, _] = place.uris("full");
        let write = ["-f", "raw", "-c", "write 0 4k", &full];
        let refused = Command::new("qemu-io").args(write).output().expect("it was found");
        assert!(!refused.status.success(), "a read-only disk was written");
    });
}

#[test]
fn fio_verifies_what_it_writes() {
    if !available(&["fio"]) {
        return;
    }
    with_disks(|place| {
        // fio understands no TCP address with a colon in it, so it has the socket alone.
        let [uri, _] = place.uris("disk");
        for (name, depth, block_size) in
            [("alone", 1, PAGE), ("queue", 16, PAGE), ("long", 4, 1 << 20)]
        {
            let (name, uri) = (format!("--name={name}"), format!("--uri={uri}"));
            let (depth, block_size) = (format!("--iodepth={depth}"), format!("--bs={block_size}"));
            let size = format!("--size={SIZE}");
            let fixed = ["--ioengine=nbd", "--rw=randwrite", "--verify=crc32c", "--do_verify=1"];
            let chosen = [&name, &uri, &depth, &block_size, &size].map(String::as_str);
            let fatal = ["--verify_fatal=1", "--fsync=64"];
            let printed = run(place.path(), "fio", &[&fixed[..], &chosen, &fatal].concat());
            assert!(printed.contains("err= 0"), "{printed}");
        }
    });
}
