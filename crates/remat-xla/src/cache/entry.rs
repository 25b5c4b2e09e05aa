//! An entry of the cache: its key, a checksum, and the executable.

use twox_hash::XxHash3_128;

/// The first bytes of an entry, which change with its format.
const MAGIC: &[u8; 16] = b"remat executable";

/// Bytes before the executable: magic bytes, key, checksum.
const HEAD: usize = 48;

/// An entry with this key.
pub(super) fn written(key: u128, executable: &[u8]) -> Vec<u8> {
    let mut entry = Vec::with_capacity(HEAD + executable.len());
    entry.extend_from_slice(MAGIC);
    entry.extend_from_slice(&key.to_le_bytes());
    entry.extend_from_slice(&XxHash3_128::oneshot(executable).to_le_bytes());
    entry.extend_from_slice(executable);
    entry
}

/// The executable of an entry, if it is intact and has this key. Plugins may end the process if they read other bytes.
pub(super) fn read(key: u128, mut entry: Vec<u8>) -> Option<Vec<u8>> {
    let (head, executable) = entry.split_at_checked(HEAD)?;
    let checksum = XxHash3_128::oneshot(executable);
    let expected = [&MAGIC[..], &key.to_le_bytes(), &checksum.to_le_bytes()].concat();
    if head != expected {
        return None;
    }
    entry.drain(..HEAD);
    Some(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_entries_of_the_key_are_read() {
        let executable: Vec<u8> = (0..100).collect();
        let entry = written(7, &executable);
        assert_eq!(read(7, entry.clone()), Some(executable));
        assert_eq!(read(8, entry.clone()), None, "another program's");
        for len in 0..entry.len() {
            assert_eq!(read(7, entry[..len].to_vec()), None, "cut at {len}");
        }
        for at in 0..entry.len() {
            let mut damaged = entry.clone();
            damaged[at] ^= 0x10;
            assert_eq!(read(7, damaged), None, "byte {at}");
        }
        assert_eq!(read(7, [&entry[..], &[0]].concat()), None, "a byte more");
        assert_eq!(read(0, Vec::new()), None);
        // Only the head, which is an empty executable.
        assert_eq!(read(7, written(7, &[])), Some(Vec::new()));
    }
}
