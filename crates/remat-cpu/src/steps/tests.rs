//! Which equations share a loop, and which do not.

use remat_ir::{Jaxpr, Result};
use remat_opt::pipeline::{CPU, run};
use remat_testkit::FileTests;

use super::moves::{blocks, proposed};
use super::{FusedLoop, Step, Steps};

/// Small programs and their steps, written down in `filetests`. `block ins=2` groups loops into blocks too, for steps of so many inputs.
#[test]
fn filetests() {
    let tests =
        FileTests::new().command("lower", |jaxpr, _| Ok(text(&lowered(jaxpr)?))).command("block", |jaxpr, args| {
            let most = [args.get("ins")?, args.get("outs")?].map(|most: Option<usize>| most.unwrap_or(usize::MAX));
            let steps = lowered(jaxpr)?;
            let blocks = proposed(blocks::propose, &steps, &|ins, outs| ins <= most[0] && outs <= most[1])?;
            Ok(text(&blocks.unwrap_or(steps)))
        });
    if let Err(report) = tests.run(concat!(env!("CARGO_MANIFEST_DIR"), "/src/steps/filetests")) {
        panic!("{report}");
    }
}

fn lowered(jaxpr: &Jaxpr) -> Result<Steps> {
    Steps::of(run(CPU, jaxpr)?)
}

/// A line for each step.
fn text(steps: &Steps) -> String {
    steps.steps.iter().map(|step| describe(steps, step)).collect::<Vec<String>>().join("\n")
}

/// The steps of a program, by the names of their operations.
fn steps(program: &str) -> Vec<String> {
    let steps = program.parse().and_then(|jaxpr| lowered(&jaxpr)).unwrap_or_else(|e| panic!("{e}"));
    text(&steps).lines().map(str::to_string).collect()
}

/// The operation of a step. For a loop: its operations and the number of results that it stores; for blocks: those of each loop.
fn describe(steps: &Steps, step: &Step) -> String {
    let name = |eqn| steps.eqn(eqn).op.name();
    let of_loop = |fused_loop: &FusedLoop| {
        let names: Vec<&str> = fused_loop.members.iter().map(|m| name(m.eqn)).collect();
        format!("[{}] -> {}", names.join(" "), fused_loop.outs.len())
    };
    match step {
        Step::Equation { eqn, .. } => name(*eqn).to_string(),
        Step::Copy { .. } => "copy".to_string(),
        Step::Iota { .. } => "count".to_string(),
        Step::Barrier { .. } => "barrier".to_string(),
        Step::Loop(fused_loop) => of_loop(fused_loop),
        Step::Blocks(blocks) => {
            let loops: Vec<String> = blocks.fused_loops.iter().map(of_loop).collect();
            format!("{{{}}} -> {}", loops.join(", "), blocks.outs.len())
        }
    }
}

/// A program with `count` products of `x` in a row, which no loop fuses, between two texts.
fn with_products(before: &str, count: usize, after: &str, outs: &str) -> String {
    let product = |i: usize| {
        let from = if i == 0 { "x".to_string() } else { format!("x{}", i - 1) };
        format!(
            "x{i}:f32[128,128] = dot_general[
              dimension_numbers=(([1], [0]), ([], []))
              preferred_element_type=float32
            ] {from} x\n"
        )
    };
    let products: String = (0..count).map(product).collect();
    format!("{{ lambda ; u:f32[128,128] x:f32[128,128]. let\n{before}{products}{after} in ({outs},) }}")
}

#[test]
fn values_that_are_read_far_away_are_computed_again() {
    let product = |out: &str, of: &str| {
        format!(
            "{out}:f32[128,128] = dot_general[
              dimension_numbers=(([1], [0]), ([], []))
              preferred_element_type=float32
            ] {of} x\n"
        )
    };
    let chain = "a:f32[128,128] = tanh u
        b:f32[128,128] = mul a a
        c:f32[128,128] = exp b\n";
    let before = format!("{chain}{}", product("p", "c"));
    let last = |count: usize| format!("d:f32[128,128] = add x{} c\ne:f32[128,128] = add d p\n", count - 1);
    let ends = |found: &[String]| (found[0].clone(), found[found.len() - 1].clone());
    // By a loop, in the loop.
    let found = steps(&with_products(&before, 20, &last(20), "e"));
    assert_eq!(ends(&found), ("[tanh mul exp] -> 1".into(), "[tanh mul exp add add] -> 1".into()));
    // Not where it is read soon.
    let found = steps(&with_products(&before, 3, &last(3), "e"));
    assert_eq!(ends(&found), ("[tanh mul exp] -> 1".into(), "[add add] -> 1".into()));
    // By another step, in a loop before it.
    let after = format!("{}e:f32[128,128] = add d x19\nf:f32[128,128] = add e p\n", product("d", "c"));
    let found = steps(&with_products(&before, 20, &after, "f"));
    assert_eq!(found[found.len() - 3..], ["[tanh mul exp] -> 1", "dot_general", "[add add] -> 1"]);
    // Nor if its operands would have to stay for it.
    let before = format!("{}{}{}", product("v", "u"), "c:f32[128,128] = tanh v\n", product("p", "c"));
    let found = steps(&with_products(&before, 20, &last(20), "e"));
    assert_eq!((found[1].as_str(), found[found.len() - 1].as_str()), ("[tanh] -> 1", "[add add] -> 1"));
}

