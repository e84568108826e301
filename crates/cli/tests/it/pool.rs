//! `remanent pool`, and what a server and other openers do to each other.

use std::ops::ControlFlow;

use remanent::papers::{AppendList, BpTree, FlushAlwaysList, TableList};
use remanent::structures::batch_list::{BatchList, LogList};
use remanent::structures::{BatchMap, BatchOptions};
use remanent::{BlinkTree, HashMap, HashMultiMap, Map, Pool};
use serde_json::{Value, json};

use super::support::{
    Answer, Server, assert_whole, directory, error_of, on_disk, pool_info as info, remanent,
};

#[test]
fn a_pool_is_created_described_and_checked() {
    let directory = directory();
    let path = directory.path().join("new.pool");
    let path = path.to_str().unwrap();
    let created = remanent(&["pool", "create", path, "--size", "64M"]);
    assert!(created.status.success(), "{created:?}");
    let info = info(path);
    assert_eq!(info["size_max_bytes"], 64 << 20);
    assert_eq!(info["clean"], true);
    assert_eq!(info["roots"], Value::Array(Vec::new()));
    assert!(info["physical_bytes"].as_u64() < info["size_bytes"].as_u64(), "a new pool is sparse");
    assert_whole(path.as_ref());

    let error = error_of(&["pool", "create", path]);
    assert!(error.contains("exists"), "{error}");
}

/// [`assert_whole`] refuses a root that was left out.
#[test]
fn every_structure_of_ours_is_checked() {
    let directory = directory();
    let path = directory.path().join("all.pool");
    let pool = Pool::options().size_max(64 << 20).create(&path).unwrap();
    let options = BatchOptions::without_thread();
    HashMap::<str, u64>::create(&pool, "map").unwrap().insert("key", &1).unwrap();
    HashMultiMap::<str, u64>::create(&pool, "rows").unwrap().insert("key", &1).unwrap();
    BlinkTree::<str, u64>::create(&pool, "tree").unwrap().insert("key", &1).unwrap();
    BpTree::<u64, u64>::create(&pool, "versions").unwrap().insert(&1, &1).unwrap();
    BatchMap::<[u8], [u8]>::create(&pool, "batches", options)
        .unwrap()
        .put(b"key", b"value")
        .unwrap();
    FlushAlwaysList::create(&pool, "always", options).unwrap().insert(1, b"value").unwrap();
    AppendList::create(&pool, "append", options).unwrap().insert(1, b"value").unwrap();
    LogList::create(&pool, "log", options).unwrap().insert(1, b"value").unwrap();
    TableList::create(&pool, "table", options).unwrap().insert(1, b"value").unwrap();
    drop(pool);
    assert_whole(&path);
}

