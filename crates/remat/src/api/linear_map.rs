//! Linear maps, the results of `linearize`, `vjp` and `linear_transpose`.

use std::fmt;
use std::sync::Arc;

use remat_ir::{Jaxpr, Loc, Result};

use super::linearization::Linearization;
use super::residuals::Residuals;
use super::skeleton::Skeleton;
use crate::trace::{Path, Tensor, Tree, current_loc, expect_avals, run};
use crate::transform::{ResidualSource, select};

/// A linear map from `X` to `Y` that can be called many times. It holds its residuals.
///
/// It is the derivative of a function at a point, or the transpose of that: [`linearize`](crate::linearize) returns the map from tangents
/// of the argument to tangents of the result, [`vjp`](crate::vjp) the *pullback*, from cotangents of the result to cotangents of the
/// argument. [`linear_transpose`](crate::linear_transpose) returns the transpose of a function that is itself linear.
///
/// The residuals can be read, taken out (to write them to a file or send them elsewhere) and put back. So a pullback can be jitted with its
/// residuals as arguments and compiled once for all points:
///
/// ```
/// use remat::{Tensor, jit, vjp};
/// let f = |x: &Tensor| x.sin().exp();
/// let (_, pullback) = vjp(f, &Tensor::from(0.5f64))?;
/// let pull = |(residuals, ct): &(Vec<Tensor>, Tensor)| pullback.with_residuals(residuals.clone())?.call(ct);
/// let backward = jit(pull);
/// for x in [0.5, 1.5f64] {
///     let (_, mut here) = vjp(f, &Tensor::from(x))?;
///     let gradient = backward.call((here.take_residuals(), Tensor::from(1.0f64)))?;
///     assert!((gradient.item::<f64>()? - x.sin().exp() * x.cos()).abs() < 1e-15);
/// }
/// assert_eq!(backward.cache_size(), 1);
/// # Ok::<(), remat::Error>(())
/// ```
pub struct LinearMap<X, Y> {
    program: Arc<LinearProgram<X, Y>>,
    residuals: Vec<Tensor>,
}

/// The part of a map that is the same for all residuals of these avals.
struct LinearProgram<X, Y> {
    words: Words,
    /// Maps residuals and the leaves of the argument in `taken` to the leaves of the result in `given`.
    jaxpr: Jaxpr,
    taken: Vec<bool>,
    given: Vec<bool>,
    argument: Skeleton<X>,
    result: Skeleton<Y>,
    origin: ResidualOrigin,
    loc: Loc,
}

/// The words for a map and its argument in errors.
#[derive(Clone, Copy)]
struct Words {
    operation: &'static str,
    argument: &'static str,
    /// The value whose tangent or cotangent the argument is.
    value: &'static str,
}

const PULLBACK: Words = Words { operation: "vjp", argument: "cotangent", value: "result" };

/// The origin of the residuals, so that a map can describe them.
struct ResidualOrigin {
    /// The program that computes them. Its inputs are captured constants, then the leaves of the function's argument.
    known: Jaxpr,
    residuals: Vec<ResidualSource>,
    num_captured: usize,
    paths: Vec<Path>,
}

impl<X: Tree, Y: Tree> LinearMap<X, Y> {
    fn new(program: LinearProgram<X, Y>, residuals: Vec<Tensor>) -> LinearMap<X, Y> {
        LinearMap { program: Arc::new(program), residuals }
    }

    /// The derivative at `argument`, where the residuals were computed.
    pub(super) fn derivative(
        linearization: Linearization,
        residuals: Vec<Tensor>,
        argument: Skeleton<X>,
        result: Skeleton<Y>,
        loc: Loc,
    ) -> LinearMap<X, Y> {
        let Linearization { program, differentiated, float_outs, split } = linearization;
        let paths = argument.paths().to_vec();
        let num_captured = program.captured.len();
        let program = LinearProgram {
            words: Words { operation: "linearize", argument: "tangent", value: "argument" },
            jaxpr: split.staged,
            taken: differentiated,
            given: float_outs,
            argument,
            result,
            origin: ResidualOrigin { known: split.known, residuals: split.residuals, num_captured, paths },
            loc,
        };
        LinearMap::new(program, residuals)
    }

    /// The transpose of the derivative. `argument` is the result of the linearized function, whose first results are differentiated, and
    /// `result` is its argument.
    pub(super) fn pullback(
        linearization: Linearization,
        residuals: Vec<Tensor>,
        argument: Skeleton<X>,
        result: Skeleton<Y>,
        loc: Loc,
    ) -> Result<LinearMap<X, Y>> {
        let jaxpr = linearization.backward()?;
        let Linearization { program, differentiated, mut float_outs, split } = linearization;
        float_outs.truncate(argument.paths().len());
        let paths = result.paths().to_vec();
        let num_captured = program.captured.len();
        let program = LinearProgram {
            words: PULLBACK,
            jaxpr,
            taken: float_outs,
            given: differentiated,
            argument,
            result,
            origin: ResidualOrigin { known: split.known, residuals: split.residuals, num_captured, paths },
            loc,
        };
        Ok(LinearMap::new(program, residuals))
    }

