//! A full file system: what is deleted is room again, at once and after a restart, and errors say
//! what is full.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use remanent::{Disk, Pool};

use super::support::{Answer, Client, Random, Server, encode, error_of};

/// Set to a directory to mount over, in the process that may mount.
const MOUNT_POINT: &str = "REMANENT_TEST_MOUNT_POINT";
/// Bytes of the file system.
const SYSTEM_LEN: u64 = 64 << 20;
/// Requests that are sent before their answers are read.
const PIPELINE: u64 = 50;

/// A directory on a tmpfs of 64 MiB.
///
/// Nothing when this process may not mount: then the test of that name was run in one that may, in
/// a mount namespace of its own, and has passed.
fn small_file_system(test: &str) -> Option<PathBuf> {
    if let Some(at) = std::env::var_os(MOUNT_POINT).map(PathBuf::from) {
        let size = format!("size={SYSTEM_LEN},huge=never");
        let mut mount = Command::new("mount");
        let mounted = mount.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&at).status();
        assert!(mounted.expect("the command mount").success(), "no tmpfs can be mounted");
        return Some(at);
    }
    let directory = tempfile::tempdir().unwrap();
    let ran = Command::new("unshare")
        .args(["--map-root-user", "--mount"])
        .arg(std::env::current_exe().unwrap())
        .args([&format!("room::{test}"), "--exact", "--nocapture", "--test-threads=1"])
        .env(MOUNT_POINT, directory.path())
        .output()
        .expect("the command unshare, of util-linux");
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "in a mount namespace of its own, which it needs:\n{out}\n{err}");
    assert!(out.contains("1 passed"), "{out}");
    None
}

/// A server whose pool may grow far beyond its file system.
fn start(directory: &Path, batched: bool) -> Server {
    let batched: &[&str] =
        if batched { &["--durability", "batched", "--emulate", "nvram"] } else { &[] };
    let arguments = [&["--size", "1G", "--threads", "2"], batched].concat();
    Server::start(&directory.join("a.pool"), &arguments)
}

/// Sends requests in pipelines until one is refused for want of room; returns which were done.
fn until_refused(
    client: &mut Client,
    numbers: impl Iterator<Item = u64>,
    request: impl Fn(u64) -> Vec<Vec<u8>>,
) -> Vec<u64> {
    let mut done = Vec::new();
    let mut numbers = numbers.peekable();
    while numbers.peek().is_some() {
        let batch: Vec<u64> = numbers.by_ref().take(PIPELINE as usize).collect();
        let bytes: Vec<u8> = batch.iter().flat_map(|&number| encode(&request(number))).collect();
        client.send(&bytes).unwrap();
        let mut is_refused = false;
        for &number in &batch {
            match client.receive().unwrap() {
                Answer::Error(text) => {
                    assert!(text.starts_with("OOM"), "{text}");
                    is_refused = true;
                }
                _ => done.push(number),
            }
        }
        if is_refused {
            break;
        }
    }
    done
}

fn set(number: u64) -> Vec<Vec<u8>> {
    vec![b"SET".to_vec(), key(number), vec![b'v'; 1000]]
}

fn del(number: u64) -> Vec<Vec<u8>> {
    vec![b"DEL".to_vec(), key(number)]
}

fn key(number: u64) -> Vec<u8> {
    format!("key:{number}").into_bytes()
}

/// A sorted set of 50 members of 100 bytes.
fn zadd(number: u64) -> Vec<Vec<u8>> {
    let members = (0..50).flat_map(|member| {
        [member.to_string().into_bytes(), format!("{member:0>100}").into_bytes()]
    });
    [b"ZADD".to_vec(), key(number)].into_iter().chain(members).collect()
}

/// Some of what there is, `percent` of it: neighbours, or here and there.
fn some_of(
    random: &mut Random,
    present: &mut Vec<u64>,
    percent: usize,
    scattered: bool,
) -> Vec<u64> {
    if scattered {
        for last in (1..present.len()).rev() {
            present.swap(last, random.below(last as u64 + 1) as usize);
        }
    } else {
        present.sort_unstable();
    }
    present.drain(..present.len() * percent / 100).collect()
}

/// Percent of what was deleted that must fit again.
const SHARE: usize = 90;

