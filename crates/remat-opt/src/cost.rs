//! The cost of operations: the one model that passes, engines, plans and reports ask.
//!
//! [`Op::class`] is the kind of work of an operation, [`cost`] its floating-point operations and bytes, [`program`] those of a whole
//! program; a [`Machine`] makes a time of it, the roofline (Williams, Waterman, Patterson 2009). The
//! thresholds of rematerialization are here too, each with its reason.
//!
//! Bytes are counted operation by operation. An engine that fuses moves fewer, so the sum over a program is an upper bound.
//! docs/PERFORMANCE.md holds the estimates against measured times of the native engine.

use remat_ir::{Aval, Call, Class, DotProductAttention, Jaxpr, Op, Operation, Prim};

/// The cost of an operation or of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cost {
    /// Floating-point operations: an addition and a multiplication are one each, a special function is
    /// [`TRANSCENDENTAL_FLOPS`], a comparison of a sort [`COMPARISON_FLOPS`]. Operations on integers count alike.
    pub flops: u64,
    /// Bytes of the elements that are read.
    pub bytes_read: u64,
    /// Bytes of the elements that are written.
    pub bytes_written: u64,
    /// The kind of work; of a program [`Class::Call`].
    pub class: Class,
}

/// The operations that one element of a special function counts as: a polynomial of about the tenth degree, and the reduction of
/// the argument to its interval.
pub const TRANSCENDENTAL_FLOPS: u64 = 16;

/// The operations that one comparison of a sort is worth. It waits for the one before it and for a branch that no CPU foresees, while
/// products would be computed at their full rate: measured, see docs/PERFORMANCE.md.
pub const COMPARISON_FLOPS: u64 = 256;

/// The operations of one number of Threefry: twenty rounds of an addition, a rotation (three operations) and an exclusive or,
/// for two numbers.
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

/// The rates of a machine, at which a roofline is drawn.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Machine {
    /// Floating-point operations per second, at most.
    pub flops: f64,
    /// Bytes per second to and from memory, at most.
    pub bytes: f64,
}

impl Machine {
    /// The seconds that a cost takes at least: those of its operations or those of its bytes, whichever are more.
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

/// The cost of an operation on operands and results of these avals, which must be the operation's.
///
/// An operation with programs in it has their cost: a `scan` that of its body for each iteration, a `cond` that of its dearest branch; the
/// number of iterations of a `while` is not known, and one is counted; a `shard_map` that of its body for each device. A view moves nothing. An update in place (a scatter, a
/// slice that is replaced) reads and writes the elements that it updates.
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
    sum(jaxpr, &|_| true)
}

/// The cost of the contractions of a program alone: the useful operations in rates of models.
///
/// ```
/// use remat_ir::Jaxpr;
/// use remat_opt::cost::contractions;
/// let text = "{ lambda ; a:f32[100]. let b:f32[100] = neg a in (b,) }";
/// assert_eq!(contractions(&text.parse::<Jaxpr>()?).flops, 0);
/// # Ok::<(), remat_ir::Error>(())
/// ```
pub fn contractions(jaxpr: &Jaxpr) -> Cost {
    sum(jaxpr, &|class| class == Class::Contraction)
}

/// The sum over the first-order equations of the classes that count, in bodies too.
fn sum(jaxpr: &Jaxpr, counts: &dyn Fn(Class) -> bool) -> Cost {
    jaxpr.eqns.iter().fold(NOTHING, |total, eqn| match &eqn.op {
        Op::Prim(op) if counts(op.class()) => {
            let ins: Vec<Aval> = eqn.ins.iter().map(|&a| jaxpr.atom_aval(a)).collect();
            let outs: Vec<Aval> = eqn.outs.iter().map(|&v| jaxpr.aval(v).clone()).collect();
            total.sum(of_prim(op, &ins, &outs))
        }
        Op::Prim(_) => total,
        Op::Call(op) => total.sum(sum_of_call(op, counts)),
    })
}

fn of_call(op: &Call) -> Cost {
    sum_of_call(op, &|_| true)
}

