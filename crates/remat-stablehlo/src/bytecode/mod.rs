//! MLIR bytecode: the file format of the programs that JAX exports and hands to compilers.
//!
//! A file is a list of sections: strings; dialects and names of operations; attributes and types, and the sizes of their encodings;
//! properties; resources; operations. [`Module::read`] reads versions 5 and 6 of the format (MLIR of 2023 and later), whose description is
//! MLIR's public "MLIR Bytecode Format".
//!
//! Nothing is trusted. A length is compared with the bytes that are left before memory is allocated by it, so that a module takes a small
//! multiple of the size of its file; regions may be nested to a fixed depth, and nothing else is nested: attributes and types refer to others by
//! number. What is damaged, cut off or unknown is an error with the offset of the byte.

mod attributes;
mod cursor;
mod ir;
mod properties;
mod resources;
mod types;

pub use attributes::{Attr, AttrId, Enumeration};
pub use ir::{Block, NameId, Operation, Region, ValueId};
pub use types::{Type, TypeId};

use remat_ir::Result;

use attributes::Context;
use cursor::{Cursor, damaged};
use resources::Resource;
use types::Count;

/// The first four bytes of every file.
pub const MAGIC: [u8; 4] = *b"ML\xefR";

/// The versions of the format that are read: since the first of them, properties have an encoding of their own.
const VERSIONS: std::ops::RangeInclusive<u64> = 5..=6;

/// What the sections hold, by number.
const SECTIONS: [&str; 9] = [
    "strings",
    "dialects",
    "attributes and types",
    "sizes of attributes and types",
    "operations",
    "resources",
    "sizes of resources",
    "versions of dialects",
    "properties",
];

/// The name of an operation.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Name<'a> {
    pub(crate) dialect: &'a str,
    pub(crate) name: &'a str,
    /// The names of its properties, if the operation is known.
    pub(crate) properties: Option<&'static str>,
}

/// What operations refer to by number.
#[derive(Debug)]
pub(crate) struct Tables<'a> {
    pub(crate) strings: Vec<&'a [u8]>,
    pub(crate) names: Vec<Name<'a>>,
    pub(crate) types: Vec<Type<'a>>,
    pub(crate) attributes: Vec<Attr<'a>>,
    properties: Vec<Cursor<'a>>,
}

impl<'a> Tables<'a> {
    fn context(&self) -> Context<'a, '_> {
        Context { strings: &self.strings, types: &self.types, attributes: self.attributes.len() }
    }
}

/// A program in a file, as operations with attributes.
#[derive(Debug)]
pub struct Module<'a> {
    pub(crate) tables: Tables<'a>,
    pub(crate) resources: Vec<Resource<'a>>,
    pub(crate) value_types: Vec<TypeId>,
    /// The program that wrote the file, with its version.
    pub producer: &'a str,
    /// The outermost operations: one module.
    pub block: Block,
}

impl<'a> Module<'a> {
    /// Reads a file.
    ///
    /// ```
    /// use remat_stablehlo::Module;
    /// let error = Module::read(b"ML\xefR\x0d").unwrap_err();
    /// assert_eq!(error.to_string(), "bytecode: a text has no end, at byte 5");
    /// ```
    ///
    /// # Errors
    /// If the bytes are not such a file, if it is damaged, or if something in it is unknown; the message ends with the offset.
    pub fn read(file: &'a [u8]) -> Result<Module<'a>> {
        let mut cursor = Cursor::new(file);
        if !file.starts_with(&MAGIC) {
            return Err(cursor.error("the file does not begin as MLIR bytecode does"));
        }
        cursor.bytes(MAGIC.len())?;
        let offset = cursor.offset();
        let version = cursor.varint()?;
        if !VERSIONS.contains(&version) {
            let message = format!("version {version} of the format is not one of {VERSIONS:?}");
            return Err(damaged(offset, message));
        }
        let producer = cursor.text()?;
        let mut sections: [Option<Cursor<'a>>; SECTIONS.len()] = [const { None }; SECTIONS.len()];
        while !cursor.is_empty() {
            let offset = cursor.offset();
            let (number, section) = cursor.section()?;
            match sections.get_mut(number as usize) {
                Some(place @ None) => *place = Some(section),
                Some(Some(_)) => {
                    return Err(damaged(
                        offset,
                        format_args!("there are two sections of {}", SECTIONS[number as usize]),
                    ));
                }
                None => return Err(damaged(offset, format_args!("there is no section {number}"))),
            }
        }
        let mut section = |number: usize| {
            sections[number]
                .take()
                .ok_or_else(|| cursor.error(format_args!("there is no section of {}", SECTIONS[number])))
        };
        let strings = read_strings(section(0)?)?;
        let (dialects, names) = read_dialects(section(1)?, &strings)?;
        let (types, attributes) = read_entries(section(2)?, section(3)?, &strings, &dialects)?;
        let mut operations = section(4)?;
        let properties = section(8).ok().map_or(Ok(Vec::new()), read_properties)?;
        let resources = match (section(5).ok(), section(6).ok()) {
            (Some(data), Some(offsets)) => resources::read(data, offsets, strings.len(), dialects.len())?,
            (None, None) => Vec::new(),
            (Some(section), None) | (None, Some(section)) => {
                return Err(section.error("one section of resources is there without the other"));
            }
        };
        let tables = Tables { strings, names, types, attributes, properties };
        let (block, value_types) = ir::read(&mut operations, &tables)?;
        Ok(Module { tables, resources, value_types, producer, block })
    }

    /// The dialect and the name of an operation, such as `vhlo` and `add_v1`.
    pub fn name(&self, operation: &Operation) -> (&'a str, &'a str) {
        let name = &self.tables.names[operation.name.0 as usize];
        (name.dialect, name.name)
    }

    /// An attribute.
    pub fn attribute(&self, id: AttrId) -> &Attr<'a> {
        &self.tables.attributes[id.0 as usize]
    }

    /// A type.
    pub fn ty(&self, id: TypeId) -> &Type<'a> {
        &self.tables.types[id.0 as usize]
    }

