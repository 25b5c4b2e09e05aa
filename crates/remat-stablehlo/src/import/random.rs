//! Random bits from a state, as XLA's own generators give them.
//!
//! Both generators are block functions of a key and a counter, which goes up by one for each block. Philox gives four words of 32 bits for a block, and
//! Threefry two. Integers of 8 and 16 bits are the low bits of a word each, and those of 64 bits are two words, the low one first. Source: Salmon
//! et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011. Which words of the state are key and counter, and which element gets which word, is
//! that of XLA's expander of `rng-bit-generator`.

use remat_ir::{
    Atom, Aval, Binary, BitcastConvertType, Builder, Compare, Concatenate, ConvertElementType, DType, Iota, Literal,
    Result, Scan, SelectN, Shape, Slice, Threefry2x32,
};

use super::Importer;
use super::properties::Node;
use crate::Enumeration;

/// The rounds of Philox4x32.
const ROUNDS: usize = 10;

/// What Philox multiplies the first and the third word of a block with.
const FACTORS: [i128; 2] = [0xD251_1F53, 0xCD9E_8D57];

/// What is added to the words of Philox's key after each round.
const STEPS: [i128; 2] = [0x9E37_79B9, 0xBB67_AE85];

impl<'a, 'm> Importer<'a, 'm> {
    /// `rng_bit_generator state`: the state after it, and the bits.
    ///
    /// Threefry takes a state of u64[2], key and counter. Philox, which is the default as on XLA's CPU backend, takes u64[2], where the key is also
    /// the high part of the counter, or u64[3], key and counter with the low part first.
    pub(super) fn random_bits(&mut self, node: Node<'a, 'm>) -> Result<()> {
        let [state] = self.operands(node)?;
        let [_, bits] = &node.result_avals()?[..] else { return Err(node.malformed("has two results")) };
        let (name, sizes): (_, &[usize]) = match node.word("rng_algorithm", Enumeration::RandomAlgorithm)? {
            0 | 2 => ("philox", &[2, 3]),
            1 => ("threefry", &[2]),
            other => return Err(node.unsupported(format_args!("the generator of random bits of number {other}"))),
        };
        let aval = self.aval(state);
        if aval.dtype != DType::U64 || aval.rank() != 1 || !sizes.contains(&aval.shape[0]) {
            return Err(node.unsupported(format_args!("random bits of {name} from a state {aval}")));
        }
        if !matches!(bits.dtype, DType::U8 | DType::U16 | DType::U32 | DType::U64) {
            return Err(node.unsupported(format_args!("random bits as {bits}, which are not unsigned integers")));
        }
        let results = self.expansion(node, name, state, |importer, state| importer.after(node, name, state, bits))?;
        self.define(node, &results)
    }

    /// The state after one, and the bits.
    fn after(&mut self, node: Node<'a, 'm>, name: &str, state: Atom, bits: &Aval) -> Result<Vec<Atom>> {
        let size = self.aval(state).shape[0];
        let words: Vec<Atom> = (0..size).map(|i| self.part(state, i)).collect::<Result<_>>()?;
        let (key, counter) = (words[0], words[1]);
        let (counter, bits) = match name {
            "philox" => self.philox(key, [counter, *words.get(2).unwrap_or(&key)], bits, node)?,
            _ => self.threefry(key, counter, bits)?,
        };
        let counter = counter.into_iter().take(size - 1);
        let parts = [key].into_iter().chain(counter).map(|part| self.reshape(part, [1].into_iter().collect()));
        let parts = parts.collect::<Result<Vec<_>>>()?;
        Ok(vec![self.emit(Concatenate { axis: 0 }, &parts)?, bits])
    }

    /// Element `i` of a vector, as a scalar.
    fn part(&mut self, x: Atom, i: usize) -> Result<Atom> {
        let one = |i| [i].into_iter().collect();
        let part = self.emit(Slice { start: one(i), limit: one(i + 1), strides: one(1) }, &[x])?;
        self.reshape(part, Shape::new())
    }

