//! What the command prints where nobody can read it, and what it says of arguments that make no
//! sense.

use std::fs::File;
use std::path::Path;
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::Arc;

use remanent::{HashMap, Pool};
use rustix::fs::{CWD, Mode, mkfifoat};

use super::support::{Server, directory, error_of, pool_info, remanent};

/// A pool with a disk, made in `directory`; its path, and those of pools that are not there yet.
fn pool_in(directory: &Path) -> [String; 3] {
    let path = |name: &str| directory.join(name).to_str().unwrap().to_owned();
    let pool = path("a.pool");
    assert!(remanent(&["disk", "create", &pool, "--size", "1M"]).status.success());
    [pool, path("new.pool"), path("newer.pool")]
}

fn run(arguments: &[&str], stdout: impl Into<Stdio>, stderr: impl Into<Stdio>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_remanent"));
    command.args(arguments).stdin(Stdio::null()).stdout(stdout).stderr(stderr);
    command.spawn().and_then(|child| child.wait_with_output()).expect("the command runs")
}

/// Where output to a pipe goes whose reader has gone.
fn closed_pipe() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

fn full_disk() -> Stdio {
    File::options().write(true).open("/dev/full").expect("a device").into()
}

fn status_of(what: &[&str], status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| panic!("{what:?} was killed: {status}"))
}

#[test]
fn output_that_nobody_reads_ends_every_subcommand_quietly() {
    let directory = directory();
    let [pool, new, newer] = &pool_in(directory.path());
    let commands: &[&[&str]] = &[
        &["--help"],
        &["--version"],
        &["serve", "--help"],
        &["help", "disk", "serve"],
        &["pool", "info", pool],
        &["pool", "info", pool, "--json"],
        &["pool", "check", pool],
        &["pool", "check", pool, "--json"],
        &["disk", "info", pool],
        &["disk", "check", pool, "--json"],
        &["disk", "snapshot", pool, "s"],
        #[cfg(feature = "crash-test")]
        &["crash-test", "--list"],
        #[cfg(feature = "crash-test")]
        &["crash-test", "--structure", "hashmap", "--seeds", "1"],
        #[cfg(feature = "demo")]
        &["demo", "recovery", "--subscribers", "2k"],
        &["pool", "create", new, "--size", "64M"],
        &["disk", "create", newer, "--size", "1M"],
    ];
    for &what in commands {
        // Some make what may be made once.
        let is_once = what.contains(&"snapshot") || what.contains(&"create");
        let output = run(what, full_disk(), Stdio::piped());
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(status_of(what, output.status), 1, "{what:?}: {said}");
        let full =
            "error: cannot write to standard output: No space left on device (os error 28)\n";
        assert_eq!(said, full, "{what:?}");
        if !is_once {
            let output = run(what, closed_pipe(), Stdio::piped());
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!((status_of(what, output.status), said.as_str()), (1, ""), "{what:?}");
        }
        // Nor is there anybody to tell where standard error is full, too.
        let output = run(what, full_disk(), full_disk());
        assert_eq!(status_of(what, output.status), 1, "{what:?}");
    }
}

#[test]
fn messages_that_cannot_be_written_do_no_harm() {
    let directory = directory();
    let pool = directory.path().join("a.pool");
    let arguments = ["--password", "secret"];
    let server = Server::start_after("true", &pool, &arguments, Path::new("/dev/full"));
    let mut client = server.connect();
    // Each of these is told in the log.
    assert!(client.call(&["AUTH", "wrong"]).error().starts_with("WRONGPASS"));
    client.send(b"POST / HTTP/1.1\r\n").unwrap();
    client.drain();
    let mut client = server.connect();
    client.call(&["AUTH", "secret"]);
    client.call(&["SET", "key", "value"]);
    server.stop();
    let what = ["pool", "info", "/nowhere/a.pool"];
    assert_eq!(status_of(&what, run(&what, Stdio::piped(), full_disk()).status), 1);
}

#[test]
fn logs_that_are_redirected_have_no_colours_and_errors_are_told_once() {
    let directory = directory();
    let pool = directory.path().join("a.pool");
    let log = directory.path().join("log");
    let server =
        Server::start_after("export REMANENT_LOG=debug", &pool, &["--password", "secret"], &log);
    for _ in 0..3 {
        let mut client = server.connect();
        client.call(&["AUTH", "wrong"]);
    }
    server.stop();
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(!said.contains('\x1b'), "{said}");
    let told = said.lines().filter(|line| line.contains("a wrong password was given")).count();
    assert_eq!(told, 2, "the first and the second, then every so often: {said}");
    let error = error_of(&["pool", "info", "/nowhere/a.pool"]);
    assert_eq!(
        error,
        "error: cannot open /nowhere/a.pool: No such file or directory (os error 2)\n"
    );
}