fn sum_of_call(op: &Call, counts: &dyn Fn(Class) -> bool) -> Cost {
    match op {
        Call::Jit(op) => sum(&op.jaxpr, counts),
        Call::Checkpoint(op) => sum(&op.jaxpr, counts),
        Call::Scan(op) => sum(&op.jaxpr, counts).times(op.length),
        Call::While(op) => sum(&op.cond, counts).sum(sum(&op.body, counts)),
        Call::Cond(op) => {
            let branches = op.branches.iter().map(|branch| sum(branch, counts));
            branches.max_by_key(|cost| (cost.flops, cost.bytes())).unwrap_or(NOTHING)
        }
        // The derivative of a function is not part of its value.
        Call::CustomJvp(op) => sum(&op.call, counts),
        Call::CustomVjp(op) => sum(&op.call, counts),
        // A linear map and its transpose cost about the same.
        Call::CustomLin(op) => sum(&op.bwd, counts),
        // That of all devices together.
        Call::ShardMap(op) => sum(&op.jaxpr, counts).times(op.mesh.devices()),
    }
}

/// The cost of an empty program.
const NOTHING: Cost = Cost { flops: 0, bytes_read: 0, bytes_written: 0, class: Class::Call };

fn of_prim(op: &Prim, ins: &[Aval], outs: &[Aval]) -> Cost {
    let class = op.class();
    let bytes = |avals: &[Aval]| avals.iter().fold(0u64, |sum, aval| sum.saturating_add(aval.bytes() as u64));
    let (read, written) = match op {
        _ if matches!(class, Class::View | Class::Marker) => (0, 0),
        // The elements that are taken, and their indices.
        Prim::Gather(_) | Prim::DynamicSlice(_) => (bytes(outs).saturating_add(bytes(&ins[1..])), bytes(outs)),
        Prim::DynamicUpdateSlice(_) => (bytes(&ins[1..]), bytes(&ins[1..2])),
        // The elements that are updated are read, too.
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
        // A kernel has the features of one group already.
        Prim::Conv(conv) => {
            let kernel = &ins[1].shape;
            let summed = product(kernel) / (kernel[conv.rhs_dims.first] as u64).max(1);
            size(outs, 0).saturating_mul(2).saturating_mul(summed)
        }
        Prim::DotProductAttention(op) => attention(op, ins, [1, 1]),
        // The scores and the weights again, then for each operand two products.
        Prim::DotProductAttentionTangent(op) => attention(&op.attention, ins, [3, 2]),
        Prim::DotProductAttentionCotangent(op) => attention(&op.attention, ins, [3, 2]),
        Prim::CrossEntropyTangent(_) => size(ins, 0).saturating_mul(TRANSCENDENTAL_FLOPS + 4),
        // The triangle has about half of the square's products.
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
            Class::Marker | Class::View | Class::Movement | Class::Collective | Class::Call => 0,
            Class::Elementwise => size(outs, 0),
            Class::Transcendental => size(outs, 0).saturating_mul(TRANSCENDENTAL_FLOPS),
            Class::Reduction | Class::Contraction | Class::Sort => size(ins, 0),
            Class::Random => size(outs, 0).saturating_mul(outs.len() as u64 * THREEFRY_FLOPS),
        },
    }
}

/// The operations of an attention with as many products over features of queries, and over features of values.
fn attention(op: &DotProductAttention, ins: &[Aval], [of_features, of_values]: [u64; 2]) -> u64 {
    let sizes = op.sizes(ins);
    let scores = product(&sizes.scores());
    // Half of the scores are left out.
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
    // A name says that the user wants to see the value; a barrier and a transfer are there for a reason.
    let is_identity = matches!(op, Op::Prim(Prim::StopGradient(_)));
    is_identity || matches!(op.class(), Class::View | Class::Elementwise)
}

/// Whether an operation costs next to nothing as a part of the loop that reads its result: engines fuse it.
pub fn is_fused(op: &Op) -> bool {
    matches!(op.class(), Class::View | Class::Elementwise | Class::Transcendental)
}

/// How many equations may stand between a residual that partial evaluation drops and those it is computed from. Longer chains
/// are worth their memory: to compute them again is no longer about as cheap as a read.
pub const MOST_CHAINED: usize = 4;

/// Values of fewer bytes are never computed again: half of a first-level cache.
pub const SMALL_BYTES: usize = 1 << 14;

/// A value that is this many times smaller than another may be kept so that the other need not be: the mean of a row, for
/// instance.
pub const MUCH_SMALLER: usize = 32;

/// At most this many fused equations are computed again for one value. A tile stays in the first-level cache that long.
pub const MOST_RECOMPUTED: usize = 24;

/// A value that is read this many steps after it was computed is read far away: it takes up memory meanwhile, and has left the
/// caches.
pub const FAR_STEPS: usize = 6;
