//! What the types refuse, and with which words.
//!
//! After a change of a message, `TRYBUILD=overwrite cargo test -p remanent-pmem --test
//! compile_fail` rewrites the expectations; read the difference before committing it.

#[test]
fn misuse_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
