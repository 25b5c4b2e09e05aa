//! Programs that compute the operands of regions and read them again, in other orders.
//!
//! A region of a backward pass computes again what the forward pass computed, from operands that other equations read too: transposed,
//! flipped, rolled, sliced, reduced; inside the region and after it; in loops and branches. Engines that give values one buffer, or compute
//! a value twice, are wrong in such programs first.
//!
//! A program is a list of steps over a growing list of square matrices, whose elements are about between -1 and 1. As in
//! [`random_programs`](crate::random_programs) each step selects its operands by numbers modulo the length of the list.
//!
//! ```
//! use remat_conformance::rereads::{Program, Step};
//! use remat::DType;
//!
//! // A region, whose operand is transposed afterwards.
//! let steps = vec![Step::Product(0, 1), Step::Region(2, 0, vec![Step::Unary(0, 0)]), Step::Order(0, 2)];
//! let program = Program { dtype: DType::F32, size: 8, steps };
//! let jaxpr = program.jaxpr(None)?;
//! assert_eq!(jaxpr.ins.len(), 2);
//! # Ok::<(), remat::Error>(())
//! ```

use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::select;
use remat::ir::Jaxpr;
use remat::{
    DType, Policy, Result, ScanOptions, Tensor, checkpoint, cond, jit, optimization_barrier, scan_with, value_and_grad,
};

/// A step of a program.
#[derive(Clone, Debug)]
pub enum Step {
    /// A function of one operand, applied to each element.
    Unary(u8, usize),
    /// A function of two operands, applied to each pair of elements.
    Binary(u8, usize, usize),
    /// A matrix product.
    Product(usize, usize),
    /// The operand in another order, or its sums: one of [`ORDERS`]. From that number on, the product of the operand and that order of it.
    Order(u8, usize),
    /// Elements that are the largest or the smallest of several; in f64 alone, where no other rounding makes another element the largest.
    Extremum(u8, usize),
    /// A barrier of two operands.
    Barrier(usize, usize),
    /// A region of two operands, which are also captured.
    Region(usize, usize, Vec<Step>),
    /// A call.
    Jit(Vec<Step>),
    /// A loop over multiples of an operand; all values are constants of it.
    Loop {
        /// The first carry.
        carry: usize,
        /// The operand.
        xs: usize,
        /// The number of iterations.
        length: usize,
        /// One iteration.
        body: Vec<Step>,
    },
    /// A branch, chosen by the mean of an operand.
    Branch(usize, [Vec<Step>; 2]),
}

/// The number of orders in which an operand is read again.
pub const ORDERS: u8 = 10;

/// The number of extrema.
pub const EXTREMA: u8 = 8;

/// A program of two arguments.
#[derive(Clone, Debug)]
pub struct Program {
    /// The dtype of all values.
    pub dtype: DType,
    /// The rows and columns of all matrices; at least 2.
    pub size: usize,
    /// What it computes.
    pub steps: Vec<Step>,
}

/// Random programs.
pub fn programs() -> impl Strategy<Value = Program> {
    let number = || 0..64usize;
    let leaf = prop_oneof![
        3 => (any::<u8>(), number()).prop_map(|(op, x)| Step::Unary(op, x)),
        3 => (any::<u8>(), number(), number()).prop_map(|(op, x, y)| Step::Binary(op, x, y)),
        2 => (number(), number()).prop_map(|(x, y)| Step::Product(x, y)),
        5 => (0..2 * ORDERS, number()).prop_map(|(order, x)| Step::Order(order, x)),
        1 => (0..EXTREMA, number()).prop_map(|(op, x)| Step::Extremum(op, x)),
        1 => (number(), number()).prop_map(|(x, y)| Step::Barrier(x, y)),
    ];
    let step = leaf.prop_recursive(2, 6, 3, move |inner| {
        let body = || prop::collection::vec(inner.clone(), 1..3);
        prop_oneof![
            5 => (number(), number(), body()).prop_map(|(x, y, body)| Step::Region(x, y, body)),
            1 => body().prop_map(Step::Jit),
            2 => (number(), number(), 1..4usize, body())
                .prop_map(|(carry, xs, length, body)| Step::Loop { carry, xs, length, body }),
            1 => (number(), body(), body()).prop_map(|(x, f, g)| Step::Branch(x, [f, g])),
        ]
    });
    let steps = prop::collection::vec(step, 3..7);
    (
        select(vec![DType::F32, DType::F64]),
        prop_oneof![1 => select(vec![2usize, 5, 16]), 3 => select(vec![33usize, 64])],
        steps,
    )
        .prop_map(|(dtype, size, steps)| Program { dtype, size, steps })
}

