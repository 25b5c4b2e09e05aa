//! Samples of convolution.

use remat_ir::{Conv, ConvDims, DType, Shape};

use super::sample::{any, floats};
use super::{Sample, Samples};

impl Samples for Conv {
    fn samples() -> Vec<Sample> {
        let mut samples = Vec::new();
        for (label, input, kernel, op) in geometries() {
            let inputs = vec![floats(input), floats(kernel)];
            samples.push(Sample::new(label, op, inputs).linear_in(&[0]).linear_in(&[1]));
        }
        let (_, input, kernel, op) = geometries().remove(0);
        let typed = |from, to| {
            let op = Conv { preferred_element_type: to, ..op.clone() };
            Sample::new(format!("{from} with a result in {to}"), op, vec![any(from, input), any(from, kernel)])
                .linear_in(&[0])
                .linear_in(&[1])
        };
        samples.extend(DType::ALL.map(|d| typed(d, d)));
        let pairs =
            [(DType::Bf16, DType::F32), (DType::F16, DType::F32), (DType::F32, DType::F16), (DType::I8, DType::I32)];
        samples.extend(pairs.map(|(from, to)| typed(from, to)));
        samples
    }
}

fn geometries() -> Vec<(&'static str, &'static [usize], &'static [usize], Conv)> {
    let dims = |first, second, spatial: &[usize]| ConvDims { first, second, spatial: spatial.into() };
    let in_order = |n: usize| {
        let spatial: Shape = (2..2 + n).collect();
        ConvDims { first: 0, second: 1, spatial }
    };
    let plain = |n: usize| Conv {
        strides: Shape::from_elem(1, n),
        padding: vec![(0, 0); n],
        lhs_dilation: Shape::from_elem(1, n),
        rhs_dilation: Shape::from_elem(1, n),
        lhs_dims: in_order(n),
        rhs_dims: in_order(n),
        out_dims: in_order(n),
        feature_group_count: 1,
        batch_group_count: 1,
        preferred_element_type: DType::F64,
    };
    let ones = |sizes: &[usize]| -> Shape { sizes.into() };
    vec![
        ("one dimension", &[1, 2, 5], &[2, 2, 3], Conv { padding: vec![(1, 1)], ..plain(1) }),
        ("no spatial dimension", &[3, 2], &[4, 2], plain(0)),
        ("strides", &[2, 1, 7], &[2, 1, 2], Conv { strides: ones(&[3]), ..plain(1) }),
        (
            "strides that leave a rest",
            &[1, 1, 8],
            &[1, 1, 3],
            Conv { strides: ones(&[2]), padding: vec![(2, 0)], ..plain(1) },
        ),
        ("dilated input", &[1, 2, 4], &[1, 2, 3], Conv { lhs_dilation: ones(&[3]), padding: vec![(1, 2)], ..plain(1) }),
        (
            "dilated kernel",
            &[1, 1, 7],
            &[2, 1, 3],
            Conv { rhs_dilation: ones(&[2]), padding: vec![(0, 3)], ..plain(1) },
        ),
        ("negative padding", &[1, 1, 7], &[1, 1, 2], Conv { padding: vec![(-2, -1)], ..plain(1) }),
        ("negative and more than everything", &[1, 1, 2], &[1, 1, 2], Conv { padding: vec![(-3, 6)], ..plain(1) }),
        (
            "everything at once",
            &[2, 4, 5, 4],
            &[6, 2, 2, 3],
            Conv {
                strides: ones(&[2, 1]),
                padding: vec![(1, -1), (-1, 2)],
                lhs_dilation: ones(&[1, 2]),
                rhs_dilation: ones(&[2, 1]),
                feature_group_count: 2,
                ..plain(2)
            },
        ),
        (
            "features last",
            &[2, 4, 3, 2],
            &[2, 2, 2, 3],
            Conv {
                lhs_dims: dims(0, 3, &[1, 2]),
                rhs_dims: dims(3, 2, &[0, 1]),
                out_dims: dims(0, 3, &[1, 2]),
                ..plain(2)
            },
        ),
        (
            "odd orders",
            &[3, 2, 4, 2],
            &[2, 2, 2, 3],
            Conv {
                lhs_dims: dims(1, 3, &[2, 0]),
                rhs_dims: dims(3, 0, &[1, 2]),
                out_dims: dims(2, 0, &[3, 1]),
                padding: vec![(1, 0), (0, 1)],
                strides: ones(&[2, 1]),
                ..plain(2)
            },
        ),
        ("feature groups", &[2, 4, 4], &[6, 2, 2], Conv { feature_group_count: 2, ..plain(1) }),
        ("depthwise", &[1, 3, 4], &[3, 1, 2], Conv { feature_group_count: 3, ..plain(1) }),
        (
            "feature groups, features last",
            &[2, 4, 4],
            &[2, 2, 4],
            Conv {
                lhs_dims: dims(0, 2, &[1]),
                rhs_dims: dims(2, 1, &[0]),
                out_dims: dims(0, 2, &[1]),
                feature_group_count: 2,
                strides: ones(&[2]),
                ..plain(1)
            },
        ),
        ("batch groups", &[4, 2, 4], &[6, 2, 2], Conv { batch_group_count: 2, ..plain(1) }),
        (
            "batch groups, odd orders",
            &[4, 2, 6],
            &[2, 3, 3],
            Conv {
                lhs_dims: dims(2, 1, &[0]),
                rhs_dims: dims(1, 0, &[2]),
                out_dims: dims(1, 2, &[0]),
                batch_group_count: 3,
                padding: vec![(1, 0)],
                lhs_dilation: ones(&[2]),
                ..plain(1)
            },
        ),
        (
            "three dimensions",
            &[1, 1, 2, 3, 2],
            &[1, 1, 2, 2, 1],
            Conv { strides: ones(&[1, 2, 1]), padding: vec![(0, 1), (1, 0), (0, 0)], ..plain(3) },
        ),
        ("four dimensions", &[1, 1, 2, 1, 2, 2], &[1, 1, 1, 1, 2, 2], plain(4)),
        ("no batch", &[0, 2, 3], &[1, 2, 2], plain(1)),
        ("no input feature", &[1, 0, 3], &[2, 0, 2], plain(1)),
        ("no output feature", &[1, 2, 3], &[0, 2, 2], plain(1)),
        ("no window in the input", &[1, 1, 0], &[1, 1, 2], Conv { padding: vec![(2, 1)], ..plain(1) }),
        ("kernel larger than the input", &[1, 1, 2], &[1, 1, 4], plain(1)),
    ]
}
