//! The cost of operations: the one model that passes, engines, plans and reports share.
//!
//! [`Op::class`] is the kind of work of an operation, [`cost`] its floating-point operations and bytes, and [`program`] the cost of a whole
//! program. A [`Machine`] turns a cost into a time by the roofline model (Williams, Waterman, Patterson 2009). The thresholds of
//! rematerialization that several crates share are here too.
//!
//! Bytes are counted operation by operation. An engine that fuses moves fewer, so the sum over a program is an upper bound.
//! docs/EXPERIMENTS.md compares the estimates with measured times of the native engine.

use remat_ir::{
    Aval, Call, Class, DotProductAttention, DotProductAttentionCotangent, DotProductAttentionTangent, Jaxpr, Op,
    Operation, Prim,
};

/// The cost of an operation or of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cost {
    /// Floating-point operations: an addition and a multiplication are one each, a special function is
    /// [`TRANSCENDENTAL_FLOPS`], a comparison of a sort [`COMPARISON_FLOPS`]. Operations on integers count the same.
    pub flops: u64,
    /// Bytes of the elements that are read.
    pub bytes_read: u64,
    /// Bytes of the elements that are written.
    pub bytes_written: u64,
    /// The kind of work; of a program [`Class::Call`].
    pub class: Class,
}

/// The flops of one element of a special function: a polynomial of about the tenth degree, and the reduction of the argument to its
/// interval.
pub const TRANSCENDENTAL_FLOPS: u64 = 16;

/// The flops of one comparison of a sort. A comparison waits for the one before it and for a branch that the CPU cannot predict, in a time
/// that would suffice for this many flops of a product. Measured, see docs/EXPERIMENTS.md, "The cost model".
pub const COMPARISON_FLOPS: u64 = 256;

/// The flops of one number of Threefry: twenty rounds of an addition, a rotation (three operations) and an exclusive or, for two numbers.
const THREEFRY_FLOPS: u64 = 50;

impl Cost {
    fn sum(self, other: Cost) -> Cost {
        Cost {
            flops: self.flops.saturating_add(other.flops),
            bytes_read: self.bytes_read.saturating_add(other.bytes_read),
            bytes_written: self.bytes_written.saturating_add(other.bytes_written),
            class: self.class,
        }
    }

    fn times(self, n: usize) -> Cost {
        let n = n as u64;
        Cost {
            flops: self.flops.saturating_mul(n),
            bytes_read: self.bytes_read.saturating_mul(n),
            bytes_written: self.bytes_written.saturating_mul(n),
            class: self.class,
        }
    }

    /// Bytes read and written.
    pub fn bytes(&self) -> u64 {
        self.bytes_read.saturating_add(self.bytes_written)
    }
}

/// The peak rates of a machine, for a roofline.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Machine {
    /// Floating-point operations per second, at most.
    pub flops: f64,
    /// Bytes per second to and from memory, at most.
    pub bytes: f64,
}

impl Machine {
    /// A core of a server CPU with 512-bit vectors, and its share of the memory's rate. Times by it are compared with each other only, so what
    /// matters is the ratio: how many operations pass while a byte is moved.
    pub const CORE: Machine = Machine { flops: 200e9, bytes: 15e9 };

    /// As [`seconds`](Machine::seconds), in whole picoseconds.
    pub fn picoseconds(&self, cost: &Cost) -> u64 {
        (self.seconds(cost) * 1e12) as u64
    }

    /// The least time of a cost in seconds: that of its flops or that of its bytes, whichever is larger.
    ///
    /// ```
    /// use remat_ir::{Aval, DType, Unary};
    /// use remat_opt::cost::{Machine, cost};
    /// let machine = Machine { flops: 1e12, bytes: 1e11 };
    /// let x = Aval::new(DType::F32, [1000]);
    /// let negation = cost(&Unary::Neg.into(), &[x.clone()], &[x]);
    /// assert_eq!(machine.seconds(&negation), 8000.0 / 1e11);
    /// ```
    pub fn seconds(&self, cost: &Cost) -> f64 {
        (cost.flops as f64 / self.flops).max(cost.bytes() as f64 / self.bytes)
    }
}