impl Program {
    /// The arguments: numbers between -0.9 and 0.9.
    pub fn arguments(&self) -> Vec<Tensor> {
        let matrix = |shift: f64| {
            let element = |i: usize| ((i as f64 + shift) * 0.618_033_988_75).fract() * 1.8 - 0.9;
            let shape = [self.size, self.size];
            Tensor::from_vec((0..self.size * self.size).map(element).collect::<Vec<f64>>(), shape).to_dtype(self.dtype)
        };
        vec![matrix(0.0), matrix(1000.5)]
    }

    /// A step of training as a program: the value of a function of the arguments, and the arguments minus a tenth of the gradient, which may take
    /// the memory of the arguments. Nothing else is a result, so that all other memory may be used again. All regions have this policy; without
    /// one there are none.
    ///
    /// # Errors
    /// If it cannot be traced.
    pub fn jaxpr(&self, policy: Option<&Policy>) -> Result<Arc<Jaxpr>> {
        let how = How { policy, size: self.size, has_extrema: self.dtype == DType::F64 };
        let function = |args: &Vec<Tensor>| {
            let mut values = args.clone();
            how.run(&self.steps, &mut values)?;
            let last = values.iter().rev().take(2).map(|x| x.sum(..)).reduce(|a, b| a + b);
            Ok::<_, remat::Error>(last.unwrap_or(Tensor::from(0.0f64)))
        };
        let step = |args: &Vec<Tensor>| {
            let (value, gradient) = value_and_grad(function)(args)?;
            let updated = args.iter().zip(&gradient).map(|(x, g)| x - g * 0.1);
            Ok::<_, remat::Error>([value].into_iter().chain(updated).collect::<Vec<Tensor>>())
        };
        jit(step).jaxpr(&self.arguments())
    }
}

/// How steps are run.
#[derive(Clone, Copy)]
struct How<'a> {
    policy: Option<&'a Policy>,
    size: usize,
    has_extrema: bool,
}