/// A set that has lost a member in one of its two places; each structure by itself is whole.
#[test]
fn sorted_sets_are_compared_with_themselves() {
    let batched = ["--durability", "batched", "--emulate", "nvram"];
    for arguments in [&[][..], &batched] {
        let directory = directory();
        let path = directory.path().join("sets.pool");
        let text = path.to_str().unwrap();
        let server = Server::start(&path, arguments);
        let mut client = server.connect();
        client.call(&["ZADD", "numbers", "1", "one", "2", "two"]);
        client.call(&["ZADD", "letters", "1", "a"]);
        client.call(&["WAITAOF", "1", "0", "0"]);
        server.kill();
        assert_whole(&path);
        assert_eq!(info(text)["roots"][1]["name"], "redis sorted sets");

        let pool = Pool::options().open(&path).unwrap();
        let tree = BlinkTree::<[u8], [u8]>::open(&pool, "redis sorted sets").unwrap();
        let mut members = Vec::new();
        tree.ascend(.., |key, _| {
            members.extend(key.ends_with(b"one").then(|| key.to_vec()));
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(members.len(), 2);
        assert!(tree.discard(&members[0]).unwrap());
        drop((tree, pool));
        let output = remanent(&["pool", "check", text]);
        assert_eq!(output.status.code(), Some(1));
        let told = String::from_utf8(output.stdout).unwrap();
        let what = "set 1 has 1 members and 2 scores, and they are not the same";
        let line = format!("root \"redis sorted sets\": {what}\n1 violations in ");
        assert!(told.starts_with(&line), "{told}");
        let output = remanent(&["pool", "check", text, "--json"]);
        assert_eq!(output.status.code(), Some(1));
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        let violation = json!({ "root": "redis sorted sets", "offset": null, "what": what });
        assert_eq!(told["violations"], json!([violation]));
    }
}

/// A pool as a killed server leaves it, in which recovery has something to do.
#[test]
fn checks_and_descriptions_change_no_byte() {
    let directory = directory();
    let path = directory.path().join("killed.pool");
    let text = path.to_str().unwrap();
    let server = Server::start(&path, &[]);
    let mut client = server.connect();
    for index in 0..200 {
        client.call(&["SET".into(), format!("key{index}"), "v".repeat(index)]);
        client.call(&["ZADD".into(), "set".into(), index.to_string(), format!("member{index}")]);
    }
    server.kill();
    let before = std::fs::read(&path).unwrap();
    assert_whole(&path);
    assert_eq!(info(text)["clean"], false);
    assert_whole(&path);
    assert_eq!(info(text)["clean"], false, "a check has marked the pool as closed");
    assert!(std::fs::read(&path).unwrap() == before, "a check has changed the pool");
}

/// What is wrong with one root neither hides nor invents anything in another.
#[test]
fn every_damaged_root_is_named() {
    let directory = directory();
    let path = directory.path().join("damaged.pool");
    let pool = Pool::options().size_max(64 << 20).create(&path).unwrap();
    for name in ["one", "whole", "two"] {
        let map = HashMap::<u64, u64>::create(&pool, name).unwrap();
        (0..100).for_each(|key| assert!(map.insert(&key, &(key ^ 0x5eed_5eed_5eed)).unwrap()));
    }
    drop(pool);
    let mut bytes = std::fs::read(&path).unwrap();
    // The value and the order of an entry: with another order it is out of place.
    let mut damaged = 0;
    for at in (0..bytes.len() - 8).step_by(8) {
        let word = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        if word == 7 ^ 0x5eed_5eed_5eed {
            damaged += 1;
            if damaged != 2 {
                bytes[at + 15] ^= 0x40;
            }
        }
    }
    assert_eq!(damaged, 3);
    std::fs::write(&path, bytes).unwrap();
    let output = remanent(&["pool", "check", path.to_str().unwrap(), "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let of = |root: &str| {
        told["violations"].as_array().unwrap().iter().filter(|v| v["root"] == root).count()
    };
    assert!(of("one") > 0 && of("two") > 0, "{told}");
    assert_eq!(of("whole"), 0, "{told}");
}

#[test]
fn what_is_no_pool_is_refused_and_left_alone() {
    let directory = directory();
    let path = directory.path().join("letter.txt");
    std::fs::write(&path, "Dear pool,\n").unwrap();
    for command in ["info", "check"] {
        let error = error_of(&["pool", command, path.to_str().unwrap()]);
        assert!(error.contains("not a Remanent pool"), "{error}");
    }
    let error = error_of(&["serve", "--pool", path.to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    assert!(error.contains("not a Remanent pool"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "Dear pool,\n");
    let missing = directory.path().join("missing.pool");
    let error = error_of(&["pool", "info", missing.to_str().unwrap()]);
    assert!(error.contains("cannot open"), "{error}");
}

#[test]
fn a_second_opener_learns_who_holds_the_pool() {
    let directory = directory();
    let path = directory.path().join("held.pool");
    let text = path.to_str().unwrap();
    let server = Server::start(&path, &[]);
    let holder = format!("in use by process {}", server.pid());
    for arguments in [
        &["serve", "--pool", text, "--listen", "127.0.0.1:0"][..],
        &["pool", "info", text],
        &["pool", "check", text],
    ] {
        let error = error_of(arguments);
        assert!(error.contains(&holder), "{error}");
    }
    // A patient one gets it as soon as the first lets go.
    let patient = std::thread::spawn({
        let path = path.clone();
        move || Server::start(&path, &["--wait", "60s"])
    });
    server.connect().call(&["SET", "key", "value"]);
    server.stop();
    let successor = patient.join().unwrap();
    assert_eq!(successor.connect().call(&["GET", "key"]), Answer::bulk("value"));
}

#[test]
fn a_pool_tells_whether_it_was_closed_properly() {
    let directory = directory();
    let path = directory.path().join("closed.pool");
    let text = path.to_str().unwrap();
    Server::start(&path, &[]).stop();
    assert_eq!(info(text)["clean"], true);
    let server = Server::start(&path, &[]);
    assert!(!server.greeting.contains("after a crash"), "{}", server.greeting);
    server.kill();
    assert_eq!(info(text)["clean"], false);
    let server = Server::start(&path, &[]);
    server.connect().call(&["SET", "key", "value"]);
    server.kill();
    let server = Server::start(&path, &[]);
    assert!(server.greeting.contains(": entries not counted yet in "), "{}", server.greeting);
    assert!(server.greeting.contains("after a crash"), "{}", server.greeting);
    assert!(server.greeting.contains("not a reboot") || !path.starts_with("/dev/shm"));
}

#[test]
fn what_the_backing_cannot_give_is_refused() {
    let directory = directory();
    if !directory.path().starts_with("/dev/shm") {
        return; // Only memory is known to lose power; an ordinary disk can promise it.
    }
    let path = directory.path().join("power.pool");
    let path = path.to_str().unwrap();
    let error = error_of(&["pool", "create", path, "--durability", "power"]);
    assert!(error.contains("tmpfs"), "{error}");
    assert!(!std::path::Path::new(path).exists());
}

#[test]
fn power_safe_pools_live_on_files() {
    let directory = on_disk();
    let path = directory.path().join("power.pool");
    let server = Server::start(&path, &["--durability", "power", "--size", "256M"]);
    assert!(server.greeting.contains("survives the loss of power"), "{}", server.greeting);
    let mut client = server.connect();
    for index in 0..20 {
        assert_eq!(client.call(&["SET".into(), format!("key{index}"), "v".into()]), Answer::ok());
    }
    server.kill();
    assert_eq!(info(path.to_str().unwrap())["durability"], "power");
    // Not asked for again, and kept nevertheless.
    let server = Server::start(&path, &[]);
    assert!(server.greeting.contains("survives the loss of power"), "{}", server.greeting);
    assert_eq!(server.connect().call(&["DBSIZE"]), Answer::Integer(20));
    server.stop();
    assert_whole(&path);
}

#[test]
fn help_and_mistakes_say_what_to_do() {
    for arguments in
        [&["--help"][..], &["serve", "--help"], &["pool", "--help"], &["pool", "check", "--help"]]
    {
        let output = remanent(arguments);
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("Usage:"), "{text}");
    }
    let output = remanent(&["serve", "--size", "many"]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("8G"), "{error}");
}
