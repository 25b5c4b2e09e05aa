//! Scatter by any function of an element and its update.

use remat_ir::{
    Atom, Builder, Concatenate, DType, Gather, IndexMode, Iota, Jaxpr, Literal, Op, Result, Scan, Scatter, Shape,
    Transpose,
};

use super::Importer;
use super::properties::Node;

impl<'a, 'm> Importer<'a, 'm> {
    /// Where no element gets two updates, a gather, the function of whole arrays, and a scatter that sets. Elsewhere a scan over the index vectors that
    /// does so for each. `op` has the dimension numbers.
    pub(super) fn scatter_by_function(
        &mut self,
        node: Node<'a, 'm>,
        op: Scatter,
        [x, indices, updates]: [Atom; 3],
        body: &Jaxpr,
    ) -> Result<Atom> {
        let [of_x, of_indices, of_updates] = [x, indices, updates].map(|atom| self.aval(atom));
        Op::from(op.clone()).infer(&[of_x.clone(), of_indices.clone(), of_updates.clone()])?;
        if of_x.size() == 0 || of_updates.size() == 0 {
            return Ok(x);
        }
        let rank = of_indices.rank();
        let length: usize = of_indices.shape[..rank - 1].iter().product();
        if op.unique_indices || length == 1 {
            let mut b = std::mem::take(&mut self.frames.top().builder);
            let result = self.updated(node, &mut b, &op, [x, indices, updates], body);
            self.frames.top().builder = b;
            return result;
        }
        let (op, indices) = self.without_batches(op, indices)?;
        let components = self.aval(indices).shape[rank - 1];
        let vectors = self.reshape(indices, [length, components].into_iter().collect())?;
        let scattered = (0..of_updates.rank()).filter(|d| !op.update_window_dims.contains(d));
        let permutation = scattered.chain(op.update_window_dims.iter().copied()).collect();
        let updates = self.emit(Transpose { permutation }, &[updates])?;
        let window: Shape = op.update_window_dims.iter().map(|&d| of_updates.shape[d]).collect();
        let updates = self.reshape(updates, [length].into_iter().chain(window.iter().copied()).collect())?;
        let op = Scatter { update_window_dims: (0..window.len()).collect(), ..op };
        let mut b = Builder::new();
        b.loc = self.frames.top().builder.loc;
        let vector = self.aval(vectors).with_shape([components]);
        let operands = [of_x.clone(), vector, of_x.with_shape(window)].map(|aval| b.input(aval));
        let after = self.updated(node, &mut b, &op, operands, body)?;
        let jaxpr = b.finish(vec![after]).into();
        let scan = Scan { jaxpr, length, num_consts: 0, num_carry: 1, reverse: false, unroll: 1 };
        self.emit(scan, &[x, vectors, updates])
    }

    /// An array after updates of different elements.
    fn updated(
        &self,
        node: Node<'a, 'm>,
        b: &mut Builder,
        op: &Scatter,
        [x, indices, updates]: [Atom; 3],
        body: &Jaxpr,
    ) -> Result<Atom> {
        let (of_x, of_updates) = (b.aval(x), b.aval(updates));
        let mut window = op.update_window_dims.iter().map(|&d| of_updates.shape[d]);
        let is_dropped = |d: &usize| op.inserted_window_dims.contains(d) || op.operand_batching_dims.contains(d);
        let slice_sizes = (0..of_x.rank()).map(|d| if is_dropped(&d) { 1 } else { window.next().unwrap_or(1) });
        let gather = Gather {
            offset_dims: op.update_window_dims.clone(),
            collapsed_slice_dims: op.inserted_window_dims.clone(),
            start_index_map: op.scatter_dims_to_operand_dims.clone(),
            operand_batching_dims: op.operand_batching_dims.clone(),
            start_indices_batching_dims: op.scatter_indices_batching_dims.clone(),
            slice_sizes: slice_sizes.collect(),
            // What does not fit is dropped below.
            mode: IndexMode::Clip,
            fill_value: Literal::from_i128(of_x.dtype, 0),
        };
        let before = b.emit1(gather.into(), &[x, indices])?;
        let after = match self.apply(node, b, body, &[before, updates], &of_updates.shape)?[..] {
            [after] if b.dtype(after) == of_x.dtype => after,
            _ => return Err(node.malformed(format_args!("the function does not give one element of {of_x}"))),
        };
        b.emit1(op.clone().into(), &[x, indices, after])
    }

    /// The same scatter whose index vectors name the place in batching dimensions, too.
    fn without_batches(&mut self, op: Scatter, indices: Atom) -> Result<(Scatter, Atom)> {
        if op.operand_batching_dims.is_empty() {
            return Ok((op, indices));
        }
        let mut parts = vec![self.convert(indices, DType::I64)?];
        let mut shape = self.aval(indices).shape;
        let last = shape.len() - 1;
        shape[last] = 1;
        for &axis in &op.scatter_indices_batching_dims {
            parts.push(self.emit(Iota { dtype: DType::I64, shape: shape.clone(), axis }, &[])?);
        }
        let indices = self.emit(Concatenate { axis: last }, &parts)?;
        let with = |dims: &Shape| dims.iter().chain(&op.operand_batching_dims).copied().collect::<Shape>();
        let mut inserted_window_dims = with(&op.inserted_window_dims);
        inserted_window_dims.sort_unstable();
        let scatter_dims_to_operand_dims = with(&op.scatter_dims_to_operand_dims);
        let (operand_batching_dims, scatter_indices_batching_dims) = (Shape::new(), Shape::new());
        let op = Scatter {
            inserted_window_dims,
            scatter_dims_to_operand_dims,
            operand_batching_dims,
            scatter_indices_batching_dims,
            ..op
        };
        Ok((op, indices))
    }
}
