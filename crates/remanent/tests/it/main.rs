//! The programs in `examples/`, as processes that are killed while they work and run again.

mod bank;
mod job_queue;
mod session_store;
mod support;
mod time_series;
mod work_queue;