/// The cost of an operation on operands and results of these avals, which must match the operation.
///
/// An operation with bodies has their cost: a `scan` that of its body times its length, a `cond` that of its most expensive branch, a
/// `shard_map` that of its body times the number of devices. A `while` counts as one iteration, since the number is unknown. A view moves
/// nothing. An update in place (a scatter, a dynamic update slice) reads and writes only the elements that it updates.
///
/// ```
/// use remat_ir::{Aval, Class, DType, DotGeneral};
/// use remat_opt::cost::cost;
/// let (a, b) = (Aval::new(DType::F32, [8, 16]), Aval::new(DType::F32, [16, 4]));
/// let product = DotGeneral {
///     lhs_contract: [1].into_iter().collect(),
///     rhs_contract: [0].into_iter().collect(),
///     lhs_batch: Default::default(),
///     rhs_batch: Default::default(),
///     preferred_element_type: DType::F32,
/// };
/// let cost = cost(&product.into(), &[a, b], &[Aval::new(DType::F32, [8, 4])]);
/// assert_eq!((cost.flops, cost.bytes_read, cost.bytes_written), (2 * 8 * 4 * 16, 4 * 192, 4 * 32));
/// assert_eq!(cost.class, Class::Contraction);
/// ```
pub fn cost(op: &Op, ins: &[Aval], outs: &[Aval]) -> Cost {
    match op {
        Op::Prim(op) => of_prim(op, ins, outs),
        Op::Call(op) => of_call(op),
    }
}

/// The cost of a program: the sum over its equations.
///
/// ```
/// use remat_ir::Jaxpr;
/// use remat_opt::cost::program;
/// let text = "{ lambda ; a:f32[100]. let b:f32[100] = neg a; c:f32[100] = mul a b in (c,) }";
/// assert_eq!(program(&text.parse::<Jaxpr>()?).flops, 200);
/// # Ok::<(), remat_ir::Error>(())
/// ```
pub fn program(jaxpr: &Jaxpr) -> Cost {
    sum(jaxpr, &of_prim)
}

/// The cost of the contractions of a program alone: the useful flops in a model's flop rate.
///
/// ```
/// use remat_ir::Jaxpr;
/// use remat_opt::cost::contractions;
/// let text = "{ lambda ; a:f32[100]. let b:f32[100] = neg a in (b,) }";
/// assert_eq!(contractions(&text.parse::<Jaxpr>()?).flops, 0);
/// # Ok::<(), remat_ir::Error>(())
/// ```
pub fn contractions(jaxpr: &Jaxpr) -> Cost {
    sum(jaxpr, &of_contraction)
}

/// As [`contractions`], for an engine that also computes the scores that causal attention masks out, as XLA does.
///
/// ```
/// use remat_ir::Jaxpr;
/// use remat_opt::cost::{contractions, unmasked_contractions};
/// let text = "{ lambda ; a:f32[4,4] b:f32[4,4]. let c:f32[4,4] = dot_general[dimension_numbers=(([1], [0]), ([], []))
///   preferred_element_type=float32] a b in (c,) }";
/// let program: Jaxpr = text.parse()?;
/// assert_eq!(unmasked_contractions(&program), contractions(&program));
/// # Ok::<(), remat_ir::Error>(())
/// ```
pub fn unmasked_contractions(jaxpr: &Jaxpr) -> Cost {
    sum(jaxpr, &|op, ins, outs| {
        let mut op = op.clone();
        if let Prim::DotProductAttention(attention)
        | Prim::DotProductAttentionTangent(DotProductAttentionTangent { attention, .. })
        | Prim::DotProductAttentionCotangent(DotProductAttentionCotangent { attention, .. }) = &mut op
        {
            attention.causal = false;
        }
        of_contraction(&op, ins, outs)
    })
}

/// What an operation with operands and results of these avals costs in a sum.
type Counted<'a> = &'a dyn Fn(&Prim, &[Aval], &[Aval]) -> Cost;

fn of_contraction(op: &Prim, ins: &[Aval], outs: &[Aval]) -> Cost {
    if op.class() == Class::Contraction { of_prim(op, ins, outs) } else { NOTHING }
}

