//! Notations of `einsum` that are malformed or do not fit.

use remat::{DType, Tensor, einsum};

#[test]
fn notations() {
    let (x, y) = (Tensor::zeros([2, 3], DType::F32), Tensor::zeros([4, 5], DType::F32));
    mistake!(
        einsum("ij,jk->ik", &[&x, &y]),
        "einsum: 'j' has size 3 in f32[2,3] and 4 in f32[4,5], in \"ij,jk->ik\"",
        1,
        9
    );
    mistake!(
        einsum("ij,jk->iz", &[&x, &x]),
        "einsum: 'j' has size 3 in f32[2,3] and 2 in f32[2,3], in \"ij,jk->iz\"",
        1,
        9
    );
    mistake!(einsum("ij->ix", &[&x]), "einsum: 'x' of the result is in no operand, in \"ij->ix\"", 0, 14);
    mistake!(
        einsum("ijk->ijk", &[&x]),
        "einsum: \"ijk\" has 3 letters and its operand is f32[2,3], in \"ijk->ijk\"",
        1,
        9
    );
    mistake!(einsum("ij,jk", &[&x]), "einsum: takes 2 operands and got 1, in \"ij,jk\"", 0, 14);
    mistake!(einsum("i1->i", &[&x]), "einsum: '1' is not a letter, in \"i1->i\"", 0, 14);
    mistake!(einsum("ij->ii", &[&x]), "einsum: 'i' occurs twice in the result, in \"ij->ii\"", 0, 14);
    mistake!(einsum("...j->j", &[&x]), "einsum: the result lacks the \"...\" of the operands, in \"...j->j\"", 0, 14);
    mistake!(einsum("ij", &[]), "einsum: takes 1 operand and got 0, in \"ij\"", 0, 14);
    mistake!(
        einsum("ijkl...->i", &[&x]),
        "einsum: \"ijkl...\" has 4 letters and its operand is f32[2,3], in \"ijkl...->i\"",
        1,
        9
    );
}
