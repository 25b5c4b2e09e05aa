use remat_ir::{Array, Threefry2x32, eval_op};

use super::{error, vec1};

fn threefry(k0: Array, k1: Array, x0: Array, x1: Array) -> [Vec<u32>; 2] {
    let outs = eval_op(&Threefry2x32.into(), &[k0, k1, x0, x1]).unwrap();
    [0, 1].map(|i| outs[i].as_slice::<u32>().unwrap().to_vec())
}

/// Known answers of Random123, `kat_vectors`.
#[test]
fn known_answers() {
    let word = Array::scalar::<u32>;
    assert_eq!(threefry(word(0), word(0), word(0), word(0)), [[0x6b20_0159], [0x99ba_4efe]]);
    let ones = || word(u32::MAX);
    assert_eq!(threefry(ones(), ones(), ones(), ones()), [[0x1cb9_96fc], [0xbb00_2be7]]);
    let (k0, k1, x0, x1) = (word(0x1319_8a2e), word(0x0370_7344), word(0x243f_6a88), word(0x85a3_08d3));
    assert_eq!(threefry(k0, k1, x0, x1), [[0xc492_3a9c], [0x483d_f7a0]]);
}

#[test]
fn keys_and_counters_may_be_arrays_or_scalars() {
    let word = Array::scalar::<u32>;
    let [a, b] = threefry(word(0), word(0), vec1(&[0u32, 5]), word(0));
    assert_eq!((a[0], b[0], a.len()), (0x6b20_0159, 0x99ba_4efe, 2));
    let all = threefry(vec1(&[u32::MAX, 0]), vec1(&[u32::MAX, 0]), vec1(&[u32::MAX, 0]), vec1(&[u32::MAX, 0]));
    assert_eq!(all, [[0x1cb9_96fc, 0x6b20_0159], [0xbb00_2be7, 0x99ba_4efe]]);
    assert_eq!(threefry(word(1), word(2), vec1::<u32>(&[]), vec1::<u32>(&[])), [vec![], vec![]]);
    assert_eq!(
        error(Threefry2x32, &[word(0), Array::scalar(0i32), word(0), word(0)]),
        "threefry2x32: takes u32, not i32[]; convert it with .to_dtype(DType::U32)"
    );
}
