//! The attributes of operations as numbers, lists and words.

use remat_ir::{Aval, DType, Data, Element, Literal, Result, Shape, bf16, f16};

use super::types::{dtype, malformed, unsupported};
use crate::{Attr, Enumeration, Module, Operation, Type, TypeId};

/// No attribute that is a list of numbers has more of them.
const NUMBERS: usize = 1 << 12;

/// An operation with the module that it belongs to.
#[derive(Clone, Copy)]
pub(crate) struct Node<'a, 'm> {
    pub(crate) module: &'m Module<'a>,
    pub(crate) op: &'m Operation,
    /// The name without the version.
    pub(crate) name: &'m str,
}

impl<'a, 'm> Node<'a, 'm> {
    fn get(&self, name: &str) -> Result<&'m Attr<'a>> {
        self.module
            .property(self.op, name)
            .ok_or_else(|| malformed(self.name, format_args!("the attribute {name} is missing")))
    }

    fn wrong(&self, name: &str, what: &str) -> remat_ir::Error {
        malformed(self.name, format_args!("the attribute {name} is not {what}"))
    }

    pub(crate) fn bool(&self, name: &str) -> Result<bool> {
        match self.get(name)? {
            Attr::Bool(value) => Ok(*value),
            _ => Err(self.wrong(name, "true or false")),
        }
    }

    pub(crate) fn int(&self, name: &str) -> Result<i64> {
        match self.get(name)? {
            Attr::Integer(_, value) => Ok(*value),
            _ => Err(self.wrong(name, "an integer")),
        }
    }

    pub(crate) fn size(&self, name: &str) -> Result<usize> {
        usize::try_from(self.int(name)?).map_err(|_| self.wrong(name, "a size"))
    }

    pub(crate) fn word(&self, name: &str, expected: Enumeration) -> Result<u64> {
        match self.get(name)? {
            Attr::Word(kind, word) if *kind == expected => Ok(*word),
            _ => Err(self.wrong(name, "a word that it may be")),
        }
    }

    pub(crate) fn string(&self, name: &str) -> Result<&'a [u8]> {
        match self.get(name)? {
            Attr::String(text) => Ok(text),
            Attr::Symbol(id) => match self.module.attribute(*id) {
                Attr::String(text) => Ok(text),
                _ => Err(self.wrong(name, "a name")),
            },
            _ => Err(self.wrong(name, "a text")),
        }
    }

    /// The integers of an array.
    pub(crate) fn ints(&self, name: &str) -> Result<Vec<i64>> {
        let Attr::Tensor(ty, data) = self.get(name)? else { return Err(self.wrong(name, "a list of integers")) };
        let Type::Tensor(sizes, _) = self.module.ty(*ty) else { return Err(self.wrong(name, "a list of integers")) };
        let count = sizes.iter().try_fold(1usize, |count, &size| count.checked_mul(usize::try_from(size).ok()?));
        let Some(count) = count.filter(|&count| count <= NUMBERS) else {
            return Err(self.wrong(name, "a short list of integers"));
        };
        let (rows, rest) = data.as_chunks::<8>();
        let rows: Vec<i64> = rows.iter().map(|row| i64::from_le_bytes(*row)).collect();
        match rows[..] {
            _ if !rest.is_empty() => Err(self.wrong(name, "a list of integers of 64 bits")),
            [one] => Ok(vec![one; count]),
            _ if rows.len() == count => Ok(rows),
            _ => Err(self.wrong(name, "a list of as many integers as it says")),
        }
    }

    /// The bools of an array.
    pub(crate) fn bools(&self, name: &str) -> Result<Vec<bool>> {
        let Attr::Tensor(ty, data) = self.get(name)? else { return Err(self.wrong(name, "a list of bools")) };
        let aval = super::types::aval(self.module, self.module.ty(*ty), self.name)?;
        if aval.dtype != DType::Bool || aval.size() > NUMBERS {
            return Err(self.wrong(name, "a short list of bools"));
        }
        match elements(self.name, &aval, data)? {
            Elements::One(literal) => Ok(vec![literal.bits() != 0; aval.size()]),
            Elements::All(Data::Bool(bools)) => Ok(bools),
            Elements::All(_) => Err(self.wrong(name, "a list of bools")),
        }
    }

    /// Integers that are sizes or numbers of dimensions.
    pub(crate) fn sizes(&self, name: &str) -> Result<Shape> {
        let size = |int: i64| usize::try_from(int).map_err(|_| self.wrong(name, "a list of sizes"));
        self.ints(name)?.into_iter().map(size).collect()
    }

    /// Pairs of integers.
    pub(crate) fn pairs(&self, name: &str) -> Result<Vec<(i64, i64)>> {
        let ints = self.ints(name)?;
        let (pairs, rest) = ints.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(self.wrong(name, "a list of pairs"));
        }
        Ok(pairs.iter().map(|&[low, high]| (low, high)).collect())
    }

    /// Type and elements of an array.
    pub(crate) fn tensor(&self, name: &str) -> Result<(TypeId, &'a [u8])> {
        match self.get(name)? {
            Attr::Tensor(ty, data) => Ok((*ty, data)),
            Attr::Resource(ty, number) => {
                let resource = usize::try_from(*number).ok().and_then(|number| self.module.resources.get(number));
                let blob = resource.and_then(|resource| resource.blob);
                Ok((*ty, blob.ok_or_else(|| self.wrong(name, "an array that the file has"))?))
            }
            _ => Err(self.wrong(name, "an array")),
        }
    }

    /// The element type of the first result.
    pub(crate) fn result_dtype(&self) -> Result<DType> {
        let Some(&result) = self.op.results.first() else { return Err(malformed(self.name, "there is no result")) };
        match self.module.type_of(result) {
            Type::Tensor(_, element) => dtype(self.module, *element, self.name),
            _ => Err(malformed(self.name, "the result is not an array")),
        }
    }

    /// The avals of the results.
    pub(crate) fn result_avals(&self) -> Result<Vec<Aval>> {
        let aval = |&id| super::types::aval(self.module, self.module.type_of(id), self.name);
        self.op.results.iter().map(aval).collect()
    }

    pub(crate) fn unsupported(&self, what: impl std::fmt::Display) -> remat_ir::Error {
        unsupported(self.name, what)
    }

    pub(crate) fn malformed(&self, what: impl std::fmt::Display) -> remat_ir::Error {
        malformed(self.name, what)
    }
}

