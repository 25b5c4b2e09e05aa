//! Loops and branches.

use crate::{Array, Cond, CustomLin, Data, Error, ErrorKind, Literal, Result, Scan, While, with_dtype};

use super::eval;

/// Runs the body once for each slice. Stacked results are written in place, so that memory holds one copy of them.
pub(super) fn scan(op: &Scan, mut ins: Vec<Array>) -> Result<Vec<Array>> {
    let xs = ins.split_off(op.num_consts + op.num_carry);
    let mut carry = ins.split_off(op.num_consts);
    let consts = ins;
    let y_avals = op.jaxpr.out_avals().split_off(op.num_carry);
    let zero = |dtype| Literal::from_f64(dtype, 0.0);
    let mut ys: Vec<Data> = y_avals.iter().map(|a| Data::full(zero(a.dtype), op.length * a.size())).collect();
    for step in 0..op.length {
        let i = if op.reverse { op.length - 1 - step } else { step };
        let mut args = consts.clone();
        args.append(&mut carry);
        for x in &xs {
            args.push(slice_at(x, i)?);
        }
        carry = eval(&op.jaxpr, args)?;
        for (stack, y) in ys.iter_mut().zip(carry.split_off(op.num_carry)) {
            write_at(stack, i, &y);
        }
    }
    for (aval, data) in y_avals.iter().zip(ys) {
        let shape = std::iter::once(op.length).chain(aval.shape.iter().copied());
        carry.push(Array::new(aval.with_shape(shape), data)?);
    }
    Ok(carry)
}

/// Runs the body while the condition holds.
pub(super) fn while_loop(op: &While, mut ins: Vec<Array>) -> Result<Vec<Array>> {
    let mut carry = ins.split_off(op.cond_consts + op.body_consts);
    let body_consts = ins.split_off(op.cond_consts);
    let cond_consts = ins;
    loop {
        let args = cond_consts.iter().chain(&carry).cloned().collect();
        match eval(&op.cond, args)?.first().and_then(Array::to_literal) {
            Some(holds) if holds.is_zero() => return Ok(carry),
            Some(_) => {}
            None => return Err(Error::new(ErrorKind::Check, "while", "the condition gives no scalar")),
        }
        let mut args = body_consts.clone();
        args.append(&mut carry);
        carry = eval(&op.body, args)?;
    }
}

/// Runs the branch that the index numbers.
pub(super) fn cond(op: &Cond, mut ins: Vec<Array>) -> Result<Vec<Array>> {
    let index = ins.remove(0).to_literal().and_then(Literal::as_i128);
    let index = index.ok_or_else(|| Error::new(ErrorKind::Check, "cond", "the index is not an integer scalar"))?;
    let last = op.branches.len() as i128 - 1;
    match op.branches.get(index.clamp(0, last.max(0)) as usize) {
        Some(branch) => eval(branch, ins),
        None => Err(Error::new(ErrorKind::Check, "cond", "there is no branch")),
    }
}

/// Fails, since only the transpose of this map is known.
pub(super) fn custom_lin(op: &CustomLin) -> Result<Vec<Array>> {
    Err(op.not_evaluated())
}

/// The slice of `x` at this index of the first dimension.
pub(super) fn slice_at(x: &Array, index: usize) -> Result<Array> {
    let aval = x.aval().with_shape(x.shape().iter().skip(1).copied());
    let range = index * aval.size()..(index + 1) * aval.size();
    let data = match x.data() {
        Data::Bool(v) => Data::Bool(v[range].to_vec()),
        Data::I8(v) => Data::I8(v[range].to_vec()),
        Data::I16(v) => Data::I16(v[range].to_vec()),
        Data::I32(v) => Data::I32(v[range].to_vec()),
        Data::I64(v) => Data::I64(v[range].to_vec()),
        Data::U8(v) => Data::U8(v[range].to_vec()),
        Data::U16(v) => Data::U16(v[range].to_vec()),
        Data::U32(v) => Data::U32(v[range].to_vec()),
        Data::U64(v) => Data::U64(v[range].to_vec()),
        Data::F16(v) => Data::F16(v[range].to_vec()),
        Data::Bf16(v) => Data::Bf16(v[range].to_vec()),
        Data::F32(v) => Data::F32(v[range].to_vec()),
        Data::F64(v) => Data::F64(v[range].to_vec()),
    };
    Array::new(aval, data)
}

/// Writes `y` into this slot of a stack.
fn write_at(stack: &mut Data, slot: usize, y: &Array) {
    let range = slot * y.data().len()..(slot + 1) * y.data().len();
    with_dtype!(y.dtype(), T => {
        if let (Some(to), Some(from)) = (<T as crate::Element>::slice_mut(stack), y.as_slice::<T>()) {
            to[range].copy_from_slice(from);
        }
    });
}
