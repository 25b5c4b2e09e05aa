//! Operations that move elements without changing them.

use remat_ir::{Atom, BroadcastInDim, Concatenate, DType, Iota, Literal, Pad, Reshape, Result, Rev, Shape, Transpose};

use super::Importer;
use super::frame::Known;
use super::properties::Node;

impl<'a, 'm> Importer<'a, 'm> {
    pub(super) fn shape_operation(&mut self, node: Node<'a, 'm>) -> Result<()> {
        let result = match node.name {
            "iota" => self.iota(node)?,
            "broadcast_in_dim" => match self.broadcast(node)? {
                Some(result) => result,
                None => return Ok(()),
            },
            "reshape" => {
                let [x] = self.operands(node)?;
                let shape = result_shape(node)?;
                self.reshape(x, shape)?
            }
            "transpose" => {
                let [x] = self.operands(node)?;
                self.emit(Transpose { permutation: node.sizes("permutation")? }, &[x])?
            }
            "reverse" => {
                let [x] = self.operands(node)?;
                self.emit(Rev { axes: node.sizes("dimensions")? }, &[x])?
            }
            "concatenate" => {
                let operands = self.all_operands(node)?;
                self.emit(Concatenate { axis: node.size("dimension")? }, &operands)?
            }
            "pad" => {
                let [x, value] = self.operands(node)?;
                let (low, high) = (node.ints("edge_padding_low")?, node.ints("edge_padding_high")?);
                let interior = node.sizes("interior_padding")?;
                if low.len() != high.len() || low.len() != interior.len() {
                    return Err(node.malformed("the paddings are of different lengths"));
                }
                let config = (0..low.len()).map(|d| (low[d], high[d], interior[d])).collect();
                self.emit(Pad { config }, &[x, value])?
            }
            _ => {
                let [x] = self.operands(node)?;
                let (aval, d) = (self.aval(x), node.size("dimension")?);
                let size = *aval.shape.get(d).ok_or_else(|| node.malformed("there is no such dimension"))?;
                Literal::from_i128(DType::I32, size as i128).into()
            }
        };
        self.define(node, &[result])
    }

    fn iota(&mut self, node: Node<'a, 'm>) -> Result<Atom> {
        let (dtype, shape) = (node.result_dtype()?, result_shape(node)?);
        self.emit(Iota { dtype, shape, axis: node.size("iota_dimension")? }, &[])
    }

    /// The result, or `None` if it is a known array of one value.
    fn broadcast(&mut self, node: Node<'a, 'm>) -> Result<Option<Atom>> {
        let ([value], [result]) = (&node.op.operands[..], &node.op.results[..]) else {
            return Err(node.malformed("has one operand and one result"));
        };
        let (shape, dims) = (result_shape(node)?, node.sizes("broadcast_dimensions")?);
        let known = match self.known(*value, node.name)? {
            Known::Atom(Atom::Lit(literal)) if dims.is_empty() => Some(literal),
            Known::Splat(literal, from) => {
                // Sizes and dimensions are checked as if it were an array.
                let aval = remat_ir::Aval::new(literal.dtype(), from);
                self.check_broadcast(&shape, &dims, aval)?;
                Some(literal)
            }
            Known::Atom(_) => None,
        };
        if let Some(literal) = known {
            let known = if shape.is_empty() { Known::Atom(literal.into()) } else { Known::Splat(literal, shape) };
            self.frames.define(*result, known);
            return Ok(None);
        }
        let mut x = self.atom(*value, node.name)?;
        let mut dims = dims;
        if !dims.is_sorted() {
            let mut order: Shape = (0..dims.len()).collect();
            order.sort_by_key(|&d| dims[d]);
            dims.sort();
            x = self.emit(Transpose { permutation: order }, &[x])?;
        }
        if self.aval(x).shape == shape {
            return Ok(Some(x));
        }
        self.emit(BroadcastInDim { shape, dims }, &[x]).map(Some)
    }

    fn check_broadcast(&mut self, shape: &Shape, dims: &Shape, aval: remat_ir::Aval) -> Result<()> {
        use remat_ir::Operation;
        let mut sorted = dims.clone();
        sorted.sort();
        // Only the set of dimensions matters where all elements are one value and no size but 1 differs.
        let mut order: Shape = (0..dims.len().min(aval.rank())).collect();
        order.sort_by_key(|&d| dims[d]);
        let aval = aval.with_shape(order.iter().map(|&d| aval.shape[d]));
        BroadcastInDim { shape: shape.clone(), dims: sorted }.infer(&[aval]).map(drop)
    }

    /// The same elements in another shape; itself if it has that shape.
    pub(super) fn reshape(&mut self, x: Atom, shape: Shape) -> Result<Atom> {
        if self.aval(x).shape == shape { Ok(x) } else { self.emit(Reshape { shape }, &[x]) }
    }
}

/// The shape of the only result.
pub(super) fn result_shape(node: Node<'_, '_>) -> Result<Shape> {
    match &node.result_avals()?[..] {
        [aval] => Ok(aval.shape.clone()),
        _ => Err(node.malformed("has one result")),
    }
}
