//! The arrays that lie in sections of their own.

use remat_ir::Result;

use super::cursor::Cursor;

/// An array in the resource section: its name and its bytes.
#[derive(Clone, Debug)]
pub(crate) struct Resource<'a> {
    pub(crate) blob: Option<&'a [u8]>,
}

/// The kinds of an entry.
const BLOB: u8 = 0;
const BOOL: u8 = 1;
const STRING: u8 = 2;

/// Reads the entries of both sections. Attributes refer to those of dialects by number.
pub(super) fn read<'a>(
    mut data: Cursor<'a>,
    mut offsets: Cursor<'a>,
    strings: usize,
    dialects: usize,
) -> Result<Vec<Resource<'a>>> {
    // Entries of tools outside of the program, which say nothing about it.
    for _ in 0..offsets.count("groups of resources")? {
        offsets.index(strings, "string")?;
        group(&mut data, &mut offsets, strings, &mut Vec::new())?;
    }
    let mut resources = Vec::new();
    while !offsets.is_empty() {
        offsets.index(dialects, "dialect")?;
        group(&mut data, &mut offsets, strings, &mut resources)?;
    }
    data.finish("the section of resources")?;
    Ok(resources)
}

fn group<'a>(
    data: &mut Cursor<'a>,
    offsets: &mut Cursor<'a>,
    strings: usize,
    resources: &mut Vec<Resource<'a>>,
) -> Result<()> {
    for _ in 0..offsets.count("resources")? {
        offsets.index(strings, "string")?;
        let start = offsets.clone();
        let size = offsets.varint()?;
        let kind = offsets.byte()?;
        let size = data.fits(size, "bytes of a resource").map_err(|message| start.error(message))?;
        // An empty entry only declares its name.
        let mut entry = data.part(size)?;
        let blob = match kind {
            _ if size == 0 => None,
            BLOB => {
                let alignment = entry.varint()?;
                let length = entry.varint()?;
                entry.align(alignment)?;
                let length = entry.fits(length, "bytes of a blob").map_err(|message| entry.error(message))?;
                Some(entry.bytes(length)?)
            }
            BOOL => {
                entry.byte()?;
                None
            }
            STRING => {
                entry.index(strings, "string")?;
                None
            }
            other => return Err(start.error(format_args!("there is no kind {other} of resources"))),
        };
        entry.finish("a resource")?;
        resources.push(Resource { blob });
    }
    Ok(())
}
