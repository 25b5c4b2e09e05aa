//! Making tensors of the wrong number of elements, of ragged values, of numbers that do not exist.

use remat::{DType, Tensor, random};

#[test]
fn elements_and_shapes() {
    mistake!(Tensor::from_slice(&[1.0f32, 2.0, 3.0], [2, 2]), "from_slice: 3 elements cannot fill f32[2,2]", 0, 14);
    mistake!(Tensor::from_vec(vec![1u8], [0]), "from_vec: 1 element cannot fill u8[0]", 0, 14);
    mistake!(
        Tensor::new(vec![vec![10, 20], vec![30]]),
        "new: element 0 has shape [2] and element 1 has shape [1]",
        1,
        9
    );
    mistake!(
        Tensor::from(vec![vec![10, 20], vec![30]]),
        "new: element 0 has shape [2] and element 1 has shape [1]",
        1,
        9
    );
    mistake!(Tensor::zeros([-1, 2], DType::F32), "zeros: the size -1 is negative", 0, 14);
}

#[test]
fn ranges() {
    mistake!(Tensor::arange_step(0, 5, 0), "arange_step: the step is 0", 0, 14);
    mistake!(Tensor::arange_step(0.0, 1.0, f32::NAN), "arange_step: start, end and step must be finite", 0, 14);
    mistake!(Tensor::linspace(0.0, 1.0, 5, DType::I32), "linspace: takes a float dtype and got i32", 0, 14);
}

#[test]
fn random_numbers() {
    mistake!(
        random::uniform(random::key(0), [2], DType::I32, 0.0..1.0),
        "random::uniform: draws floats, not i32; `randint` draws integers",
        1,
        9
    );
    mistake!(
        random::uniform(random::key(0), [-2], DType::F32, 0.0..1.0),
        "random::uniform: the size -2 is negative",
        1,
        9
    );
    let low = Tensor::zeros([3], DType::F32);
    mistake!(
        random::uniform(random::key(0), [2], DType::F32, &low..&low),
        "random::uniform: f32[3] does not broadcast to f32[2]",
        1,
        9
    );
    mistake!(
        random::randint(random::key(0), [2], DType::F32, 0..9),
        "random::randint: draws integers, not f32; `uniform` draws floats",
        1,
        9
    );
    mistake!(
        random::randint(random::key(0), [2], DType::I32, 0.5..9.5),
        "random::randint: takes integer bounds, not 0.5; convert it with .to_dtype(DType::I32)",
        1,
        9
    );
    mistake!(
        random::bits(random::key(0), [2], DType::I32),
        "random::bits: bits are unsigned integers, not i32; take DType::U32",
        1,
        9
    );
    mistake!(
        random::normal(random::key(0).split_batch(3), [2], DType::F32),
        "random::normal: takes one key, of type u32[2], and got u32[3,2]; map over stacked keys with `vmap`, or \
         make them with `split`",
        1,
        9
    );
    mistake!(
        random::categorical(random::key(0), [2], &low, 1),
        "random::categorical: axis 1 is out of range for f32[3], which has 1 dimension",
        1,
        9
    );
    let options = random::Choice { without_replacement: true, ..random::Choice::default() };
    mistake!(
        random::choice(random::key(0), [5], 3, &options),
        "random::choice: 3 elements do not suffice for 5 draws without replacement",
        1,
        9
    );
    mistake!(
        random::choice(random::key(0), [5], 0, &random::Choice::default()),
        "random::choice: 0 elements do not suffice for 5 draws",
        1,
        9
    );
    mistake!(random::key(0).fold_in(0.5).data().clone(), "random::fold_in: takes an integer and got 0.5", 0, 29);
}