    /// The type of a value.
    pub fn type_of(&self, value: ValueId) -> &Type<'a> {
        self.ty(self.value_types[value.0 as usize])
    }

    /// A property of an operation, if it has one of this name.
    pub fn property(&self, operation: &Operation, name: &str) -> Option<&Attr<'a>> {
        let names = self.tables.names[operation.name.0 as usize].properties?;
        let index = names.split_ascii_whitespace().position(|word| word.trim_end_matches('?') == name)?;
        Some(self.attribute((*operation.properties.get(index)?)?))
    }
}

/// The lengths come first, in reverse order; each text ends with a zero.
fn read_strings<'a>(mut section: Cursor<'a>) -> Result<Vec<&'a [u8]>> {
    let count = section.count("strings")?;
    let mut lengths = (0..count).map(|_| section.count("bytes of a string")).collect::<Result<Vec<_>>>()?;
    lengths.reverse();
    let mut strings = Vec::with_capacity(count);
    for length in lengths {
        let offset = section.offset();
        match section.bytes(length)? {
            [text @ .., 0] => strings.push(text),
            _ => return Err(damaged(offset, "a string does not end with a zero")),
        }
    }
    section.finish("the section of strings")?;
    Ok(strings)
}

fn text<'a>(cursor: &Cursor<'_>, strings: &[&'a [u8]], index: u32) -> Result<&'a str> {
    str::from_utf8(strings[index as usize]).map_err(|_| cursor.error("a name is not UTF-8"))
}

fn read_dialects<'a>(mut section: Cursor<'a>, strings: &[&'a [u8]]) -> Result<(Vec<&'a str>, Vec<Name<'a>>)> {
    let count = section.count("dialects")?;
    let mut dialects = Vec::with_capacity(count);
    for _ in 0..count {
        let (index, has_version) = section.index_with_flag(strings.len(), "string")?;
        dialects.push(text(&section, strings, index)?);
        if has_version {
            section.section()?;
        }
    }
    section.varint()?;
    let mut names = Vec::new();
    while !section.is_empty() {
        let dialect = dialects.get(section.index(dialects.len(), "dialect")? as usize).copied().unwrap_or_default();
        for _ in 0..section.count("names")? {
            let (index, _) = section.index_with_flag(strings.len(), "string")?;
            let name = text(&section, strings, index)?;
            names.push(Name { dialect, name, properties: properties::of(dialect, name) });
        }
    }
    Ok((dialects, names))
}

/// An attribute or a type that is not read yet.
struct Entry<'a> {
    dialect: &'a str,
    is_text: bool,
    data: Cursor<'a>,
}

fn read_entries<'a>(
    mut data: Cursor<'a>,
    mut sizes: Cursor<'a>,
    strings: &[&'a [u8]],
    dialects: &[&'a str],
) -> Result<(Vec<Type<'a>>, Vec<Attr<'a>>)> {
    let attributes = sizes.count("attributes")?;
    let types = sizes.count("types")?;
    let mut entries = Vec::with_capacity(attributes + types);
    while entries.len() < attributes + types {
        let dialect = sizes.index(dialects.len(), "dialect")? as usize;
        for _ in 0..sizes.count("attributes or types of a dialect")? {
            let start = sizes.clone();
            let (size, has_encoding) = sizes.varint_with_flag()?;
            let size = data.fits(size, "bytes of an attribute or type").map_err(|message| start.error(message))?;
            entries.push(Entry { dialect: dialects[dialect], is_text: !has_encoding, data: data.part(size)? });
        }
    }
    if entries.len() != attributes + types {
        return Err(sizes.error("a dialect has more attributes or types than the file says"));
    }
    sizes.finish("the section of sizes")?;
    data.finish("the section of attributes and types")?;
    let type_entries = entries.split_off(attributes);
    let types = type_entries.into_iter().map(|mut entry| {
        let count = Count(types);
        let ty = match entry.dialect {
            _ if entry.is_text => Type::Text(entry.data.text()?),
            "builtin" => types::builtin(&mut entry.data, count, attributes)?,
            "vhlo" => types::vhlo(&mut entry.data, count, attributes)?,
            _ => return Ok(Type::Foreign),
        };
        entry.data.finish("a type")?;
        Ok(ty)
    });
    let types = types.collect::<Result<Vec<_>>>()?;
    let context = Context { strings, types: &types, attributes };
    let attributes = entries.into_iter().map(|mut entry| {
        let attribute = match entry.dialect {
            _ if entry.is_text => Attr::Text(entry.data.text()?),
            "builtin" => context.builtin(&mut entry.data)?,
            "vhlo" => context.vhlo(&mut entry.data)?,
            _ => return Ok(Attr::Foreign),
        };
        entry.data.finish("an attribute")?;
        Ok(attribute)
    });
    let attributes = attributes.collect::<Result<Vec<_>>>()?;
    Ok((types, attributes))
}

/// The rows of the table of properties, each with its length in front.
fn read_properties(mut section: Cursor<'_>) -> Result<Vec<Cursor<'_>>> {
    let count = section.count("rows of properties")?;
    let mut rows = Vec::with_capacity(count);
    for _ in 0..count {
        let mut row = section.clone();
        let before = row.len();
        let length = row.count("bytes of properties")?;
        let head = before - row.len();
        rows.push(section.part(head + length)?);
    }
    section.finish("the section of properties")?;
    Ok(rows)
}
