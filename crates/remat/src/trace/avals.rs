//! The avals of tensors: reading and checking them, and creating zeros.

use remat_ir::{Aval, BroadcastInDim, Error, ErrorKind, Loc, Result, Shape, counted};

use super::{Tensor, bind1, pinned_at};

/// The avals of tensors.
///
/// # Errors
/// The error of a failed tensor.
pub(crate) fn avals(tensors: &[Tensor]) -> Result<Vec<Aval>> {
    // With a reserved capacity, since collecting from results would grow the list repeatedly.
    let mut avals = Vec::with_capacity(tensors.len());
    for tensor in tensors {
        avals.push(tensor.aval()?.clone());
    }
    Ok(avals)
}

/// Fails unless the tensors have these avals. `what` names one of them.
///
/// # Errors
/// If their number or an aval differs; the error of a failed tensor.
pub(crate) fn expect_avals<'a>(
    operation: &str,
    what: &str,
    tensors: &[Tensor],
    expected: impl ExactSizeIterator<Item = &'a Aval>,
) -> Result<()> {
    let wrong = |message: String| Err(Error::new(ErrorKind::Argument, operation, message));
    if tensors.len() != expected.len() {
        return wrong(format!("takes {} and got {}", counted(expected.len(), what), tensors.len()));
    }
    for (i, (tensor, expected)) in tensors.iter().zip(expected).enumerate() {
        let given = tensor.aval()?;
        if given != expected {
            return wrong(format!("{what} {i} is {given} and must be {expected}"));
        }
    }
    Ok(())
}

/// Zeros of this aval, staged if a trace is open.
pub(crate) fn zeros(aval: &Aval, loc: Loc) -> Tensor {
    let zero = Tensor::scalar(aval.dtype, 0.0);
    let op = BroadcastInDim { shape: aval.shape.clone(), dims: Shape::new() };
    pinned_at(loc, || bind1(op, &[&zero]))
}
