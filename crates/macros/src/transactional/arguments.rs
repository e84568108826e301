//! Arguments of `#[transactional(…)]`.

use proc_macro2::TokenStream;
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::{Attribute, Error, Ident, Meta, Result, Token};

/// What a method that returns `Err` does with its changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnErr {
    Abort,
    Commit,
}

/// Whether the struct must fit into one line: `#[transactional(line)]`.
pub(super) fn is_line(arguments: TokenStream) -> Result<bool> {
    let words = parse(arguments)?;
    for word in &words {
        if word != "line" {
            return Err(unknown(word));
        }
    }
    Ok(!words.is_empty())
}

/// What the arguments of a block or a method say about `Err`.
pub(super) fn on_err(arguments: TokenStream) -> Result<Option<OnErr>> {
    let mut said = None;
    for word in parse(arguments)? {
        let on_err = match word.to_string().as_str() {
            "abort_on_err" => OnErr::Abort,
            "commit_on_err" => OnErr::Commit,
            _ => return Err(unknown(&word)),
        };
        if said.replace(on_err).is_some_and(|before| before != on_err) {
            return Err(Error::new(
                word.span(),
                "an `Err` either aborts or commits: write one of `abort_on_err` (the default) and \
                 `commit_on_err`",
            ));
        }
    }
    Ok(said)
}

/// Removes the `#[transactional(…)]` of a method from its attributes, and returns what it says
/// about `Err`.
pub(super) fn take_on_err(attributes: &mut Vec<Attribute>) -> Result<Option<OnErr>> {
    let mut said = Ok(None);
    attributes.retain(|attribute| {
        let name = attribute.path().segments.last();
        let is_ours = name.is_some_and(|segment| segment.ident == "transactional");
        if is_ours {
            said = match &attribute.meta {
                Meta::List(list) => on_err(list.tokens.clone()),
                Meta::Path(_) => Ok(None),
                Meta::NameValue(meta) => {
                    Err(Error::new_spanned(meta, "arguments are in parentheses: `(commit_on_err)`"))
                }
            };
        }
        !is_ours
    });
    said
}

fn parse(arguments: TokenStream) -> Result<Vec<Ident>> {
    let words = Punctuated::<Ident, Token![,]>::parse_terminated.parse2(arguments)?;
    Ok(words.into_iter().collect())
}

fn unknown(word: &Ident) -> Error {
    Error::new(
        word.span(),
        format!(
            "unknown argument `{word}`: a struct takes `line` (at most 31 bytes, which change with \
             one fence), an `impl` block and its methods take `abort_on_err` or `commit_on_err`"
        ),
    )
}
