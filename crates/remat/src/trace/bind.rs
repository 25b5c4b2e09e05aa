//! Applying an operation to tensors: staged while a trace is open, computed at once otherwise.

use remat_ir::{Call, Error, ErrorKind, Jaxpr, Jit, Loc, Op, Result, Value};

use super::tensor::{Repr, no_elements};
use super::tracer::{Tracer, escaped};
use super::{Tensor, eager};

/// Applies an operation with one result.
#[track_caller]
pub(crate) fn bind1(op: impl Into<Op>, ins: &[&Tensor]) -> Tensor {
    let loc = super::current_loc();
    match stage_or_run(op.into(), ins, loc) {
        Ok(outs) => match <[Tensor; 1]>::try_from(outs) {
            Ok([out]) => out,
            Err(outs) => {
                let message = format!("expected one result and got {}", outs.len());
                fail(Error::new(ErrorKind::Internal, "bind", message).at(loc))
            }
        },
        Err(error) => fail(error.at(loc)),
    }
}

/// Applies an operation with `n` results.
#[track_caller]
pub(crate) fn bind(op: impl Into<Op>, ins: &[&Tensor], n: usize) -> Vec<Tensor> {
    let loc = super::current_loc();
    match stage_or_run(op.into(), ins, loc) {
        Ok(outs) => outs,
        Err(error) => vec![fail(error.at(loc)); n],
    }
}

/// As [`bind`], at the site of `loc` in the current scope, for a function that is created at one place and called later.
///
/// # Errors
/// The error of the operation, which the innermost trace remembers, since an operation without results can fail too.
pub(crate) fn bind_at(op: impl Into<Op>, ins: &[&Tensor], loc: Loc) -> Result<Vec<Tensor>> {
    super::pinned_at(loc, || {
        let loc = super::current_loc();
        stage_or_run(op.into(), ins, loc).map_err(|error| {
            let error = error.at(loc);
            drop(fail(error.clone()));
            error
        })
    })
}

/// Applies an operation that has no method: staged while a trace is open, computed at once otherwise.
///
/// ```
/// use remat::ir::{Cumulative, CumulativeKind};
/// use remat::{Tensor, layer};
/// let op = Cumulative { kind: CumulativeKind::Sum, axis: 0, reverse: false };
/// let sums = layer::apply(op, &[&Tensor::new([1, 2, 3])])?;
/// assert_eq!(sums[0].to_vec::<i32>()?, [1, 3, 6]);
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// The error of a failed operand; if the operation does not take the operands, or cannot be computed.
#[track_caller]
pub fn apply(op: impl Into<Op>, operands: &[&Tensor]) -> Result<Vec<Tensor>> {
    bind_at(op, operands, super::current_loc())
}

/// The tensor that `f` computes by several operations, all at the caller's location as with [`pinned`](super::pinned); a failed tensor if
/// `f` fails.
///
/// ```
/// use remat::layer::deferred;
/// use remat::{DType, Tensor};
/// let flat = |x: &Tensor| deferred(|| Ok(x.reshape([x.size()?])));
/// assert_eq!(flat(&Tensor::ones([2, 3], DType::F32)).shape()?, [6]);
/// # Ok::<(), remat::Error>(())
/// ```
#[track_caller]
pub fn deferred(f: impl FnOnce() -> Result<Tensor>) -> Tensor {
    super::scope::pinned(|| f().unwrap_or_else(|error| fail(error.at(super::current_loc()))))
}

/// The tensor that `f` computes of some parameters by several operations. Where no trace is open they are computed as one program, which keeps
/// none of the arrays between them once it is read, and is compiled once for each set of avals: parameters are its operands, also scalars,
/// which would be constants of it if `f` captured them. For functions on arrays as large as a model's weights.
///
/// # Errors
/// The error of a failed parameter, of `f`, or of the program.
pub(crate) fn composed<const N: usize>(
    operation: &'static str,
    parameters: [&Tensor; N],
    f: impl FnOnce([&Tensor; N]) -> Result<Tensor>,
) -> Result<Tensor> {
    if Tracer::is_open() {
        return f(parameters);
    }
    let loc = super::current_loc();
    let parameters = parameters.map(Tensor::clone);
    let (program, _) = super::trace_tree(&parameters, loc, |parameters: &[Tensor; N]| f(parameters.each_ref()))?;
    let results = program.jaxpr.out_avals();
    let op = Op::Call(Call::Jit(Jit { name: operation.into(), jaxpr: program.jaxpr }));
    let operands: Vec<&Tensor> = program.captured.iter().chain(&parameters).collect();
    let named = |error: Error| {
        // The engine names the bytes that were too many, such as those between the operations.
        let message = match &*results {
            [aval] if error.kind() == ErrorKind::Memory => {
                format!("there is no memory to compute the result {aval}, of {} bytes", aval.bytes())
            }
            _ => error.message().to_string(),
        };
        Error::new(error.kind(), operation, message)
    };
    let results = stage_or_run(op, &operands, loc).map_err(named)?;
    results.into_iter().next().ok_or_else(|| Error::new(ErrorKind::Internal, operation, "has no result"))
}

/// As [`deferred`], for `n` tensors.
#[track_caller]
pub(crate) fn deferred_all(n: usize, f: impl FnOnce() -> Result<Vec<Tensor>>) -> Vec<Tensor> {
    super::scope::pinned(|| f().unwrap_or_else(|error| vec![fail(error.at(super::current_loc())); n]))
}

