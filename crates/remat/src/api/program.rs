//! Looking at programs without running them.

use remat_ir::{Aval, ClosedJaxpr, Error, ErrorKind, Result};

use crate::trace::{Order, Output, Tree, concrete, current_loc, trace_tree, trace_tree_at};

/// The program of a function for an argument of these avals, whose values are not read.
///
/// The program can be differentiated once with [`transform`](crate::transform): the custom functions in it have their
/// rules, but those that the rules call have none. For more derivatives make the program of the derivative.
///
/// ```
/// use remat::{Tensor, make_jaxpr};
/// let jaxpr = make_jaxpr(|x: &Tensor| x.sin())(&Tensor::from(1.0f32))?;
/// assert_eq!(jaxpr.to_string(), "{ lambda ; a:f32[]. let b:f32[] = sin a in (b,) }");
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// The first error inside the function; if it captures a tensor of a trace that is open.
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
        Ok(ClosedJaxpr { jaxpr: program.jaxpr, consts: concrete("make_jaxpr", &program.captured)? })
    }
}

/// The avals of the leaves of the result, without computing it.
///
/// ```
/// use remat::{Tensor, eval_shape};
/// let avals = eval_shape(|x: &Tensor| x.sin())(&Tensor::from(vec![1.0f32, 2.0]))?;
/// assert_eq!(avals[0].to_string(), "f32[2]");
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// The first error inside the function.
#[track_caller]
pub fn eval_shape<A: Tree, R: Output>(f: impl Fn(&A) -> R) -> impl Fn(&A) -> Result<Vec<Aval>> {
    let loc = current_loc();
    move |x| Ok(trace_tree(x, loc, &f)?.0.jaxpr.out_avals())
}
