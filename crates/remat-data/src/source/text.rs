//! Plain text.

use std::io::Read;
use std::path::Path;

use remat::files::cannot;

use super::piece::{PIECE, Piece, end_of_piece};
use super::{Pieces, READ};

/// The pieces of a file of text, which is one document.
pub(super) fn pieces(path: &Path, mut reader: impl Read + Send + 'static) -> Pieces {
    let path = path.to_path_buf();
    // The bytes that were read but not returned.
    let mut rest: Vec<u8> = Vec::new();
    let mut is_over = false;
    Box::new(std::iter::from_fn(move || {
        if is_over {
            return None;
        }
        // One more byte than a piece shows whether the document ends with the piece.
        let missing = (PIECE + 1 - rest.len()) as u64;
        if let Err(error) = reader.by_ref().take(missing).read_to_end(&mut rest) {
            is_over = true;
            return Some(Err(cannot(READ, "read", &path, &error)));
        }
        is_over = rest.len() <= PIECE;
        let end = if is_over { rest.len() } else { end_of_piece(&rest[..PIECE]) };
        let after = rest.split_off(end);
        let bytes = std::mem::replace(&mut rest, after);
        (!bytes.is_empty()).then_some(Ok(Piece { bytes, ends: is_over }))
    }))
}
