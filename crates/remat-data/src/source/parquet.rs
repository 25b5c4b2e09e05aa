//! Reads a column of a Parquet file.

use std::fs::File;
use std::path::Path;

use parquet::basic::Type;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::errors::ParquetError;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};
use remat::Result;
use remat::files::{cannot, wrong};
use remat::ir::did_you_mean;

use super::piece::{Piece, cut};
use super::{Pieces, READ};
use crate::failure::listed;

/// The rows that are read at a time; the reader also holds a page.
const ROWS: usize = 256;

/// A file, and how far it has been read.
struct Rows {
    file: SerializedFileReader<File>,
    column: usize,
    /// The definition level of an element that is not null.
    present: i16,
    /// The row group to read next.
    group: usize,
    reader: Option<ColumnReaderImpl<ByteArrayType>>,
    /// The rows of the groups so far.
    row: usize,
}

/// The pieces of the elements of a column, each of which is a document.
///
/// # Errors
/// If the file is damaged or has no such column of text. Damaged pages, and text that is not UTF-8, are detected when they are read.
pub(super) fn pieces(path: &Path, column: &str) -> Result<Pieces> {
    let file = File::open(path).map_err(|error| cannot(READ, "read", path, &error))?;
    let file = SerializedFileReader::new(file).map_err(|error| wrong(READ, path, format!("is damaged: {error}")))?;
    let (index, present) = find(&file, column).map_err(|message| wrong(READ, path, message))?;
    let (path, column) = (path.to_path_buf(), column.to_string());
    let mut rows = Rows { file, column: index, present, group: 0, reader: None, row: 0 };
    let mut pending: std::vec::IntoIter<(usize, Option<ByteArray>)> = Vec::new().into_iter();
    let mut document: std::vec::IntoIter<Piece> = Vec::new().into_iter();
    Ok(Box::new(std::iter::from_fn(move || {
        loop {
            if let Some(piece) = document.next() {
                return Some(Ok(piece));
            }
            let Some((row, text)) = pending.next() else {
                match rows.next() {
                    Ok(more) => pending = more?.into_iter(),
                    Err(error) => {
                        let message = format!("cannot be read at row {}: {}", rows.row, explained(&error));
                        return Some(Err(wrong(READ, &path, message)));
                    }
                }
                continue;
            };
            let Some(text) = text else { continue };
            match std::str::from_utf8(text.data()) {
                Ok(text) => document = cut(text).collect::<Vec<_>>().into_iter(),
                Err(error) => {
                    return Some(Err(wrong(
                        READ,
                        &path,
                        format!("row {row}: column `{column}` is not UTF-8: {error}"),
                    )));
                }
            }
        }
    })))
}

/// The index of a column of text, and the definition level of its elements.
///
/// # Errors
/// If there is none, or it has another type: the message names the columns.
fn find(file: &SerializedFileReader<File>, column: &str) -> std::result::Result<(usize, i16), String> {
    let schema = file.metadata().file_metadata().schema_descr();
    let names: Vec<String> = schema.columns().iter().map(|column| column.path().string()).collect();
    let Some(index) = names.iter().position(|name| name == column) else {
        let all = names.iter().map(String::as_str);
        let near = did_you_mean(column, all.clone(), String::new);
        return Err(format!("has no column `{column}`; its columns are {}{near}", listed(all)));
    };
    let found = schema.column(index);
    if found.max_rep_level() > 0 {
        return Err(format!("column `{column}` has lists, not text"));
    }
    match found.physical_type() {
        Type::BYTE_ARRAY => Ok((index, found.max_def_level())),
        other => Err(format!("column `{column}` has elements of type {other}, not text")),
    }
}

impl Rows {
    /// The next rows, each with its number from 0; a null has no bytes. `None` at the end.
    ///
    /// # Errors
    /// Those of the reader; if there are other numbers of rows than the file says.
    fn next(&mut self) -> std::result::Result<Option<Vec<(usize, Option<ByteArray>)>>, ParquetError> {
        let lost = |what: String| Err(ParquetError::General(what));
        loop {
            let reader = match &mut self.reader {
                Some(reader) => reader,
                None if self.group == self.file.num_row_groups() => {
                    let said = self.file.metadata().file_metadata().num_rows();
                    let has_all = i64::try_from(self.row) == Ok(said);
                    return if has_all {
                        Ok(None)
                    } else {
                        lost(format!("the file ends, and is said to have {said} rows"))
                    };
                }
                None => match self.file.get_row_group(self.group)?.get_column_reader(self.column)? {
                    ColumnReader::ByteArrayColumnReader(reader) => self.reader.insert(reader),
                    _ => return lost("the column has another type in this row group".into()),
                },
            };
            let (mut levels, mut values) = (Vec::new(), Vec::new());
            let (records, ..) = reader.read_records(ROWS, Some(&mut levels), None, &mut values)?;
            if records == 0 {
                self.end_group()?;
                continue;
            }
            let (first, present) = (self.row, self.present);
            self.row += records;
            let mut values = values.into_iter();
            // Without nulls there are no levels.
            let mut element =
                |i: usize| if levels.get(i).is_none_or(|&level| level == present) { values.next() } else { None };
            return Ok(Some((0..records).map(|i| (first + i, element(i))).collect()));
        }
    }

    /// Goes on to the next row group.
    ///
    /// # Errors
    /// If this one had another number of rows than the file says.
    fn end_group(&mut self) -> std::result::Result<(), ParquetError> {
        let groups = self.file.metadata().row_groups();
        let said: i64 = groups.iter().take(self.group + 1).map(RowGroupMetaData::num_rows).fold(0, i64::saturating_add);
        if i64::try_from(self.row) != Ok(said) {
            let message = format!("the row group ends, and is said to go on to row {said}");
            return Err(ParquetError::General(message));
        }
        self.reader = None;
        self.group += 1;
        Ok(())
    }
}

/// An error, with a hint if the compression is not supported.
fn explained(error: &ParquetError) -> String {
    let message = error.to_string();
    if message.contains("zstd") || message.contains("ZSTD") {
        return format!("{message} (build with the feature `parquet-zstd`)");
    }
    message
}
