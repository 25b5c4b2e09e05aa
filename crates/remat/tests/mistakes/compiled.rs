//! Jitted functions: errors that are not looked at, failed arguments.

use remat::{DType, Result, Tensor, jit, named_scope};

fn vector(n: usize) -> Tensor {
    Tensor::zeros([n], DType::F32)
}

#[test]
fn an_unused_result_that_failed() {
    let f = jit(|x: &Tensor| {
        let _unused = x + vector(4);
        x * 2
    });
    mistake!(f.call(vector(3)), "add: f32[3] and f32[4] do not broadcast: dimension -1 has size 3 and 4", -3, 23);
}

#[test]
fn the_first_error_wins() {
    let f = jit(|x: &Tensor| -> Result<Tensor> {
        let hidden = named_scope("mlp", || named_scope("up", || x.matmul(&vector(4))));
        let out = hidden.reshape([7]) + x.sum(9);
        out.shape()?;
        Ok(out)
    });
    mistake!(f.call(vector(3)), "matmul: the inner sizes of f32[3] and f32[4] differ: 3 and 4", -5, 67, "mlp/up");
}

#[test]
fn an_error_that_a_chain_hands_on() {
    let (x, y) = (vector(3), vector(4));
    let z = (&x + &y).exp().sum(..) * 2;
    mistake!(z.item::<f32>(), "add: f32[3] and f32[4] do not broadcast: dimension -1 has size 3 and 4", -1, 13);
    mistake!(z.to_vec::<f32>(), "add: f32[3] and f32[4] do not broadcast: dimension -1 has size 3 and 4", -2, 13);
    mistake!(z.shape(), "add: f32[3] and f32[4] do not broadcast: dimension -1 has size 3 and 4", -3, 13);
    mistake!(
        jit(|x: &Tensor| x * 2).call(z.clone()),
        "add: f32[3] and f32[4] do not broadcast: dimension -1 has size 3 and 4",
        -4,
        13
    );
    mistake!(
        jit(|x: &Tensor| x * &z).call(x.clone()),
        "add: f32[3] and f32[4] do not broadcast: dimension -1 has size 3 and 4",
        -10,
        13
    );
}

#[test]
fn an_error_of_the_users_own() {
    let f = jit(|_: &Tensor| -> Result<Tensor> {
        Err(remat::Error::new(remat::ErrorKind::Argument, "model", "the depth is 0"))
    });
    mistake!(f.call(vector(3)), "model: the depth is 0", -3, 13);
}

#[test]
fn a_memory_limit_that_is_no_number_of_bytes() {
    let f = jit(|x: &Tensor| x * 2).memory_limit("4GB");
    let message = "memory_limit: '4GB' is not a number of bytes such as 500000, 512MiB or 1.5GiB";
    mistake!(f.call(vector(3)), message, -2, 37);
    mistake!(f.memory(&vector(3)).map(drop), message, -3, 37);
    mistake!(f.moves(&vector(3)).map(drop), message, -4, 37);
}
