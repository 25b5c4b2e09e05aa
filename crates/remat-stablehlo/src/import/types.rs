//! The types of the file as avals.

use remat_ir::{Aval, DType, Error, ErrorKind, Result, Shape};

use crate::{Module, Type, TypeId};

/// No operation has more dimensions, so that checks that compare each with each stay cheap.
const RANK: usize = 64;

/// An error about something that is well-formed and has no counterpart here.
pub(crate) fn unsupported(operation: &str, what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Unsupported, operation, format!("not supported: {what}"))
}

/// An error about a file whose parts contradict each other.
pub(crate) fn malformed(operation: &str, what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Parse, operation, what.to_string())
}

/// The element type of this number.
pub(crate) fn dtype(module: &Module<'_>, id: TypeId, operation: &str) -> Result<DType> {
    match module.ty(id) {
        Type::DType(dtype) => Ok(*dtype),
        Type::Narrow(name, _) => Err(unsupported(operation, format_args!("numbers of type {name}"))),
        Type::Complex(_) => Err(unsupported(operation, "complex numbers")),
        Type::Other(name) => Err(unsupported(operation, name)),
        Type::Index => Err(unsupported(operation, "numbers of type index")),
        _ => Err(malformed(operation, "an array has elements that are not numbers")),
    }
}

/// The aval of an array of this type.
pub(crate) fn aval(module: &Module<'_>, ty: &Type<'_>, operation: &str) -> Result<Aval> {
    match ty {
        Type::Tensor(sizes, element) => {
            let dtype = dtype(module, *element, operation)?;
            if sizes.len() > RANK {
                return Err(unsupported(operation, format_args!("an array of {} dimensions", sizes.len())));
            }
            let size = |&size: &i64| {
                usize::try_from(size)
                    .map_err(|_| unsupported(operation, "a size that is not known before the run (a dynamic shape)"))
            };
            let shape: Shape = sizes.iter().map(size).collect::<Result<_>>()?;
            let aval = Aval::new(dtype, shape);
            match aval.excess() {
                None => Ok(aval),
                Some(excess) => Err(malformed(operation, format_args!("an array {aval} {excess}"))),
            }
        }
        Type::Token => Err(unsupported(operation, "tokens, which order side effects")),
        Type::Tuple(_) => Err(unsupported(operation, "tuples")),
        Type::Complex(_) => Err(unsupported(operation, "complex numbers")),
        Type::Other(name) => Err(unsupported(operation, name)),
        _ => Err(malformed(operation, "a value is not an array")),
    }
}
