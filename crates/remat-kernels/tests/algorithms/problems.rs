//! Convolutions, matrix products and attentions by a few numbers each.

use remat_ir::{
    Aval, Conv, ConvDims, DType, DotGeneral, DotProductAttention, DotProductAttentionCotangent, Literal, Op, Shape,
};
use remat_kernels::{Kernel, Layout};

/// An operation and its operands.
pub(crate) struct Problem {
    pub(crate) name: String,
    pub(crate) op: Op,
    pub(crate) ins: Vec<(Aval, Layout)>,
}

impl Problem {
    /// With operands that are row-major.
    fn plain(name: String, op: impl Into<Op>, ins: Vec<Aval>) -> Problem {
        let ins = ins.into_iter().map(|aval| (aval.clone(), Layout::from(&aval))).collect();
        Problem { name, op: op.into(), ins }
    }

    /// What the operation returns.
    pub(crate) fn outs(&self) -> Vec<Aval> {
        let avals: Vec<Aval> = self.ins.iter().map(|(aval, _)| aval.clone()).collect();
        self.op.infer(&avals).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    /// The kernel that computes it.
    pub(crate) fn kernel(&self) -> Box<dyn Kernel> {
        let ins: Vec<(DType, &Layout)> = self.ins.iter().map(|(aval, layout)| (aval.dtype, layout)).collect();
        let op = self.op.prim().expect("an operation of first order");
        remat_kernels::kernel(op, &ins, &self.outs()).expect("it has a kernel")
    }
}

/// Which axes come last in images and in results.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    Nchw,
    Nhwc,
}

/// A layer of a network of images, whose windows are as high as wide.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layer {
    pub(crate) dtype: DType,
    pub(crate) order: Order,
    pub(crate) images: usize,
    pub(crate) channels: [usize; 2],
    pub(crate) size: [usize; 2],
    pub(crate) window: usize,
    pub(crate) stride: usize,
    pub(crate) dilation: usize,
    pub(crate) padding: i64,
    pub(crate) groups: usize,
}

impl Layer {
    /// A layer without strides, dilation and groups, whose results are as large as its images.
    pub(crate) fn new(
        dtype: DType,
        order: Order,
        images: usize,
        channels: [usize; 2],
        size: usize,
        window: usize,
    ) -> Layer {
        let (size, padding) = ([size, size], window as i64 / 2);
        Layer { dtype, order, images, channels, size, window, stride: 1, dilation: 1, padding, groups: 1 }
    }

    fn name(&self, of: &str) -> String {
        let Layer { dtype, order, images: n, channels: [c, k], size: [h, w], window, .. } = *self;
        let mut name = format!("conv {of} {dtype} {order:?} {n}x{c}x{h}x{w} to {k} by {window}x{window}");
        for (word, value, usual) in
            [("stride", self.stride, 1), ("dilation", self.dilation, 1), ("groups", self.groups, 1)]
        {
            if value != usual {
                name += &format!(" {word} {value}");
            }
        }
        name
    }

    /// Rows and columns of the results.
    fn positions(&self) -> [usize; 2] {
        self.size.map(|size| {
            let window = (self.window as i64 - 1) * self.dilation as i64 + 1;
            (((size as i64 + 2 * self.padding - window) / self.stride as i64) + 1) as usize
        })
    }

    fn dims(&self) -> [ConvDims; 2] {
        let dims = |first, second, spatial: [usize; 2]| ConvDims { first, second, spatial: spatial.as_slice().into() };
        match self.order {
            Order::Nchw => [dims(0, 1, [2, 3]), dims(0, 1, [2, 3])],
            Order::Nhwc => [dims(0, 3, [1, 2]), dims(3, 2, [0, 1])],
        }
    }

    fn aval(&self, dims: &ConvDims, [first, second]: [usize; 2], spatial: [usize; 2]) -> Aval {
        let mut shape = [0; 4];
        (shape[dims.first], shape[dims.second]) = (first, second);
        (shape[dims.spatial[0]], shape[dims.spatial[1]]) = (spatial[0], spatial[1]);
        Aval::new(self.dtype, shape)
    }

    fn avals(&self) -> [Aval; 3] {
        let [of_image, of_weights] = self.dims();
        let [c, k] = self.channels;
        [
            self.aval(&of_image, [self.images, c], self.size),
            self.aval(&of_weights, [k, c / self.groups], [self.window; 2]),
            self.aval(&of_image, [self.images, k], self.positions()),
        ]
    }

