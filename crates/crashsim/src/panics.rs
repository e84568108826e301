//! Panics as results: caught without output, and with the place where they began.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

/// Ends the present run by unwinding, without a call of the panic hook.
pub(crate) fn stop(reason: String) -> ! {
    panic::resume_unwind(Box::new(Stop(reason)))
}

/// Runs `body`. A panic is returned as its message and place, and not printed.
pub(crate) fn catch<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    install_hook();
    let outer = QUIET.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(body));
    QUIET.set(outer);
    result.map_err(|payload| describe(payload.as_ref()))
}

struct Stop(String);

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

fn describe(payload: &(dyn Any + Send)) -> String {
    if let Some(Stop(reason)) = payload.downcast_ref::<Stop>() {
        return reason.clone();
    }
    let message = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a payload that is not text".to_owned());
    match PLACE.take() {
        Some(place) => format!("panicked at {place}: {message}"),
        None => format!("panicked: {message}"),
    }
}

/// The hook is global: it is installed once, and passes on every panic outside of [`catch`].
fn install_hook() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if QUIET.get() {
                PLACE.set(info.location().map(ToString::to_string));
            } else {
                previous(info);
            }
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_its_message_and_place() {
        let caught = catch(|| panic!("no {}", "way")).unwrap_err();
        assert!(caught.ends_with(": no way") && caught.contains("panics.rs:"), "{caught}");
        assert_eq!(catch(|| stop("enough".to_owned())).unwrap_err(), "enough");
        assert_eq!(catch(|| 3), Ok(3));
    }
}
