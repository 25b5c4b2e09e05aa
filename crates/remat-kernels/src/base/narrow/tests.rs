//! Tests of packed panels and micro-kernels, against plain sums.

use remat_ir::{bf16, f16};

use super::*;

/// A stream of bits.
struct Bits(u64);

impl Bits {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }
}

fn units(kind: Kind, groups: usize, left: &[u32], right: &[u32], before: Option<&Sums>) -> Vec<Sums> {
    let run = |unit: Unit| {
        let mut sums = before.copied().unwrap_or([0x7fc0_0000; PANEL * PANEL]);
        let [left, right] = [(left, Side::Left), (right, Side::Right)].map(|(x, side)| &x[..groups * unit.group(side)]);
        unit.session().multiply(left, right, (&mut sums, PANEL), before.is_some(), None);
        sums
    };
    Unit::all(kind).into_iter().map(run).collect()
}

/// The bits of f32, with one pattern for every NaN.
#[cfg(target_arch = "x86_64")]
fn float(bits: u32) -> u32 {
    if f32::from_bits(bits).is_nan() { f32::NAN.to_bits() } else { bits }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn the_matrix_unit_does_what_the_plain_function_does() {
    for kind in [Kind::Bf16, Kind::F16, Kind::SplitF32, Kind::SplitF16] {
        the_unit_does_what_the_plain_function_does(kind);
    }
}

#[cfg(target_arch = "x86_64")]
fn the_unit_does_what_the_plain_function_does(kind: Kind) {
    let all = Unit::all(kind);
    let Some(unit) = all.iter().find(|unit| unit.tiles.is_some()) else { return };
    let Some(plain) = all.last() else { return };
    let mut bits = Bits(1);
    for round in 0..60 {
        // Numbers near one, whose sums cancel; numbers of any size; and any bits.
        let mut word = || {
            let [a, b] = [0; 2].map(|_| match round % 3 {
                0 => bf16::from_f32((bits.next() as f32 / u32::MAX as f32) - 0.5).to_bits(),
                1 => (bits.next() >> 16) as u16 & 0xbfff | 0x2000,
                _ => (bits.next() >> 16) as u16,
            });
            u32::from(a) | u32::from(b) << 16
        };
        let groups = [0, 1, 3][round / 3 % 3];
        let [left, right] =
            [Side::Left, Side::Right].map(|side| (0..groups * unit.group(side)).map(|_| word()).collect::<Vec<u32>>());
        let before: Sums = std::array::from_fn(|_| word());
        for adds in [false, true] {
            let [mut got, mut expected] = [before; 2];
            unit.session().multiply(&left, &right, (&mut got, PANEL), adds, None);
            plain.session().multiply(&left, &right, (&mut expected, PANEL), adds, None);
            assert_eq!(got.map(float), expected.map(float), "round {round}");
        }
    }
}

#[test]
fn sums_of_exact_products_are_the_same_on_all_units() {
    let mut bits = Bits(2);
    for groups in [0, 1, 2, 5] {
        // Integers whose products and sums are exact.
        for (kind, of) in [
            (Kind::Bf16, (|x| bf16::from_f32(x).to_bits()) as fn(f32) -> u16),
            (Kind::F16, |x| f16::from_f32(x).to_bits()),
            (Kind::SplitF16, |x| bf16::from_f32(x).to_bits()),
        ] {
            let mut word = || {
                let [a, b] = [0; 2].map(|_| u32::from(of((bits.next() % 17) as f32 - 8.0)));
                a | b << 16
            };
            let [l, r] = kind.planes();
            let [left, right] = [l, r].map(|n| (0..groups * n * GROUP).map(|_| word()).collect::<Vec<u32>>());
            let before: Sums = std::array::from_fn(|i| (i as f32).to_bits());
            for before in [None, Some(&before)] {
                let all = units(kind, groups, &left, &right, before);
                assert!(all.iter().all(|sums| sums == &all[0]), "{kind:?}");
            }
        }
    }
}

/// The sum, rounded to odd.
#[cfg(target_arch = "aarch64")]
fn sum_to_odd(x: f32, y: f32) -> f32 {
    let sum = x + y;
    // What the sum lacks, exactly (Knuth).
    let of_y = sum - x;
    let rest = (x - (sum - of_y)) + (y - of_y);
    match rest {
        0.0 => sum,
        _ if sum.to_bits() & 1 == 1 => sum,
        _ if rest > 0.0 => sum.next_up(),
        _ => sum.next_down(),
    }
}

#[test]
#[cfg(target_arch = "aarch64")]
fn the_dot_product_of_pairs_rounds_to_odd() {
    let Some(unit) = neon::unit(Kind::Bf16) else { return };
    let mut bits = Bits(6);
    // Of any sign and of sizes that differ, but far from those that are subnormal or infinite.
    let mut word = || [0; 2].map(|_| bits.next() >> 16 & 0x87ff | 0x3c00).into_iter().fold(0, |word, x| word << 16 | x);
    let [left, right] = [0; 2].map(|_| (0..2 * GROUP).map(|_| word()).collect::<Vec<u32>>());
    let mut sums = [0; PANEL * PANEL];
    unit.session().multiply(&left, &right, (&mut sums, PANEL), false, None);
    for (i, &sum) in sums.iter().enumerate() {
        let mut expected = 0.0;
        for word in 0..32 {
            let of = |panel, side, i, j| f32::from_bits(element::<u16>(panel, side, i, j) << 16);
            let [first, second] = [2 * word, 2 * word + 1]
                .map(|j| of(&left, Side::Left, i / PANEL, j) * of(&right, Side::Right, i % PANEL, j));
            expected = sum_to_odd(expected, sum_to_odd(first, second));
        }
        assert_eq!(f32::from_bits(sum), expected, "row {}, column {}", i / PANEL, i % PANEL);
    }
}

#[test]
fn sums_of_bytes_are_the_same_on_all_units() {
    let mut bits = Bits(3);
    for kind in [Kind::I8, Kind::U8] {
        for groups in [0, 1, 2, 5] {
            for extreme in [false, true] {
                let mut word = || {
                    if extreme { [0x8080_8080, 0x7f7f_7f7f, u32::MAX][bits.next() as usize % 3] } else { bits.next() }
                };
                let [left, right] = [0; 2].map(|_| (0..groups * GROUP).map(|_| word()).collect::<Vec<u32>>());
                let before: Sums = std::array::from_fn(|_| word());
                for before in [None, Some(&before)] {
                    let all = units(kind, groups, &left, &right, before);
                    assert!(all.iter().all(|sums| sums == &all[0]));
                }
            }
        }
    }
}

#[test]
fn rows_in_place_have_the_sums_of_packed_ones() {
    let mut bits = Bits(4);
    let near_one = |bits: u32| bf16::from_f32((bits as f32 / u32::MAX as f32) - 0.5).to_bits();
    for groups in [0, 1, 2, 9] {
        rows_in_place(Kind::Bf16, groups, || near_one(bits.next()));
        rows_in_place(Kind::F16, groups, || f16::from_f32(bits.next() as f32 / u32::MAX as f32 - 0.5).to_bits());
        for kind in [Kind::I8, Kind::U8] {
            rows_in_place(kind, groups, || bits.next() as u8);
        }
    }
}

/// Bit for bit, in the first 16 columns; the others are not written.
fn rows_in_place<N: Part>(kind: Kind, groups: usize, mut element: impl FnMut() -> N) {
    // Rows are a little farther apart than they are long.
    let (depth, stride) = (groups * N::PER_GROUP, groups * N::PER_GROUP + 3);
    let rows: Vec<N> = (0..PANEL * stride).map(|_| element()).collect();
    let columns: Vec<N> = (0..PANEL * depth).map(|_| element()).collect();
    let [mut left, mut right] = [0; 2].map(|_| vec![0; groups * GROUP]);
    let operand = |elements, free| Strided { elements, start: 0, free, contracted: 1 };
    pack(operand(&rows, stride as isize), PANEL, depth, Side::Left, &mut left, groups * GROUP);
    pack(operand(&columns, depth as isize), PANEL, depth, Side::Right, &mut right, groups * GROUP);
    let before: Sums = std::array::from_fn(|i| (i as f32).to_bits());
    for unit in Unit::all(kind).into_iter().filter(|unit| unit.reads_in_place()) {
        for adds in [false, true] {
            let [mut got, mut expected] = [before; 2];
            unit.session().multiply_in_place((&rows, stride), &right, &mut got, adds);
            unit.session().multiply(&left, &right, (&mut expected, PANEL), adds, None);
            for (i, (got, expected)) in got.chunks(PANEL).zip(expected.chunks(PANEL)).enumerate() {
                assert_eq!(got[..16], expected[..16], "{kind:?}, {groups} groups, row {i}");
                assert_eq!(got[16..], before[i * PANEL + 16..][..16], "{kind:?}, {groups} groups, row {i}");
            }
        }
    }
}

/// The bits of an element in a word.
trait Bit: Part + std::fmt::Debug {
    fn bits(self) -> u32;
}

impl Bit for u16 {
    fn bits(self) -> u32 {
        self.into()
    }
}

impl Bit for u8 {
    fn bits(self) -> u32 {
        self.into()
    }
}

/// The element of a panel in row `i` of the operand's side, at position `j` of the contracted axis.
fn element<N: Part>(panel: &[u32], side: Side, i: usize, j: usize) -> u32 {
    let (group, j) = (j / N::PER_GROUP, j % N::PER_GROUP);
    let (word, part) = (j / N::PER_WORD, j % N::PER_WORD);
    let at = if side == Side::Left { i % 16 * 16 + word } else { word * 16 + i % 16 };
    let word = panel[group * GROUP + i / 16 * TILE + at];
    let bits = 32 / N::PER_WORD;
    word >> (part * bits) & u32::MAX >> (32 - bits)
}

fn check_packing<N: Bit>(of: fn(u32) -> N) {
    let elements: Vec<N> = (0..100_000).map(|i| of(i * 7 + 1)).collect();
    for rows in [1usize, 16, 31, 33, 170] {
        for depth in [1usize, 3, 31, 64, 65, 100].into_iter().filter(|depth| rows < 170 || *depth == 65) {
            let (wide, long) = (190, depth as isize + 3);
            for (free, contracted) in
                [(long, 1), (1, wide), (-long, 1), (1, -wide), (3, 3 * wide), (0, 1), (1, 0), (0, 0), (2, 1)]
            {
                let lowest = free.min(0) * (rows as isize - 1).max(0) + contracted.min(0) * (depth as isize - 1).max(0);
                let from = Strided { elements: &elements, start: 5 - lowest, free, contracted };
                for side in [Side::Left, Side::Right] {
                    let len = depth.div_ceil(N::PER_GROUP) * GROUP + 64;
                    let mut panels = vec![u32::MAX; rows.div_ceil(PANEL) * len];
                    pack(from, rows, depth, side, &mut panels, len);
                    for i in 0..rows.next_multiple_of(PANEL) {
                        let panel = &panels[i / PANEL * len..][..len];
                        for j in 0..depth.div_ceil(N::PER_GROUP) * N::PER_GROUP {
                            let at = from.start + i as isize * free + j as isize * contracted;
                            let expected = if i < rows && j < depth { elements[at as usize].bits() } else { 0 };
                            assert_eq!(
                                element::<N>(panel, side, i % PANEL, j),
                                expected,
                                "{side:?} {free} {contracted}: {i} {j}"
                            );
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn elements_of_any_layout_are_packed() {
    check_packing(|i| i as u16);
    check_packing(|i| i as u8);
}

#[test]
#[should_panic(expected = "from.elements.len()")]
fn a_panel_is_packed_of_elements_of_the_operand() {
    let from = Strided { elements: &[1u16; 63], start: 0, free: 32, contracted: 1 };
    pack(from, 2, 32, Side::Left, &mut [0; GROUP], GROUP);
}

#[test]
#[should_panic(expected = "to.len()")]
fn panels_have_room() {
    let from = Strided { elements: &[1u16; 33 * 33], start: 0, free: 33, contracted: 1 };
    pack(from, 33, 33, Side::Left, &mut [0; 4 * GROUP - 1], 2 * GROUP);
}

/// Packs numbers, 40 rows of 50, of each side.
fn split_panels(x: &[f32], y: &[f32]) -> [Vec<u32>; 2] {
    [(x, Side::Left), (y, Side::Right)].map(|(x, side)| {
        let len = 4 * GROUP * SplitF32::planes(side);
        let mut panels = vec![u32::MAX; 2 * len];
        pack(Strided { elements: SplitF32::all(x), start: 0, free: 50, contracted: 1 }, 40, 50, side, &mut panels, len);
        panels
    })
}

#[test]
fn an_f32_is_the_sum_of_its_parts() {
    let mut bits = Bits(4);
    for _ in 0..10_000 {
        let x = f32::from_bits(bits.next() & 0xbfff_ffff | 0x2000_0000);
        let parts = split::split_f32(x).map(f32::from_bits);
        assert_eq!(parts[0] + (parts[1] + parts[2]), x);
        assert!(parts[1].abs() <= x.abs() / 256.0 && parts[2].abs() <= x.abs() / 65536.0, "{x} {parts:?}");
        assert!(parts.iter().all(|x| x.to_bits() & 0xffff == 0));
    }
    for x in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, f32::from_bits(0x7f80_0001)] {
        assert!(split::split_f32(x).into_iter().any(|part| f32::from_bits(part).is_nan()), "{x}");
    }
}

#[test]
fn an_f16_is_the_sum_of_its_parts() {
    for bits in 0..=u16::MAX {
        let (x, parts) = (f16::from_bits(bits).to_f32(), split::split_f16(bits.into()).map(f32::from_bits));
        assert!(parts.iter().all(|part| part.to_bits() & 0xffff == 0), "{x} {parts:?}");
        if x.is_nan() {
            assert!(parts.iter().all(|part| part.is_nan()), "{parts:?}");
        } else {
            assert_eq!(parts[0] + parts[1], x);
            let has_sign_of = |part: &f32| part.is_sign_negative() == x.is_sign_negative();
            assert!(parts.iter().all(|part| has_sign_of(part) && (*part == 0.0) == (x == 0.0)), "{x} {parts:?}");
        }
    }
}

/// Each element of the left operand by each of the right one, one product for each sum: exact, and infinite or NaN where the product is.
#[test]
fn products_of_split_f16_are_those_of_the_numbers() {
    let special = [0u16, 1, 0x8001, 0x3ff, 0x400, 0x3c00, 0xbc00, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0x8000];
    let mut bits = Bits(6);
    let numbers: [u16; PANEL] = std::array::from_fn(|i| special.get(i).copied().unwrap_or_else(|| bits.next() as u16));
    let [left, right] = [Side::Left, Side::Right].map(|side| {
        let mut panel = vec![u32::MAX; GROUP * SplitF16::planes(side)];
        let elements = SplitF16::all(&numbers);
        let len = panel.len();
        pack(Strided { elements, start: 0, free: 1, contracted: 1 }, PANEL, 1, side, &mut panel, len);
        panel
    });
    let numbers = numbers.map(|x| f16::from_bits(x).to_f32());
    for sums in units(Kind::SplitF16, 1, &left, &right, None) {
        for (i, x) in numbers.iter().enumerate() {
            for (j, y) in numbers.iter().enumerate() {
                let (got, product) = (f32::from_bits(sums[i * PANEL + j]), x * y);
                assert!(got == product || got.is_nan() && product.is_nan(), "{x} * {y}: {got}");
            }
        }
    }
}

#[test]
fn sums_of_split_numbers_are_closer_than_their_bound() {
    let mut bits = Bits(5);
    let mut number = || (bits.next() as f32 / u32::MAX as f32 - 0.5) * 2f32.powi((bits.next() % 20) as i32 - 10);
    let [x, y] = [0; 2].map(|_| (0..40 * 50).map(|_| number()).collect::<Vec<f32>>());
    let ([left, right], [right_first, left_second]) = (split_panels(&x, &y), split_panels(&y, &x));
    for unit in Unit::all(Kind::SplitF32) {
        let multiply = |left: &[u32], right: &[u32]| {
            let mut sums = [0u32; PANEL * PANEL];
            unit.session().multiply(
                &left[..left.len() / 2],
                &right[..right.len() / 2],
                (&mut sums, PANEL),
                false,
                None,
            );
            sums.map(f32::from_bits)
        };
        let (sums, exchanged) = (multiply(&left, &right), multiply(&right_first, &left_second));
        for i in 0..PANEL {
            for j in 0..PANEL {
                let terms =
                    x[50 * i..][..50].iter().zip(&y[50 * j..][..50]).map(|(&x, &y)| f64::from(x) * f64::from(y));
                let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), x| (sum + x, size + x.abs()));
                let off = (f64::from(sums[PANEL * i + j]) - sum).abs();
                assert!(off <= size * 8.0 / f64::from(1 << 24), "{off} of {size}");
                assert_eq!(sums[PANEL * i + j].to_bits(), exchanged[PANEL * j + i].to_bits());
            }
        }
    }
}