    /// The counter, low part first, after as many blocks as the bits take, and the bits, which are the words of the blocks in a row.
    fn philox(&mut self, key: Atom, counter: [Atom; 2], bits: &Aval, node: Node<'a, 'm>) -> Result<(Vec<Atom>, Atom)> {
        let words_of_element = bits.dtype.size().div_ceil(4);
        let words = bits.size().checked_mul(words_of_element).filter(|&words| words < usize::MAX / 8);
        let words = words.ok_or_else(|| node.unsupported(format_args!("random bits as {bits}")))?;
        let blocks = words.div_ceil(4);
        let count = Literal::from_i128(DType::U64, blocks as i128);
        let after = self.plus(counter, count.into())?;
        let index = self.emit(Iota { dtype: DType::U64, shape: [blocks].into_iter().collect(), axis: 0 }, &[])?;
        let [low, high] = self.plus(counter, index)?;
        let [x0, x1] = self.halves(low)?;
        let [x2, x3] = self.halves(high)?;
        // The rounds are a loop that engines write out, so that the program stays short.
        let key = self.halves(key)?;
        let carried = [x0, x1, x2, x3, key[0], key[1]];
        let mut body = Builder::new();
        body.loc = self.frames.top().builder.loc;
        let inputs = carried.map(|atom| body.input(self.aval(atom)));
        let outs = philox_round(&mut body, inputs)?;
        let jaxpr = body.finish(outs).into();
        let scan = Scan { jaxpr, length: ROUNDS, num_consts: 0, num_carry: 6, reverse: false, unroll: ROUNDS };
        let results = self.emit_all(scan, &carried)?;
        let column: Shape = [blocks, 1].into_iter().collect();
        let columns = results.iter().take(4).map(|&x| self.reshape(x, column.clone())).collect::<Result<Vec<_>>>()?;
        let mut numbers = self.emit(Concatenate { axis: 1 }, &columns)?;
        if words_of_element == 2 {
            numbers = self.reshape(numbers, [2 * blocks, 2].into_iter().collect())?;
            numbers = self.emit(BitcastConvertType { dtype: DType::U64 }, &[numbers])?;
        } else {
            numbers = self.reshape(numbers, [4 * blocks].into_iter().collect())?;
        }
        let numbers = self.first(numbers, 0, bits.size())?;
        let numbers = self.convert(numbers, bits.dtype)?;
        Ok((after.to_vec(), self.reshape(numbers, bits.shape.clone())?))
    }

    /// The counter after as many blocks as the bits take, and the bits. Of 32 bits or fewer, an element at an even index of one dimension is the first
    /// word of a block, and the one after it is the second.
    fn threefry(&mut self, key: Atom, counter: Atom, bits: &Aval) -> Result<(Vec<Atom>, Atom)> {
        let is_wide = bits.dtype == DType::U64;
        // The first dimension of even size, or else the first of the largest ones.
        let even = bits.shape.iter().position(|size| size.is_multiple_of(2));
        let split = even.or_else(|| (0..bits.rank()).rev().max_by_key(|&d| bits.shape[d]));
        let mut shape = bits.shape.clone();
        if let Some(d) = split.filter(|_| !is_wide) {
            shape[d] = shape[d].div_ceil(2);
        }
        let count = Aval::new(DType::U64, shape.iter().copied()).size();
        let after = self.emit(Binary::Add, &[counter, Literal::from_i128(DType::U64, count as i128).into()])?;
        let index = self.emit(Iota { dtype: DType::U64, shape: [count].into_iter().collect(), axis: 0 }, &[])?;
        let counters = self.emit(Binary::Add, &[index, counter])?;
        let counters = self.reshape(counters, shape.clone())?;
        let ([k0, k1], [x0, x1]) = (self.halves(key)?, self.halves(counters)?);
        let words = self.emit_all(Threefry2x32, &[k0, k1, x0, x1])?;
        let pair: Shape = shape.iter().copied().chain([1]).collect();
        let numbers = match split {
            _ if is_wide => {
                let halves = words.iter().map(|&word| self.reshape(word, pair.clone())).collect::<Result<Vec<_>>>()?;
                let paired = self.emit(Concatenate { axis: bits.rank() }, &halves)?;
                self.emit(BitcastConvertType { dtype: DType::U64 }, &[paired])?
            }
            None => words[0],
            Some(d) => {
                let mut apart = shape.clone();
                apart.insert(d + 1, 1);
                let halves = words.iter().map(|&word| self.reshape(word, apart.clone())).collect::<Result<Vec<_>>>()?;
                let together = self.emit(Concatenate { axis: d + 1 }, &halves)?;
                shape[d] *= 2;
                let numbers = self.reshape(together, shape)?;
                self.first(numbers, d, bits.shape[d])?
            }
        };
        Ok((vec![after], self.convert(numbers, bits.dtype)?))
    }

