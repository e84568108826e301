//! What `#[transactional]` refuses, and with which words.
//!
//! A program of its own, since it runs the compiler on files that must not be part of any test.
//!
//! After a change of a message, `TRYBUILD=overwrite cargo test -p remanent-structures --test
//! compile_fail` rewrites the expectations; read the difference before committing it.

#[test]
fn misuse_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
