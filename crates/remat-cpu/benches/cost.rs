//! Holds the estimates of the cost model against measured times: `cargo bench -p remat-cpu --bench cost`.
//!
//! The rates of the machine are measured first: operations per second by a matrix product, bytes per second by the sum of an
//! array that is larger than the caches of a core. Neither has a large result, whose memory the system would have to clear first.
//! A row has the least time of several runs of a program of one operation.

use std::sync::Arc;
use std::time::{Duration, Instant};

use remat_cpu::Cpu;
use remat_ir::{Array, Aval, Class, Device, Jaxpr};
use remat_opt::cost::{Cost, Machine, cost};
use remat_testkit::arrays::plain;

/// The product of which the rate of operations is taken.
const PRODUCT: &str = "{ lambda ; a:f32[512,512] b:f32[512,512]. let c:f32[512,512] = dot_general[\
    dimension_numbers=(([1], [0]), ([], [])) preferred_element_type=float32] a b in (c,) }";

/// The sum of which the rate of bytes is taken.
const SUM: &str = "{ lambda ; a:f32[8192,4096]. let b:f32[8192] = reduce_sum[axes=(1,)] a in (b,) }";

/// Programs of one operation of each class.
const PROGRAMS: [&str; 25] = [
    "{ lambda ; a:f32[4194304] b:f32[4194304]. let c:f32[4194304] = mul a b in (c,) }",
    "{ lambda ; a:bf16[4194304]. let c:f32[4194304] = convert_element_type[new_dtype=float32] a in (c,) }",
    "{ lambda ; a:f32[65536] b:f32[65536]. let c:f32[65536] = mul a b in (c,) }",
    "{ lambda ; a:f32[4194304]. let b:f32[4194304] = exp a in (b,) }",
    "{ lambda ; a:f32[4194304]. let b:f32[4194304] = tanh a in (b,) }",
    "{ lambda ; a:f32[4194304]. let b:f32[4194304] = erf a in (b,) }",
    "{ lambda ; a:f32[2048,2048]. let b:f32[2048] = reduce_sum[axes=(1,)] a in (b,) }",
    "{ lambda ; a:f32[2048,2048]. let b:f32[2048] = reduce_max[axes=(0,)] a in (b,) }",
    "{ lambda ; a:f32[2048,2048]. let b:f32[2048,2048] = cumsum[axis=1 reverse=False] a in (b,) }",
    "{ lambda ; a:f32[2048,2048]. let b:f32[2050,2050] = pad[padding_config=((1, 1, 0), (1, 1, 0))] a 0.0:f32[] in (b,) }",
    "{ lambda ; a:f32[2048,1024] b:f32[2048,1024]. let c:f32[4096,1024] = concatenate[dimension=0] a b in (c,) }",
    "{ lambda ; a:f32[1048576]. let b:f32[1048576] = sort[dimension=0 is_stable=True num_keys=1] a in (b,) }",
    "{ lambda ; a:f32[512,512] b:f32[512,512]. let c:f32[512,512] = dot_general[\
     dimension_numbers=(([1], [0]), ([], [])) preferred_element_type=float32] a b in (c,) }",
    "{ lambda ; a:bf16[512,512] b:bf16[512,512]. let c:bf16[512,512] = dot_general[\
     dimension_numbers=(([1], [0]), ([], [])) preferred_element_type=bfloat16] a b in (c,) }",
    "{ lambda ; a:f32[4096,4096] b:f32[4096]. let c:f32[4096] = dot_general[\
     dimension_numbers=(([1], [0]), ([], [])) preferred_element_type=float32] a b in (c,) }",
    "{ lambda ; a:f32[64,128,128] b:f32[64,128,128]. let c:f32[64,128,128] = dot_general[\
     dimension_numbers=(([2], [1]), ([0], [0])) preferred_element_type=float32] a b in (c,) }",
    "{ lambda ; a:u32[1048576] b:u32[1048576] k:u32[] l:u32[]. let \
     c:u32[1048576] d:u32[1048576] = threefry2x32 k l a b in (c, d) }",
    "{ lambda ; a:f32[8,64,56,56] b:f32[64,64,3,3]. let c:f32[8,64,56,56] = conv_general_dilated[batch_group_count=1 \
     dimension_numbers=((0, 1, 2, 3), (0, 1, 2, 3), (0, 1, 2, 3)) feature_group_count=1 lhs_dilation=(1, 1) \
     padding=((1, 1), (1, 1)) preferred_element_type=float32 rhs_dilation=(1, 1) window_strides=(1, 1)] a b in (c,) }",
    "{ lambda ; a:f32[4,512,8,64] b:f32[4,512,8,64] c:f32[4,512,8,64]. let d:f32[4,512,8,64] e:f32[4,8,512] = \
     dot_product_attention[bias=False causal=True mask=False scale=0.125:f64[]] a b c in (d, e) }",
    "{ lambda ; a:f32[8192,512] b:i32[8192,1]. let c:f32[8192,512] = gather[collapsed_slice_dims=(0,) \
     fill_value=1.0:f32[] mode=fill_or_drop offset_dims=(1,) operand_batching_dims=() slice_sizes=(1, 512) \
     start_index_map=(0,) start_indices_batching_dims=()] a b in (c,) }",
    "{ lambda ; a:f32[8192,512] b:i32[8192,1] c:f32[8192,512]. let d:f32[8192,512] = scatter_add[\
     inserted_window_dims=(0,) mode=fill_or_drop operand_batching_dims=() scatter_dims_to_operand_dims=(0,) \
     scatter_indices_batching_dims=() unique_indices=False update_window_dims=(1,)] a b c in (d,) }",
    "{ lambda ; a:f32[8,64,112,112]. let b:f32[8,64,56,56] = reduce_window_max[base_dilation=(1, 1, 1, 1) \
     padding=((0, 0), (0, 0), (1, 1), (1, 1)) window_dilation=(1, 1, 1, 1) window_dimensions=(1, 1, 3, 3) \
     window_strides=(1, 1, 2, 2)] a in (b,) }",
    "{ lambda ; a:f32[2048,2048]. let b:i32[2048] = argmax[axes=(1,) index_dtype=int32] a in (b,) }",
    "{ lambda ; a:f32[2048,2048]. let b:f32[2048,8] c:i32[2048,8] = top_k[k=8] a in (b, c) }",
    "{ lambda ; a:f32[512,512] b:f32[512,512]. let c:f32[512,512] = triangular_solve[left_side=True lower=True \
     transpose_a=False unit_diagonal=False] a b in (c,) }",
];

