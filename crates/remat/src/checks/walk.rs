//! Programs computed one equation after the other, with checks before and after each.

use std::fmt::Write;

use remat_ir::{
    Array, Atom, Aval, BroadcastInDim, Call, Cond, DynamicSlice, DynamicUpdateSlice, Error, ErrorKind, Jaxpr, Literal,
    Loc, Op, Reshape, Result, Role, Scan, Shape, Value, Var, VarMap, While,
};

use super::{Checks, Found, floats, index_of, indices};

/// How an operation is computed: on the device of its operands.
pub(crate) type Compute = fn(&Op, Vec<Value>) -> Result<Vec<Value>>;

/// Checks, and how operations are computed.
#[derive(Clone, Copy)]
pub(crate) struct Checked {
    checks: Checks,
    compute: Compute,
}

/// Where in a program an equation runs, besides its line.
#[derive(Clone, Default)]
struct Context {
    /// The iterations of the loops around it, the outermost first.
    iterations: Vec<Iteration>,
    /// Whether the region or the loop around it is one of a derivative.
    is_derivative: bool,
    /// Whether a region of the backward pass is around it, which computes again what the forward pass has computed. Only that of a function with
    /// custom rematerialization can be the first to be wrong.
    is_recomputed: bool,
}

#[derive(Clone, Copy)]
struct Iteration {
    number: usize,
    /// The number of iterations, if it is known.
    count: Option<usize>,
}

impl Context {
    /// The body of a loop in this iteration.
    fn iteration(&self, number: usize, count: Option<usize>) -> Context {
        let mut context = self.clone();
        context.iterations.push(Iteration { number, count });
        context
    }

    /// What an error says of the place: `, in iteration 7 of 12, in the derivative`.
    fn told(&self, loc: Loc) -> String {
        let mut text = String::new();
        for Iteration { number, count } in &self.iterations {
            let _ = match count {
                Some(count) => write!(text, ", in iteration {number} of {count}"),
                None => write!(text, ", in iteration {number}"),
            };
        }
        if loc.role == Role::Derivative {
            text += ", in the derivative";
        } else if self.is_recomputed {
            text += ", in the backward pass";
        }
        text
    }
}

impl Checks {
    /// Runs with these checks, if there are any.
    pub(crate) fn with(self, compute: Compute) -> Option<Checked> {
        (self != Checks::NONE).then_some(Checked { checks: self, compute })
    }
}

impl Checked {
    /// The results of one operation outside of programs.
    ///
    /// # Errors
    /// As the operation; of kind [`ErrorKind::Value`] if a check fails.
    pub(crate) fn apply(self, op: &Op, operands: Vec<Value>) -> Result<Vec<Value>> {
        self.operation(op, operands, Loc::UNKNOWN, &Context::default())
    }

    /// The results of a program, for a method of this name.
    ///
    /// # Errors
    /// As the run of the program, with the line of the equation; of kind [`ErrorKind::Value`] if a check fails. `argument` describes an
    /// argument by its number.
    pub(crate) fn run(
        self,
        method: &str,
        jaxpr: &Jaxpr,
        args: Vec<Value>,
        argument: impl Fn(usize) -> String,
    ) -> Result<Vec<Value>> {
        let given = if self.checks.nans { args.clone() } else { Vec::new() };
        let outs = self.program(jaxpr, args, &Context::default())?;
        if self.checks.nans
            && let Some((result, _)) = first_nan(&outs)?
            && let Some((number, element)) = first_nan(&given)?
        {
            let array = given[number].host()?;
            let (argument, aval, at) = (argument(number), array.aval(), index_of(array, element));
            let message = format!("{argument}, {aval}, has NaN, the first at {at}, and so has result {result}");
            return Err(Error::new(ErrorKind::Value, method, message));
        }
        Ok(outs)
    }
}

/// The first value that has a NaN, and which of its elements is the first.
fn first_nan(values: &[Value]) -> Result<Option<(usize, usize)>> {
    for (number, value) in values.iter().enumerate().filter(|(_, value)| value.aval().dtype.is_float()) {
        if let Some(element) = floats::first_nan(value.host()?) {
            return Ok(Some((number, element)));
        }
    }
    Ok(None)
}

