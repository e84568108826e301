//! Serves plain memory as a block device, for comparing servers without what they store in.
//!
//! `cargo run --release -p remanent-nbd --example ram -- SOCKET [MIB]`

use std::io;
use std::ops::ControlFlow;
use std::sync::{Arc, PoisonError, RwLock};

use remanent_nbd::{Allocation, Config, Export, ExportError, Exports, Server};

/// Bytes in memory, all of them allocated.
struct Ram(RwLock<Vec<u8>>);

impl Ram {
    fn change(&self, offset: u64, len: u64, change: impl FnOnce(&mut [u8])) {
        let mut bytes = self.0.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut bytes[offset as usize..][..len as usize]);
    }
}

impl Export for Ram {
    fn size(&self) -> u64 {
        self.0.read().unwrap_or_else(PoisonError::into_inner).len() as u64
    }

    fn read(&self, offset: u64, target: &mut [u8]) -> Result<(), ExportError> {
        let bytes = self.0.read().unwrap_or_else(PoisonError::into_inner);
        target.copy_from_slice(&bytes[offset as usize..][..target.len()]);
        Ok(())
    }

    fn write(&self, offset: u64, source: &[u8]) -> Result<(), ExportError> {
        self.change(offset, source.len() as u64, |bytes| bytes.copy_from_slice(source));
        Ok(())
    }

    fn write_zeroes(&self, offset: u64, len: u64, _: bool) -> Result<(), ExportError> {
        self.change(offset, len, |bytes| bytes.fill(0));
        Ok(())
    }

    fn trim(&self, _: u64, _: u64) -> Result<(), ExportError> {
        Ok(())
    }

    fn flush(&self) -> Result<(), ExportError> {
        Ok(())
    }

    fn status(
        &self,
        _: u64,
        len: u64,
        visit: &mut dyn FnMut(u64, Allocation) -> ControlFlow<()>,
    ) -> Result<(), ExportError> {
        let _ = visit(len, Allocation::Data);
        Ok(())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let socket = arguments.next().ok_or("a path for the socket is missing")?;
    let size_mib: usize = arguments.next().map_or(Ok(1024), |size| size.parse())?;
    let mut exports = Exports::new();
    exports.add("ram", Arc::new(Ram(RwLock::new(vec![0; size_mib << 20]))))?;
    let config = Config { unix: vec![socket.into()], ..Config::default() };
    let stopped: io::Result<()> =
        Server::bind(exports, config)?.run(async { _ = tokio::signal::ctrl_c().await }).await;
    Ok(stopped?)
}