fn main() {
    let (product, sum) = (measure(PRODUCT), measure(SUM));
    let machine = Machine {
        flops: product.1.flops as f64 / product.2.as_secs_f64(),
        bytes: sum.1.bytes() as f64 / sum.2.as_secs_f64(),
    };
    println!("{:.1} Gflop/s in products, {:.1} GB/s", machine.flops / 1e9, machine.bytes / 1e9);
    println!(
        "{:22} {:14} {:>24} {:>9} {:>8} {:>12} {:>11} {:>6}",
        "operation", "class", "first operand", "Mflop", "MB", "estimate us", "measured us", "ratio"
    );
    for text in PROGRAMS {
        let ((name, first), cost, time) = measure(text);
        let (estimate, time) = (machine.seconds(&cost) * 1e6, time.as_secs_f64() * 1e6);
        let (flops, bytes, class) = (cost.flops as f64 / 1e6, cost.bytes() as f64 / 1e6, word(cost.class));
        let ratio = time / estimate;
        println!("{name:22} {class:14} {first:>24} {flops:9.1} {bytes:8.1} {estimate:12.1} {time:11.1} {ratio:6.2}");
    }
}

fn word(class: Class) -> String {
    format!("{class:?}").to_lowercase()
}

/// The operation of a program with the aval of its first operand, the cost of it, and its time.
fn measure(text: &str) -> ((&'static str, String), Cost, Duration) {
    let jaxpr: Arc<Jaxpr> = Arc::new(text.parse().unwrap_or_else(|e| panic!("{e}")));
    let [eqn] = &jaxpr.eqns[..] else { panic!("{text} is not one equation") };
    let ins: Vec<Aval> = eqn.ins.iter().map(|&a| jaxpr.atom_aval(a)).collect();
    let cost = cost(&eqn.op, &ins, &jaxpr.out_avals());
    let executable = Cpu::default().compile(&jaxpr).unwrap_or_else(|e| panic!("{e}"));
    let args: Vec<Array> = jaxpr.in_avals().iter().map(|aval| plain(aval.dtype, &aval.shape, 7)).collect();
    let (mut least, begin) = (Duration::MAX, Instant::now());
    while begin.elapsed() < Duration::from_millis(300) {
        let args = args.clone();
        let start = Instant::now();
        let outs = executable.run(args).unwrap_or_else(|e| panic!("{e}"));
        least = least.min(start.elapsed());
        drop(outs);
    }
    ((eqn.op.name(), ins[0].to_string()), cost, least)
}
