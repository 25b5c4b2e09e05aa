//! Slice and pad pushdown on random products: programs before and after, both by the evaluator.

use remat_ir::{Array, Atom, Aval, Builder, DType, DotGeneral, Jaxpr, Literal, Pad, Shape, Slice, eval};
use remat_opt::pipeline::{CPU, run};
use remat_testkit::arrays::{Stream, assert_close, filled};

/// Small integers, whose sums of products are exact.
fn integers(aval: &Aval, seed: u64) -> Array {
    filled(aval.dtype, &aval.shape, seed, |stream| Literal::from_f64(aval.dtype, stream.below(7) as f64 - 3.0))
}

fn optimized(jaxpr: &Jaxpr) -> Jaxpr {
    run(CPU, jaxpr).unwrap_or_else(|e| panic!("{e}"))
}

fn names(flat: &Jaxpr) -> Vec<&'static str> {
    flat.eqns.iter().map(|eqn| eqn.op.name()).collect()
}

/// Compares, and gives the names of the operations after the rewrite.
fn check(jaxpr: &Jaxpr) -> Vec<&'static str> {
    let args: Vec<Array> = jaxpr.in_avals().iter().enumerate().map(|(i, aval)| integers(aval, i as u64)).collect();
    let flat = optimized(jaxpr);
    let expected = eval(jaxpr, args.clone()).unwrap_or_else(|e| panic!("{e}"));
    let got = eval(&flat, args).unwrap_or_else(|e| panic!("{e}"));
    for (got, expected) in got.iter().zip(&expected) {
        assert_close(got, expected, 0.0, 0.0, &format!("{jaxpr}\nbecame {flat}"));
    }
    names(&flat)
}

/// A product with any numbers of batch dimensions, summed ones and others, in any order of dimensions: the shapes of the
/// operands, none of whose dimensions is larger than `most`.
fn product(stream: &mut Stream, most: usize) -> (DotGeneral, [Vec<usize>; 2]) {
    let size = |stream: &mut Stream| (1 + stream.below(most)) * usize::from(stream.below(12) > 0);
    let mut sizes = |most: usize| -> Vec<usize> { (0..stream.below(most + 1)).map(|_| size(stream)).collect() };
    let (batch, contracted, free) = (sizes(2), sizes(2), [sizes(2), sizes(2)]);
    let mut shapes = [Vec::new(), Vec::new()];
    let mut dims = [[Shape::new(), Shape::new()], [Shape::new(), Shape::new()]];
    for side in 0..2 {
        let kinds = [(0, &batch), (1, &contracted), (2, &free[side])];
        // Each dimension with its kind and its place among those.
        let mut all: Vec<(usize, usize, usize)> =
            kinds.iter().flat_map(|&(kind, sizes)| sizes.iter().enumerate().map(move |(i, &n)| (kind, i, n))).collect();
        for i in (1..all.len()).rev() {
            all.swap(i, stream.below(i + 1));
        }
        shapes[side] = all.iter().map(|&(.., n)| n).collect();
        for (kind, sizes) in [(0, &batch), (1, &contracted)] {
            let place = |i: usize| all.iter().position(|&(k, j, _)| (k, j) == (kind, i)).expect("it is one of them");
            dims[side][kind] = (0..sizes.len()).map(place).collect();
        }
    }
    let [[lhs_batch, lhs_contract], [rhs_batch, rhs_contract]] = dims;
    let op = DotGeneral { lhs_contract, rhs_contract, lhs_batch, rhs_batch, preferred_element_type: DType::F32 };
    (op, shapes)
}

fn f32s(shape: &[usize]) -> Aval {
    Aval::new(DType::F32, shape.iter().copied())
}

