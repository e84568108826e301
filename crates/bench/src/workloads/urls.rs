//! Addresses of web pages: distinct, 20 to 120 bytes long, the same in every run.

use super::keys::mix;

const HOSTS: u64 = 300;
const LEN_MAX: usize = 120;
const WORDS: [&str; 16] = [
    "archive",
    "blog",
    "books",
    "catalogue",
    "de",
    "forum",
    "garden",
    "images",
    "lexicon",
    "news",
    "people",
    "products",
    "questions",
    "shop",
    "travel",
    "weather",
];

/// The address of a page; different numbers give different ones.
pub(crate) fn url(number: u64) -> String {
    let draw = |turn: u64| mix(number ^ turn << 56);
    let word = |turn| WORDS[(draw(turn) % WORDS.len() as u64) as usize];
    // Few hosts have most of the pages.
    let host = (draw(1) % HOSTS) * (draw(2) % HOSTS) / HOSTS;
    let name = WORDS[(mix(host) % WORDS.len() as u64) as usize];
    let mut url = format!("https://{name}-{host}.org");
    for turn in 0..draw(3) % 6 {
        url.push('/');
        url.push_str(word(8 + turn));
    }
    // One in four is a page with a title; the others have the number of an item.
    if draw(4).is_multiple_of(4) {
        url.push_str(&format!("/{}-{}-{number}.html", word(5), word(6)));
    } else {
        url.push_str(&format!("?id={number}"));
    }
    debug_assert!(url.len() <= LEN_MAX);
    url
}

/// The addresses numbered `first .. first + count`.
pub(crate) fn urls(first: u64, count: usize) -> Vec<String> {
    (first..).take(count).map(url).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn addresses_are_distinct_and_of_the_lengths_that_were_promised() {
        let urls = urls(0, 10_000);
        assert_eq!(urls.iter().collect::<HashSet<_>>().len(), urls.len());
        let lens = || urls.iter().map(String::len);
        assert!(lens().min() >= Some(20) && lens().max() <= Some(LEN_MAX), "{:?}", lens().max());
        let mean = lens().sum::<usize>() / urls.len();
        assert!((35..80).contains(&mean), "{mean}");
        assert_eq!(urls[7], url(7));
    }
}