impl Checked {
    /// The results of a program. A value is dropped after its last reader.
    fn program(self, jaxpr: &Jaxpr, args: Vec<Value>, context: &Context) -> Result<Vec<Value>> {
        let mut readers: VarMap<usize> = jaxpr.var_map(0);
        let all = jaxpr.eqns.iter().flat_map(|eqn| &eqn.ins).chain(&jaxpr.outs);
        all.filter_map(|atom| atom.var()).for_each(|var| readers[var] += 1);
        let mut values: VarMap<Option<Value>> = jaxpr.var_map(None);
        let set = |values: &mut VarMap<Option<Value>>, readers: &VarMap<usize>, var: Var, value: Value| {
            values[var] = (readers[var] > 0).then_some(value);
        };
        let read = |values: &mut VarMap<Option<Value>>, readers: &mut VarMap<usize>, atom: Atom| match atom {
            Atom::Lit(literal) => Ok(Value::Host(Array::full(literal, []))),
            Atom::Var(var) => {
                readers[var] -= 1;
                let value = if readers[var] == 0 { values[var].take() } else { values[var].clone() };
                let missing = || Error::new(ErrorKind::Check, "checks", "a variable is read before it is computed");
                value.ok_or_else(missing)
            }
        };
        for (&var, arg) in jaxpr.ins.iter().zip(args) {
            set(&mut values, &readers, var, arg);
        }
        for eqn in &jaxpr.eqns {
            let ins = eqn.ins.iter().map(|&atom| read(&mut values, &mut readers, atom)).collect::<Result<_>>()?;
            let outs = self.operation(&eqn.op, ins, eqn.loc, context).map_err(|error| error.at(eqn.loc))?;
            for (&var, out) in eqn.outs.iter().zip(outs) {
                set(&mut values, &readers, var, out);
            }
        }
        jaxpr.outs.iter().map(|&atom| read(&mut values, &mut readers, atom)).collect()
    }

    /// The results of an operation.
    fn operation(self, op: &Op, ins: Vec<Value>, loc: Loc, context: &Context) -> Result<Vec<Value>> {
        let is_derivative = loc.role == Role::Derivative || context.is_derivative;
        let loc = if is_derivative { Loc { role: Role::Derivative, ..loc } } else { loc };
        let inner = || Context { is_derivative, ..context.clone() };
        match op {
            Op::Call(Call::Jit(op)) => self.program(&op.jaxpr, ins, &inner()),
            Op::Call(Call::CustomJvp(op)) => self.program(&op.call, ins, &inner()),
            Op::Call(Call::CustomVjp(op)) => self.program(&op.call, ins, &inner()),
            // What a region computes again is what it has computed before, and is not of the derivative.
            Op::Call(Call::Checkpoint(op)) if op.differentiated => {
                self.program(&op.jaxpr, ins, &Context { is_recomputed: true, ..context.clone() })
            }
            Op::Call(Call::Checkpoint(op)) => self.program(&op.jaxpr, ins, &inner()),
            Op::Call(Call::Scan(op)) => self.scan(op, ins, &inner()),
            Op::Call(Call::While(op)) => self.while_loop(op, ins, &inner()),
            Op::Call(Call::Cond(op)) => self.cond(op, ins, &inner()),
            Op::Call(Call::CustomLin(_) | Call::ShardMap(_)) | Op::Prim(_) => self.whole(op, ins, loc, context),
        }
    }

    /// The results of an operation without equations of its own, or whose equations run on several devices.
    fn whole(self, op: &Op, ins: Vec<Value>, loc: Loc, context: &Context) -> Result<Vec<Value>> {
        let hosts = |values: &[Value]| values.iter().map(|value| value.host().cloned()).collect::<Result<Vec<Array>>>();
        let wrong = |found: Found| match found {
            Some(what) => Err(Error::new(ErrorKind::Value, op.name(), what + &context.told(loc))),
            None => Ok(()),
        };
        if let Op::Prim(prim) = op
            && self.checks.indices
            && indices::has_indices(prim)
        {
            wrong(indices::wrong(prim, &hosts(&ins)?, loc.role == Role::Derivative))?;
        }
        // An operand that nothing else reads may be overwritten by a result, and errors tell its elements.
        let operands = if self.checks.nans { ins.clone() } else { Vec::new() };
        let outs = (self.compute)(op, ins)?;
        if self.checks.nans {
            wrong(floats::made(op, &hosts(&operands)?, &hosts(&outs)?))?;
        }
        Ok(outs)
    }

