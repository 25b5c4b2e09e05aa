//! The standard output of a command whose work has a result besides what it prints.

use std::io::{self, ErrorKind, Write};

/// An output that may go away, as a pager does, while the work goes on: after its first error nothing more is written, and no write fails.
///
/// ```
/// use std::io::Write;
///
/// use remat_command::output::Output;
///
/// let (reader, writer) = std::io::pipe()?;
/// let mut out = Output::new(writer);
/// writeln!(out, "somebody reads this")?;
/// drop(reader);
/// writeln!(out, "nobody reads this")?;
/// assert!(out.is_lost() && out.finish().is_ok());
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Output<W> {
    to: W,
    /// The first error.
    lost: Option<io::Error>,
}

impl<W: Write> Output<W> {
    /// An output to this writer.
    pub fn new(to: W) -> Output<W> {
        Output { to, lost: None }
    }

    /// Whether a write has failed, so that nothing is written any more.
    pub fn is_lost(&self) -> bool {
        self.lost.is_some()
    }

    /// Writes what is buffered, after the work.
    ///
    /// # Errors
    /// The first error of the output, such as that of a full disk. That its reader has ended is none.
    pub fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        self.lost.filter(|error| error.kind() != ErrorKind::BrokenPipe).map_or(Ok(()), Err)
    }

    /// Runs `write` unless the output is lost.
    fn attempt(&mut self, write: impl FnOnce(&mut W) -> io::Result<()>) {
        if self.lost.is_none() {
            self.lost = write(&mut self.to).err();
        }
    }
}

impl<W: Write> Write for Output<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.attempt(|to| to.write_all(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.attempt(W::flush);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes some bytes, and then fails.
    struct Short(usize, ErrorKind);

    impl Write for Short {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = self.0.min(bytes.len());
            self.0 -= taken;
            if taken == 0 { Err(self.1.into()) } else { Ok(taken) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn only_the_end_of_the_reader_is_no_error() {
        for (kind, is_error) in [(ErrorKind::BrokenPipe, false), (ErrorKind::StorageFull, true)] {
            let mut out = Output::new(Short(3, kind));
            out.write_all(b"ab").unwrap();
            assert!(!out.is_lost());
            out.write_all(b"cd").unwrap();
            out.write_all(b"ef").unwrap();
            assert!(out.is_lost());
            assert_eq!(out.finish().is_err(), is_error, "{kind}");
        }
    }
}
