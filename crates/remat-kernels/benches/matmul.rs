//! How fast matrix products are, beside what the CPU can do: `cargo bench -p remat-kernels --bench matmul`.
//!
//! The ceiling is that of fused multiplications and additions on registers alone. A row has the operations per second on one
//! thread (by processor time), as a part of the ceiling, and on all threads (by the clock); times are the least of several.

#![allow(unsafe_code)]

mod support;

use remat_ir::{Aval, DType, DotGeneral, Shape};
use support::Bench;

fn main() {
    let bench = Bench::new();
    for dtype in [DType::F32, DType::Bf16, DType::F16, DType::F64] {
        println!("\n{dtype}");
        // The reference step: 2048 rows, width 512, inner width 2048, vocabulary 8192.
        for (name, m, n, k, transposed) in [
            ("projection", 2048, 512, 512, [false, false]),
            ("up", 2048, 2048, 512, [false, false]),
            ("down", 2048, 512, 2048, [false, false]),
            ("logits", 2048, 8192, 512, [false, true]),
            ("logits, transposed", 2048, 8192, 512, [false, false]),
            ("gradient of the input of up", 2048, 512, 2048, [false, true]),
            ("gradient of the input of logits", 2048, 512, 8192, [false, false]),
            ("gradient of up", 512, 2048, 2048, [true, false]),
            ("gradient of down", 2048, 512, 2048, [true, false]),
            ("gradient of the embedding", 8192, 512, 2048, [true, false]),
        ] {
            product(&bench, name, dtype, 1, [m, n, k], transposed);
        }
        product(&bench, "scores of 32 heads", dtype, 32, [512, 512, 64], [false, true]);
        product(&bench, "values of 32 heads", dtype, 32, [512, 64, 512], [false, false]);
        product(&bench, "tiles of attention", dtype, 256, [128, 128, 64], [false, true]);
        product(&bench, "tiles of attention", dtype, 256, [128, 64, 128], [false, false]);
        product(&bench, "small", dtype, 1024, [16, 16, 16], [false, false]);
        product(&bench, "tiny", dtype, 1, [2, 2, 2], [false, false]);
        product(&bench, "small", dtype, 1, [16, 16, 16], [false, false]);
        product(&bench, "small", dtype, 1, [64, 64, 64], [false, false]);
        product(&bench, "matrix by vector", dtype, 1, [4096, 1, 4096], [false, false]);
        product(&bench, "transposed matrix by vector", dtype, 1, [4096, 1, 4096], [true, false]);
        product(&bench, "vector by matrix", dtype, 1, [1, 4096, 4096], [false, false]);
        product(&bench, "dot", dtype, 1, [1, 1, 1 << 24], [false, false]);
    }
    for dtype in [DType::F32, DType::Bf16, DType::F16, DType::I8] {
        println!("\n{dtype}");
        for size in [4usize, 8, 16, 24, 32, 48, 64, 96] {
            for transposed in [[false, false], [false, true], [true, false], [true, true]] {
                product(&bench, "many small", dtype, (1 << 24) / size.pow(3), [size; 3], transposed);
            }
        }
        product(&bench, "many small", dtype, 256, [16, 16, 64], [false, false]);
        product(&bench, "many small", dtype, 256, [16, 64, 16], [false, false]);
        product(&bench, "many small", dtype, 256, [16, 64, 64], [false, true]);
    }
    for dtype in [DType::F32, DType::Bf16, DType::I8, DType::F64] {
        println!("\n{dtype}");
        for rows in [1, 2, 4, 8, 16] {
            product(&bench, "skinny by matrix", dtype, 1, [rows, 4096, 4096], [false, false]);
            product(&bench, "skinny by transposed matrix", dtype, 1, [rows, 4096, 4096], [false, true]);
            product(&bench, "matrix by skinny", dtype, 1, [4096, rows, 4096], [false, false]);
        }
    }
}

fn product(
    bench: &Bench,
    name: &str,
    dtype: DType,
    batch: usize,
    [m, n, k]: [usize; 3],
    [l_transposed, r_transposed]: [bool; 2],
) {
    let side = |rows: usize, columns: usize, transposed: bool| {
        if transposed { [batch, columns, rows] } else { [batch, rows, columns] }
    };
    let ins = [Aval::new(dtype, side(m, k, l_transposed)), Aval::new(dtype, side(k, n, r_transposed))];
    let dims = |d: usize| -> Shape { [d].into_iter().collect() };
    let op = DotGeneral {
        lhs_contract: dims(if l_transposed { 1 } else { 2 }),
        rhs_contract: dims(if r_transposed { 2 } else { 1 }),
        lhs_batch: dims(0),
        rhs_batch: dims(0),
        preferred_element_type: dtype,
    };
    let name = format!("{name}, {batch} x [{m},{k}] [{k},{n}]");
    let letters = format!("{}{}", if l_transposed { "T" } else { "N" }, if r_transposed { "T" } else { "N" });
    bench.operation(&format!("{name} {letters}"), 2.0 * (batch * m * n * k) as f64, &op.into(), &ins);
}