/// The sum over the first-order equations, including those of bodies.
fn sum(jaxpr: &Jaxpr, counted: Counted<'_>) -> Cost {
    jaxpr.eqns.iter().fold(NOTHING, |total, eqn| match &eqn.op {
        Op::Prim(op) => {
            let ins: Vec<Aval> = eqn.ins.iter().map(|&a| jaxpr.atom_aval(a)).collect();
            let outs: Vec<Aval> = eqn.outs.iter().map(|&v| jaxpr.aval(v).clone()).collect();
            total.sum(counted(op, &ins, &outs))
        }
        Op::Call(op) => total.sum(sum_of_call(op, counted)),
    })
}

fn of_call(op: &Call) -> Cost {
    sum_of_call(op, &of_prim)
}

fn sum_of_call(op: &Call, counted: Counted<'_>) -> Cost {
    match op {
        Call::Jit(op) => sum(&op.jaxpr, counted),
        Call::Checkpoint(op) => sum(&op.jaxpr, counted),
        Call::Scan(op) => sum(&op.jaxpr, counted).times(op.length),
        Call::While(op) => sum(&op.cond, counted).sum(sum(&op.body, counted)),
        Call::Cond(op) => {
            let branches = op.branches.iter().map(|branch| sum(branch, counted));
            branches.max_by_key(|cost| (cost.flops, cost.bytes())).unwrap_or(NOTHING)
        }
        // The derivative of a function is not part of its value.
        Call::CustomJvp(op) => sum(&op.call, counted),
        Call::CustomVjp(op) => sum(&op.call, counted),
        // A linear map and its transpose cost about the same.
        Call::CustomLin(op) => sum(&op.bwd, counted),
        // The sum over all devices.
        Call::ShardMap(op) => sum(&op.jaxpr, counted).times(op.mesh.devices()),
    }
}

/// The cost of an empty program.
const NOTHING: Cost = Cost { flops: 0, bytes_read: 0, bytes_written: 0, class: Class::Call };

fn of_prim(op: &Prim, ins: &[Aval], outs: &[Aval]) -> Cost {
    let class = op.class();
    let bytes = |avals: &[Aval]| avals.iter().fold(0u64, |sum, aval| sum.saturating_add(aval.bytes() as u64));
    let (read, written) = match op {
        _ if matches!(class, Class::View | Class::Marker | Class::Effect) => (0, 0),
        // The gathered elements and their indices.
        Prim::Gather(_) | Prim::DynamicSlice(_) => (bytes(outs).saturating_add(bytes(&ins[1..])), bytes(outs)),
        Prim::DynamicUpdateSlice(_) => (bytes(&ins[1..]), bytes(&ins[1..2])),
        // The elements that are updated are read too.
        Prim::Scatter(_) => (bytes(&ins[1..]).saturating_add(bytes(&ins[2..])), bytes(&ins[2..])),
        _ => (bytes(ins), bytes(outs)),
    };
    Cost { flops: flops(op, class, ins, outs), bytes_read: read, bytes_written: written, class }
}

fn flops(op: &Prim, class: Class, ins: &[Aval], outs: &[Aval]) -> u64 {
    let size = |avals: &[Aval], i: usize| avals.get(i).map_or(0, |aval| product(&aval.shape));
    match op {
        Prim::DotGeneral(dot) => {
            let summed = dot.lhs_contract.iter().map(|&d| ins[0].shape[d]).collect::<Vec<_>>();
            size(outs, 0).saturating_mul(2).saturating_mul(product(&summed))
        }
        // The kernel already has the features of one group only.
        Prim::Conv(conv) => {
            let kernel = &ins[1].shape;
            let summed = product(kernel) / (kernel[conv.rhs_dims.first] as u64).max(1);
            size(outs, 0).saturating_mul(2).saturating_mul(summed)
        }
        Prim::DotProductAttention(op) => attention(op, ins, [1, 1]),
        // Computes scores and weights again, then two products per operand.
        Prim::DotProductAttentionTangent(op) => attention(&op.attention, ins, [3, 2]),
        Prim::DotProductAttentionCotangent(op) => attention(&op.attention, ins, [3, 2]),
        Prim::CrossEntropyTangent(_) => size(ins, 0).saturating_mul(TRANSCENDENTAL_FLOPS + 4),
        // A triangle has about half of the products of a square.
        Prim::TriangularSolve(_) => size(outs, 0).saturating_mul(ins[0].shape.last().map_or(0, |&n| n as u64)),
        Prim::Cholesky(_) => size(outs, 0).saturating_mul(ins[0].shape.last().map_or(0, |&n| n as u64)) / 3,
        Prim::ReduceWindow(op) => size(outs, 0).saturating_mul(product(&op.window.dimensions)),
        Prim::ArgReduceWindow(op) => size(outs, 0).saturating_mul(product(&op.window.dimensions)),
        Prim::Scatter(_) => size(ins, 2),
        // Comparisons, which run far below the rate of products.
        Prim::Sort(op) => {
            let levels = usize::BITS - ins[0].shape[op.axis].saturating_sub(1).leading_zeros();
            size(ins, 0).saturating_mul(u64::from(levels)).saturating_mul(COMPARISON_FLOPS)
        }
        _ => match class {
            Class::Marker | Class::View | Class::Movement | Class::Collective | Class::Effect | Class::Call => 0,
            Class::Elementwise => size(outs, 0),
            Class::Transcendental => size(outs, 0).saturating_mul(TRANSCENDENTAL_FLOPS),
            Class::Reduction | Class::Contraction | Class::Sort => size(ins, 0),
            Class::Random => size(outs, 0).saturating_mul(outs.len() as u64 * THREEFRY_FLOPS),
        },
    }
}

