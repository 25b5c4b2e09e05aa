//! How fast triangular systems and Cholesky factors are, beside what the CPU can do: `cargo bench -p remat-kernels --bench linalg`.
//!
//! Rows as those of `matmul`. Systems with one right-hand side compute one of the sixteen columns of a panel.

#![allow(unsafe_code)]

mod support;

use remat_ir::{Aval, Cholesky, DType, TriangularSolve};
use support::Bench;

fn main() {
    let bench = Bench::new();
    for dtype in [DType::F32, DType::F64, DType::Bf16] {
        println!("\n{dtype}");
        for (batch, n) in [(1024, 16), (64, 64), (8, 256), (1, 1024)] {
            let operations = (batch * n * n * n) as f64 / 3.0;
            bench.operation(
                &format!("cholesky of {batch} x [{n},{n}]"),
                operations,
                &Cholesky.into(),
                &[Aval::new(dtype, [batch, n, n])],
            );
        }
        for (batch, n, systems) in
            [(1024, 16, 16), (8, 256, 256), (1, 1024, 1024), (1024, 16, 1), (8, 256, 1), (1, 1024, 1)]
        {
            for (name, left_side, transpose_a) in
                [("a x = b", true, false), ("aᵀ x = b", true, true), ("x a = b", false, false)]
            {
                let op = TriangularSolve { left_side, lower: true, transpose_a, unit_diagonal: false };
                let b = if left_side { [batch, n, systems] } else { [batch, systems, n] };
                bench.operation(
                    &format!("{name}, {batch} x [{n},{n}], systems {systems}"),
                    (batch * n * n * systems) as f64,
                    &op.into(),
                    &[Aval::new(dtype, [batch, n, n]), Aval::new(dtype, b)],
                );
            }
        }
    }
}