/// The elements of a constant: one for all, or each.
pub(crate) enum Elements {
    One(Literal),
    All(Data),
}

/// The elements of an array of this aval, as a file has them. Bools are bits; a byte of ones or of zeros stands for all elements, and so does
/// one element, also where there are none.
pub(crate) fn elements(operation: &str, aval: &Aval, data: &[u8]) -> Result<Elements> {
    let (size, width) = (aval.size(), aval.dtype.size());
    let wrong = || malformed(operation, format_args!("{aval} cannot have its elements in {} bytes", data.len()));
    if aval.dtype == DType::Bool {
        return match data {
            [0xFF] => Ok(Elements::One(Literal::from_bool(true))),
            [0x00] => Ok(Elements::One(Literal::from_bool(false))),
            [byte] if size == 1 => Ok(Elements::One(Literal::from_bool(byte & 1 == 1))),
            _ if data.len() == size.div_ceil(8) => {
                Ok(Elements::All(Data::Bool((0..size).map(|i| data[i / 8] >> (i % 8) & 1 == 1).collect())))
            }
            _ if data.len() == size => Ok(Elements::All(Data::Bool(data.iter().map(|&byte| byte != 0).collect()))),
            _ => Err(wrong()),
        };
    }
    if data.len() == width {
        let mut bits = [0; 8];
        bits[..width].copy_from_slice(data);
        return Ok(Elements::One(Literal::from_bits(aval.dtype, u64::from_le_bytes(bits))));
    }
    if size.checked_mul(width) != Some(data.len()) {
        return Err(wrong());
    }
    macro_rules! vector {
        ($type:ty) => {
            <$type as Element>::wrap(data.as_chunks().0.iter().map(|bytes| <$type>::from_le_bytes(*bytes)).collect())
        };
    }
    Ok(Elements::All(match aval.dtype {
        DType::Bool => return Err(wrong()),
        DType::I8 => vector!(i8),
        DType::I16 => vector!(i16),
        DType::I32 => vector!(i32),
        DType::I64 => vector!(i64),
        DType::U8 => vector!(u8),
        DType::U16 => vector!(u16),
        DType::U32 => vector!(u32),
        DType::U64 => vector!(u64),
        DType::F16 => vector!(f16),
        DType::Bf16 => vector!(bf16),
        DType::F32 => vector!(f32),
        DType::F64 => vector!(f64),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_element_stands_for_all_also_where_there_are_none() {
        let of = |shape: [usize; 2], data: &[u8]| elements("constant", &Aval::new(DType::I16, shape), data);
        for shape in [[3, 0], [3, 2], [1, 1]] {
            assert!(matches!(of(shape, &[7, 0]), Ok(Elements::One(x)) if x == Literal::from_i128(DType::I16, 7)));
        }
        assert!(matches!(of([3, 0], &[]), Ok(Elements::All(Data::I16(all))) if all.is_empty()));
        let error = of([3, 0], &[7, 0, 8, 0]).err().expect("too many");
        assert!(error.to_string().contains("i16[3,0] cannot have its elements in 4 bytes"), "{error}");
    }
}
