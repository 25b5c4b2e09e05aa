//! Matrices of windows: panels, what is read in place, and segments of rows.

// Sources are made of bytes.
#![allow(unsafe_code)]

use remat_ir::bf16;

use super::*;
use crate::interface::Source;
use crate::kernels::conv::im2col::{Axis, Im2col};
use crate::kernels::conv::row_segments::{RowSegments, copy_segments};
use crate::kernels::matmul::{Elements, Reader, Right};

/// Axes of a matrix, as sizes and strides.
type Axes = &'static [(usize, isize)];

/// Panels are copied from row to row, transposed from where they lie, or gathered: they cross from image to image, begin inside of one, or
/// have columns of zeros at the end.
#[test]
fn panels_have_the_elements_of_their_columns() {
    // Numbers that bf16 has, for neighbours and rows of every case others.
    let numbers: Vec<f32> = (0..40_000).map(|i| (i * 37 % 251) as f32 + 1.0).collect();
    let halves: Vec<bf16> = numbers.iter().map(|&x| bf16::from_f32(x)).collect();
    let reader = Reader::<f32>::new(DType::Bf16);
    // SAFETY: these are the bytes of the halves, and any bits are a bf16.
    let widened = reader.of(unsafe {
        let bytes = std::slice::from_raw_parts(halves.as_ptr().cast::<u8>(), size_of_val(&halves[..]));
        Source::new(DType::Bf16, bytes)
    });
    for elements in [Elements::Numbers(&numbers), widened] {
        panels_have(&numbers, elements);
    }
}

/// Packs panels of some elements in many ways, and compares them with the numbers that they are.
fn panels_have(numbers: &[f32], elements: Elements<'_, f32>) {
    let offset = |axes: Axes, mut i: usize| {
        let along = axes.iter().rev().map(|&(size, stride)| {
            let at = (i % size) as isize * stride;
            i /= size;
            at
        });
        along.sum::<isize>()
    };
    let cases: [[Axes; 2]; 6] = [
        [&[(3, 4000), (37, 1)], &[(45, 60)]],
        [&[(3, 4000), (37, 1)], &[(5, 700), (9, 40)]],
        [&[(111, 1)], &[(9, -120)]],
        [&[(50, -90)], &[(4, 5000), (20, 1)]],
        [&[(3, 0)], &[(4, 5000), (20, 1)]],
        [&[(2, 9000), (25, 90)], &[(40, 1)]],
    ];
    for [free, contracted] in cases {
        let axes = [free, contracted].map(|axes| axes.iter().map(|&(size, stride)| Axis { size, stride, along: None }));
        let matrix = Im2col::new(20_000, &[], axes);
        let operand = matrix.of(elements, 3);
        let [n, k] = [free, contracted].map(|axes| axes.iter().map(|axis| axis.0).product::<usize>());
        let parts = [(0..n, 0..k), (1..n, 7..k - 1), (n - 1..n, 0..k), (0..n, 5..6), (0..n, 3..3), (2..2, 0..k)];
        for ((columns, depth), width) in parts.iter().flat_map(|part| [4, 12, 16, 32, 48].map(|width| (part, width))) {
            let len = columns.len().div_ceil(width) * width * depth.len();
            let mut to = vec![-7.0; len + 5];
            operand.pack(depth.clone(), columns.clone(), width, &mut to);
            assert!(to[len..].iter().all(|&x| x == -7.0));
            for (at, &x) in to[..len].iter().enumerate() {
                let (panel, j, i) = (at / (width * depth.len()), at / width % depth.len(), at % width);
                let column = columns.start + panel * width + i;
                let expected = match columns.contains(&column) {
                    true => numbers[(20_003 + offset(free, column) + offset(contracted, depth.start + j)) as usize],
                    false => 0.0,
                };
                assert_eq!(x, expected, "{free:?} {contracted:?} {columns:?} {depth:?} {width}: {at}");
            }
        }
    }
}

#[test]
fn matrices_are_read_in_place_where_nothing_is_reversed() {
    let is_in_place = |strides: [isize; 2]| {
        let axes = strides.map(|stride| [Axis { size: 8, stride, along: None }]);
        Im2col::new(64, &[], axes).is_in_place()
    };
    for strides in [[8, 1], [0, 1], [8, 0], [1, 1]] {
        assert!(is_in_place(strides), "{strides:?}");
    }
    for strides in [[8, -1], [-8, 1], [-8, -1], [1, 8]] {
        assert!(!is_in_place(strides), "{strides:?}");
    }
}

/// Copies `count` segments of `len` neighbours, for every length, between slices with gaps, and compares each.
fn segments_are_copied<N: Copy + Default + PartialEq + std::fmt::Debug>(numbers: &[N]) {
    for (along, to_along) in [(1, 1), (-1, 1), (2, 1), (3, 1), (1, 2), (2, 3)] {
        for (count, len) in (1..70).flat_map(|len| [(1, len), (3, len)]) {
            let (from_stride, to_stride) = ([250, along], [230, to_along]);
            let inside = if len > 3 { 1..len - 2 } else { 0..len };
            let segments = RowSegments {
                at: 90,
                strides: from_stride,
                count,
                len,
                to: 7,
                to_strides: to_stride,
                segments: usize::from(count > 1)..count,
                inside: inside.clone(),
                shared: None,
            };
            let mut to = vec![numbers[1]; 800];
            copy_segments(&numbers, &segments, &mut to);
            let mut expected = vec![numbers[1]; 800];
            for (i, j) in (0..count).flat_map(|i| (0..len).map(move |j| (i, j))) {
                let at = 90 + i as isize * from_stride[0] + j as isize * from_stride[1];
                let is_inside = segments.segments.contains(&i) && inside.contains(&j);
                let x = if is_inside { numbers[at as usize] } else { N::default() };
                expected[7 + i * to_stride[0] + j * to_stride[1]] = x;
            }
            assert_eq!(to, expected, "{count} of {len}, {along} apart to {to_along}");
        }
    }
}

#[test]
fn segments_of_every_length_are_copied() {
    segments_are_copied(&(0..800).map(|i| i as f32 + 1.0).collect::<Vec<_>>());
    segments_are_copied(&(0..800).map(|i| f64::from(i) + 1.0).collect::<Vec<_>>());
    segments_are_copied(&(1..801).collect::<Vec<u16>>());
    segments_are_copied(&(0..800).map(|i| (i % 251) as u8 + 1).collect::<Vec<_>>());
}
