//! How fast attention is, beside what the CPU can do: `cargo bench -p remat-kernels --bench attention`.
//!
//! Operations are those of the products that cannot be avoided: 4 for each query, key and feature forward and 10 backward, of
//! which a causal mask leaves about half. Columns are those of `matmul`.

#![allow(unsafe_code)]

mod support;

use remat_ir::{Aval, DType, DotProductAttention, DotProductAttentionCotangent, Literal};
use support::Bench;

fn main() {
    let bench = Bench::new();
    // Batch, queries, keys, heads, heads of keys, features.
    for (name, dtype, sizes, causal) in [
        ("reference, causal", DType::F32, [4, 512, 512, 8, 8, 64], true),
        ("reference, every key", DType::F32, [4, 512, 512, 8, 8, 64], false),
        ("reference, causal", DType::Bf16, [4, 512, 512, 8, 8, 64], true),
        ("reference, causal", DType::F16, [4, 512, 512, 8, 8, 64], true),
        ("reference, causal", DType::F64, [4, 512, 512, 8, 8, 64], true),
        ("short, causal", DType::F32, [16, 128, 128, 8, 8, 64], true),
        ("long, causal", DType::F32, [1, 2048, 2048, 8, 8, 64], true),
        ("large heads, causal", DType::F32, [2, 1024, 1024, 4, 4, 128], true),
        ("odd sizes, causal", DType::F32, [4, 500, 500, 6, 6, 80], true),
        ("shared keys, causal", DType::F32, [4, 512, 512, 8, 2, 64], true),
        ("one head, causal", DType::F32, [1, 1024, 1024, 1, 1, 64], true),
        ("one query", DType::F32, [8, 1, 1024, 8, 8, 64], false),
        ("one query, long cache", DType::F32, [1, 1, 65536, 8, 1, 128], false),
        ("one query, long cache", DType::Bf16, [1, 1, 65536, 8, 1, 128], false),
        ("one query, long cache", DType::F16, [1, 1, 65536, 8, 1, 128], false),
        ("one query, long cache, many heads", DType::F32, [1, 1, 16384, 8, 8, 64], false),
        ("one query, long cache, many heads", DType::Bf16, [1, 1, 16384, 8, 8, 64], false),
    ] {
        attention(&bench, &format!("{name}, {dtype}"), dtype, sizes, causal);
    }
    // One head of keys for more queries than the kernel of few queries takes.
    for (queries, heads) in [(1, 16), (1, 32), (16, 8), (64, 8)] {
        for dtype in [DType::F32, DType::Bf16, DType::F16] {
            let name = format!("{queries} tokens of {heads} heads, long cache, {dtype}");
            attention(&bench, &name, dtype, [1, queries, 16384, heads, 1, 128], false);
        }
    }
}

fn attention(bench: &Bench, name: &str, dtype: DType, sizes: [usize; 6], causal: bool) {
    let [batch, queries, keys, heads, key_heads, features] = sizes;
    let scale = Literal::from_f64(DType::F64, (features as f64).powf(-0.5));
    let attention = DotProductAttention { scale, causal, bias: false, mask: false };
    let cotangents = [true, true, true, false];
    let back = DotProductAttentionCotangent { attention, cotangents, logsumexp: false };
    let query = Aval::new(dtype, [batch, queries, heads, features]);
    let key = Aval::new(dtype, [batch, keys, key_heads, features]);
    let pairs: usize = (0..queries).map(|i| if causal { keys.min(i + 1) } else { keys }).sum();
    let products = (batch * heads * features * pairs) as f64;

    let ins = vec![query, key.clone(), key];
    let results = bench.operation(&format!("{name}, forward"), 4.0 * products, &attention.into(), &ins);
    let ins = [&ins[..], &results, &results[..1]].concat();
    bench.operation(&format!("{name}, backward"), 10.0 * products, &back.into(), &ins);
}
