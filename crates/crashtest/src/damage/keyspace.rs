//! Damage to strings and sorted sets of a server, examined by commands of clients.

use std::sync::Arc;

use anyhow::bail;
use remanent_pmem::Pool;
use remanent_server::resp::encode_request;
use remanent_server::{Config, Keyspace, MapStore, Progress, Session, Shared};

use super::content::{Answer, Content, Step, Values};
use super::{Answers, Subject};

const CONTENT: Content = Content { changes: true, values: Values::Bytes { long: 70_000 } };
/// One number in so many is a member of a sorted set; the others are strings.
const SETS_ONE_IN: u64 = 4;
const SETS: u64 = 9;

/// The pool of a server.
pub(super) struct Keys;

type Client = Session<MapStore>;

fn connect(pool: &Pool) -> anyhow::Result<Client> {
    let keys = Keyspace::open(MapStore::open(pool)?)?;
    let shared = Arc::new(Shared::new(keys, Config::default()));
    let address = "127.0.0.1:50000".parse()?;
    Ok(Session::new(shared, address, address))
}

/// Runs one command, and returns the answer as it is sent.
fn call(client: &mut Client, command: &[&[u8]]) -> Vec<u8> {
    encode_request(client.input(), command);
    let mut answer = Vec::new();
    let mut progress = client.run();
    loop {
        answer.extend_from_slice(client.output());
        client.sent();
        progress = match progress {
            Progress::Yield | Progress::Wait(_) => client.run(),
            Progress::Long => client.run_long(),
            Progress::Read | Progress::Close | Progress::ShutDown => return answer,
        };
    }
}

/// Decodes an answer: an error, nothing, or a string.
fn parse(answer: &[u8]) -> Result<Option<&[u8]>, String> {
    match answer.split_first() {
        Some((b'-', text)) => Err(String::from_utf8_lossy(text).trim_end().to_owned()),
        Some((b'$', b"-1\r\n")) => Ok(None),
        Some((b'$', rest)) => {
            let end = rest.windows(2).position(|pair| pair == b"\r\n");
            Ok(end.and_then(|end| rest.get(end + 2..rest.len() - 2)))
        }
        _ => Ok(Some(answer)),
    }
}

fn set_of(number: u64) -> Vec<u8> {
    format!("set {}", number % SETS).into_bytes()
}

fn member_of(number: u64) -> Vec<u8> {
    format!("member {number}").into_bytes()
}

/// The score of a member: the first bytes of its value, as a whole number that is printed as it was
/// given.
fn score_of(number: u64, version: u64) -> Vec<u8> {
    let mut bytes = CONTENT.value(number, version);
    bytes.resize(4, 7);
    let digits = u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"));
    digits.to_string().into_bytes()
}

fn is_member(number: u64) -> bool {
    number.is_multiple_of(SETS_ONE_IN)
}

fn key_of(number: u64) -> Vec<u8> {
    format!("string {number}").into_bytes()
}

fn apply(client: &mut Client, step: Step) -> Vec<u8> {
    match step {
        Step::Put(number, version) if is_member(number) => {
            let (set, member) = (set_of(number), member_of(number));
            call(client, &[b"ZADD", &set, &score_of(number, version), &member])
        }
        Step::Remove(number) if is_member(number) => {
            call(client, &[b"ZREM", &set_of(number), &member_of(number)])
        }
        Step::Put(number, version) => {
            call(client, &[b"SET", &key_of(number), &CONTENT.value(number, version)])
        }
        Step::Remove(number) => call(client, &[b"DEL", &key_of(number)]),
    }
}

fn apply_all(client: &mut Client, steps: impl Iterator<Item = Step>) -> anyhow::Result<()> {
    for step in steps {
        if let Err(error) = parse(&apply(client, step)) {
            bail!("{step:?} was refused: {error}");
        }
    }
    Ok(())
}

/// Looks one number up.
fn ask(client: &mut Client, number: u64, answers: &mut Answers) {
    let answer = if is_member(number) {
        call(client, &[b"ZSCORE", &set_of(number), &member_of(number)])
    } else {
        call(client, &[b"GET", &key_of(number)])
    };
    match parse(&answer) {
        Err(error) => answers.note(Answer::Error, || error),
        Ok(found) if is_member(number) => {
            CONTENT.judge_as(number, found, score_of, answers);
        }
        Ok(found) => CONTENT.judge(number, found, answers),
    }
}

/// Asks for all members of a set, by their scores.
fn ask_for_set(client: &mut Client, set: u64, answers: &mut Answers) {
    let answer = call(client, &[b"ZRANGE", &set_of(set), b"-inf", b"+inf", b"BYSCORE"]);
    if let Err(error) = parse(&answer) {
        return answers.note(Answer::Error, || error);
    }
    let lines = answer.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii_end);
    let met: Vec<&[u8]> = lines.filter(|line| line.starts_with(b"member ")).collect();
    let members = || CONTENT.asked().filter(|number| is_member(*number) && number % SETS == set);
    for number in members() {
        let found = met.contains(&&member_of(number)[..]);
        let stored = CONTENT.is_stored(number);
        let judged = match (stored, found) {
            (true, false) => Answer::Absent,
            (false, true) => Answer::Older,
            _ => Answer::Right,
        };
        answers.note(judged, || format!("member {number} in a range: {found}"));
    }
}

impl Subject for Keys {
    fn name(&self) -> &'static str {
        "server"
    }

    fn unprotected(&self) -> Option<&'static str> {
        None
    }

    fn fill(&self, pool: &Pool) -> anyhow::Result<()> {
        apply_all(&mut connect(pool)?, CONTENT.fill())
    }

    fn change(&self, pool: &Pool) -> anyhow::Result<()> {
        apply_all(&mut connect(pool)?, CONTENT.change())
    }

    fn read(&self, pool: &Pool) -> anyhow::Result<Answers> {
        let mut client = connect(pool)?;
        let mut answers = Answers::default();
        CONTENT.asked().for_each(|number| ask(&mut client, number, &mut answers));
        (0..SETS).for_each(|set| ask_for_set(&mut client, set, &mut answers));
        Ok(answers)
    }

    fn write(&self, pool: &Pool) {
        if let Ok(mut client) = connect(pool) {
            CONTENT.write().for_each(|step| drop(apply(&mut client, step)));
        }
    }
}
