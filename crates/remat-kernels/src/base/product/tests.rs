use super::*;

/// Checks a micro-kernel for all numbers of rows and columns: written and added, packed, and with any strides. Elements outside of the tile
/// keep their values.
fn check_micro_kernel<A: Accumulator>(kernel: &MicroKernel<A>, element: fn(i8) -> A, sum: fn(i32) -> A) {
    let (width, across) = (kernel.rows, kernel.columns);
    let value = |i: usize, k: usize, seed: usize| ((i * 7 + k * 3 + seed * 5) % 11) as i8 - 5;
    let pack = |width: usize, count: usize, k: usize, seed: usize| {
        let mut packed = vec![A::default(); width * k];
        for (i, l) in (0..count).flat_map(|i| (0..k).map(move |l| (i, l))) {
            packed[l * width + i] = element(value(i, l, seed));
        }
        packed
    };
    for k in [1usize, 2, 3, 7, 31, 64, 65] {
        for (m, n) in (1..=width).flat_map(|m| (1..=across).map(move |n| (m, n))) {
            let stride = across + 3;
            let expected = |start: i32| {
                let mut out = vec![sum(start); width * stride];
                for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
                    let product: i32 = (0..k).map(|l| i32::from(value(i, l, 1)) * i32::from(value(j, l, 2))).sum();
                    out[i * stride + j] = sum(product + if start == 9 { 9 } else { 0 });
                }
                out
            };
            let (left, right) = (pack(width, m, k, 1), pack(across, n, k, 2));
            for (adds, before) in [(false, 1), (true, 9)] {
                let mut out = vec![sum(before); width * stride];
                if n >= kernel.min_columns {
                    // SAFETY: the panels are whole, and the result has these rows and columns.
                    unsafe {
                        let out = (out.as_mut_ptr(), stride);
                        let ahead = Prefetch { right: right.as_ptr(), lines: left.as_ptr().cast(), stride: 99 };
                        (kernel.packed)([m, n, k], left.as_ptr(), right.as_ptr(), ahead, out, adds);
                    }
                    assert_eq!(out, expected(before), "{m} by {n} of {k}, packed");
                }
                for [row, column] in [[k + 3, 1], [1, m + 2]] {
                    let mut left = vec![A::default(); m * row.max(1) + k * column];
                    let mut right = vec![A::default(); k * (n + 5)];
                    for l in 0..k {
                        (0..m).for_each(|i| left[i * row + l * column] = element(value(i, l, 1)));
                        (0..n).for_each(|j| right[l * (n + 5) + j] = element(value(j, l, 2)));
                    }
                    let mut out = vec![sum(before); width * stride];
                    // SAFETY: the operands and the result have these rows and columns.
                    unsafe {
                        let (left, right) = ((left.as_ptr(), [row, column]), (right.as_ptr(), n + 5));
                        (kernel.strided)([m, n, k], left, right, (out.as_mut_ptr(), stride), adds);
                    }
                    assert_eq!(out, expected(before), "{m} by {n} of {k}, strided");
                }
            }
        }
    }
}

/// Checks the function of a micro-kernel for separate vectors: all numbers of rows, pieces of every length, written and added.
fn check_indirect<A: Accumulator>(kernel: &MicroKernel<A>, sum: fn(i32) -> A) {
    let (width, lanes, across) = (kernel.rows, kernel.lanes, kernel.columns / kernel.lanes);
    assert!(across <= MOST_VECTORS);
    let value = |i: usize| (i * 7 % 11) as i32 - 5;
    let (left, right): (Vec<A>, Vec<A>) = (0..2000).map(|i| (sum(value(i)), sum(value(i + 3)))).unzip();
    for (k, rows, adds) in
        [1, 5, 32].iter().flat_map(|k| (1..=width).flat_map(move |m| [(*k, m, false), (*k, m, true)]))
    {
        let offsets: Vec<usize> = (0..k).map(|l| l * 37 % 90).collect();
        for len in 0..=lanes {
            let (mut out, out_row) = (vec![sum(9); (width + 1) * 200], 200);
            let mut expected = out.clone();
            let first = |j: usize| (30 * j, 50 * j);
            let to = out.as_mut_ptr();
            let vectors: Vec<ColumnVector<A>> = (0..across)
                .map(|j| ColumnVector {
                    from: right[first(j).0..].as_ptr(),
                    to: to.wrapping_add(first(j).1),
                    len: if j == 0 { len } else { lanes },
                })
                .collect();
            for (i, j) in (0..rows).flat_map(|i| (0..across).map(move |j| (i, j))) {
                for x in 0..vectors[j].len {
                    let products = (0..k).map(|l| value(l * width + i) * value(first(j).0 + offsets[l] + x + 3));
                    expected[7 + first(j).1 + i * out_row + x] = sum(products.sum::<i32>() + if adds { 9 } else { 0 });
                }
            }
            // SAFETY: the panel has these positions, and the vectors and the result have these elements.
            unsafe { (kernel.indirect)(rows, left.as_ptr(), vectors.as_ptr(), &offsets, (7, out_row), adds) };
            assert_eq!(out, expected, "{rows} rows of {k}, {len} lanes");
        }
    }
}

