//! Types: the builtin ones and those of the VHLO dialect.
//!
//! Codes and fields follow from the public definitions of both dialects (MLIR's `BuiltinDialectBytecode.td`, StableHLO's
//! `VhloBytecode.cpp`); a code keeps its meaning for ever.

use remat_ir::{DType, Result};

use super::cursor::Cursor;

/// The number of a type in its file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TypeId(pub(crate) u32);

/// A type. Types that contain others refer to them by number, so that none is nested.
#[derive(Clone, PartialEq, Debug)]
pub enum Type<'a> {
    /// An element type that arrays here have.
    DType(DType),
    /// An element type that no array here has, such as `int4` or `float8_e4m3fn`, with its bits.
    Narrow(&'static str, u32),
    /// Complex numbers of this element type.
    Complex(TypeId),
    /// An array; a size below zero is one that is not known before the run.
    Tensor(Vec<i64>, TypeId),
    /// A function.
    Function(Vec<TypeId>, Vec<TypeId>),
    /// Several values as one.
    Tuple(Vec<TypeId>),
    /// What orders side effects.
    Token,
    /// An integer for sizes.
    Index,
    /// No type.
    None,
    /// A quantised number, or an array without a known rank.
    Other(&'static str),
    /// A type of another dialect, as text.
    Text(&'a str),
    /// A type of another dialect, whose bytes are not read.
    Foreign,
}

impl Type<'_> {
    /// The bits of a number of this type.
    pub(crate) fn bits(&self) -> Option<u32> {
        match self {
            Type::DType(DType::Bool) => Some(1),
            Type::DType(dtype) => Some(dtype.bits() as u32),
            Type::Narrow(_, bits) => Some(*bits),
            Type::Index => Some(64),
            _ => None,
        }
    }
}

/// How many types a file has.
#[derive(Clone, Copy)]
pub(super) struct Count(pub(super) usize);

impl Count {
    pub(super) fn id(self, cursor: &mut Cursor<'_>) -> Result<TypeId> {
        cursor.index(self.0, "type").map(TypeId)
    }

    fn ids(self, cursor: &mut Cursor<'_>) -> Result<Vec<TypeId>> {
        let count = cursor.count("types")?;
        (0..count).map(|_| self.id(cursor)).collect()
    }
}

/// Signed integers in a list.
pub(super) fn signed_list(cursor: &mut Cursor<'_>) -> Result<Vec<i64>> {
    let count = cursor.count("integers")?;
    (0..count).map(|_| cursor.signed_varint()).collect()
}

/// A type of the VHLO dialect.
pub(super) fn vhlo<'a>(cursor: &mut Cursor<'_>, types: Count, attributes: usize) -> Result<Type<'a>> {
    let start = cursor.clone();
    Ok(match cursor.varint()? {
        0 => Type::DType(DType::Bool),
        1 => Type::Complex(types.id(cursor)?),
        2 => Type::DType(DType::Bf16),
        3 => Type::DType(DType::F16),
        4 => Type::DType(DType::F32),
        5 => Type::DType(DType::F64),
        6 => Type::Narrow("float8_e4m3fn", 8),
        7 => Type::Narrow("float8_e5m2", 8),
        8 => Type::Function(types.ids(cursor)?, types.ids(cursor)?),
        9 => Type::Index,
        10 => Type::Narrow("int4", 4),
        11 => Type::DType(DType::I8),
        12 => Type::DType(DType::I16),
        13 => Type::DType(DType::I32),
        14 => Type::DType(DType::I64),
        15 => Type::Narrow("uint4", 4),
        16 => Type::DType(DType::U8),
        17 => Type::DType(DType::U16),
        18 => Type::DType(DType::U32),
        19 => Type::DType(DType::U64),
        20 => Type::Tensor(signed_list(cursor)?, types.id(cursor)?),
        21 => {
            // The encoding has the bounds of sizes that are not known; such a type is refused by its sizes.
            cursor.index(attributes, "attribute")?;
            Type::Tensor(signed_list(cursor)?, types.id(cursor)?)
        }
        22 => Type::Token,
        23 => Type::Tuple(types.ids(cursor)?),
        24 => {
            cursor.varint()?;
            types.id(cursor)?;
            types.id(cursor)?;
            for _ in 0..4 {
                cursor.signed_varint()?;
            }
            Type::Other("a quantized type")
        }
        25 => {
            types.id(cursor)?;
            Type::Other("a tensor without rank")
        }
        26 => Type::Other("a witness"),
        27 => Type::Narrow("float8_e4m3fnuz", 8),
        28 => Type::Narrow("float8_e5m2fnuz", 8),
        29 => Type::Narrow("float8_e4m3b11fnuz", 8),
        30 => {
            cursor.varint()?;
            types.id(cursor)?;
            types.id(cursor)?;
            cursor.varint()?;
            cursor.signed_varint()?;
            cursor.signed_varint()?;
            signed_list(cursor)?;
            signed_list(cursor)?;
            Type::Other("a quantized type")
        }
        31 => Type::Narrow("int2", 2),
        32 => Type::Narrow("uint2", 2),
        33 => Type::None,
        34 => Type::Narrow("tf32", 19),
        35 => Type::Narrow("float8_e4m3", 8),
        36 => Type::Narrow("float8_e3m4", 8),
        37 => Type::Narrow("float4_e2m1fn", 4),
        38 => Type::Narrow("float6_e2m3fn", 6),
        39 => Type::Narrow("float6_e3m2fn", 6),
        40 => Type::Narrow("float8_e8m0fnu", 8),
        41 => {
            signed_list(cursor)?;
            types.id(cursor)?;
            Type::Other("a buffer")
        }
        42 => {
            types.ids(cursor)?;
            Type::Other("a future")
        }
        code => return Err(start.error(format_args!("there is no type {code} in the dialect vhlo"))),
    })
}

