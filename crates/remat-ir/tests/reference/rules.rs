use remat_ir::{
    ArgKind, ArgReduce, Array, Aval, Binary, BitcastConvertType, Clamp, Compare, ConvertElementType, Cumulative,
    CumulativeKind, DType, ErrorKind, IntegerPow, Literal, MemorySpace, Op, Reduce, ReduceKind, ReducePrecision,
    SelectN, Sort, Threefry2x32, TopK, Unary, eval_op,
};

/// The message and the kind of the error of the shape rule.
fn refuse(op: impl Into<Op>, ins: &[&str]) -> (ErrorKind, String) {
    let avals: Vec<Aval> = ins.iter().map(|text| aval(text)).collect();
    let error = op.into().infer(&avals).unwrap_err();
    (error.kind(), error.to_string())
}

fn infer(op: impl Into<Op>, ins: &[&str]) -> Vec<String> {
    let avals: Vec<Aval> = ins.iter().map(|text| aval(text)).collect();
    op.into().infer(&avals).unwrap().iter().map(Aval::to_string).collect()
}

/// Reads `f32<host>[2,3]`.
fn aval(text: &str) -> Aval {
    let (head, shape) = text.trim_end_matches(']').split_once('[').unwrap();
    let (dtype, memory) = match head.strip_suffix("<host>") {
        Some(dtype) => (dtype, MemorySpace::Host),
        None => (head, MemorySpace::Device),
    };
    let sizes = shape.split(',').filter(|s| !s.is_empty()).map(|s| s.parse().unwrap());
    Aval::new(DType::from_name(dtype).unwrap(), sizes).in_memory(memory)
}

#[test]
fn results_have_the_shape_of_the_operand_that_is_no_scalar() {
    assert_eq!(infer(Binary::Add, &["f32[2,3]", "f32[]"]), ["f32[2,3]"]);
    assert_eq!(infer(Binary::Add, &["f32[]", "f32[0]"]), ["f32[0]"]);
    assert_eq!(infer(Compare::Lt, &["bf16<host>[2]", "bf16<host>[2]"]), ["bool<host>[2]"]);
    assert_eq!(infer(Unary::IsFinite, &["f16[2]"]), ["bool[2]"]);
    assert_eq!(infer(SelectN, &["bool[3]", "u8[]", "u8[]"]), ["u8[3]"]);
    assert_eq!(infer(SelectN, &["i32[]", "u8[3]", "u8[]", "u8[3]"]), ["u8[3]"]);
    assert_eq!(infer(Clamp, &["f32[]", "f32[3]", "f32[3]"]), ["f32[3]"]);
    assert_eq!(infer(Threefry2x32, &["u32[]", "u32[]", "u32[3]", "u32[3]"]), ["u32[3]", "u32[3]"]);
    assert_eq!(infer(BitcastConvertType { dtype: DType::I64 }, &["f16[2,4]"]), ["i64[2]"]);
    assert_eq!(infer(BitcastConvertType { dtype: DType::F16 }, &["i64[2]"]), ["f16[2,4]"]);
}

#[test]
fn mixed_operands_are_refused_with_the_conversion_to_write() {
    let cases = [
        (["f32[3]", "i32[3]"], "f32[3] and i32[3] have different dtypes; convert one with .to_dtype(DType::F32)"),
        (["i64[3]", "bf16[]"], "i64[3] and bf16[] have different dtypes; convert one with .to_dtype(DType::Bf16)"),
        (["bool[3]", "u8[3]"], "bool[3] and u8[3] have different dtypes; convert one with .to_dtype(DType::U8)"),
        (["i32[3]", "i64[]"], "i32[3] and i64[] have different dtypes; convert one with .to_dtype(DType::I64)"),
    ];
    for (ins, message) in cases {
        assert_eq!(refuse(Binary::Mul, &ins), (ErrorKind::DType, format!("mul: {message}")));
    }
    assert_eq!(
        refuse(Binary::Add, &["f32[2,3]", "f32[3]"]),
        (ErrorKind::Shape, "add: f32[2,3] and f32[3] have different shapes, and neither is a scalar".into())
    );
    assert_eq!(
        refuse(Binary::Add, &["f32[2]", "f32<host>[2]"]),
        (ErrorKind::Shape, "add: f32[2] and f32<host>[2] are in different memory spaces".into())
    );
    assert_eq!(refuse(Binary::Add, &["f32[2]"]), (ErrorKind::Argument, "add: takes 2 operands and got 1".into()));
    assert_eq!(
        refuse(SelectN, &["f32[2]", "f32[2]"]),
        (ErrorKind::DType, "select_n: the selector is bool or i32, not f32[2]".into())
    );
    assert_eq!(refuse(SelectN, &["bool[2]"]), (ErrorKind::Argument, "select_n: takes at least one case".into()));
    assert_eq!(refuse(SelectN, &[]), (ErrorKind::Argument, "select_n: takes a selector and cases".into()));
    assert_eq!(
        refuse(SelectN, &["bool[2]", "f32[2]", "f32[2]", "f32[2]"]),
        (ErrorKind::Argument, "select_n: a bool selects between two cases, not 3; use an i32".into())
    );
}