#[test]
fn products_of_slices_are_slices_of_products() {
    let mut stream = Stream::new(7);
    for _ in 0..400 {
        let (op, shapes) = product(&mut stream, 6);
        let mut b = Builder::new();
        let ins: Vec<Atom> = shapes.iter().map(|shape| b.input(f32s(shape))).collect();
        let product = b.emit1(op.into(), &ins).expect("shapes that fit");
        let shape = b.shape(product);
        let start: Shape = shape.iter().map(|&n| stream.below(n + 1)).collect();
        let limit: Shape = shape.iter().zip(&start).map(|(&n, &from)| from + stream.below(n - from + 1)).collect();
        let strides: Shape = shape.iter().map(|_| 1 + stream.below(3)).collect();
        let part = b.emit1(Slice { start, limit, strides }.into(), &[product]).expect("within the shape");
        let left = check(&b.finish(vec![part]));
        // Of two rows that were kept, one is sliced behind the product.
        let is_moved = matches!(
            left[..],
            [.., "dot_general"] | [.., "dot_general", "slice"] | [.., "mul", "add"] | [.., "mul", "add", "slice"]
        );
        assert!(is_moved, "the slices come before the product: {left:?}");
    }
}

#[test]
fn zeros_around_operands_are_zeros_around_products_or_nothing() {
    let mut stream = Stream::new(8);
    let (mut moved, mut interior, mut batched) = (0, 0, 0);
    for _ in 0..1500 {
        let (op, shapes) = product(&mut stream, 5);
        let mut b = Builder::new();
        let mut ins: Vec<Atom> = Vec::new();
        // Zeros around one operand, or around both.
        let padded = [[true, false], [false, true], [true, true]][stream.below(3)];
        let mut configs = Vec::new();
        for (side, shape) in shapes.iter().enumerate() {
            let mut config: Vec<(i64, i64, usize)> = vec![(0, 0, 0); shape.len()];
            let mut inner = shape.clone();
            for (d, n) in inner.iter_mut().enumerate().filter(|_| padded[side]) {
                // As many zeros as leave a size for the elements between them.
                let between = stream.below(3);
                let elements = stream.below(*n / (between + 1) + 1);
                let zeros = *n - if elements == 0 { 0 } else { elements + (elements - 1) * between };
                let low = stream.below(zeros + 1);
                config[d] = (low as i64, (zeros - low) as i64, between);
                *n = elements;
            }
            let x = b.input(f32s(&inner));
            let zero = Atom::Lit(Literal::from_f64(DType::F32, 0.0));
            ins.push(if padded[side] {
                b.emit1(Pad { config: config.clone() }.into(), &[x, zero]).expect("a padding")
            } else {
                x
            });
            configs.push(config);
        }
        let has_batch = !op.lhs_batch.is_empty();
        let product = b.emit1(op.into(), &ins).expect("shapes that fit");
        let names = check(&b.finish(vec![product]));
        // A padding before the product stays where the product is not smaller.
        let at = names.iter().position(|&name| matches!(name, "dot_general" | "mul")).expect("the product");
        let before = names[..at].iter().filter(|&&name| name == "pad").count();
        if before < padded.iter().filter(|&&is_padded| is_padded).count() {
            moved += 1;
            interior += usize::from(configs.iter().flatten().any(|&(.., between)| between > 0));
            batched += usize::from(has_batch);
        }
    }
    assert!(
        moved > 200 && interior > 100 && batched > 100,
        "{moved} were rewritten, {interior} and {batched} of these"
    );
}

#[test]
fn what_would_meet_nothing_but_zeros_is_left_out() {
    let text = "{ lambda ; a:f32[3,40] b:f32[4,2]. let
        c:f32[4,40] = pad[padding_config=((0, 1, 0), (0, 0, 0))] a 0.0:f32[]
        d:f32[40,2] = dot_general[dimension_numbers=(([0], [0]), ([], [])) preferred_element_type=float32] c b
      in (d,) }";
    let jaxpr: Jaxpr = text.parse().unwrap_or_else(|e| panic!("{e}"));
    let flat = optimized(&jaxpr);
    assert_eq!(names(&flat), ["slice", "dot_general"]);
    let finite = integers(&f32s(&[3, 40]), 1);
    for strange in [f32::NAN, f32::INFINITY] {
        // The last row meets the zeros alone.
        let other =
            Array::from_vec(vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, strange, strange], [4, 2]).expect("8 elements");
        let args = [finite.clone(), other];
        let all = |x: &Array, f: fn(&f32) -> bool| x.as_slice::<f32>().is_some_and(|x| x.iter().all(f));
        assert!(all(&eval(&jaxpr, args.to_vec()).expect("a product")[0], |x| x.is_nan()), "zero times {strange}");
        assert!(all(&eval(&flat, args.to_vec()).expect("a product")[0], |x| x.is_finite()));
    }
}
