//! Packed panels and micro-kernels against the sums that they stand for.

use remat_ir::bf16;

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
        unit.session().multiply(&left[..groups * GROUP], &right[..groups * GROUP], &mut sums, PANEL, before.is_some());
        sums
    };
    Unit::all(kind).into_iter().map(run).collect()
}

/// The bits of f32, those of a NaN as one and the same.
#[cfg(target_arch = "x86_64")]
fn float(bits: u32) -> u32 {
    if f32::from_bits(bits).is_nan() { f32::NAN.to_bits() } else { bits }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn the_matrix_unit_does_what_the_plain_function_does() {
    let Some(unit) = Unit::all(Kind::Bf16).into_iter().find(|unit| unit.has_tiles) else { return };
    let plain = Unit { kernel: plain::bf16, has_tiles: false };
    let mut bits = Bits(1);
    for round in 0..60 {
        // Numbers near one, whose sums cancel; of any size; and any bits.
        let mut word = || {
            let [a, b] = [0; 2].map(|_| match round % 3 {
                0 => bf16::from_f32((bits.next() as f32 / u32::MAX as f32) - 0.5).to_bits(),
                1 => (bits.next() >> 16) as u16 & 0xbfff | 0x2000,
                _ => (bits.next() >> 16) as u16,
            });
            u32::from(a) | u32::from(b) << 16
        };
        let groups = [0, 1, 3][round / 3 % 3];
        let [left, right] = [0; 2].map(|_| (0..groups * GROUP).map(|_| word()).collect::<Vec<u32>>());
        let before: Sums = std::array::from_fn(|_| word());
        for adds in [false, true] {
            let [mut got, mut expected] = [before; 2];
            unit.session().multiply(&left, &right, &mut got, PANEL, adds);
            plain.session().multiply(&left, &right, &mut expected, PANEL, adds);
            assert_eq!(got.map(float), expected.map(float), "round {round}");
        }
    }
}

#[test]
fn sums_of_exact_products_are_the_same_on_all_units() {
    let mut bits = Bits(2);
    for groups in [0, 1, 2, 5] {
        // Integers whose products and sums are exact.
        let mut word = || {
            let [a, b] = [0; 2].map(|_| u32::from(bf16::from_f32((bits.next() % 17) as f32 - 8.0).to_bits()));
            a | b << 16
        };
        let [left, right] = [0; 2].map(|_| (0..groups * GROUP).map(|_| word()).collect::<Vec<u32>>());
        let before: Sums = std::array::from_fn(|i| (i as f32).to_bits());
        for before in [None, Some(&before)] {
            let all = units(Kind::Bf16, groups, &left, &right, before);
            assert!(all.iter().all(|sums| sums == &all[0]));
        }
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

/// The element of a panel that is row `i` of the operand's side and number `j` along the contracted dimension.
fn element<N: Part>(panel: &[u32], side: Side, i: usize, j: usize) -> u32 {
    let (group, j) = (j / N::PER_GROUP, j % N::PER_GROUP);
    let (word, part) = (j / N::PER_WORD, j % N::PER_WORD);
    let at = if side == Side::Left { i % 16 * 16 + word } else { word * 16 + i % 16 };
    let word = panel[group * GROUP + i / 16 * TILE + at];
    word >> (part * N::BITS) & u32::MAX >> (32 - N::BITS)
}

fn check_packing<N: Part + std::fmt::Debug>(of: fn(u32) -> N) {
    for rows in [0, 1, 2, 15, 16, 17, 31, 32] {
        for depth in [0usize, 1, 2, 3, 5, 31, 32, 33, 63, 64, 65, 150] {
            let (wide, long) = (40, depth as isize + 3);
            for (free, contracted) in
                [(long, 1), (1, wide), (-long, 1), (1, -wide), (3, 3 * wide), (0, 1), (1, 0), (0, 0), (2, 1)]
            {
                let lowest = free.min(0) * (rows as isize - 1).max(0) + contracted.min(0) * (depth as isize - 1).max(0);
                let elements: Vec<N> = (0..40_000).map(|i| of(i * 7 + 1)).collect();
                let from = Strided { elements: &elements, start: 5 - lowest, free, contracted };
                for side in [Side::Left, Side::Right] {
                    let mut panel = vec![u32::MAX; depth.div_ceil(N::PER_GROUP) * GROUP];
                    pack(from, rows, depth, side, &mut panel);
                    for i in 0..PANEL {
                        for j in 0..depth.div_ceil(N::PER_GROUP) * N::PER_GROUP {
                            let at = from.start + i as isize * free + j as isize * contracted;
                            let expected = if i < rows && j < depth { elements[at as usize].bits() } else { 0 };
                            assert_eq!(
                                element::<N>(&panel, side, i, j),
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
    check_packing(|i| i as f32 / 3.0);
}

#[test]
#[should_panic(expected = "from.elements.len()")]
fn a_panel_is_packed_of_elements_of_the_operand() {
    let from = Strided { elements: &[1u16; 63], start: 0, free: 32, contracted: 1 };
    pack(from, 2, 32, Side::Left, &mut [0; GROUP]);
}
