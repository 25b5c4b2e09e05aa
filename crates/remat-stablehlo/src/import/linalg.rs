//! Products, convolutions, factorisations.

use remat_ir::{Atom, Cholesky, Conv, ConvDims, DType, DotGeneral, Result, Rev, Shape, Transpose, TriangularSolve};

use super::Importer;
use super::properties::Node;
use crate::Enumeration;

impl<'a, 'm> Importer<'a, 'm> {
    pub(super) fn linear_algebra(&mut self, node: Node<'a, 'm>) -> Result<()> {
        let result = match node.name {
            "dot_general" => {
                let [lhs, rhs] = self.alike(node)?;
                let op = DotGeneral {
                    lhs_contract: node.sizes("lhs_contracting_dimensions")?,
                    rhs_contract: node.sizes("rhs_contracting_dimensions")?,
                    lhs_batch: node.sizes("lhs_batching_dimensions")?,
                    rhs_batch: node.sizes("rhs_batching_dimensions")?,
                    preferred_element_type: node.result_dtype()?,
                };
                self.emit(op, &[lhs, rhs])?
            }
            "dot" => {
                let [lhs, rhs] = self.alike(node)?;
                let Some(last) = self.aval(lhs).rank().checked_sub(1) else {
                    return Err(node.malformed("the first operand is a scalar"));
                };
                let op = DotGeneral {
                    lhs_contract: [last].into_iter().collect(),
                    rhs_contract: [0].into_iter().collect(),
                    lhs_batch: Shape::new(),
                    rhs_batch: Shape::new(),
                    preferred_element_type: node.result_dtype()?,
                };
                self.emit(op, &[lhs, rhs])?
            }
            "convolution" => self.convolution(node)?,
            "cholesky" => self.cholesky(node)?,
            _ => {
                let [a, b] = self.operands(node)?;
                let transpose_a = match node.word("transpose_a", Enumeration::Transpose)? {
                    1 => false,
                    // The adjoint of real matrices is their transpose.
                    2 | 3 => true,
                    other => return Err(node.malformed(format_args!("there is no transposition {other}"))),
                };
                let op = TriangularSolve {
                    left_side: node.bool("left_side")?,
                    lower: node.bool("lower")?,
                    transpose_a,
                    unit_diagonal: node.bool("unit_diagonal")?,
                };
                self.emit(op, &[a, b])?
            }
        };
        self.define(node, &[result])
    }

    /// Two operands of one dtype: where they have two, both are converted to that of the result, if that changes no value.
    fn alike(&mut self, node: Node<'a, 'm>) -> Result<[Atom; 2]> {
        let [lhs, rhs] = self.operands(node)?;
        let (left, right, result) = (self.aval(lhs).dtype, self.aval(rhs).dtype, node.result_dtype()?);
        if left == right {
            return Ok([lhs, rhs]);
        }
        if !is_exact(left, result) || !is_exact(right, result) {
            let message = format!("a product of {} and {} as {}", left.name(), right.name(), result.name());
            return Err(node.unsupported(message));
        }
        Ok([self.convert(lhs, result)?, self.convert(rhs, result)?])
    }

    fn convolution(&mut self, node: Node<'a, 'm>) -> Result<Atom> {
        let [input, mut kernel] = self.alike(node)?;
        let dims = |first: &str, second: &str, spatial: &str| {
            Ok::<_, remat_ir::Error>(ConvDims {
                first: node.size(first)?,
                second: node.size(second)?,
                spatial: node.sizes(spatial)?,
            })
        };
        let rhs_dims =
            dims("kernel_output_feature_dimension", "kernel_input_feature_dimension", "kernel_spatial_dimensions")?;
        let reversal = node.bools("window_reversal")?;
        let reversed = reversal.iter().zip(&rhs_dims.spatial).filter(|(is_reversed, _)| **is_reversed);
        let axes: Shape = reversed.map(|(_, &d)| d).collect();
        if !axes.is_empty() {
            kernel = self.emit(Rev { axes }, &[kernel])?;
        }
        let op = Conv {
            strides: node.sizes("window_strides")?,
            padding: node.pairs("padding")?,
            lhs_dilation: node.sizes("lhs_dilation")?,
            rhs_dilation: node.sizes("rhs_dilation")?,
            lhs_dims: dims("input_batch_dimension", "input_feature_dimension", "input_spatial_dimensions")?,
            rhs_dims,
            out_dims: dims("output_batch_dimension", "output_feature_dimension", "output_spatial_dimensions")?,
            feature_group_count: node.size("feature_group_count")?,
            batch_group_count: node.size("batch_group_count")?,
            preferred_element_type: node.result_dtype()?,
        };
        self.emit(op, &[input, kernel])
    }

    fn cholesky(&mut self, node: Node<'a, 'm>) -> Result<Atom> {
        let [a] = self.operands(node)?;
        if node.bool("lower")? {
            return self.emit(Cholesky, &[a]);
        }
        let upper = self.transposed(a)?;
        let lower = self.emit(Cholesky, &[upper])?;
        self.transposed(lower)
    }

    /// The matrices in the last two dimensions, transposed.
    pub(super) fn transposed(&mut self, a: Atom) -> Result<Atom> {
        let rank = self.aval(a).rank();
        let mut permutation: Shape = (0..rank).collect();
        if rank >= 2 {
            permutation.swap(rank - 2, rank - 1);
        }
        self.emit(Transpose { permutation }, &[a])
    }
}

/// Whether every value of one dtype is one of the other.
fn is_exact(from: DType, to: DType) -> bool {
    match (from.float_format(), to.float_format()) {
        _ if from == to => true,
        (Some((exponent, mantissa)), Some((wide, long))) => exponent <= wide && mantissa <= long,
        (None, Some((_, long))) => from.is_integer() && from.bits() <= long as usize,
        (None, None) => {
            from.is_integer() && to.is_integer() && from.bits() < to.bits() && (to.is_signed() || !from.is_signed())
        }
        (Some(_), None) => false,
    }
}