/// The flops of an attention with this many products over the features of queries and over the features of values.
fn attention(op: &DotProductAttention, ins: &[Aval], [of_features, of_values]: [u64; 2]) -> u64 {
    let sizes = op.sizes(ins);
    let scores = product(&sizes.scores());
    // Half of the scores are masked out.
    let scores = if op.causal { scores / 2 } else { scores };
    let features = of_features.saturating_mul(sizes.features as u64);
    let values = of_values.saturating_mul(sizes.value_features as u64);
    scores.saturating_mul(features.saturating_add(values).saturating_mul(2).saturating_add(TRANSCENDENTAL_FLOPS))
}

fn product(sizes: &[usize]) -> u64 {
    sizes.iter().fold(1u64, |product, &n| product.saturating_mul(n as u64))
}

/// Whether computing the results again costs about as little as reading them from memory.
pub fn is_cheap(op: &Op) -> bool {
    // A name is there because the user wants the value, and barriers and transfers are intended too.
    let is_identity = matches!(op, Op::Prim(Prim::StopGradient(_)));
    is_identity || matches!(op.class(), Class::View | Class::Elementwise)
}

/// Whether an operation costs next to nothing in the loop that reads its result, into which engines fuse it.
pub fn is_fusible(op: &Op) -> bool {
    matches!(op.class(), Class::View | Class::Elementwise | Class::Transcendental)
}

/// The cost of an operation that is computed again where its result is read. What engines fuse into the loop that reads it moves no bytes.
///
/// ```
/// use remat_ir::{Aval, DType, Unary};
/// use remat_opt::cost::{TRANSCENDENTAL_FLOPS, cost, cost_again};
/// let x = [Aval::new(DType::F32, [100])];
/// let (first, again) = (cost(&Unary::Sin.into(), &x, &x), cost_again(&Unary::Sin.into(), &x, &x));
/// assert_eq!((first.flops, again.flops), (100 * TRANSCENDENTAL_FLOPS, 100 * TRANSCENDENTAL_FLOPS));
/// assert_eq!((first.bytes(), again.bytes()), (800, 0));
/// ```
pub fn cost_again(op: &Op, ins: &[Aval], outs: &[Aval]) -> Cost {
    let cost = cost(op, ins, outs);
    if is_fusible(op) { Cost { bytes_read: 0, bytes_written: 0, ..cost } } else { cost }
}

/// The most equations between a residual that partial evaluation drops and the residuals from which it is computed. A longer sequence is
/// worth its memory, since computing it again costs clearly more than a read.
pub const MOST_RECOMPUTED_FOR_RESIDUAL: usize = 4;

/// Values of fewer bytes than this, half of a first-level cache, are never computed again.
pub const SMALL_BYTES: usize = 1 << 14;

/// A value that is this many times smaller than another may be kept so that the other need not be, as the mean of a row.
pub const MUCH_SMALLER: usize = 32;

/// The most fused equations that are computed again for one value. Up to this number a tile stays in the first-level cache.
pub const MOST_RECOMPUTED: usize = 24;

/// A value counts as read far away from this many steps after it was computed: it takes up memory in between, and has left the caches.
pub const FAR_STEPS: usize = 6;