    /// The first `count` along an axis.
    fn first(&mut self, x: Atom, axis: usize, count: usize) -> Result<Atom> {
        let mut limit = self.aval(x).shape;
        if limit[axis] == count {
            return Ok(x);
        }
        limit[axis] = count;
        let start = limit.iter().map(|_| 0).collect();
        let strides = limit.iter().map(|_| 1).collect();
        self.emit(Slice { start, limit, strides }, &[x])
    }

    /// The sum of an integer of 128 bits, low part first, and one of 64 bits.
    fn plus(&mut self, [low, high]: [Atom; 2], x: Atom) -> Result<[Atom; 2]> {
        let sum = self.emit(Binary::Add, &[low, x])?;
        let is_carried = self.emit(Compare::Lt, &[sum, low])?;
        let next = self.emit(Binary::Add, &[high, Literal::from_i128(DType::U64, 1).into()])?;
        Ok([sum, self.emit(SelectN, &[is_carried, high, next])?])
    }

    /// The words of 32 bits of a u64, the low one first.
    fn halves(&mut self, x: Atom) -> Result<[Atom; 2]> {
        let above = self.emit(Binary::ShiftRightLogical, &[x, Literal::from_i128(DType::U64, 32).into()])?;
        Ok([self.convert(x, DType::U32)?, self.convert(above, DType::U32)?])
    }
}

/// One round of Philox4x32: the four words of a block, and the two of the key for the next round.
fn philox_round(b: &mut Builder, [x0, x1, x2, x3, k0, k1]: [Atom; 6]) -> Result<Vec<Atom>> {
    let mut product = |x, factor| -> Result<[Atom; 2]> {
        let wide = b.emit1(ConvertElementType { dtype: DType::U64 }.into(), &[x])?;
        let product = b.emit1(Binary::Mul.into(), &[wide, Literal::from_i128(DType::U64, factor).into()])?;
        let above = [product, Literal::from_i128(DType::U64, 32).into()];
        let above = b.emit1(Binary::ShiftRightLogical.into(), &above)?;
        let mut word = |x| b.emit1(ConvertElementType { dtype: DType::U32 }.into(), &[x]);
        Ok([word(product)?, word(above)?])
    };
    let ([low0, high0], [low1, high1]) = (product(x0, FACTORS[0])?, product(x2, FACTORS[1])?);
    let mut mixed = |x, y, key| {
        let both = b.emit1(Binary::Xor.into(), &[x, y])?;
        b.emit1(Binary::Xor.into(), &[both, key])
    };
    let (y0, y2) = (mixed(high1, x1, k0)?, mixed(high0, x3, k1)?);
    let mut next = |key, step| b.emit1(Binary::Add.into(), &[key, Literal::from_i128(DType::U32, step).into()]);
    Ok(vec![y0, low1, y2, low0, next(k0, STEPS[0])?, next(k1, STEPS[1])?])
}