/// Every operation of one dtype evaluates on the dtypes that it takes and refuses the others.
#[test]
fn dtypes() {
    let takes = |op: Op, operands: usize, expected: &dyn Fn(DType) -> bool| {
        for dtype in DType::ALL {
            let ins = vec![Array::full(Literal::from_f64(dtype, 1.0), [2]); operands];
            let result = eval_op(&op, &ins);
            assert_eq!(result.is_ok(), expected(dtype), "{op:?} of {dtype}: {result:?}");
            if let Err(error) = result {
                assert_eq!(error.kind(), ErrorKind::DType);
                assert!(error.message().contains(&format!("not {dtype}[2]; convert it with .to_dtype(")), "{error}");
            }
        }
    };
    let numeric = |d: DType| d != DType::Bool;
    let any = |_: DType| true;
    let bits = |d: DType| !d.is_float();
    for op in Unary::ALL {
        match op {
            Unary::Neg => takes(op.into(), 1, &DType::is_signed),
            Unary::Sign | Unary::Abs => takes(op.into(), 1, &numeric),
            Unary::Not => takes(op.into(), 1, &bits),
            Unary::PopulationCount => takes(op.into(), 1, &DType::is_integer),
            _ => takes(op.into(), 1, &DType::is_float),
        }
    }
    for op in Binary::ALL {
        match op {
            Binary::Pow | Binary::Atan2 => takes(op.into(), 2, &DType::is_float),
            Binary::Max | Binary::Min => takes(op.into(), 2, &any),
            Binary::And | Binary::Or | Binary::Xor => takes(op.into(), 2, &bits),
            Binary::ShiftLeft | Binary::ShiftRightLogical | Binary::ShiftRightArithmetic => {
                takes(op.into(), 2, &DType::is_integer);
            }
            _ => takes(op.into(), 2, &numeric),
        }
    }
    for op in Compare::ALL {
        takes(op.into(), 2, &any);
    }
    takes(Clamp.into(), 3, &any);
    takes(IntegerPow { y: 3 }.into(), 1, &numeric);
    takes(IntegerPow { y: -3 }.into(), 1, &DType::is_float);
    takes(ReducePrecision { exponent_bits: 5, mantissa_bits: 2 }.into(), 1, &DType::is_float);
    let reduce = |kind| Op::from(Reduce { kind, axes: [0].into_iter().collect() });
    takes(reduce(ReduceKind::Sum), 1, &numeric);
    takes(reduce(ReduceKind::Prod), 1, &numeric);
    takes(reduce(ReduceKind::Max), 1, &any);
    takes(reduce(ReduceKind::Min), 1, &any);
    takes(reduce(ReduceKind::And), 1, &bits);
    takes(reduce(ReduceKind::Or), 1, &bits);
    takes(ArgReduce { kind: ArgKind::Max, axis: 0, index_dtype: DType::I32 }.into(), 1, &any);
    let cumulative = |kind| Op::from(Cumulative { kind, axis: 0, reverse: false });
    for kind in [CumulativeKind::Sum, CumulativeKind::Prod, CumulativeKind::Max, CumulativeKind::Min] {
        takes(cumulative(kind), 1, &numeric);
    }
    takes(cumulative(CumulativeKind::LogSumExp), 1, &DType::is_float);
    takes(Sort { axis: 0, num_keys: 2, is_stable: false }.into(), 2, &any);
    takes(TopK { k: 1 }.into(), 1, &any);
}