#[test]
fn arguments_that_make_no_sense_are_told_so() {
    let directory = directory();
    let [pool, new, _] = &pool_in(directory.path());
    let serve = |option: &str, value: &str| {
        let output = remanent(&["serve", "--pool", new, option, value]);
        assert_eq!(output.status.code(), Some(2), "{option} {value}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    for (option, value, why) in [
        ("--size", "0", "no room in 0 bytes"),
        ("--max-clients", "0", "0 is not in 1.."),
        ("--threads", "20000", "20000 is not in 0..=1024"),
        ("--client-memory", "0", "no room in 0 bytes"),
        ("--listen", "localhost", "write HOST:PORT"),
        ("--listen", "no-such-host.invalid:1", "`no-such-host.invalid` is not found"),
    ] {
        let said = serve(option, value);
        assert!(said.contains(why), "{option} {value}: {said}");
    }
    assert!(!Path::new(new).exists());
    let error = error_of(&["serve", "--pool", new, "--password", "", "--listen", "0.0.0.0:0"]);
    assert!(error.contains("--password is empty"), "{error}");
    for name in ["x@y", ""] {
        let error = error_of(&["disk", "create", pool, "--size", "1M", "--name", name]);
        assert!(error.contains("DISK@SNAPSHOT"), "{error}");
    }
    let output = remanent(&["pool", "create", new, "--size", "0"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn a_host_can_be_given_by_name() {
    let directory = directory();
    let pool = directory.path().join("a.pool");
    let server = Server::start(&pool, &["--threads", "1"]);
    server.stop();
    let mut command = Command::new(env!("CARGO_BIN_EXE_remanent"));
    command.args(["serve", "--listen", "localhost:0", "--pool"]).arg(&pool);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut greeting = String::new();
    let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut stdout, &mut greeting).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(greeting.starts_with("listening on 127.0.0.1:"), "{greeting}");
}

/// Files that are no pools, names that steer terminals, limits below every use: each is told in a
/// line.
#[test]
fn what_makes_no_sense_ends_with_an_error() {
    let directory = directory();
    let [pool, new, _] = &pool_in(directory.path());
    let pipe = directory.path().join("pipe").to_str().unwrap().to_owned();
    mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).expect("a pipe");
    for what in
        [&["pool", "info", &pipe][..], &["pool", "check", &pipe], &["serve", "--pool", &pipe]]
    {
        let told = error_of(what);
        assert!(told.contains("regular file"), "{what:?}: {told}");
    }
    for name in ["a\nb: Disk", "\u{1b}[31m", "a@b"] {
        assert!(
            error_of(&["disk", "create", pool, "--size", "1M", "--name", name])
                .contains("cannot be called")
        );
    }
    assert!(error_of(&["disk", "snapshot", pool, "\u{7}"]).contains("cannot be called"));
    let password = ["serve", "--pool", new, "--password-file", "/dev/zero"];
    assert!(error_of(&password).contains("more than"));
    let seeds = ["damage-test", "--seed", "18446744073709551615", "--structure", "disk"];
    let told = error_of(&seeds);
    if cfg!(feature = "crash-test") {
        assert!(told.contains("--seed"), "{told}");
    } else {
        assert!(told.contains("--features crash-test -- damage-test --seed"), "{told}");
    }
    let shell = format!("ulimit -n 9; exec \"$0\" serve --pool {new} --listen 127.0.0.1:0");
    let mut limited = Command::new("sh");
    limited.args(["-c", &shell, env!("CARGO_BIN_EXE_remanent")]);
    let told = limited.output().expect("a shell").stderr;
    let told = String::from_utf8_lossy(&told);
    assert!(told.contains("ulimit -n") && !told.contains("panicked"), "{told}");
}

/// Names in a pool may be anybody's: programs that embed it choose them.
#[test]
fn names_of_others_do_not_steer_the_terminal() {
    let directory = directory();
    let path = directory.path().join("a.pool");
    let pool = Arc::new(Pool::options().size_max(64 << 20).create(&path).unwrap());
    drop(HashMap::<u64, u64>::create(&pool, "a\nroot        b\u{1b}[31m").unwrap());
    drop(HashMap::<u64, u64>::create(&pool, "\u{7f}\u{9b}").unwrap());
    drop(pool);
    let names = pool_info(path.to_str().unwrap())["roots"].to_string();
    assert!(names.contains("\u{7f}\u{9b}"), "{names}");
    let told = remanent(&["pool", "info", path.to_str().unwrap()]).stdout;
    let told = String::from_utf8(told).unwrap();
    assert!(told.contains(r"root        a\nroot        b\u001b[31m: "), "{told}");
}
