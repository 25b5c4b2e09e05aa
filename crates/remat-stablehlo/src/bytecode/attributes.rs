//! Attributes: the builtin ones, among them locations, and those of the VHLO dialect.
//!
//! Codes and fields follow from the public definitions, as those of types do.

use remat_ir::Result;

use super::cursor::Cursor;
use super::types::{Count, Type, TypeId, signed_list};

/// The number of an attribute in its file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AttrId(pub(crate) u32);

/// An enumeration of the VHLO dialect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "variants are what their names say")]
pub enum Enumeration {
    ComparisonDirection,
    ComparisonType,
    CustomCallApi,
    Fft,
    Precision,
    RandomAlgorithm,
    RandomDistribution,
    Transpose,
    Accuracy,
}

/// An attribute: a constant of the program. Attributes that contain others refer to them by number, so that none is nested.
#[derive(Clone, PartialEq, Debug)]
pub enum Attr<'a> {
    /// Several attributes.
    Array(Vec<AttrId>),
    /// Attributes with names, which are attributes too.
    Dictionary(Vec<(AttrId, AttrId)>),
    /// True or false.
    Bool(bool),
    /// Present, and nothing more.
    Unit,
    /// A word of an enumeration, by its number.
    Word(Enumeration, u64),
    /// A float, as its bits.
    Float(TypeId, u64),
    /// An integer, extended from the width of its type.
    Integer(TypeId, i64),
    /// A text, which may be any bytes.
    String(&'a [u8]),
    /// The name of a function.
    Symbol(AttrId),
    /// The elements of an array, or one for all of them: little end first, bools in bits.
    Tensor(TypeId, &'a [u8]),
    /// The elements of a list of numbers.
    Numbers(TypeId, &'a [u8]),
    /// A type.
    Type(TypeId),
    /// A location: file, line and column.
    Line(AttrId, u32, u32),
    /// A location: a call of the first at the second.
    CallSite(AttrId, AttrId),
    /// A location: the second with a name.
    Named(AttrId, AttrId),
    /// A location: all of these.
    Fused(Vec<AttrId>),
    /// No location.
    Nowhere,
    /// The elements of an array in the resource section.
    Resource(TypeId, u64),
    /// An attribute without use for an import on one device, such as the aliases of a custom call.
    Other(&'static str),
    /// An attribute of another dialect, as text.
    Text(&'a str),
    /// An attribute of another dialect, whose bytes are not read.
    Foreign,
}

/// What attributes refer to.
pub(super) struct Context<'a, 'b> {
    pub(super) strings: &'b [&'a [u8]],
    pub(super) types: &'b [Type<'a>],
    pub(super) attributes: usize,
}

impl<'a> Context<'a, '_> {
    pub(super) fn attr(&self, cursor: &mut Cursor<'a>) -> Result<AttrId> {
        cursor.index(self.attributes, "attribute").map(AttrId)
    }

    fn attrs(&self, cursor: &mut Cursor<'a>) -> Result<Vec<AttrId>> {
        let count = cursor.count("attributes")?;
        (0..count).map(|_| self.attr(cursor)).collect()
    }

    fn pairs(&self, cursor: &mut Cursor<'a>) -> Result<Vec<(AttrId, AttrId)>> {
        let count = cursor.count("attributes")?;
        (0..count).map(|_| Ok((self.attr(cursor)?, self.attr(cursor)?))).collect()
    }

    /// An attribute that may be missing: the lowest bit says whether it is there.
    pub(super) fn optional(&self, cursor: &mut Cursor<'a>) -> Result<Option<AttrId>> {
        let offset = cursor.clone();
        let (index, is_there) = cursor.varint_with_flag()?;
        if !is_there {
            return Ok(None);
        }
        match u32::try_from(index) {
            Ok(id) if (id as usize) < self.attributes => Ok(Some(AttrId(id))),
            _ => Err(offset.error(format_args!("there is no attribute {index} among {}", self.attributes))),
        }
    }

    fn ty(&self, cursor: &mut Cursor<'a>) -> Result<TypeId> {
        Count(self.types.len()).id(cursor)
    }

    fn string(&self, cursor: &mut Cursor<'a>) -> Result<&'a [u8]> {
        let index = cursor.index(self.strings.len(), "string")?;
        Ok(self.strings[index as usize])
    }

    fn blob(&self, cursor: &mut Cursor<'a>) -> Result<&'a [u8]> {
        let count = cursor.count("bytes")?;
        cursor.bytes(count)
    }

    /// A type, and a number of its width.
    fn number(&self, cursor: &mut Cursor<'a>) -> Result<(TypeId, i64)> {
        let id = self.ty(cursor)?;
        let value = match self.types[id.0 as usize].bits() {
            Some(..=8) => i64::from(cursor.byte()? as i8),
            Some(_) => cursor.signed_varint()?,
            None => return Err(cursor.error("a number has a type that is not one of a number")),
        };
        Ok((id, value))
    }

    fn word(&self, cursor: &mut Cursor<'a>, kind: Enumeration) -> Result<Attr<'a>> {
        Ok(Attr::Word(kind, cursor.varint()?))
    }

    /// An attribute of the VHLO dialect.
    pub(super) fn vhlo(&self, cursor: &mut Cursor<'a>) -> Result<Attr<'a>> {
        let start = cursor.clone();
        Ok(match cursor.varint()? {
            1 => Attr::Array(self.attrs(cursor)?),
            2 => match cursor.varint()? {
                0 => Attr::Bool(false),
                1 => Attr::Bool(true),
                other => return Err(start.error(format_args!("{other} is neither true nor false"))),
            },
            3 => self.word(cursor, Enumeration::ComparisonDirection)?,
            4 => self.word(cursor, Enumeration::ComparisonType)?,
            5 => self.word(cursor, Enumeration::CustomCallApi)?,
            6 => Attr::Dictionary(self.pairs(cursor)?),
            7 => self.word(cursor, Enumeration::Fft)?,
            8 => {
                let (ty, bits) = self.number(cursor)?;
                Attr::Float(ty, bits as u64)
            }
            9 => {
                let (ty, value) = self.number(cursor)?;
                Attr::Integer(ty, value)
            }
            10 => {
                signed_list(cursor)?;
                cursor.signed_varint()?;
                signed_list(cursor)?;
                Attr::Other("an alias of a result")
            }
            11 => self.word(cursor, Enumeration::Precision)?,
            12 => self.word(cursor, Enumeration::RandomAlgorithm)?,
            13 => self.word(cursor, Enumeration::RandomDistribution)?,
            14 => Attr::String(self.string(cursor)?),
            15 => Attr::Tensor(self.ty(cursor)?, self.blob(cursor)?),
            16 => self.word(cursor, Enumeration::Transpose)?,
            17 => Attr::Type(self.ty(cursor)?),
            18 => {
                signed_list(cursor)?;
                Attr::Other("bounds of sizes")
            }
            19 => self.word(cursor, Enumeration::Accuracy)?,
            20 => {
                for _ in 0..3 {
                    cursor.signed_varint()?;
                }
                self.attr(cursor)?;
                Attr::Other("an accuracy")
            }
            21 => {
                cursor.signed_varint()?;
                cursor.signed_varint()?;
                Attr::Other("a part of an axis")
            }
            22 | 25 => {
                self.attr(cursor)?;
                self.optional(cursor)?;
                Attr::Other("an axis or a mesh of devices")
            }
            23 => {
                self.attr(cursor)?;
                self.attr(cursor)?;
                Attr::Other("groups of devices")
            }
            24 => {
                self.attr(cursor)?;
                cursor.signed_varint()?;
                Attr::Other("an axis of devices")
            }
            code => return Err(start.error(format_args!("there is no attribute {code} in the dialect vhlo"))),
        })
    }

    /// A builtin attribute.
    pub(super) fn builtin(&self, cursor: &mut Cursor<'a>) -> Result<Attr<'a>> {
        let start = cursor.clone();
        Ok(match cursor.varint()? {
            0 => Attr::Array(self.attrs(cursor)?),
            1 => Attr::Dictionary(self.pairs(cursor)?),
            2 => Attr::String(self.string(cursor)?),
            3 => {
                let text = self.string(cursor)?;
                self.ty(cursor)?;
                Attr::String(text)
            }
            4 => Attr::Symbol(self.attr(cursor)?),
            5 => {
                let root = self.attr(cursor)?;
                self.attrs(cursor)?;
                Attr::Symbol(root)
            }
            6 => Attr::Type(self.ty(cursor)?),
            7 => Attr::Unit,
            8 => {
                let (ty, value) = self.number(cursor)?;
                Attr::Integer(ty, value)
            }
            9 => {
                let (ty, bits) = self.number(cursor)?;
                Attr::Float(ty, bits as u64)
            }
            10 => Attr::CallSite(self.attr(cursor)?, self.attr(cursor)?),
            11 => line(self.attr(cursor)?, [cursor.varint()?, cursor.varint()?]),
            12 => Attr::Fused(self.attrs(cursor)?),
            13 => {
                let locations = self.attrs(cursor)?;
                self.attr(cursor)?;
                Attr::Fused(locations)
            }
            14 => Attr::Named(self.attr(cursor)?, self.attr(cursor)?),
            15 => Attr::Nowhere,
            16 => Attr::Resource(self.ty(cursor)?, cursor.varint()?),
            17 => {
                let ty = self.ty(cursor)?;
                cursor.varint()?;
                Attr::Numbers(ty, self.blob(cursor)?)
            }
            18 => Attr::Tensor(self.ty(cursor)?, self.blob(cursor)?),
            19 => {
                self.ty(cursor)?;
                cursor.varint()?;
                while !cursor.is_empty() {
                    self.string(cursor)?;
                }
                Attr::Other("an array of texts")
            }
            20 => {
                self.ty(cursor)?;
                self.attr(cursor)?;
                self.attr(cursor)?;
                Attr::Other("a sparse array")
            }
            21 => {
                self.attr(cursor)?;
                Attr::Other("a distinct attribute")
            }
            22 => {
                let file = self.attr(cursor)?;
                // Line, column, and, of a range, where it ends.
                let count = cursor.count("numbers")?;
                let mut numbers = [0; 4];
                let Some(given) = numbers.get_mut(..count) else {
                    return Err(start.error("a range of lines has more than four numbers"));
                };
                for number in given {
                    *number = cursor.varint()?;
                }
                line(file, [numbers[0], numbers[1]])
            }
            code => return Err(start.error(format_args!("there is no builtin attribute {code}"))),
        })
    }
}

fn line<'a>(file: AttrId, [line, column]: [u64; 2]) -> Attr<'a> {
    let short = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    Attr::Line(file, short(line), short(column))
}