/// As [`deferred`], for an array of tensors.
#[track_caller]
pub(crate) fn deferred_array<const N: usize>(f: impl FnOnce() -> Result<[Tensor; N]>) -> [Tensor; N] {
    super::scope::pinned(|| {
        f().unwrap_or_else(|error| {
            let failed = fail(error.at(super::current_loc()));
            std::array::from_fn(|_| failed.clone())
        })
    })
}

/// A failed tensor. The innermost trace remembers its error.
pub(crate) fn fail(error: Error) -> Tensor {
    Tracer::with_innermost(|tracer, _| tracer.fail(&error));
    Tensor::failed(error)
}

fn stage_or_run(op: Op, ins: &[&Tensor], loc: Loc) -> Result<Vec<Tensor>> {
    let staged = Tracer::with_innermost(|tracer, parents| {
        let atoms = ins.iter().map(|t| tracer.lift(op.name(), t, parents)).collect::<Result<Vec<_>>>()?;
        tracer.builder.loc = loc;
        let outs = tracer.builder.emit(op.clone(), &atoms)?;
        Ok(outs.into_iter().map(|a| tracer.tensor(a, loc)).collect())
    });
    match staged {
        Some(result) => result,
        None => {
            let values = concrete(op.name(), ins.iter().copied())?;
            Ok(tensors(eager::apply(&op, values)?, loc))
        }
    }
}

/// Runs a program on tensors, for a method of this name: its equations are added to the innermost trace, or it is computed at once.
///
/// # Errors
/// The error of a failed argument, or of the run.
pub(crate) fn run(operation: &'static str, jaxpr: &Jaxpr, args: &[Tensor], loc: Loc) -> Result<Vec<Tensor>> {
    run_unlocated(operation, jaxpr, args, loc).map_err(|error| error.at(loc))
}

fn run_unlocated(operation: &'static str, jaxpr: &Jaxpr, args: &[Tensor], loc: Loc) -> Result<Vec<Tensor>> {
    let staged = Tracer::with_innermost(|tracer, parents| {
        let atoms = args.iter().map(|t| tracer.lift(operation, t, parents)).collect::<Result<Vec<_>>>()?;
        let outs = tracer.builder.inline(jaxpr, &atoms)?;
        Ok(outs.into_iter().map(|a| tracer.tensor(a, loc)).collect())
    });
    match staged {
        Some(result) => result,
        None => {
            let values = concrete(operation, args)?;
            Ok(tensors(eager::run(operation, jaxpr, values)?, loc))
        }
    }
}

/// The operands of a program: captured tensors, then leaves, in the list of the leaves, which has no spare capacity.
pub(crate) fn operands(captured: &[Tensor], mut leaves: Vec<Tensor>) -> Vec<Tensor> {
    leaves.reserve_exact(captured.len());
    leaves.shrink_to(leaves.len() + captured.len());
    leaves.extend_from_slice(captured);
    leaves.rotate_right(captured.len());
    leaves
}

/// The values of concrete tensors, in the memory of their list. Both lists have the same size, so there are never two lists, of which the
/// memory plan of a program would count only one.
///
/// # Errors
/// As [`concrete`].
pub(crate) fn into_values(operation: &str, tensors: Vec<Tensor>) -> Result<Vec<Value>> {
    let value = |tensor: Tensor| match tensor.0 {
        Repr::Concrete(value) => Ok(value),
        Repr::Traced(traced) => Err(escaped(operation, &traced)),
        Repr::Abstract(aval) => Err(no_elements(operation, &aval)),
        Repr::Failed(error) => Err(error),
    };
    tensors.into_iter().map(value).collect()
}

/// The results of a call at this location, which is the location in errors of reading them.
pub(crate) fn tensors(results: Vec<Value>, loc: Loc) -> Vec<Tensor> {
    results.into_iter().map(|value| Tensor::from_value(value.called_at(loc))).collect()
}

/// The values of concrete tensors.
///
/// # Errors
/// The error of a failed tensor; of an escaped one, since without an open trace every traced tensor has escaped; of an abstract one.
pub(crate) fn concrete<'a>(operation: &str, tensors: impl IntoIterator<Item = &'a Tensor>) -> Result<Vec<Value>> {
    let tensors = tensors.into_iter();
    // The memory plan counts a list without spare capacity.
    let mut values = Vec::with_capacity(tensors.size_hint().0);
    for tensor in tensors {
        values.push(match &tensor.0 {
            Repr::Concrete(value) => value.clone(),
            Repr::Traced(traced) => return Err(escaped(operation, traced)),
            Repr::Abstract(aval) => return Err(no_elements(operation, aval)),
            Repr::Failed(error) => return Err(error.clone()),
        });
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number that changes from call to call must not be part of a program that is compiled.
    #[test]
    fn parameters_of_composed_operations_are_operands() -> Result<()> {
        for number in [1.5f32, 2.5] {
            let sum = composed("test", [&Tensor::from(number)], |[x]| {
                assert!(x.is_traced());
                Ok(x * 2.0 + 1.0)
            })?;
            assert_eq!(sum.item::<f32>()?, 2.0 * number + 1.0);
        }
        let failed = composed(
            "test",
            [&Tensor::failed(Error::new(ErrorKind::Argument, "test", "no number"))],
            |[x]| Ok(x + 1.0),
        );
        assert_eq!(failed.map(drop).unwrap_err().message(), "no number");
        Ok(())
    }
}