#[test]
fn a_normalisation_keeps_its_row_values() {
    let before = "s:f32[128] = reduce_max[axes=(1,)] u
        t:f32[128,128] = broadcast_in_dim[broadcast_dimensions=(0,) shape=(128, 128)] s
        a:f32[128,128] = sub u t
        p:f32[128,128] = dot_general[
          dimension_numbers=(([1], [0]), ([], []))
          preferred_element_type=float32
        ] a x\n";
    let found = steps(&with_products(before, 20, "d:f32[128,128] = mul x19 a\ne:f32[128,128] = add d p\n", "e"));
    assert_eq!(found[0], "[reduce_max sub] -> 2");
    assert_eq!(found[found.len() - 1], "[sub mul add] -> 1");
}

#[test]
fn an_operand_that_stays_anyway_takes_the_place_of_a_value() {
    let product = |out: &str, a: &str, b: &str| {
        format!(
            "{out}:f32[128,128] = dot_general[
              dimension_numbers=(([1], [0]), ([], []))
              preferred_element_type=float32
            ] {a} {b}\n"
        )
    };
    // The difference `b` of a sum `y` from the mean of its rows is read at the end, after ten products and then ten more.
    let before = format!(
        "{}y:f32[128,128] = add u w
        r:f32[128] = reduce_sum[axes=(1,)] y
        s:f32[128] = mul r 0.0078125:f32[]
        t:f32[128,128] = broadcast_in_dim[broadcast_dimensions=(0,) shape=(128, 128)] s
        b:f32[128,128] = sub y t
        c:f32[128,128] = exp b
        {}",
        product("w", "x", "x"),
        product("p", "c", "c"),
    );
    let difference = |before: &str, middle: &str, last: &str| {
        let more: String = (1..10).map(|i| product(&format!("z{i}"), &format!("z{}", i - 1), "x")).collect();
        let after = format!("{middle}\n{more}d:f32[128,128] = mul z9 b\n{last}\n");
        let found = steps(&with_products(before, 10, &after, "e"));
        found.into_iter().filter(|step| step.starts_with('[')).collect::<Vec<String>>()
    };
    let reads_sum = "z0:f32[128,128] = add x9 y";
    // The sum is read far away too. From then on it stays instead of the difference.
    let found = difference(&before, reads_sum, "e:f32[128,128] = add d p");
    assert_eq!(found, ["[add reduce_sum mul sub exp] -> 3", "[add] -> 1", "[sub mul add] -> 1"]);
    // Also if another value is computed again from the difference.
    let found = difference(&before, reads_sum, "f:f32[128,128] = add d p\ne:f32[128,128] = mul f c");
    assert_eq!(found, ["[add reduce_sum mul sub exp] -> 3", "[add] -> 1", "[sub exp mul add mul] -> 1"]);
    // Or if more values are computed again, each from the one before.
    let more = "c:f32[128,128] = exp b\nh:f32[128,128] = tanh c\nk:f32[128,128] = neg h";
    let last = "f:f32[128,128] = add d p\ng:f32[128,128] = mul f c\nl:f32[128,128] = mul g h\ne:f32[128,128] = mul l k";
    let found = difference(&before.replace("c:f32[128,128] = exp b", more), reads_sum, last);
    assert_eq!(
        found,
        ["[add reduce_sum mul sub exp] -> 3", "[add] -> 1", "[sub exp tanh neg mul add mul mul mul] -> 1"]
    );
    // Or if a sum of columns reads the difference.
    let of_columns = "m:f32[128,128] = mul z9 b
        n:f32[128] = reduce_sum[axes=(0,)] m
        o:f32[128,128] = broadcast_in_dim[broadcast_dimensions=(1,) shape=(128, 128)] n
        f:f32[128,128] = add d p
        e:f32[128,128] = add f o";
    let found = difference(&before, reads_sum, of_columns);
    let last = ["[sub mul reduce_sum] -> 1", "[sub mul add add] -> 1"];
    assert_eq!(found, ["[add reduce_sum mul sub exp] -> 3", "[add] -> 1", last[0], last[1]]);
    // If nothing reads the sum far away, nothing is gained.
    let found = difference(&before, "z0:f32[128,128] = neg x9", "e:f32[128,128] = add d p");
    assert_eq!(found, ["[add reduce_sum mul sub exp] -> 2", "[neg] -> 1", "[mul add] -> 1"]);
    // If a product reads the difference, that is in memory anyway.
    let found = difference(&before, reads_sum, &format!("f:f32[128,128] = add d p\n{}", product("e", "f", "b")));
    assert_eq!(found, ["[add reduce_sum mul sub exp] -> 3", "[add] -> 1", "[mul add] -> 1"]);
    // If the sum is read transposed, no loop can write its result over it as over the difference.
    let transposed =
        "v:f32[128,128] = transpose[permutation=(1, 0)] y\nh:f32[128,128] = sub v t\nb:f32[128,128] = exp h";
    let before = before.replace("b:f32[128,128] = sub y t", transposed);
    let found = difference(&before, reads_sum, "e:f32[128,128] = add d p");
    assert_eq!(found, ["[add reduce_sum mul] -> 2", "[sub exp exp] -> 2", "[add] -> 1", "[mul add] -> 1"]);
}

