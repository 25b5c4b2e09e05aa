//! JSON lines, and JSON arrays.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use remat::Result;
use remat::files::{cannot, wrong};
use remat::ir::did_you_mean;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::piece::{Piece, cut};
use super::{Pieces, READ};
use crate::failure::listed;

/// The longest element: longer than any text, and a bound for files with other content.
const LONGEST: u64 = 1 << 28;

/// An object, by its keys.
#[derive(Deserialize)]
struct Row<'a>(#[serde(borrow)] BTreeMap<Cow<'a, str>, &'a RawValue>);

/// The pieces of the documents of a file: the texts in a column of its lines, or of the elements of its array.
pub(super) fn pieces(path: &Path, column: &str, reader: impl Read + Send + 'static) -> Pieces {
    let (path, column) = (path.to_path_buf(), column.to_string());
    let mut rows = Rows {
        path: path.clone(),
        reader: BufReader::with_capacity(1 << 18, reader),
        position: Position::default(),
        array: None,
    };
    let mut row = Vec::new();
    let mut pending: std::vec::IntoIter<Piece> = Vec::new().into_iter();
    Box::new(std::iter::from_fn(move || {
        loop {
            if let Some(piece) = pending.next() {
                return Some(Ok(piece));
            }
            let start = match rows.next(&mut row) {
                Ok(start) => start?,
                Err(error) => return Some(Err(error)),
            };
            match text(&row, start, &column) {
                Ok(text) => pending = cut(&text).collect::<Vec<_>>().into_iter(),
                Err(message) => return Some(Err(wrong(READ, &path, message))),
            }
        }
    }))
}

/// A position in a file.
#[derive(Clone, Copy, Default)]
struct Position {
    /// From 1.
    line: usize,
    /// The bytes before it in its line.
    before: usize,
}

impl Position {
    /// The position after a byte.
    fn behind(self, byte: u8) -> Position {
        match byte {
            b'\n' => Position { line: self.line + 1, before: 0 },
            _ => Position { before: self.before + 1, ..self },
        }
    }
}

/// The text in a column of an object that starts at a position; `None` for null.
fn text<'a>(row: &'a [u8], start: Position, column: &str) -> std::result::Result<Cow<'a, str>, String> {
    // Errors count lines and bytes from the start of the parsed text.
    let invalid = |error: serde_json::Error, start: Position| {
        let line = start.line + error.line().max(1) - 1;
        let byte = error.column() + if error.line() > 1 { 0 } else { start.before };
        let message = error.to_string();
        let end = message.rfind(" at line").unwrap_or(message.len());
        format!("line {line}, byte {byte}: {}", &message[..end])
    };
    let Row(columns) = serde_json::from_slice(row).map_err(|error| invalid(error, start))?;
    let of_row = |message: String| format!("line {}: {message}", start.line);
    let Some(value) = columns.get(column) else {
        let all = columns.keys().map(|key| &**key);
        let near = did_you_mean(column, all.clone(), String::new);
        return Err(of_row(format!("it has no column `{column}`; its columns are {}{near}", listed(all))));
    };
    let value = value.get();
    match value.as_bytes().first() {
        Some(b'"') => serde_json::from_str::<Text>(value).map(|text| text.0).map_err(|error| {
            let offset = value.as_ptr().addr() - row.as_ptr().addr();
            invalid(error, row[..offset].iter().fold(start, |at, &byte| at.behind(byte)))
        }),
        Some(b'n') => Ok(Cow::Borrowed("")),
        first => {
            let what = match first {
                Some(b'{') => "an object",
                Some(b'[') => "an array",
                Some(b't' | b'f') => "a boolean",
                _ => "a number",
            };
            Err(of_row(format!("column `{column}` is {what}, not text")))
        }
    }
}

/// A string, borrowed where it has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// The objects of a file, as bytes.
struct Rows<R> {
    path: PathBuf,
    reader: BufReader<R>,
    /// The position of the next byte.
    position: Position,
    /// Whether the file is an array; `None` until its first byte is read.
    array: Option<bool>,
}

impl<R: Read> Rows<R> {
    /// Reads the next object into `row`, and returns where it starts; `None` at the end.
    ///
    /// # Errors
    /// If the file cannot be read, an object is too long, or an array is not closed.
    fn next(&mut self, row: &mut Vec<u8>) -> Result<Option<Position>> {
        row.clear();
        let is_array = match self.array {
            Some(is_array) => is_array,
            None => {
                self.position.line = 1;
                self.skip(|byte| byte.is_ascii_whitespace())?;
                let first = self.peek()?;
                if first == Some(b'[') {
                    self.advance(b'[');
                }
                *self.array.insert(first == Some(b'['))
            }
        };
        if is_array { self.element(row) } else { self.of_line(row) }
    }

    /// The next line that is not empty.
    fn of_line(&mut self, row: &mut Vec<u8>) -> Result<Option<Position>> {
        self.skip(|byte| byte.is_ascii_whitespace())?;
        let read = self.reader.by_ref().take(LONGEST).read_until(b'\n', row);
        if read.map_err(|error| self.failed(&error))? == 0 {
            return Ok(None);
        }
        if row.len() as u64 == LONGEST && row.last() != Some(&b'\n') {
            return Err(self.too_long(self.position));
        }
        let start = self.position;
        self.position = Position { line: start.line + 1, before: 0 };
        Ok(Some(start))
    }

    /// The next element of an array: up to the comma or the bracket that is outside of strings, objects and arrays.
    fn element(&mut self, row: &mut Vec<u8>) -> Result<Option<Position>> {
        self.skip(|byte| byte.is_ascii_whitespace() || byte == b',')?;
        let start = self.position;
        let (mut depth, mut in_string, mut is_escaped) = (0usize, false, false);
        loop {
            let Some(byte) = self.peek()? else {
                return Err(wrong(READ, &self.path, format!("line {}: the array ends inside an element", start.line)));
            };
            if !in_string && depth == 0 && matches!(byte, b',' | b']') {
                // Bytes after the array are not read.
                return Ok((!row.is_empty()).then_some(start));
            }
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' if in_string => is_escaped = true,
                b'"' => in_string = !in_string,
                b'{' | b'[' if !in_string => depth += 1,
                b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
                _ => {}
            }
            row.push(byte);
            self.advance(byte);
            if row.len() as u64 > LONGEST {
                return Err(self.too_long(start));
            }
        }
    }

    /// Skips bytes.
    fn skip(&mut self, is_skipped: impl Fn(u8) -> bool) -> Result<()> {
        while let Some(byte) = self.peek()?.filter(|&byte| is_skipped(byte)) {
            self.advance(byte);
        }
        Ok(())
    }

    /// Advances over a byte that was peeked.
    fn advance(&mut self, byte: u8) {
        self.position = self.position.behind(byte);
        self.reader.consume(1);
    }

    fn peek(&mut self) -> Result<Option<u8>> {
        match self.reader.fill_buf() {
            Ok(bytes) => Ok(bytes.first().copied()),
            Err(error) => Err(self.failed(&error)),
        }
    }

    fn failed(&self, error: &io::Error) -> remat::Error {
        cannot(READ, &format!("read line {} of", self.position.line), &self.path, error)
    }

    fn too_long(&self, start: Position) -> remat::Error {
        let message = format!("line {}: an element has more than {} MiB", start.line, LONGEST >> 20);
        wrong(READ, &self.path, message)
    }
}
