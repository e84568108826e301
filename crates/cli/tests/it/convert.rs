//! `remanent pool convert`, killed and run again.

use std::process::{Command, Stdio};
use std::time::Duration;

use remanent::{HashMap, Pool};

use super::support::{
    Answer, Random, Server, assert_whole, directory, error_of, number_from_env, pool_info, remanent,
};

const KEYS: u64 = 20_000;

#[test]
fn a_conversion_that_is_killed_loses_nothing() {
    let directory = directory();
    let path = directory.path().join("older.pool");
    let text = path.to_str().unwrap();
    let pool = Pool::options().size_max(1 << 30).create(&path).unwrap();
    drop(HashMap::<[u8], [u8]>::create(&pool, "redis").unwrap());
    drop(pool);
    let server = Server::start(&path, &[]);
    let mut client = server.connect();
    for first in (0..KEYS).step_by(1_000) {
        let pairs = (first..first + 1_000).flat_map(|n| [format!("key{n}"), format!("value{n}")]);
        let request: Vec<String> = std::iter::once("MSET".to_owned()).chain(pairs).collect();
        assert_eq!(client.call(&request), Answer::ok());
    }
    let error = error_of(&["pool", "convert", text]);
    assert!(error.contains("in use") || error.contains("process"), "{error}");
    server.stop();

    let mut random = Random::new(number_from_env("REMANENT_SEED", 1));
    for _ in 0..number_from_env("REMANENT_KILL_ROUNDS", 12) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_remanent"))
            .args(["pool", "convert", text])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(random.below(60)));
        command.kill().unwrap();
        let killed = !command.wait().unwrap().success();
        assert_whole(&path);
        let roots = pool_info(text)["roots"].to_string();
        if !roots.contains(r#""redis""#) {
            // It was nearly done.
            assert!(roots.contains(r#""redis entries""#), "{roots}");
            assert!(killed || roots.contains("ExtendibleMap"), "{roots}");
            break;
        }
    }
    let done = remanent(&["pool", "convert", text]);
    assert!(done.status.success(), "{done:?}");
    assert_whole(&path);
    let roots = pool_info(text)["roots"].to_string();
    assert!(!roots.contains(r#""redis""#) && roots.contains("ExtendibleMap"), "{roots}");
    let server = Server::start(&path, &[]);
    let mut client = server.connect();
    assert_eq!(client.call(&["DBSIZE"]), Answer::Integer(KEYS as i64));
    for first in (0..KEYS).step_by(1_000) {
        let keys = (first..first + 1_000).map(|n| format!("key{n}"));
        let request: Vec<String> = std::iter::once("MGET".to_owned()).chain(keys).collect();
        let expected: Vec<Vec<u8>> =
            (first..first + 1_000).map(|n| format!("value{n}").into_bytes()).collect();
        assert_eq!(client.call(&request).strings(), expected);
    }
    server.stop();
}
