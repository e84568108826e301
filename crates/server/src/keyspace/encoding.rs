//! Encoding of intents: byte strings with their length in front, and parts of fixed length.

/// Appends the length of `text` (4 bytes, little-endian) and `text`.
pub(super) fn push_text(bytes: &mut Vec<u8>, text: &[u8]) {
    bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
    bytes.extend_from_slice(text);
}

/// Takes `N` bytes from the front; `None` when there are fewer.
pub(super) fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*taken)
}

/// Takes what [`push_text`] appended from the front; `None` when it is cut short.
pub(super) fn take_text<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = u32::from_le_bytes(take(bytes)?);
    let (text, rest) = bytes.split_at_checked(len as usize)?;
    *bytes = rest;
    Some(text)
}