    /// The results of a loop over slices.
    fn scan(self, op: &Scan, mut ins: Vec<Value>, context: &Context) -> Result<Vec<Value>> {
        let stacks_in = ins.split_off(op.num_consts + op.num_carry);
        let mut carry = ins.split_off(op.num_consts);
        let consts = ins;
        let slices = op.jaxpr.out_avals().split_off(op.num_carry);
        let mut stacks = slices.iter().map(|slice| self.zeros(op.length, slice)).collect::<Result<Vec<Value>>>()?;
        for iteration in 0..op.length {
            let at = if op.reverse { op.length - 1 - iteration } else { iteration };
            let mut args = consts.clone();
            args.append(&mut carry);
            for stack in &stacks_in {
                args.push(self.slice_of(stack, at)?);
            }
            carry = self.program(&op.jaxpr, args, &context.iteration(iteration, Some(op.length)))?;
            for (stack, slice) in stacks.iter_mut().zip(carry.split_off(op.num_carry)) {
                let empty = std::mem::replace(stack, slice.clone());
                *stack = self.with_slice(empty, slice, at)?;
            }
        }
        carry.extend(stacks);
        Ok(carry)
    }

    /// The results of a loop that ends when its condition does not hold.
    fn while_loop(self, op: &While, mut ins: Vec<Value>, context: &Context) -> Result<Vec<Value>> {
        let mut carry = ins.split_off(op.cond_consts + op.body_consts);
        let body_consts = ins.split_off(op.cond_consts);
        let cond_consts = ins;
        for iteration in 0.. {
            let context = context.iteration(iteration, None);
            let args = cond_consts.iter().chain(&carry).cloned().collect();
            let holds = scalar(self.program(&op.cond, args, &context)?.first())?;
            if holds.is_zero() {
                break;
            }
            let mut args = body_consts.clone();
            args.append(&mut carry);
            carry = self.program(&op.body, args, &context)?;
        }
        Ok(carry)
    }

    /// The results of the branch that the index numbers.
    fn cond(self, op: &Cond, mut ins: Vec<Value>, context: &Context) -> Result<Vec<Value>> {
        let index = scalar(Some(&ins.remove(0)))?.as_i128().unwrap_or(0);
        let last = op.branches.len() as i128 - 1;
        self.program(&op.branches[index.clamp(0, last) as usize], ins, context)
    }
}

/// The value of a scalar.
fn scalar(value: Option<&Value>) -> Result<Literal> {
    let literal = value.map(|value| value.host().map(Array::to_literal)).transpose()?.flatten();
    literal.ok_or_else(|| Error::new(ErrorKind::Check, "checks", "a condition is not a scalar"))
}

/// The first element of each block: this index of the first dimension, and 0 of the others.
fn starts(at: usize, rank: usize) -> impl Iterator<Item = Value> {
    let start = move |dimension| if dimension == 0 { at as f64 } else { 0.0 };
    (0..rank).map(move |d| Value::Host(Array::full(Literal::from_f64(remat_ir::DType::I64, start(d)), [])))
}

impl Checked {
    /// The one result of an operation.
    fn one(self, op: impl Into<Op>, ins: Vec<Value>) -> Result<Value> {
        let out = (self.compute)(&op.into(), ins)?.into_iter().next();
        out.ok_or_else(|| Error::new(ErrorKind::Internal, "checks", "an operation has no result"))
    }

    /// A stack of this many slices of zeros.
    fn zeros(self, length: usize, slice: &Aval) -> Result<Value> {
        let shape: Shape = std::iter::once(length).chain(slice.shape.iter().copied()).collect();
        let zero = Array::full(Literal::from_f64(slice.dtype, 0.0), []).in_memory(slice.memory);
        self.one(BroadcastInDim { shape, dims: Shape::new() }, vec![Value::Host(zero)])
    }

    /// The slice of a stack at this index.
    fn slice_of(self, stack: &Value, at: usize) -> Result<Value> {
        let shape: Shape = stack.aval().shape.iter().skip(1).copied().collect();
        let sizes: Shape = std::iter::once(1).chain(shape.iter().copied()).collect();
        let rank = sizes.len();
        let block =
            self.one(DynamicSlice { sizes }, std::iter::once(stack.clone()).chain(starts(at, rank)).collect())?;
        self.one(Reshape { shape }, vec![block])
    }

    /// A stack with another slice at this index.
    fn with_slice(self, stack: Value, slice: Value, at: usize) -> Result<Value> {
        let shape: Shape = std::iter::once(1).chain(slice.aval().shape.iter().copied()).collect();
        let rank = shape.len();
        let block = self.one(Reshape { shape }, vec![slice])?;
        self.one(DynamicUpdateSlice, [stack, block].into_iter().chain(starts(at, rank)).collect())
    }
}
