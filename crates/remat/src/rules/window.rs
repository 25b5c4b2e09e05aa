//! Rules of reductions over windows.

use remat_ir::{
    ArgKind, ArgReduceWindow, DType, Gather, IndexMode, Iota, Literal, ReduceWindow, Result, Shape, Window, WindowKind,
};

use super::{Batched, Expr, Linear, Operand, Rules, Writer, not_linear, unbatched};

impl Rules for ReduceWindow {
    /// The tangent of a max or min is the tangent at its position, so only the positions have to be kept.
    fn jvp<'w>(&self, ins: &[Expr<'w>], outs: &[Expr<'w>], tangents: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        let w = outs[0].writer();
        let kind = match self.kind {
            WindowKind::Sum => return Ok(vec![tangents[0].map(|t| t.apply(self.clone()))]),
            WindowKind::Max => ArgKind::Max,
            WindowKind::Min => ArgKind::Min,
        };
        let size = ins[0].aval()?.size();
        let (Some(t), false) = (tangents[0], size == 0 || outs[0].aval()?.size() == 0) else { return Ok(vec![None]) };
        let index_dtype = index_dtype(size);
        let positions = ins[0].apply(ArgReduceWindow { kind, window: self.window.clone(), index_dtype });
        let positions = positions.expand_dims(&[self.window.dimensions.len()]);
        let at_positions = Gather {
            offset_dims: Shape::new(),
            collapsed_slice_dims: Shape::from_elem(0, 1),
            start_index_map: Shape::from_elem(0, 1),
            operand_batching_dims: Shape::new(),
            start_indices_batching_dims: Shape::new(),
            slice_sizes: Shape::from_elem(1, 1),
            // The position of a window that covers only padding is -1, which is out of range.
            mode: IndexMode::FillOrDrop,
            fill_value: Literal::from_f64(t.dtype()?, 0.0),
        };
        Ok(vec![Some(w.apply(at_positions, &[t.reshape(&[size]), positions]))])
    }

    /// Each element gets the sum of the cotangents of the windows that contain it: a window sum over the cotangent, dilated by the strides.
    fn transpose<'w>(&self, cotangents: &[Option<Expr<'w>>], ins: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        if self.kind != WindowKind::Sum {
            return Err(not_linear(self));
        }
        let aval = ins[0].linear(self)?;
        let Some(ct) = cotangents[0] else { return Ok(vec![None]) };
        let counts = ct.shape()?;
        if aval.size() == 0 || counts.contains(&0) {
            return Ok(vec![None]);
        }
        let window = &self.window;
        let dilated = |size: usize, by: usize| ((size - 1) * by + 1) as i64;
        let padding = (0..aval.rank())
            .map(|d| {
                let extent = dilated(window.dimensions[d], window.window_dilation[d]);
                let low = extent - 1 - window.padding[d].0;
                let x = dilated(aval.shape[d], window.base_dilation[d]);
                (low, x + extent - 1 - dilated(counts[d], window.strides[d]) - low)
            })
            .collect();
        let window = Window {
            dimensions: window.dimensions.clone(),
            strides: window.base_dilation.clone(),
            padding,
            base_dilation: window.strides.clone(),
            window_dilation: window.window_dilation.clone(),
        };
        Ok(vec![Some(ct.apply(ReduceWindow { kind: WindowKind::Sum, window }))])
    }

    fn vmap<'w>(&self, w: Writer<'w>, _size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        let Some(axis) = ins[0].axis else { return unbatched(w, self, ins) };
        let op = ReduceWindow { kind: self.kind, window: with_batch(&self.window, axis) };
        Ok(vec![ins[0].map(|x| x.apply(op))])
    }
}

impl Rules for ArgReduceWindow {
    fn jvp<'w>(&self, _: &[Expr<'w>], _: &[Expr<'w>], _: &[Option<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        Ok(vec![None])
    }

    fn transpose<'w>(&self, _: &[Option<Expr<'w>>], _: &[Operand<Expr<'w>>]) -> Result<Linear<Expr<'w>>> {
        Err(not_linear(self))
    }

    /// Positions are counted in the whole batch, with the batch dimension in front, and then corrected by the offset of each example.
    fn vmap<'w>(&self, w: Writer<'w>, size: usize, ins: &[Batched<Expr<'w>>]) -> Result<Vec<Batched<Expr<'w>>>> {
        if ins[0].axis.is_none() {
            return unbatched(w, self, ins);
        }
        let x = ins[0].to_front(size);
        let aval = x.aval()?;
        let example: usize = aval.shape[1..].iter().product();
        let dtype = if self.index_dtype == DType::I64 { DType::I64 } else { index_dtype(aval.size()) };
        let op = ArgReduceWindow { kind: self.kind, window: with_batch(&self.window, 0), index_dtype: dtype };
        let positions = x.apply(op);
        let number = w.apply(Iota { dtype, shape: positions.shape()?, axis: 0 }, &[]);
        let positions = positions - number * w.literal(Literal::from_i128(dtype, example as i128));
        // The -1 of a window that covers only padding has no such offset.
        let positions = positions.max(w.literal(Literal::from_i128(dtype, -1)));
        Ok(vec![Batched::front(positions.convert(self.index_dtype))])
    }
}

/// A dtype that holds positions in `size` elements.
fn index_dtype(size: usize) -> DType {
    if i32::try_from(size).is_ok() { DType::I32 } else { DType::I64 }
}

/// The same windows in each example of a batch whose batch dimension is at `axis`.
fn with_batch(window: &Window, axis: usize) -> Window {
    let mut window = window.clone();
    window.dimensions.insert(axis, 1);
    window.strides.insert(axis, 1);
    window.padding.insert(axis, (0, 0));
    window.base_dilation.insert(axis, 1);
    window.window_dilation.insert(axis, 1);
    window
}