impl How<'_> {
    fn run(self, steps: &[Step], values: &mut Vec<Tensor>) -> Result<()> {
        for step in steps {
            let pick = |i: &usize| values[i % values.len()].clone();
            let new = match step {
                Step::Unary(op, x) => unary(*op, &pick(x)),
                Step::Binary(op, x, y) => binary(*op, &pick(x), &pick(y)),
                Step::Product(x, y) => (pick(x).matmul(&pick(y)) * (2.0 / self.size as f64)).tanh(),
                Step::Order(order, x) => self.order(*order, &pick(x)),
                Step::Extremum(op, x) if self.has_extrema => self.extremum(*op, &pick(x)),
                Step::Extremum(op, x) => unary(*op, &pick(x)),
                Step::Barrier(x, y) => {
                    let held = optimization_barrier(&[&pick(x), &pick(y)]);
                    &held[0] * 0.5 + held[1].sin()
                }
                Step::Region(x, y, body) => {
                    let operands = vec![pick(x), pick(y)];
                    let f = |args: &Vec<Tensor>| {
                        // The captured operand is the one that is passed too.
                        let mut inner = vec![args[0].sin().named("kept")];
                        inner.extend(args.iter().chain(&operands[..1]).cloned());
                        self.run(body, &mut inner)?;
                        Ok::<_, remat::Error>(last(&inner) * 0.5 + inner[0].cos())
                    };
                    match self.policy {
                        Some(policy) => checkpoint(policy.clone(), f)(&operands)?,
                        None => f(&operands)?,
                    }
                }
                Step::Jit(body) => jit(|args: &Vec<Tensor>| self.result(body, args.clone())).call(values.clone())?,
                Step::Loop { carry, xs, length, body } => {
                    let (carry, x) = (pick(carry), pick(xs));
                    let slices: Vec<Tensor> = (0..*length).map(|i| &x * (1.0 - 0.3 * i as f64)).collect();
                    let iteration = |carry: &Tensor, x: &Tensor| {
                        let inner = values.iter().chain([carry, x]).cloned().collect();
                        let out = self.result(body, inner)?;
                        Ok::<_, remat::Error>(((carry + &out) * 0.5, out))
                    };
                    let (carry, ys) =
                        scan_with(&ScanOptions::default(), iteration, &carry, &Tensor::stack(&slices, 0))?;
                    (carry + ys.mean(0)) * 0.5
                }
                Step::Branch(x, [f, g]) => {
                    // A mean may be zero but for its rounding.
                    let index = (pick(x).mean(..) + 0.0123).gt(0.0);
                    let branch = |body: &Vec<Step>, args: &Vec<Tensor>| self.result(body, args.clone());
                    cond(&index, |args: &Vec<Tensor>| branch(f, args), |args: &Vec<Tensor>| branch(g, args), values)?
                }
            };
            values.push(new);
        }
        Ok(())
    }

    /// The last value after these steps.
    fn result(self, steps: &[Step], mut values: Vec<Tensor>) -> Result<Tensor> {
        self.run(steps, &mut values)?;
        Ok(last(&values))
    }

    fn order(self, order: u8, x: &Tensor) -> Tensor {
        if order >= ORDERS {
            return x * self.order(order - ORDERS, x);
        }
        let n = self.size;
        match order {
            0 => x.swap_axes(0, 1),
            1 => x.flip(0),
            2 => x.flip(1),
            3 => x.roll(1, 0),
            4 => x.roll(-1, 1),
            5 => x.index(1..).pad([(1, 0), (0, 0)], 0.0),
            6 => x.mean(0).broadcast_to([n, n]),
            7 => x.mean(1).expand_dims([1]).broadcast_to([n, n]),
            8 => x.flatten().flip(0).reshape([n, n]),
            _ => x.cumsum(0) * (1.0 / n as f64),
        }
    }

    /// Of the operand plus numbers, so that no two elements are equal.
    fn extremum(self, op: u8, x: &Tensor) -> Tensor {
        let n = self.size;
        let places = Tensor::arange(0..(n * n) as i64).to_dtype(DType::F64).reshape([n, n]);
        let y = x * 1.29 + 0.14 + places * (1.37 / (n * n) as f64);
        match op % EXTREMA {
            0 => y.cummax(0),
            1 => y.cummax(1),
            2 => y.cummin(0),
            3 => y.cummin(1),
            4 => y.max(0).broadcast_to([n, n]) * x,
            5 => y.min(1).expand_dims([1]).broadcast_to([n, n]) + x,
            6 => y.maximum(x * -0.7),
            _ => y.sort(1),
        }
    }
}

fn last(values: &[Tensor]) -> Tensor {
    values[values.len() - 1].clone()
}

fn unary(op: u8, x: &Tensor) -> Tensor {
    match op % 6 {
        0 => x.sin(),
        1 => x.cos(),
        2 => x.tanh(),
        3 => x * 0.79 + 0.14,
        4 => -x,
        _ => x.square() * 0.9,
    }
}

fn binary(op: u8, x: &Tensor, y: &Tensor) -> Tensor {
    match op % 4 {
        0 => (x + y) * 0.5,
        1 => x * y,
        2 => (x - y) * 0.5,
        _ => x / (y.square() + 1.0),
    }
}
