//! The checksum of layouts.

/// The checksum of layouts here: CRC-32C.
///
/// ```
/// assert_eq!(remanent_pmem::crc32c(b"123456789"), 0xe306_9283);
/// ```
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}
