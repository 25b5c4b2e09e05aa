//! The algorithms of matrix products, in the order in which they are tried.

use remat_ir::{Aval, DType, DotGeneral};

use super::element::{Writer, accumulator};
use super::skinny::{Factor, SkinnyKernel, Sum, has_byte_dots, is_skinny, skinny_bytes};
use super::small::{SmallKernel, is_small};
use super::{Dot, free, narrow};
use crate::base::narrow::{Kind, Unit};
use crate::base::product::Accumulator;
use crate::interface::{Kernel, Layout};
use crate::kernels::choice::{Algorithm, Family};

/// The family of matrix products.
pub(crate) struct Products;

/// A product with the dtypes and layouts of its operands.
pub(crate) struct Product<'a> {
    op: &'a DotGeneral,
    ins: [(DType, &'a Layout); 2],
    out: &'a Aval,
    /// Rows, columns and the length of the contracted axis.
    size: [usize; 3],
    /// The unit on which it is multiplied, if there is one that pays.
    unit: Option<(Kind, Unit)>,
}

impl Family for Products {
    type Problem<'a> = Product<'a>;

    const NAME: &'static str = "dot";

    const ALGORITHMS: &'static [Algorithm<Products>] = &[
        Algorithm {
            name: "skinny_unit",
            why: "The rows of a matrix that few rows multiply are read in place by a unit, since each element is multiplied few times.",
            applies: |x| x.unit.is_some_and(|(kind, unit)| narrow::SkinnyKernel::is_for(kind, unit, &x.dot())),
            build: |x, _| {
                let (kind, unit) = x.unit?;
                Some(Box::new(narrow::SkinnyKernel::new(kind, unit, x.dot())))
            },
        },
        Algorithm {
            name: "blocked_unit",
            why: "A unit for narrow elements multiplies several times as many of them in a cycle as vectors of f32 do.",
            applies: |x| x.unit.is_some(),
            build: |x, _| {
                let (kind, unit) = x.unit?;
                Some(Box::new(narrow::NarrowKernel::new(narrow::Sizes::of(kind), unit, kind, x.dot())))
            },
        },
        Algorithm {
            name: "small_bytes",
            why: "Sums of few products of bytes are exact in f32, which is multiplied faster than i64.",
            applies: |x| x.is_of_bytes() && x.dot::<f32>().has_small_bytes(),
            build: |x, _| Some(Box::new(SmallKernel::new(x.dot::<f32>(), Writer::of_integers(x.out.dtype)))),
        },
        Algorithm {
            name: "skinny_bytes",
            why: "Instructions for bytes multiply few vectors one by one, and read the matrix once.",
            applies: |x| x.is_of_bytes() && x.is_skinny() && has_byte_dots(&x.dot()),
            build: |x, _| skinny_bytes(x.dot()),
        },
        Algorithm {
            name: "skinny",
            why: "A matrix that few rows multiply is read once in place, at the speed of memory.",
            applies: |x| x.is_skinny(),
            build: |x, _| match x.sums() {
                DType::F32 => Some(x.skinny::<f32, f32>()),
                DType::F64 => Some(x.skinny::<f64, f64>()),
                _ if x.is_of_bytes() => Some(x.skinny::<f32, i64>()),
                _ => Some(x.skinny::<i64, i64>()),
            },
        },
        Algorithm {
            name: "small",
            why: "Cutting, packing and writing a small product in blocks takes as long as multiplying it whole.",
            applies: |x| is_small(x.size[0], x.size[1], x.size[2]),
            build: |x, _| match x.sums() {
                DType::F32 => Some(x.small::<f32>()),
                DType::F64 => Some(x.small::<f64>()),
                _ => Some(x.small::<i64>()),
            },
        },
        Algorithm {
            name: "blocked",
            why: "Blocks of both operands are packed, stay in the caches, and are multiplied many times.",
            applies: |_| true,
            build: |x, _| match x.sums() {
                DType::F32 => Some(Box::new(x.dot::<f32>().blocked())),
                DType::F64 => Some(Box::new(x.dot::<f64>().blocked())),
                _ => Some(Box::new(x.dot::<i64>().blocked())),
            },
        },
    ];
}

impl<'a> Product<'a> {
    pub(super) fn new(op: &'a DotGeneral, ins: [(DType, &'a Layout); 2], out: &'a Aval) -> Product<'a> {
        let [lhs, rhs] = ins.map(|(_, layout)| layout);
        let count = |layout: &Layout, dims: &[usize]| dims.iter().map(|&d| layout.shape[d]).product::<usize>();
        let rows = count(lhs, &free(lhs, &op.lhs_batch, &op.lhs_contract));
        let columns = count(rhs, &free(rhs, &op.rhs_batch, &op.rhs_contract));
        let size = [rows, columns, count(lhs, &op.lhs_contract)];
        let unit = narrow::unit(ins.map(|(dtype, _)| dtype), out.dtype, || Dot::new(op, ins, out));
        Product { op, ins, out, size, unit }
    }

    /// The product of elements that are read as numbers of this type.
    fn dot<F: Accumulator>(&self) -> Dot<F> {
        Dot::new(self.op, self.ins, self.out)
    }

    /// The type in which products are summed.
    fn sums(&self) -> DType {
        accumulator(self.ins[0].0, self.out.dtype)
    }

    /// Whether integers are summed that are products of 8-bit integers.
    fn is_of_bytes(&self) -> bool {
        matches!(self.ins[0].0, DType::I8 | DType::U8) && self.sums() == DType::I64
    }

    /// Whether one of the operands has few rows.
    fn is_skinny(&self) -> bool {
        is_skinny(self.size[0], self.size[1], self.size[2])
    }

    fn skinny<F: Factor, A: Sum<F>>(&self) -> Box<dyn Kernel> {
        Box::new(SkinnyKernel::new(self.dot::<F>().operands(), Writer::<A>::new(self.out.dtype)))
    }

    fn small<A: Accumulator>(&self) -> Box<dyn Kernel> {
        Box::new(SmallKernel::new(self.dot::<A>(), Writer::new(self.out.dtype)))
    }
}