/// A builtin type.
pub(super) fn builtin<'a>(cursor: &mut Cursor<'_>, types: Count, attributes: usize) -> Result<Type<'a>> {
    let start = cursor.clone();
    Ok(match cursor.varint()? {
        0 => integer(cursor.varint()?).ok_or_else(|| start.error("an integer type has another width than 1 to 64"))?,
        1 => Type::Index,
        2 => Type::Function(types.ids(cursor)?, types.ids(cursor)?),
        3 => Type::DType(DType::Bf16),
        4 => Type::DType(DType::F16),
        5 => Type::DType(DType::F32),
        6 => Type::DType(DType::F64),
        9 => Type::Complex(types.id(cursor)?),
        12 => Type::None,
        13 => Type::Tensor(signed_list(cursor)?, types.id(cursor)?),
        14 => {
            cursor.index(attributes, "attribute")?;
            Type::Tensor(signed_list(cursor)?, types.id(cursor)?)
        }
        15 => Type::Tuple(types.ids(cursor)?),
        18 => {
            types.id(cursor)?;
            Type::Other("a tensor without rank")
        }
        code => return Err(start.error(format_args!("builtin type {code} does not belong in such a program"))),
    })
}

/// The integer type of a width and a signedness: 0 is none, 1 signed, 2 unsigned.
fn integer<'a>(width_and_sign: u64) -> Option<Type<'a>> {
    Some(Type::DType(match (width_and_sign >> 2, width_and_sign & 3) {
        (1, _) => DType::Bool,
        (8, 0 | 1) => DType::I8,
        (16, 0 | 1) => DType::I16,
        (32, 0 | 1) => DType::I32,
        (64, 0 | 1) => DType::I64,
        (8, 2) => DType::U8,
        (16, 2) => DType::U16,
        (32, 2) => DType::U32,
        (64, 2) => DType::U64,
        (width @ 2..64, _) => return Some(Type::Narrow("an integer of few bits", width as u32)),
        _ => return None,
    }))
}