/// Checks the function of a micro-kernel for segments: all numbers of rows, segments of several lengths, written and added.
fn check_segments<A: Accumulator>(kernel: &MicroKernel<A>, sum: fn(i32) -> A) {
    let (height, width, row) = (kernel.rows, kernel.columns, 61);
    let value = |i: usize| (i * 7 % 11) as i32 - 5;
    let (left, right): (Vec<A>, Vec<A>) = (0..2000).map(|i| (sum(value(i)), sum(value(i + 3)))).unzip();
    let sizes = [(0, 3), (1, 0), (1, 1), (4, 3), (2, 9)];
    for ((count, len), rows) in sizes.into_iter().flat_map(|size| (1..=height).map(move |rows| (size, rows))) {
        for (column, adds) in [(1, false), (3, true)] {
            let offsets: Vec<usize> = (0..count).map(|l| l * 37 % 90).collect();
            let at = |k: usize| offsets[k / len] + k % len * column;
            let (out_row, group) = (width + 5, ROWS_PER_POINTER * row + column - 1);
            let mut out = vec![sum(9); height * out_row];
            let mut expected = out.clone();
            for (i, j) in (0..rows).flat_map(|i| (0..width).map(move |j| (i, j))) {
                let products = (0..count * len).map(|k| {
                    value(i / ROWS_PER_POINTER * group + i % ROWS_PER_POINTER * row + at(k)) * value(k * width + j + 3)
                });
                expected[i * out_row + j] = sum(products.sum::<i32>() + if adds { 9 } else { 0 });
            }
            let segments =
                Segments { offsets: &offsets, len, row_stride: row, group_stride: group, column_stride: column };
            let to = (out.as_mut_ptr(), out_row);
            // SAFETY: the rows and the panel have these positions, and the result these rows.
            unsafe { (kernel.segments)(rows, left.as_ptr(), segments, right.as_ptr(), to, adds) };
            assert_eq!(out, expected, "{rows} rows of {count} segments of {len}");
        }
    }
}

/// Checks the function of a micro-kernel for products element by element: all numbers of rows, several of positions, written and added.
fn check_elementwise<A: Accumulator>(kernel: &MicroKernel<A>, sum: fn(i32) -> A) {
    let (height, width) = (kernel.rows, kernel.columns);
    let value = |i: usize| (i * 7 % 11) as i32 - 5;
    let (left, right): (Vec<A>, Vec<A>) = (0..4000).map(|i| (sum(value(i)), sum(value(i + 3)))).unzip();
    for (count, rows) in [0, 1, 9, 33].into_iter().flat_map(|count| (1..=height).map(move |rows| (count, rows))) {
        for (row, right_row, adds) in [(width, width + 7, false), (2 * width + 1, width, true), (0, width, false)] {
            let offsets: Vec<usize> = (0..count).map(|l| l * 37 % 90).collect();
            let out_row = width + 5;
            let mut out = vec![sum(9); height * out_row];
            let mut expected = out.clone();
            for (i, j) in (0..rows).flat_map(|i| (0..width).map(move |j| (i, j))) {
                let products = (0..count).map(|k| value(i * row + offsets[k] + j) * value(k * right_row + j + 3));
                expected[i * out_row + j] = sum(products.sum::<i32>() + if adds { 9 } else { 0 });
            }
            let (from, to) = ((left.as_ptr(), row), (out.as_mut_ptr(), out_row));
            // SAFETY: the operands have these rows at each offset, and the result these rows.
            unsafe { (kernel.elementwise)(rows, from, &offsets, (right.as_ptr(), right_row), to, adds) };
            assert_eq!(out, expected, "{rows} rows of {count} positions");
        }
    }
}

