//! Padded sums: random sums before and after the pass, both by the evaluator, bit for bit.

use remat_ir::{
    Array, Atom, Aval, Binary, Builder, DType, IndexMode, Jaxpr, Literal, Pad, Scatter, ScatterKind, Shape, eval,
};
use remat_opt::pipeline::{CPU, run};
use remat_testkit::arrays::{Stream, assert_same, filled};

fn after(jaxpr: &Jaxpr) -> Jaxpr {
    let pass = CPU.iter().find(|pass| pass.name == "padded_sums").expect("it is in the pipeline");
    run(&[*pass], jaxpr).unwrap_or_else(|e| panic!("{e}"))
}

/// How many equations of a program do this.
fn count(jaxpr: &Jaxpr, name: &str) -> usize {
    jaxpr.eqns.iter().filter(|eqn| eqn.op.name() == name).count()
}

/// Numbers of which many are zeros of either sign, infinite, or not numbers.
fn zeros_and_others(aval: &Aval, seed: u64) -> Array {
    let values = [0.0, -0.0, -0.0, -0.0, -0.0, 1.0, -1.0, 0.1, 1e-7, f64::INFINITY, f64::NAN];
    filled(aval.dtype, &aval.shape, seed, |stream| match stream.below(values.len()) {
        _ if aval.dtype.is_integer() => Literal::from_i128(aval.dtype, stream.below(100) as i128),
        i => Literal::from_f64(aval.dtype, values[i]),
    })
}

/// Compares a program with what the pass makes of it, and gives that.
fn check(jaxpr: &Jaxpr, arg: impl Fn(&Aval, u64) -> Array) -> Jaxpr {
    let args: Vec<Array> = jaxpr.in_avals().iter().enumerate().map(|(i, aval)| arg(aval, i as u64)).collect();
    let changed = after(jaxpr);
    let expected = eval(jaxpr, args.clone()).unwrap_or_else(|e| panic!("{e}"));
    let got = eval(&changed, args).unwrap_or_else(|e| panic!("{e}"));
    got.iter()
        .zip(&expected)
        .for_each(|(got, expected)| assert_same(got, expected, &format!("{jaxpr}\nbecame {changed}")));
    changed
}

fn emit(b: &mut Builder, op: impl Into<remat_ir::Op>, ins: &[Atom]) -> Atom {
    b.emit1(op.into(), ins).unwrap_or_else(|e| panic!("{e}"))
}

/// A new input, padded with zeros to a shape: some block of it, often one that was padded before.
fn padded(b: &mut Builder, stream: &mut Stream, whole: &Aval, blocks: &mut Vec<Vec<(i64, i64, usize)>>) -> Atom {
    let config = match blocks.len() {
        n if n > 0 && stream.below(3) == 0 => blocks[stream.below(n)].clone(),
        _ => {
            let along = |n: &usize| {
                let low = stream.below(n + 1);
                let size = stream.below(n - low + 1);
                let is_spread = stream.below(8) == 0 && size > 2 && size % 2 == 1;
                (low as i64, (n - low - size) as i64, usize::from(is_spread))
            };
            whole.shape.iter().map(along).collect()
        }
    };
    let size =
        |(n, &(low, high, interior)): (&usize, &(i64, i64, usize))| (n - (low + high) as usize).div_ceil(interior + 1);
    let part = b.input(whole.with_shape(whole.shape.iter().zip(&config).map(size)));
    blocks.push(config.clone());
    let zero = Literal::from_f64(whole.dtype, 0.0).into();
    emit(b, Pad { config: config.into_iter().collect() }, &[part, zero])
}

/// A random sum of padded and other terms, in some grouping, of which some parts may be returned too.
fn sum(b: &mut Builder, stream: &mut Stream, whole: &Aval, terms: usize) -> (Atom, Vec<Atom>) {
    let (mut sum, mut outs, mut blocks) = (None, Vec::new(), Vec::new());
    for _ in 0..terms {
        let mut term = match stream.below(8) {
            0 => b.input(whole.clone()),
            _ => padded(b, stream, whole, &mut blocks),
        };
        if stream.below(4) == 0 {
            let other = padded(b, stream, whole, &mut blocks);
            term = emit(b, Binary::AddAny, &[term, other]);
        }
        sum = Some(match sum {
            None => term,
            Some(sum) if stream.below(5) == 0 => emit(b, Binary::Add, &[term, sum]),
            Some(sum) => emit(b, Binary::AddAny, &[sum, term]),
        });
        if stream.below(12) == 0 {
            outs.extend(sum);
        }
    }
    (sum.unwrap_or_else(|| b.input(whole.clone())), outs)
}

