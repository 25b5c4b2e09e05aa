//! Programs of functions without running them.

use remat_ir::{ClosedJaxpr, Error, ErrorKind, Result, Value};

use crate::trace::{Order, Output, Tensor, Tree, concrete, current_loc, rebuild, trace_tree, trace_tree_at};

/// The program of a function for an argument of these avals, whose values are not read.
///
/// The program can be differentiated once with [`transform`](crate::transform): its custom functions have their rules, but custom functions
/// called by the rules do not. For more derivatives, take the program of the derivative.
///
/// ```
/// use remat::{Tensor, make_jaxpr};
/// let jaxpr = make_jaxpr(|x: &Tensor| x.sin())(&Tensor::from(1.0f32))?;
/// assert_eq!(jaxpr.to_string(), "{ lambda ; a:f32[]. let b:f32[] = sin a in (b,) }");
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// The first error inside the function; if it captures a tensor of an open trace.
#[track_caller]
pub fn make_jaxpr<A: Tree, R: Output>(f: impl Fn(&A) -> R) -> impl Fn(&A) -> Result<ClosedJaxpr> {
    let loc = current_loc();
    move |x| {
        let (program, _) = trace_tree_at(Order::default().plus(1), x, loc, &f)?;
        if let Some(open) = program.captured.iter().find(|tensor| tensor.is_traced()) {
            let message = format!(
                "the function captures a tensor ({}) of a function that is being traced; make it a part of the argument",
                open.aval()?
            );
            return Err(Error::new(ErrorKind::Traced, "make_jaxpr", message).at(loc));
        }
        let consts = concrete("make_jaxpr", &program.captured)?.into_iter().map(Value::into_host);
        Ok(ClosedJaxpr { jaxpr: program.jaxpr, consts: consts.collect::<Result<_>>()? })
    }
}

/// The result of a function as abstract tensors, which have dtypes and shapes but no elements, without computing it. The argument may be
/// abstract too, so a model that does not fit in memory can be created, traced and compiled:
///
/// ```
/// use remat::{DType, Tensor, eval_shape, random};
/// let [wide, deep] = [1 << 20, 1 << 16];
/// let weights = eval_shape(|key: &Tensor| random::normal(random::Key::from_data(key.clone()), [deep, wide, wide], DType::Bf16));
/// let weights = weights(random::key(0).data())?;
/// assert_eq!(weights.aval()?.to_string(), "bf16[65536,1048576,1048576]");
/// let last = eval_shape(|w: &Tensor| w.index(-1).sum(0))(&weights)?;
/// assert_eq!(last.aval()?.to_string(), "bf16[1048576]");
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// The first error inside the function.
#[track_caller]
pub fn eval_shape<A: Tree, R: Output>(f: impl Fn(&A) -> R) -> impl Fn(&A) -> Result<R::Tree> {
    let loc = current_loc();
    move |x| {
        let (program, like) = trace_tree(x, loc, &f)?;
        rebuild(&like, program.jaxpr.out_avals().into_iter().map(Tensor::from_aval).collect())
    }
}
