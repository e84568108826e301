//! A session store: a map of sessions by their tokens, and an index of them by their expiry.
//!
//! ```text
//! session_store POOL start TOKEN USER SECONDS
//! session_store POOL prolong TOKEN SECONDS
//! session_store POOL end TOKEN
//! session_store POOL expire
//! session_store POOL list
//! session_store POOL simulate VISITORS
//! ```
//!
//! Map and index change in one [`Batch`]. So each session is in the index exactly once, under its
//! present expiry, and the index has nothing else, whenever the process is killed. A batch expects
//! the entries that it was made from, and is made anew if another thread was quicker.

use std::time::{Duration, SystemTime};

use remanent::{Batch, BlinkTree, Error, HashMap, Key, OrderedKey, Pool, Result, Stored};

/// Sessions that are expired in one batch: more of them share its fences, and fewer of them let
/// other writers in earlier.
const EXPIRED_AT_ONCE_MAX: usize = 50;
const THREADS: u64 = 4;
const HOUR: Duration = Duration::from_secs(3600);

#[derive(Clone, Debug, PartialEq, Stored)]
struct Session {
    user: u64,
    expires_unix_ms: u64,
}

/// Key of the index. Its order is that of its fields: what expires first comes first.
#[derive(Clone, Debug, PartialEq, Stored, Key, OrderedKey)]
struct Expiry {
    unix_ms: u64,
    token: String,
}

struct SessionStore {
    pool: Pool,
    by_token: HashMap<str, Session>,
    by_expiry: BlinkTree<Expiry, ()>,
}

impl SessionStore {
    fn open(path: &str) -> Result<Self> {
        let pool = Pool::options().size_max(1 << 30).open_or_create(path)?;
        Ok(SessionStore {
            by_token: HashMap::open_or_create(&pool, "sessions")?,
            by_expiry: BlinkTree::open_or_create(&pool, "sessions by expiry")?,
            pool,
        })
    }

    /// The session of a token, unless it has expired.
    fn find(&self, token: &str) -> Result<Option<Session>> {
        let now_unix_ms = unix_ms();
        Ok(self.by_token.get(token)?.filter(|session| session.expires_unix_ms > now_unix_ms))
    }

    /// Begins a session. Returns false if the token has one already.
    fn start(&self, token: &str, user: u64, lifetime: Duration) -> Result<bool> {
        self.edit(token, |found| match found {
            Some(_) => None,
            None => Some(Some(Session { user, expires_unix_ms: after(lifetime) })),
        })
    }

    /// Has a session expire `lifetime` from now. Returns false if it has ended meanwhile.
    fn prolong(&self, token: &str, lifetime: Duration) -> Result<bool> {
        self.edit(token, |found| {
            found.map(|session| Some(Session { expires_unix_ms: after(lifetime), ..session }))
        })
    }

    /// Ends a session. Returns false if there was none.
    fn end(&self, token: &str) -> Result<bool> {
        self.edit(token, |found| found.map(|_| None))
    }

    /// Removes the sessions that have expired, and returns how many there were.
    fn expire(&self) -> Result<usize> {
        // Excluded from the range: the least key that expires later.
        let end = Expiry { unix_ms: unix_ms() + 1, token: String::new() };
        let mut count = 0;
        loop {
            let due = self.by_expiry.range(..&end).take(EXPIRED_AT_ONCE_MAX);
            let due = due.collect::<Result<Vec<_>>>()?;
            let mut batch = Batch::new(&self.pool)?;
            for (expiry, ()) in &due {
                // As long as the index has this, the session expires then.
                batch.expect(&self.by_expiry, expiry, Some(&()))?;
                batch.remove(&self.by_token, expiry.token.as_str())?;
                batch.remove(&self.by_expiry, expiry)?;
            }
            match batch.commit() {
                Ok(_) => count += due.len(),
                // One of them was prolonged or ended.
                Err(Error::Conflict) => continue,
                Err(error) => return Err(error),
            }
            if due.len() < EXPIRED_AT_ONCE_MAX {
                return Ok(count);
            }
        }
    }

    /// Passes the session of a token to `decide`, which returns what it becomes: `None` for no
    /// change, `Some(None)` for its end. Map and index follow in one step. Returns whether there
    /// was a change.
    fn edit(
        &self,
        token: &str,
        decide: impl Fn(Option<Session>) -> Option<Option<Session>>,
    ) -> Result<bool> {
        let expiry = |of: &Session| Expiry { unix_ms: of.expires_unix_ms, token: token.to_owned() };
        loop {
            let stored = self.by_token.get(token)?;
            let mut batch = Batch::new(&self.pool)?;
            batch.expect(&self.by_token, token, stored.as_ref())?;
            if let Some(stored) = &stored {
                batch.remove(&self.by_expiry, &expiry(stored))?;
            }
            // An expired session is as good as none, but still in the index.
            let live = stored.filter(|session| session.expires_unix_ms > unix_ms());
            let Some(new) = decide(live) else { return Ok(false) };
            match new {
                Some(session) => {
                    batch.put(&self.by_token, token, &session)?;
                    // Of two changes to one key, the later one counts.
                    batch.put(&self.by_expiry, &expiry(&session), &())?;
                }
                None => batch.remove(&self.by_token, token)?,
            }
            match batch.commit() {
                Ok(_) => return Ok(true),
                Err(Error::Conflict) => {} // another thread was quicker
                Err(error) => return Err(error),
            }
        }
    }
}

/// Visitors who come, stay or leave, in several threads. Of every three, one ends the session, one
/// prolongs it, and one lets it expire.
fn simulate(store: &SessionStore, visitors: u64) -> Result<()> {
    let one_thread = |thread: u64| -> Result<()> {
        for visitor in (thread..visitors).step_by(THREADS as usize) {
            let token = format!("token {visitor}");
            store.start(&token, visitor, Duration::from_millis(10))?;
            match visitor % 3 {
                0 if store.end(&token)? => println!("ended {token}"),
                1 if store.prolong(&token, HOUR)? => println!("prolonged {token}"),
                _ => {}
            }
            if visitor % 100 == thread {
                store.expire()?;
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || one_thread(thread))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a thread does not panic"))
    })
}

fn unix_ms() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_millis() as u64)
}

fn after(lifetime: Duration) -> u64 {
    unix_ms() + lifetime.as_millis() as u64
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [path, command @ ..] = &arguments[..] else {
        return Err("usage: session_store POOL start|prolong|end|expire|list|simulate ...".into());
    };
    let store = SessionStore::open(path)?;
    let seconds = |text: &str| text.parse().map(Duration::from_secs);
    match command {
        ["start", token, user, lifetime] => {
            let is_new = store.start(token, user.parse()?, seconds(lifetime)?)?;
            println!("{}", if is_new { "started" } else { "the token is taken" });
        }
        ["prolong", token, lifetime] => {
            let is_there = store.prolong(token, seconds(lifetime)?)?;
            println!("{}", if is_there { "prolonged" } else { "no such session" });
        }
        ["end", token] => {
            println!("{}", if store.end(token)? { "ended" } else { "no such session" });
        }
        ["expire"] => println!("{} sessions had expired", store.expire()?),
        ["list"] => {
            for entry in &store.by_expiry {
                let (Expiry { unix_ms, token }, ()) = entry?;
                if let Some(session) = store.find(&token)? {
                    println!("{unix_ms} {token} of user {}", session.user);
                }
            }
        }
        ["simulate", visitors] => simulate(&store, visitors.parse()?)?,
        _ => return Err(format!("{command:?} is no command of a session store").into()),
    }
    Ok(())
}
