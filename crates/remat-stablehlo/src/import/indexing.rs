//! Slices, gather and scatter.

use remat_ir::{
    Atom, DynamicSlice, DynamicUpdateSlice, Gather, IndexMode, Literal, Result, Scatter, ScatterKind, Shape, Slice,
    Transpose,
};

use super::Importer;
use super::properties::Node;
use crate::patterns;

impl<'a, 'm> Importer<'a, 'm> {
    pub(super) fn indexing(&mut self, node: Node<'a, 'm>) -> Result<()> {
        let result = match node.name {
            "slice" => {
                let [x] = self.operands(node)?;
                let (start, limit) = (node.sizes("start_indices")?, node.sizes("limit_indices")?);
                self.emit(Slice { start, limit, strides: node.sizes("strides")? }, &[x])?
            }
            "dynamic_slice" => {
                let operands = self.all_operands(node)?;
                self.emit(DynamicSlice { sizes: node.sizes("slice_sizes")? }, &operands)?
            }
            "dynamic_update_slice" => {
                let operands = self.all_operands(node)?;
                self.emit(DynamicUpdateSlice, &operands)?
            }
            "gather" => self.gather(node)?,
            _ => self.scatter(node)?,
        };
        self.define(node, &[result])
    }

    /// Indices out of range are clamped, as StableHLO says.
    fn gather(&mut self, node: Node<'a, 'm>) -> Result<Atom> {
        let [x, indices] = self.operands(node)?;
        let indices = self.vectors_last(indices, node)?;
        let op = Gather {
            offset_dims: node.sizes("offset_dims")?,
            collapsed_slice_dims: node.sizes("collapsed_slice_dims")?,
            start_index_map: node.sizes("start_index_map")?,
            operand_batching_dims: optional(node, "operand_batching_dims")?,
            start_indices_batching_dims: optional(node, "start_indices_batching_dims")?,
            slice_sizes: node.sizes("slice_sizes")?,
            mode: IndexMode::Clip,
            fill_value: Literal::from_i128(self.aval(x).dtype, 0),
        };
        self.emit(op, &[x, indices])
    }

    /// Updates whose slice does not fit are dropped, as StableHLO says.
    fn scatter(&mut self, node: Node<'a, 'm>) -> Result<Atom> {
        if node.op.operands.len() != 3 {
            return Err(node.unsupported("a scatter of several arrays at once"));
        }
        let [x, indices, updates] = self.operands(node)?;
        let indices = self.vectors_last(indices, node)?;
        let body = self.closed_body(node, 0)?;
        let dtype = self.aval(x).dtype;
        let kinds = [
            (ScatterKind::Add, patterns::Fold::Sum),
            (ScatterKind::Mul, patterns::Fold::Prod),
            (ScatterKind::Min, patterns::Fold::Min),
            (ScatterKind::Max, patterns::Fold::Max),
        ];
        let fold = patterns::fold(&body, dtype);
        let kind = kinds.into_iter().find(|&(_, kind)| fold == Some(kind)).map(|(kind, _)| kind);
        let kind = if patterns::is_second(&body) { Some(ScatterKind::Set) } else { kind };
        let mut updates = updates;
        let kind = if patterns::is_difference(&body, dtype) {
            updates = self.negated(updates)?;
            Some(ScatterKind::Add)
        } else {
            kind
        };
        let op = Scatter {
            kind: kind.unwrap_or(ScatterKind::Set),
            update_window_dims: node.sizes("update_window_dims")?,
            inserted_window_dims: node.sizes("inserted_window_dims")?,
            scatter_dims_to_operand_dims: node.sizes("scatter_dims_to_operand_dims")?,
            operand_batching_dims: optional(node, "input_batching_dims")?,
            scatter_indices_batching_dims: optional(node, "scatter_indices_batching_dims")?,
            mode: IndexMode::FillOrDrop,
            unique_indices: node.bool("unique_indices")?,
        };
        if kind.is_none() {
            return self.scatter_by_function(node, op, [x, indices, updates], &body);
        }
        self.emit(op, &[x, indices, updates])
    }

    /// The indices with the dimension of index vectors last; it may be missing where vectors have one component.
    fn vectors_last(&mut self, indices: Atom, node: Node<'a, 'm>) -> Result<Atom> {
        let (aval, d) = (self.aval(indices), node.size("index_vector_dim")?);
        if d == aval.rank() {
            let shape: Shape = aval.shape.iter().copied().chain([1]).collect();
            return self.reshape(indices, shape);
        }
        if d > aval.rank() {
            return Err(node.malformed(format_args!("{aval} has no dimension {d}")));
        }
        if d + 1 == aval.rank() {
            return Ok(indices);
        }
        let permutation = (0..aval.rank()).filter(|&other| other != d).chain([d]).collect();
        self.emit(Transpose { permutation }, &[indices])
    }
}

/// A list that older versions of an operation do not have.
fn optional(node: Node<'_, '_>, name: &str) -> Result<Shape> {
    if node.module.property(node.op, name).is_none() { Ok(Shape::new()) } else { node.sizes(name) }
}