/// Fills a server with `request`s, deletes some of what is there, and fills it again.
fn assert_room_comes_back(
    directory: &Path,
    batched: bool,
    request: impl Fn(u64) -> Vec<Vec<u8>> + Copy,
) {
    let mut server = start(directory, batched);
    let mut random = Random::new(16);
    let mut next = 0;
    let mut fill = |server: &Server, wanted: usize| {
        let start = Instant::now();
        let mut client = server.connect();
        let mut filled = Vec::new();
        // Members go after their set, and segments after what they held.
        loop {
            filled.extend(until_refused(&mut client, next.., request));
            next = filled.last().map_or(next, |last| last + 1) + PIPELINE;
            if filled.len() >= wanted || start.elapsed() > Duration::from_secs(5) {
                return filled;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let mut present = fill(&server, 1);
    assert!(!present.is_empty());
    for (percent, scattered, restarts) in
        [(33, false, false), (33, true, true), (10, true, false), (50, false, true)]
    {
        let gone = some_of(&mut random, &mut present, percent, scattered);
        let deleted = until_refused(&mut server.connect(), gone.iter().copied(), del);
        assert_eq!(deleted.len(), gone.len(), "what is there can be deleted");
        if restarts {
            server.stop();
            server = start(directory, batched);
        }
        let wanted = (gone.len() * SHARE).div_ceil(100);
        let filled = fill(&server, wanted);
        let (filled_len, gone_len) = (filled.len(), gone.len());
        assert!(filled_len >= wanted, "{filled_len} fit where {gone_len} were ({percent} %)");
        present.extend(filled);
    }
    let count = present.len();
    assert_eq!(server.connect().call(&["FLUSHALL"]), Answer::ok());
    let wanted = count * SHARE / 100;
    let filled = fill(&server, wanted);
    assert!(filled.len() >= wanted, "{} fit where {count} were before FLUSHALL", filled.len());
    server.stop();
    super::support::assert_whole(&directory.join("a.pool"));
}

#[test]
fn deleted_strings_are_room() {
    let Some(directory) = small_file_system("deleted_strings_are_room") else { return };
    assert_room_comes_back(&directory, false, set);
}

#[test]
fn deleted_strings_are_room_in_a_batched_pool() {
    let test = "deleted_strings_are_room_in_a_batched_pool";
    let Some(directory) = small_file_system(test) else { return };
    assert_room_comes_back(&directory, true, set);
}

#[test]
fn deleted_sorted_sets_are_room() {
    let Some(directory) = small_file_system("deleted_sorted_sets_are_room") else { return };
    assert_room_comes_back(&directory, false, zadd);
}

/// Removing writes down first what it will do, and needs a little room for that.
#[test]
fn members_can_be_removed_when_there_is_no_room() {
    let test = "members_can_be_removed_when_there_is_no_room";
    let Some(directory) = small_file_system(test) else { return };
    let server = start(&directory, false);
    let mut client = server.connect();
    let member = |number: u64| format!("{number:0>100}").into_bytes();
    let add = |number: u64| vec![b"ZADD".to_vec(), b"set".to_vec(), b"1".to_vec(), member(number)];
    let remove = |number: u64| vec![b"ZREM".to_vec(), b"set".to_vec(), member(number)];
    let added = until_refused(&mut client, 0.., add);
    let gone = &added[..added.len() / 10];
    let removed = until_refused(&mut client, gone.iter().copied(), remove);
    assert_eq!(removed.len(), gone.len(), "members can be removed");
    let again = until_refused(&mut client, 10_000_000.., add);
    assert!(again.len() * 10 >= gone.len() * 9, "{} of {}", again.len(), gone.len());
    server.stop();
}

#[test]
fn trimmed_blocks_and_removed_disks_are_room() {
    const BLOCK: u64 = 4096;
    let test = "trimmed_blocks_and_removed_disks_are_room";
    let Some(directory) = small_file_system(test) else { return };
    let path = directory.join("a.pool");
    let pool = Pool::options().size_max(1 << 30).create(&path).unwrap();
    let mut disk = Disk::create(&pool, "disk", 512 << 20).unwrap();
    let mut random = Random::new(17);
    let mut next = 0;
    let mut fill = |disk: &Disk| {
        let first = next;
        while let Ok(()) = disk.write(next * BLOCK, &[next as u8 | 1; BLOCK as usize]) {
            next += 1;
        }
        (first..next).collect::<Vec<u64>>()
    };
    let mut present = fill(&disk);
    assert!(present.len() as u64 * BLOCK > SYSTEM_LEN * 3 / 4);
    let mut pool = pool;
    for (percent, scattered) in [(30, false), (30, true), (60, true)] {
        let gone = some_of(&mut random, &mut present, percent, scattered);
        gone.iter().for_each(|block| disk.trim(block * BLOCK, BLOCK).unwrap());
        if scattered {
            drop((disk, pool));
            pool = Pool::options().open(&path).unwrap();
            disk = Disk::open(&pool, "disk").unwrap();
        }
        let filled = fill(&disk);
        assert!(filled.len() * 10 >= gone.len() * 9, "{} of {}", filled.len(), gone.len());
        present.extend(filled);
    }
    let count = present.len();
    drop(disk);
    pool.remove_root("disk").unwrap();
    let disk = Disk::create(&pool, "other", 512 << 20).unwrap();
    let mut fitting = 0;
    while let Ok(()) = disk.write(fitting * BLOCK, &[7; BLOCK as usize]) {
        fitting += 1;
    }
    let wanted = count as u64 * SHARE as u64 / 100;
    assert!(fitting >= wanted, "{fitting} blocks where {count} were");
}

#[test]
fn errors_say_which_limit_was_met() {
    let Some(directory) = small_file_system("errors_say_which_limit_was_met") else { return };
    let ballast = directory.join("ballast");
    std::fs::write(&ballast, vec![1; SYSTEM_LEN as usize - (96 << 10)]).unwrap();
    let path = directory.join("a.pool");
    let text = path.to_str().unwrap();
    let full = error_of(&["disk", "create", text, "--size", "1G"]);
    assert!(full.contains("its file system is full"), "{full}");
    assert!(!full.contains("--size"), "{full}");
    std::fs::remove_file(&ballast).unwrap();
    let path = directory.join("small.pool");
    let text = path.to_str().unwrap();
    let small = error_of(&["pool", "create", text, "--size", "1M"]);
    assert!(small.contains("its metadata takes 17367040 bytes"), "{small}");
    assert!(small.contains("--size"), "{small}");
}