    /// The transpose of a linear function. It takes the captured values of the function, then cotangents.
    pub(super) fn transposed(
        jaxpr: Jaxpr,
        captured: Vec<Tensor>,
        argument: Skeleton<X>,
        result: Skeleton<Y>,
        loc: Loc,
    ) -> LinearMap<X, Y> {
        let num_captured = captured.len();
        let program = LinearProgram {
            words: Words { operation: "linear_transpose", ..PULLBACK },
            taken: vec![true; argument.paths().len()],
            given: vec![true; result.paths().len()],
            argument,
            result,
            origin: ResidualOrigin {
                known: jaxpr.clone(),
                residuals: (0..num_captured).map(ResidualSource::Input).collect(),
                num_captured,
                paths: Vec::new(),
            },
            jaxpr,
            loc,
        };
        LinearMap::new(program, captured)
    }

    /// Applies the map to a tangent or cotangent, without computing the function again. Leaves of the argument that are not floats are not
    /// read; such leaves of the result are zeros.
    ///
    /// # Errors
    /// If the argument does not have the structure and avals of the map; if the residuals were taken out.
    #[track_caller]
    pub fn call(&self, argument: &X) -> Result<Y> {
        let LinearProgram { words, jaxpr, loc, .. } = &*self.program;
        let call = current_loc();
        let leaves = self.program.argument.matching(words.operation, words.argument, words.value, argument, call)?;
        self.expect_residuals(&self.residuals).map_err(|e| e.at(call))?;
        let args = [self.residuals.clone(), select(&leaves, &self.program.taken)].concat();
        let outs = run(words.operation, jaxpr, &args, *loc)?;
        self.program.result.fill(&self.program.given, outs, *loc)
    }

    /// The linear program: residuals, then tangents or cotangents.
    pub fn jaxpr(&self) -> &Jaxpr {
        &self.program.jaxpr
    }

    /// The residuals, in the order of the inputs of [`LinearMap::jaxpr`].
    pub fn residuals(&self) -> &[Tensor] {
        &self.residuals
    }

    /// The kind of each residual: a captured constant, the leaf of the argument at a path, a named value, or the result of an operation.
    /// The order is that of [`LinearMap::residuals`].
    ///
    /// ```
    /// use remat::{Policy, Tensor, checkpoint, vjp};
    /// let f = checkpoint(Policy::names(["hidden"]), |x: &Vec<Tensor>| x[0].sin().named("hidden").sin());
    /// let (_, pullback) = vjp(|x: &Vec<Tensor>| f(x), &vec![Tensor::from(0.5f32)])?;
    /// let kinds: Vec<String> = pullback.saved_residuals().iter().map(|r| r.kind.to_string()).collect();
    /// assert_eq!(kinds, ["from the argument 0", "named 'hidden'"]);
    /// assert_eq!(pullback.residuals()[1].item::<f32>()?, 0.5f32.sin());
    /// # Ok::<(), remat::Error>(())
    /// ```
    pub fn saved_residuals(&self) -> Residuals {
        let ResidualOrigin { known, residuals, num_captured, paths } = &self.program.origin;
        Residuals::new(known, residuals, *num_captured, paths)
    }

    /// Takes the residuals out, so that the map holds no tensors. It cannot be called until [`LinearMap::with_residuals`] puts some back.
    pub fn take_residuals(&mut self) -> Vec<Tensor> {
        std::mem::take(&mut self.residuals)
    }

    /// The same map with other residuals: those taken out of it, or those of the same function at another point.
    ///
    /// # Errors
    /// If their number or an aval differs from [`LinearMap::saved_residuals`]; the error of a failed tensor.
    #[track_caller]
    pub fn with_residuals(&self, residuals: Vec<Tensor>) -> Result<LinearMap<X, Y>> {
        let loc = current_loc();
        self.expect_residuals(&residuals).map_err(|error| error.at(loc))?;
        Ok(LinearMap { program: self.program.clone(), residuals })
    }

    fn expect_residuals(&self, residuals: &[Tensor]) -> Result<()> {
        let jaxpr = &self.program.jaxpr;
        let ins = &jaxpr.ins[..self.program.origin.residuals.len()];
        expect_avals(self.program.words.operation, "residual", residuals, ins.iter().map(|&v| &jaxpr.avals[v]))
    }
}

/// The residuals, and the program that takes them.
impl<X, Y> fmt::Debug for LinearMap<X, Y> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LinearMap { program, residuals } = self;
        f.debug_struct(program.words.operation)
            .field("residuals", residuals)
            .field("jaxpr", &program.jaxpr.to_string())
            .finish()
    }
}

/// The program is shared.
impl<X, Y> Clone for LinearMap<X, Y> {
    fn clone(&self) -> Self {
        LinearMap { program: self.program.clone(), residuals: self.residuals.clone() }
    }
}