    fn op(&self, padding: Vec<(i64, i64)>) -> Conv {
        let all = |x: usize| Shape::from_elem(x, 2);
        let [of_image, of_weights] = self.dims();
        Conv {
            strides: all(self.stride),
            padding,
            lhs_dilation: all(1),
            rhs_dilation: all(self.dilation),
            lhs_dims: of_image.clone(),
            rhs_dims: of_weights,
            out_dims: of_image,
            feature_group_count: self.groups,
            batch_group_count: 1,
            preferred_element_type: self.dtype,
        }
    }

    pub(crate) fn forward(&self) -> Problem {
        let [image, weights, _] = self.avals();
        Problem::plain(self.name("forward"), self.op(vec![(self.padding, self.padding); 2]), vec![image, weights])
    }

    /// The gradient of the image, of a layer without groups.
    pub(crate) fn of_image(&self) -> Problem {
        let [_, weights, results] = self.avals();
        let reach = (self.window as i64 - 1) * self.dilation as i64;
        let padding = self.size.iter().zip(self.positions()).map(|(&size, positions)| {
            let low = reach - self.padding;
            (low, size as i64 + reach - (positions as i64 - 1) * self.stride as i64 - 1 - low)
        });
        let op = self.op(padding.collect());
        let exchanged = ConvDims { first: op.rhs_dims.second, second: op.rhs_dims.first, ..op.rhs_dims.clone() };
        let reversed = Layout::from(&weights).reversed(&op.rhs_dims.spatial);
        let ones = Shape::from_elem(1, 2);
        let op = Conv { lhs_dilation: op.strides.clone(), strides: ones, rhs_dims: exchanged, ..op };
        let mut problem = Problem::plain(self.name("of image"), op, vec![results, weights]);
        problem.ins[1].1 = reversed;
        problem
    }

    /// The gradient of the weights.
    pub(crate) fn of_weights(&self) -> Problem {
        let [image, _, results] = self.avals();
        let reach = (self.window as i64 - 1) * self.dilation as i64;
        let padding = self.size.iter().zip(self.positions()).map(|(&size, positions)| {
            let high = reach + (positions as i64 - 1) * self.stride as i64 + 1 - size as i64 - self.padding;
            (self.padding, high)
        });
        let op = self.op(padding.collect());
        let exchanged = |dims: &ConvDims| ConvDims { first: dims.second, second: dims.first, ..dims.clone() };
        let op = Conv {
            strides: op.rhs_dilation.clone(),
            rhs_dilation: op.strides.clone(),
            out_dims: exchanged(&op.rhs_dims),
            lhs_dims: exchanged(&op.lhs_dims),
            rhs_dims: exchanged(&op.lhs_dims),
            feature_group_count: 1,
            batch_group_count: self.groups,
            ..op
        };
        Problem::plain(self.name("of weights"), op, vec![image, results])
    }
}

/// A batch of products of `rows` by `depth` and `depth` by `columns` elements; the right operand lies along its rows, or along the
/// contracted axis if it is `transposed`.
pub(crate) fn dot(
    [from, to]: [DType; 2],
    batch: usize,
    [rows, columns, depth]: [usize; 3],
    transposed: bool,
) -> Problem {
    let (right, contracted) = if transposed { ([batch, columns, depth], 2) } else { ([batch, depth, columns], 1) };
    let op = DotGeneral {
        lhs_contract: [2].as_slice().into(),
        rhs_contract: [contracted].as_slice().into(),
        lhs_batch: [0].as_slice().into(),
        rhs_batch: [0].as_slice().into(),
        preferred_element_type: to,
    };
    let way = if transposed { " transposed" } else { "" };
    let name = format!("dot {from} to {to} {batch} of {rows}x{depth} by {depth}x{columns}{way}");
    Problem::plain(name, op, vec![Aval::new(from, [batch, rows, depth]), Aval::new(from, right)])
}

/// An attention of as many heads as key heads, or its cotangents.
pub(crate) fn attention(dtype: DType, [batch, queries, keys, heads, features]: [usize; 5], backward: bool) -> Problem {
    let scale = Literal::from_f64(DType::F64, 0.5);
    let attention = DotProductAttention { scale, causal: true, bias: false, mask: false };
    let [query, key] = [queries, keys].map(|n| Aval::new(dtype, [batch, n, heads, features]));
    let mut ins = vec![query.clone(), key.clone(), key];
    let of = if backward { "backward" } else { "forward" };
    let name = format!("attention {of} {dtype} {batch}x{queries}x{keys} {heads} heads of {features}");
    if !backward {
        return Problem::plain(name, attention, ins);
    }
    let results = Op::from(attention).infer(&ins).expect("they fit");
    ins.extend(results);
    ins.push(query);
    let op = DotProductAttentionCotangent { attention, cotangents: [true, true, true, false], logsumexp: false };
    Problem::plain(name, op, ins)
}