#[test]
fn axes() {
    let reduce = |axes: &[usize]| Reduce { kind: ReduceKind::Sum, axes: axes.iter().copied().collect() };
    assert_eq!(
        refuse(reduce(&[2]), &["f32[2,3]"]),
        (ErrorKind::Axis, "reduce_sum: axis 2 is out of range for f32[2,3], which has 2 dimensions".into())
    );
    assert_eq!(
        refuse(reduce(&[1, 1]), &["f32[2,3]"]),
        (ErrorKind::Axis, "reduce_sum: axis 1 of f32[2,3] is given twice".into())
    );
    let op = Cumulative { kind: CumulativeKind::Max, axis: 0, reverse: false };
    assert_eq!(refuse(op, &["f32[]"]).0, ErrorKind::Axis);
    let op = ArgReduce { kind: ArgKind::Min, axis: 0, index_dtype: DType::F32 };
    assert_eq!(refuse(op, &["f32[2]"]), (ErrorKind::DType, "argmin: an index of f32[2] is an integer, not f32".into()));
    let sort = |num_keys| Sort { axis: 0, num_keys, is_stable: true };
    assert_eq!(
        refuse(sort(2), &["f32[2]"]),
        (ErrorKind::Argument, "sort: num_keys is 2; with 1 operand it has to be from 1 to 1".into())
    );
    assert_eq!(refuse(sort(1), &[]), (ErrorKind::Argument, "sort: takes at least one operand".into()));
    assert_eq!(
        refuse(sort(1), &["f32[2]", "i32[]"]),
        (ErrorKind::Shape, "sort: f32[2] and i32[] have different shapes".into())
    );
    assert_eq!(infer(sort(1), &["f32[2]", "i32[2]"]), ["f32[2]", "i32[2]"]);
}

/// Programs print and read back as JAX prints them.
#[test]
fn text() {
    let axes = |axes: &[usize]| axes.iter().copied().collect();
    let cases: [(Op, &str, &str); 12] = [
        (IntegerPow { y: -2 }.into(), "f32[4]", "integer_pow[y=-2]"),
        (ConvertElementType { dtype: DType::Bf16 }.into(), "f32[4]", "convert_element_type[new_dtype=bfloat16]"),
        (BitcastConvertType { dtype: DType::U32 }.into(), "f32[4]", "bitcast_convert_type[new_dtype=uint32]"),
        (
            ReducePrecision { exponent_bits: 8, mantissa_bits: 23 }.into(),
            "f32[4]",
            "reduce_precision[exponent_bits=8 mantissa_bits=23]",
        ),
        (Reduce { kind: ReduceKind::Sum, axes: axes(&[0]) }.into(), "f32[4]", "reduce_sum[axes=(0,)]"),
        (Reduce { kind: ReduceKind::And, axes: axes(&[0, 1]) }.into(), "bool[4,2]", "reduce_and[axes=(0, 1)]"),
        (
            ArgReduce { kind: ArgKind::Max, axis: 0, index_dtype: DType::I32 }.into(),
            "f32[4]",
            "argmax[axes=(0,) index_dtype=int32]",
        ),
        (
            Cumulative { kind: CumulativeKind::LogSumExp, axis: 0, reverse: true }.into(),
            "f32[4]",
            "cumlogsumexp[axis=0 reverse=True]",
        ),
        (
            Sort { axis: 0, num_keys: 1, is_stable: true }.into(),
            "f32[4]",
            "sort[dimension=0 is_stable=True num_keys=1]",
        ),
        (TopK { k: 3 }.into(), "f32[4]", "top_k[k=3]"),
        (Unary::ErfInv.into(), "f32[4]", "erf_inv"),
        (Unary::Exp2.into(), "f32[4]", "exp2"),
    ];
    for (op, operand, text) in cases {
        let mut builder = remat_ir::Builder::new();
        let x = builder.input(aval(operand));
        let outs = builder.emit(op.clone(), &[x]).unwrap().to_vec();
        let jaxpr = builder.finish(outs);
        assert!(jaxpr.to_string().contains(&format!(" = {text} a")), "{jaxpr}");
        assert_eq!(remat_ir::Jaxpr::parse(&jaxpr.to_string()).unwrap().eqns[0].op, op);
    }
    let names = Unary::ALL.map(|op| Op::from(op).name().to_owned()).into_iter();
    let names = names.chain(Binary::ALL.map(|op| Op::from(op).name().to_owned()));
    let names = names.chain(Compare::ALL.map(|op| Op::from(op).name().to_owned()));
    for name in names.chain(["select_n", "clamp", "threefry2x32"].map(str::to_owned)) {
        let op = Op::parse(&name, &remat_ir::ParamMap::new(&name, vec![])).unwrap();
        assert_eq!(op.name(), name);
        assert!(op.params().is_empty());
    }
}