#[test]
fn random_sums_have_the_same_bits() {
    let dtypes: Vec<DType> = DType::ALL.into_iter().filter(|&dtype| dtype != DType::Bool).collect();
    let mut stream = Stream::new(1);
    let mut changed = 0;
    for round in 0..2000 {
        let shape: Vec<usize> = (0..1 + stream.below(3)).map(|_| 1 + stream.below(6)).collect();
        let whole = Aval::new(dtypes[round % dtypes.len()], shape);
        let mut b = Builder::new();
        let terms = 1 + stream.below(9);
        let (last, mut outs) = sum(&mut b, &mut stream, &whole, terms);
        outs.push(last);
        let jaxpr = b.finish(outs);
        let became = check(&jaxpr, zeros_and_others);
        // Negative zeros alone: each element that only some terms cover becomes 0.0.
        check(&jaxpr, |aval, seed| filled(aval.dtype, &aval.shape, seed, |_| Literal::from_f64(aval.dtype, -0.0)));
        changed += usize::from(count(&became, "dynamic_update_slice") > 0);
    }
    assert!(changed > 1000, "{changed} sums were changed");
}

#[test]
fn parts_of_an_array_are_added_in_place() {
    let whole = Aval::new(DType::F32, [12, 4, 4]);
    let mut b = Builder::new();
    let mut sum = None;
    for i in (0..12).rev() {
        let part = b.input(whole.with_shape([1, 4, 4]));
        let zero = Literal::from_f64(DType::F32, 0.0).into();
        let config = [(i, 11 - i, 0), (0, 0, 0), (0, 0, 0)].into_iter().collect();
        let term = emit(&mut b, Pad { config }, &[part, zero]);
        sum = Some(sum.map_or(term, |sum| emit(&mut b, Binary::AddAny, &[sum, term])));
    }
    let became = check(&b.finish(sum.into_iter().collect()), zeros_and_others);
    assert_eq!([count(&became, "pad"), count(&became, "dynamic_update_slice")], [0, 12]);
    // Where the sum is still zero it is not read.
    assert_eq!(count(&became, "slice"), 0);
}

#[test]
fn updates_are_scattered_into_the_sum() {
    let whole = Aval::new(DType::F32, [9, 2]);
    let op = Scatter {
        kind: ScatterKind::Add,
        update_window_dims: [1].into_iter().collect(),
        inserted_window_dims: [0].into_iter().collect(),
        scatter_dims_to_operand_dims: [0].into_iter().collect(),
        operand_batching_dims: Shape::new(),
        scatter_indices_batching_dims: Shape::new(),
        mode: IndexMode::FillOrDrop,
        unique_indices: false,
    };
    for dense in [false, true] {
        let mut b = Builder::new();
        let mut sum = dense.then(|| b.input(whole.clone()));
        for _ in 0..3 {
            let (indices, updates) = (b.input(Aval::new(DType::I32, [4, 1])), b.input(whole.with_shape([4, 2])));
            let zero = Literal::from_f64(DType::F32, 0.0).into();
            let zeros = remat_ir::BroadcastInDim { shape: whole.shape.clone(), dims: Shape::new() };
            let zeros = emit(&mut b, zeros, &[zero]);
            let term = emit(&mut b, op.clone(), &[zeros, indices, updates]);
            sum = Some(sum.map_or(term, |sum| emit(&mut b, Binary::AddAny, &[sum, term])));
        }
        let jaxpr = b.finish(sum.into_iter().collect());
        // Indices from -1 to 9, two of which are out of range, and numbers whose sums are exact.
        let became = check(&jaxpr, |aval, seed| {
            filled(aval.dtype, &aval.shape, seed, |stream| match stream.below(11) as f64 - 1.0 {
                index if aval.dtype == DType::I32 => Literal::from_f64(aval.dtype, index),
                4.0 => Literal::from_f64(aval.dtype, -0.0),
                number => Literal::from_f64(aval.dtype, number),
            })
        });
        let adds = count(&became, "add_any");
        assert_eq!([count(&became, "scatter_add"), adds], [3, usize::from(dense)], "{became}");
    }
}

#[test]
fn a_single_padded_term_stays() {
    let text = "{ lambda ; a:f32[4] t:f32[2]. let
        b:f32[4] = pad[padding_config=((1, 1, 0),)] t 0.0:f32[]
        c:f32[4] = add_any a b
      in (c,) }";
    let jaxpr: Jaxpr = text.parse().unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(after(&jaxpr).to_string(), jaxpr.to_string());
}
