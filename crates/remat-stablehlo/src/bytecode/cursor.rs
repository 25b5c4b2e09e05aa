//! A position in the bytes of a file: integers of variable width, sections, and errors with the offset.

use remat_ir::{Error, ErrorKind, Result};

/// The byte that fills the space before aligned data.
const FILLER: u8 = 0xCB;

/// A range of the file that is read from its front. Every error names the offset in the whole file.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    file: &'a [u8],
    at: usize,
    end: usize,
}

/// An error at a byte of the file.
pub(crate) fn damaged(offset: usize, message: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Parse, "bytecode", format!("{message}, at byte {offset}"))
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(file: &'a [u8]) -> Cursor<'a> {
        Cursor { file, at: 0, end: file.len() }
    }

    /// The offset in the file.
    pub(crate) fn offset(&self) -> usize {
        self.at
    }

    /// How many bytes are left.
    pub(crate) fn len(&self) -> usize {
        self.end - self.at
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// An error at this position.
    pub(crate) fn error(&self, message: impl std::fmt::Display) -> Error {
        damaged(self.at, message)
    }

    pub(crate) fn byte(&mut self) -> Result<u8> {
        let [byte] = *self.bytes(1)? else { return Err(self.error("the data ends early")) };
        Ok(byte)
    }

    /// The next `len` bytes.
    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8]> {
        if len > self.len() {
            return Err(self.error(format_args!("{len} bytes are expected where {} are left", self.len())));
        }
        let bytes = &self.file[self.at..self.at + len];
        self.at += len;
        Ok(bytes)
    }

    /// The next `len` bytes as a range to read on its own.
    pub(crate) fn part(&mut self, len: usize) -> Result<Cursor<'a>> {
        let start = self.at;
        self.bytes(len)?;
        Ok(Cursor { file: self.file, at: start, end: self.at })
    }

    /// An integer of 1 to 9 bytes: the number of zero bits at the low end of the first byte is the number of bytes that follow.
    pub(crate) fn varint(&mut self) -> Result<u64> {
        let first = self.byte()?;
        let more = first.trailing_zeros() as usize;
        let mut bytes = [0; 8];
        if more == 8 {
            bytes.copy_from_slice(self.bytes(8)?);
            return Ok(u64::from_le_bytes(bytes));
        }
        bytes[0] = first;
        bytes[1..=more].copy_from_slice(self.bytes(more)?);
        Ok(u64::from_le_bytes(bytes) >> (more + 1))
    }

    /// An integer whose lowest bit is a flag.
    pub(crate) fn varint_with_flag(&mut self) -> Result<(u64, bool)> {
        let value = self.varint()?;
        Ok((value >> 1, value & 1 == 1))
    }

    /// A signed integer: its sign is the lowest bit.
    pub(crate) fn signed_varint(&mut self) -> Result<i64> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// The number of elements of a list, each of which takes at least one of the bytes that are left.
    pub(crate) fn count(&mut self, what: &str) -> Result<usize> {
        let offset = self.at;
        let count = self.varint()?;
        self.fits(count, what).map_err(|message| damaged(offset, message))
    }

    /// The count, if there is a byte for each.
    pub(crate) fn fits(&self, count: u64, what: &str) -> Result<usize, String> {
        match usize::try_from(count) {
            Ok(count) if count <= self.len() => Ok(count),
            _ => Err(format!("{count} {what} cannot lie in {} bytes", self.len())),
        }
    }

    /// An index below `len`.
    pub(crate) fn index(&mut self, len: usize, what: &str) -> Result<u32> {
        let offset = self.at;
        let index = self.varint()?;
        below(index, len).ok_or_else(|| damaged(offset, format_args!("there is no {what} {index} among {len}")))
    }

    /// As [`Cursor::index`], with a flag in the lowest bit.
    pub(crate) fn index_with_flag(&mut self, len: usize, what: &str) -> Result<(u32, bool)> {
        let offset = self.at;
        let (index, flag) = self.varint_with_flag()?;
        let index =
            below(index, len).ok_or_else(|| damaged(offset, format_args!("there is no {what} {index} among {len}")))?;
        Ok((index, flag))
    }

    /// A text that a zero ends.
    pub(crate) fn text(&mut self) -> Result<&'a str> {
        let rest = &self.file[self.at..self.end];
        let Some(len) = rest.iter().position(|&byte| byte == 0) else {
            return Err(self.error("a text has no end"));
        };
        let text = str::from_utf8(&rest[..len]).map_err(|_| self.error("a text is not UTF-8"))?;
        self.at += len + 1;
        Ok(text)
    }

    /// Skips the filler before data that begins at a multiple of `alignment`.
    pub(crate) fn align(&mut self, alignment: u64) -> Result<()> {
        if !alignment.is_power_of_two() {
            return Err(self.error(format_args!("an alignment of {alignment} is not a power of two")));
        }
        while !(self.at as u64).is_multiple_of(alignment) {
            let offset = self.at;
            if self.byte()? != FILLER {
                return Err(damaged(offset, "the space before aligned data is not filled as it should be"));
            }
        }
        Ok(())
    }

    /// A section: its number and its data.
    pub(crate) fn section(&mut self) -> Result<(u8, Cursor<'a>)> {
        let head = self.byte()?;
        let len = self.varint()?;
        if head & 0x80 != 0 {
            let alignment = self.varint()?;
            self.align(alignment)?;
        }
        let len = self.fits(len, "bytes of a section").map_err(|message| self.error(message))?;
        Ok((head & 0x7F, self.part(len)?))
    }

    /// Fails unless everything has been read.
    pub(crate) fn finish(&self, what: &str) -> Result<()> {
        if self.is_empty() { Ok(()) } else { Err(self.error(format_args!("{what} has {} bytes too many", self.len()))) }
    }
}

