//! Event files of TensorBoard: records of `tensorflow.Event` messages, of which scalars are written.
//!
//! The format is that of TensorFlow's `tensorflow/core/lib/io/record_writer.cc` and `core/util/event.proto`: each record is its length
//! (u64), the masked CRC-32C of that, the message, and the masked CRC-32C of it, all little-endian.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use prost::encoding::{WireType, double, encode_key, encode_varint, float, int32, int64, string};
use remat::Result;

use super::cannot_write;

/// Appends scalars to a file of events in a folder.
pub(super) struct Events {
    path: PathBuf,
    file: BufWriter<File>,
}

impl Events {
    /// A new file in this folder. Readers drop the content of earlier files from step `first` on, since
    /// a resumed run measures these steps again.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn create(folder: &Path, first: u64) -> Result<Events> {
        let now = since_epoch();
        let path = (0..)
            .map(|number| folder.join(format!("events.out.tfevents.{:010}.{number}", now as u64)))
            .find(|path| !path.exists());
        let path = path.unwrap_or_else(|| folder.join("events.out.tfevents"));
        let file = OpenOptions::new().create_new(true).append(true).open(&path);
        let file = file.map_err(|error| cannot_write(&path, &error))?;
        let mut events = Events { path, file: BufWriter::new(file) };
        events.write(&event(now, 0, |bytes| string::encode(3, &"brain.Event:2".to_string(), bytes)))?;
        // SessionLog, whose status is START.
        let start = |bytes: &mut Vec<u8>| nested(7, bytes, |log| int32::encode(1, &1, log));
        events.write(&event(now, first, start))?;
        Ok(events)
    }

    /// Writes the values of a step, each under its name.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn scalars<'a>(&mut self, step: u64, values: impl IntoIterator<Item = (&'a str, f64)>) -> Result<()> {
        let summary = |summary: &mut Vec<u8>| {
            for (name, value) in values {
                nested(1, summary, |bytes| {
                    string::encode(1, &name.to_string(), bytes);
                    float::encode(2, &(value as f32), bytes);
                });
            }
        };
        self.write(&event(since_epoch(), step, |bytes| nested(5, bytes, summary)))
    }

    /// Flushes the written data to the system.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn flush(&mut self) -> Result<()> {
        self.file.flush().map_err(|error| cannot_write(&self.path, &error))
    }

    fn write(&mut self, event: &[u8]) -> Result<()> {
        let length = (event.len() as u64).to_le_bytes();
        let parts: [&[u8]; 4] = [&length, &masked(&length), event, &masked(event)];
        self.file.write_all(&parts.concat()).map_err(|error| cannot_write(&self.path, &error))
    }
}

/// A checksum in a form that may itself be part of data with a checksum.
fn masked(bytes: &[u8]) -> [u8; 4] {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

/// A `tensorflow.Event` at this time, with the fields that `rest` adds.
fn event(seconds: f64, step: u64, rest: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    double::encode(1, &seconds, &mut bytes);
    int64::encode(2, &(step as i64), &mut bytes);
    rest(&mut bytes);
    bytes
}

/// A message in a field of another.
fn nested(field: u32, out: &mut Vec<u8>, content: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = Vec::new();
    content(&mut bytes);
    encode_key(field, WireType::LengthDelimited, out);
    encode_varint(bytes.len() as u64, out);
    out.extend(bytes);
}

fn since_epoch() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_format() {
        // The format fixes the length and checksums of the first record that readers of version 2 accept; the value is that of TensorFlow's
        // own test of the masked checksum of an empty text.
        assert_eq!(u32::from_le_bytes(masked(b"")), 0xa282_ead8);
        // CRC-32C of "123456789" is 0xe3069283 by RFC 3720.
        let sum = 0xe306_9283u32;
        assert_eq!(u32::from_le_bytes(masked(b"123456789")), sum.rotate_right(15).wrapping_add(0xa282_ead8));
    }

    #[test]
    fn every_file_has_a_name_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let paths = [(); 3].map(|()| Events::create(folder.path(), 1).unwrap().path);
        assert!(paths[0] != paths[1] && paths[1] != paths[2] && paths[0] != paths[2]);
    }
}