#[test]
fn micro_kernels_of_every_level_agree_with_sums_of_products() {
    for level in Level::all() {
        check_elementwise::<f32>(f32::micro_kernel(level), |x| x as f32);
        check_elementwise::<f64>(f64::micro_kernel(level), f64::from);
        check_elementwise::<i64>(i64::micro_kernel(level), i64::from);
        check_segments::<f32>(f32::micro_kernel(level), |x| x as f32);
        check_segments::<f64>(f64::micro_kernel(level), f64::from);
        check_segments::<i64>(i64::micro_kernel(level), i64::from);
        check_indirect::<f32>(f32::micro_kernel(level), |x| x as f32);
        check_indirect::<f64>(f64::micro_kernel(level), f64::from);
        check_indirect::<i64>(i64::micro_kernel(level), i64::from);
        check_micro_kernel::<f32>(f32::micro_kernel(level), f32::from, |x| x as f32);
        check_micro_kernel::<f64>(f64::micro_kernel(level), f64::from, f64::from);
        check_micro_kernel::<i64>(i64::micro_kernel(level), i64::from, i64::from);
    }
}

/// Small integers, whose products and sums are exact.
fn values<T>(len: usize, seed: usize, convert: fn(i8) -> T) -> Vec<T> {
    (0..len).map(|i| convert(((i * 7 + seed * 5) % 11) as i8 - 5)).collect()
}

fn check<T: Accumulator>(convert: fn(i8) -> T) {
    for m in [0, 1, 2, 3, 5, 8, 64] {
        for (n, k) in [(0, 3), (1, 1), (2, 7), (3, 2), (7, 20), (16, 0), (16, 1), (33, 5), (64, 64)] {
            for (row, column) in [(k + 3, 1), (1, m + 2)] {
                let left = values((m * row).max(k * column) + 1, 1, convert);
                let (right_row, out_row) = (n + 2, n + 5);
                let right = values(k * right_row, 2, convert);
                for adds in [false, true] {
                    let before = values(m * out_row, 3, convert);
                    let mut out = before.clone();
                    product(
                        [m, n, k],
                        Left { elements: &left, row_stride: row, column_stride: column },
                        Right { elements: &right, row_stride: right_row },
                        Out { elements: &mut out, row_stride: out_row, adds },
                    );
                    let mut expected = before;
                    for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
                        let out = &mut expected[i * out_row + j];
                        let start = if adds { *out } else { T::default() };
                        *out = (0..k)
                            .fold(start, |sum, l| sum.plus(left[i * row + l * column].times(right[l * right_row + j])));
                    }
                    assert_eq!(out, expected, "{m} by {n} of {k}");
                }
            }
        }
    }
}

#[test]
fn products_are_sums_of_products() {
    check(f32::from);
    check(f64::from);
    check(i64::from);
}

#[test]
fn what_lies_in_the_result_does_not_matter_unless_added_to() {
    let (left, right) = ([1.0f32, 2.0], [3.0f32; 34]);
    let mut out = [f32::NAN; 17];
    let (left, right) =
        (Left { elements: &left, row_stride: 2, column_stride: 1 }, Right { elements: &right, row_stride: 17 });
    product([1, 17, 2], left, right, Out { elements: &mut out, row_stride: 17, adds: false });
    assert_eq!(out, [9.0; 17]);
    product([1, 17, 2], left, right, Out { elements: &mut out, row_stride: 17, adds: true });
    assert_eq!(out, [18.0; 17]);
}

#[test]
fn a_column_is_the_same_in_any_block() {
    let wave = |len: usize, step: f32| (0..len).map(|i| (i as f32 * step).sin()).collect::<Vec<f32>>();
    let (left, right) = (wave(9 * 300, 0.37), wave(300 * 50, 0.71));
    let run = |rows: usize, first: usize, columns: usize| {
        let mut out = vec![0.0; rows * columns];
        let left = Left { elements: &left, row_stride: 300, column_stride: 1 };
        let right = Right { elements: &right[first..], row_stride: 50 };
        product([rows, columns, 300], left, right, Out { elements: &mut out, row_stride: columns, adds: false });
        out
    };
    let whole = run(9, 0, 50);
    for (first, columns) in [(0, 1), (3, 2), (7, 3), (1, 9), (16, 33)] {
        for (i, row) in run(4, first, columns).chunks(columns).enumerate() {
            assert_eq!(row, &whole[i * 50 + first..][..columns]);
        }
    }
}

#[test]
#[should_panic(expected = "columns <= self.elements.len()")]
fn operands_are_as_long_as_their_sizes() {
    let left = Left { elements: &[1.0f32; 4], row_stride: 2, column_stride: 1 };
    let right = Right { elements: &[1.0; 31], row_stride: 16 };
    product([2, 16, 2], left, right, Out { elements: &mut [0.0; 32], row_stride: 16, adds: false });
}