fn below(index: u64, len: usize) -> Option<u32> {
    u32::try_from(index).ok().filter(|&index| (index as usize) < len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_one_to_nine_bytes() {
        let read = |bytes: &[u8]| Cursor::new(bytes).varint().unwrap();
        assert_eq!(read(&[0x01]), 0);
        assert_eq!(read(&[0xFF]), 127);
        assert_eq!(read(&[0x02, 0x02]), 128);
        assert_eq!(read(&[0x04, 0x00, 0x08]), 1 << 16);
        assert_eq!(read(&[0x00, 1, 0, 0, 0, 0, 0, 0, 0x80]), (1 << 63) + 1);
        assert_eq!(read(&[0x80, 1, 0, 0, 0, 0, 0, 0]), 1);
        let signed = |bytes: &[u8]| Cursor::new(bytes).signed_varint().unwrap();
        assert_eq!([signed(&[0x01]), signed(&[0x03]), signed(&[0x05])], [0, -1, 1]);
        assert_eq!(signed(&[0x00, 255, 255, 255, 255, 255, 255, 255, 255]), i64::MIN);
    }

    #[test]
    fn every_error_names_its_offset() {
        let mut cursor = Cursor::new(&[0x03, 0x04, 0x00]);
        cursor.byte().unwrap();
        assert_eq!(
            cursor.varint().unwrap_err().to_string(),
            "bytecode: 2 bytes are expected where 1 are left, at byte 2"
        );
        let count = Cursor::new(&[0xFF, 0]).count("elements").unwrap_err();
        assert_eq!(count.to_string(), "bytecode: 127 elements cannot lie in 1 bytes, at byte 0");
        let index = Cursor::new(&[0x07]).index(3, "type").unwrap_err();
        assert_eq!(index.to_string(), "bytecode: there is no type 3 among 3, at byte 0");
        let text = Cursor::new(b"abc").text().unwrap_err();
        assert_eq!(text.to_string(), "bytecode: a text has no end, at byte 0");
    }

    #[test]
    fn sections_may_be_aligned() {
        let bytes = [0x85, 0x03, 0x11, FILLER, FILLER, FILLER, FILLER, FILLER, 42];
        let (id, section) = Cursor::new(&bytes).section().unwrap();
        assert_eq!((id, section.offset(), section.len()), (5, 8, 1));
        let mut odd = bytes;
        odd[4] = 0;
        assert!(Cursor::new(&odd).section().unwrap_err().message().ends_with("at byte 4"));
        odd[2] = 0x0D;
        assert!(Cursor::new(&odd).section().unwrap_err().message().contains("is not a power of two"));
    }
}