#[test]
fn values_wider_than_their_operands_are_computed_again() {
    // The difference from the mean, of a sum in half precision that is normalised in f32, is read far away.
    let before = "v:bf16[128,128] = convert_element_type[new_dtype=bfloat16] u
        w:bf16[128,128] = dot_general[
          dimension_numbers=(([1], [0]), ([], []))
          preferred_element_type=bfloat16
        ] v v
        y:bf16[128,128] = add v w
        a:f32[128,128] = convert_element_type[new_dtype=float32] y
        r:f32[128] = reduce_sum[axes=(1,)] a
        s:f32[128] = mul r 0.0078125:f32[]
        t:f32[128,128] = broadcast_in_dim[broadcast_dimensions=(0,) shape=(128, 128)] s
        b:f32[128,128] = sub a t
        c:bf16[128,128] = convert_element_type[new_dtype=bfloat16] b
        p:bf16[128,128] = dot_general[
          dimension_numbers=(([1], [0]), ([], []))
          preferred_element_type=bfloat16
        ] c y\n";
    let after = "d:f32[128,128] = mul x19 b
        e:bf16[128,128] = dot_general[
          dimension_numbers=(([1], [0]), ([], []))
          preferred_element_type=bfloat16
        ] c p\n";
    let found = steps(&with_products(before, 20, after, "d, e"));
    assert_eq!(found[2], "[add convert_element_type reduce_sum mul sub convert_element_type] -> 3", "{found:?}");
    // And so are its results, since the sum is in memory then.
    let last =
        ["[convert_element_type sub mul] -> 1", "[convert_element_type sub convert_element_type] -> 1", "dot_general"];
    assert_eq!(found[found.len() - 3..], last, "{found:?}");
}

/// A product of 4 x 4 matrices.
fn dot(out: &str, a: &str, b: &str) -> String {
    format!(
        "{out}:f32[4,4] = dot_general[dimension_numbers=(([1], [0]), ([], [])) preferred_element_type=float32] {a} {b}\n"
    )
}

#[test]
fn views_and_further_barriers_wait_for_a_barrier() {
    let text = format!(
        "{{ lambda ; a:f32[4,4] x:f32[4,4]. let
            {}b:f32[4,4] c:f32[4,4] = optimization_barrier a p
            d:f32[16] = reshape[new_sizes=(16,)] b
            e:f32[4] = slice[limit_indices=(8,) start_indices=(4,) strides=(1,)] d
            f:f32[4] = exp e
            g:f32[4,4] h:f32[4,4] = optimization_barrier b x
            i:f32[4,4] = transpose[permutation=(1, 0)] h
            j:f32[4,4] = cumsum[axis=0 reverse=False] i
          in (f, j) }}",
        dot("p", "x", "x")
    );
    let jaxpr: Jaxpr = text.parse().unwrap_or_else(|e| panic!("{e}"));
    let lowered = run(CPU, &jaxpr).and_then(Steps::of).unwrap_or_else(|e| panic!("{e}"));
    let waits = lowered.steps.iter().map(|step| (describe(&lowered, step), step.tokens(&lowered.tokens).count()));
    let waits: Vec<(String, usize)> = waits.collect();
    let waits: Vec<(&str, usize)> = waits.iter().map(|(step, count)| (step.as_str(), *count)).collect();
    let expected = [("dot_general", 0), ("barrier", 0), ("[exp] -> 1", 1), ("barrier", 1), ("copy", 1), ("cumsum", 1)];
    assert_eq!(waits, expected);
}

#[test]
fn an_operand_of_a_barrier_is_not_computed_again() {
    // As in `values_that_are_read_far_away_are_computed_again`, but that a barrier reads the value.
    let barrier = "a:f32[128,128] = tanh u
        b:f32[128,128] = mul a a
        c:f32[128,128] = exp b
        d:f32[128,128] e:f32[128,128] = optimization_barrier c x\n";
    let last = "f:f32[128,128] = add x19 d\n";
    let found = steps(&with_products(barrier, 20, last, "f"));
    assert_eq!((found[0].as_str(), found[1].as_str()), ("[tanh mul exp] -> 1", "barrier"));
    assert_eq!(found[found.len() - 1], "[add] -> 1");
}

#[test]
fn values_are_duplicated_into_the_loops_that_read_them() {
    // The statistics of columns, as in a batch norm: neither differences nor their squares are stored.
    let statistics = "s:f32[128] = reduce_sum[axes=(0,)] p
        m:f32[128] = div s 128.0:f32[]
        t:f32[128,128] = broadcast_in_dim[broadcast_dimensions=(1,) shape=(128, 128)] m
        d:f32[128,128] = sub p t
        q:f32[128,128] = integer_pow[y=2] d
        v:f32[128] = reduce_sum[axes=(0,)] q
        r:f32[128,128] = broadcast_in_dim[broadcast_dimensions=(1,) shape=(128, 128)] v\n";
    let product = "p:f32[128,128] = dot_general[
          dimension_numbers=(([1], [0]), ([], []))
          preferred_element_type=float32
        ] u x\n";
    let text = |last: &str| format!("{{ lambda ; u:f32[128,128] x:f32[128,128]. let {product}{statistics}{last}");
    let found = steps(&text("o:f32[128,128] = mul d r in (o,) }"));
    let sums = ["dot_general", "[reduce_sum] -> 1", "[div] -> 1", "[sub integer_pow reduce_sum] -> 1"];
    assert_eq!(found, [&sums[..], &["[sub mul] -> 1"]].concat());
    // A step that is not a loop needs the differences in memory; their squares are still duplicated.
    let last = "o:f32[128,128] = dot_general[
          dimension_numbers=(([1], [0]), ([], []))
          preferred_element_type=float32
        ] d x\nw:f32[128,128] = mul o r in (w,) }";
    let found = steps(&text(last));
    assert!(found.contains(&"[sub] -> 1".to_string()), "{found:?}");
    assert!(found.contains(&"[integer_pow reduce_sum] -> 1".to_string()), "{found:?}");
    // Special functions are not computed twice, and a result of the program is stored.
    let found = steps(&text("o:f32[128,128] = mul d r in (o,) }").replace("integer_pow[y=2] d", "exp d"));
    assert!(found.contains(&"[sub exp] -> 1".to_string()), "{found:?}");
    let found = steps(&text("o:f32[128,128] = mul d r in (o, d, q) }"));
    assert!(found.contains(&"[sub integer_pow] -> 2".to_string()), "{found:?}");
}

#[test]
fn small_arrays_and_few_channels_are_not_computed_in_blocks() {
    let program = |shape: [usize; 3]| {
        let [images, channels, pixels] = shape;
        let text = format!(
            "{{ lambda ; x:f32[{images},{channels},{pixels}]. let
                s:f32[{channels}] = reduce_sum[axes=(0, 2)] x
                b:f32[{images},{channels},{pixels}] = broadcast_in_dim[broadcast_dimensions=(1,) shape=({images}, {channels}, {pixels})] s
                o:f32[{images},{channels},{pixels}] = sub x b
              in (o,) }}"
        );
        let jaxpr: Jaxpr = text.parse().unwrap_or_else(|e| panic!("{e}"));
        let steps = run(CPU, &jaxpr).and_then(Steps::of).unwrap_or_else(|e| panic!("{e}"));
        proposed(blocks::propose, &steps, &|_, _| true).unwrap_or_else(|e| panic!("{e}")).is_some()
    };
    assert!(program([4, 64, 512]));
    assert!(!program([4, 64, 256]));
    assert!(!program([64, 4, 512]));
    // The fewest channels that qualify, and one less.
    assert!(program([8, 32, 529]));
    assert!(!program([8, 31, 600]));
    // Short pieces of many images.
    assert!(!program([4096, 64, 4]));
    // One channel is larger than caches.
    assert!(!program([64, 32, 100_000]));
}
