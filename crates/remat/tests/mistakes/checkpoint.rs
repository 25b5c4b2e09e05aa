//! Policies that cannot be applied.

use remat::{Policy, Result, Tensor, checkpoint, grad, jit, scan};

fn one() -> Tensor {
    Tensor::from(1.0f32)
}

#[test]
fn names_that_no_value_has() {
    let layer = |x: &Tensor| x.sin().named("attention").cos().named("hidden");
    mistake!(
        checkpoint(Policy::names(["atention"]), layer)(&one()),
        "checkpoint: the policy Names(atention) mentions the name `atention`, which no value in the region has; \
         did you mean `attention`?",
        1,
        9
    );
    mistake!(
        checkpoint(Policy::names(["residual_stream"]), layer)(&one()),
        "checkpoint: the policy Names(residual_stream) mentions the name `residual_stream`, which no value in the \
         region has; the names are attention, hidden",
        1,
        9
    );
    mistake!(
        checkpoint(Policy::names(["hidden"]), |x: &Tensor| x.sin())(&one()),
        "checkpoint: the policy Names(hidden) mentions the name `hidden`, which no value in the region has; \
         no value in it has a name, which .named(\"hidden\") gives",
        1,
        9
    );
}

#[test]
fn a_name_both_saved_and_offloaded() {
    let layer = |x: &Tensor| x.sin().named("hidden");
    let policy = Policy::save_and_offload_names(["hidden"], ["hidden"]);
    mistake!(
        checkpoint(policy, layer)(&one()),
        "checkpoint: the policy SaveAndOffloadNames((hidden), (hidden), host) both saves and offloads `hidden`",
        1,
        9
    );
}

#[test]
fn in_the_middle_of_a_model() {
    let block = checkpoint(Policy::names(["hiden"]), |x: &Tensor| x.sin().named("hidden"));
    mistake!(
        grad(|x: &Tensor| block(x) * 2)(&one()),
        "checkpoint: the policy Names(hiden) mentions the name `hiden`, which no value in the region has; did you \
         mean `hidden`?",
        -1,
        17
    );
    mistake!(
        jit(|x: &Tensor| block(x) * 2).call(one()),
        "checkpoint: the policy Names(hiden) mentions the name `hiden`, which no value in the region has; did you \
         mean `hidden`?",
        -8,
        17
    );
    let body = |x: &Tensor, _: &Tensor| (block(x), ());
    mistake!(
        scan(body, &one(), &Tensor::arange(0..3)),
        "checkpoint: the policy Names(hiden) mentions the name `hiden`, which no value in the region has; did you \
         mean `hidden`?",
        -16,
        17
    );
}

#[test]
fn functions_that_return_a_result() {
    let block = checkpoint(Policy::names(["hiden"]), |x: &Tensor| -> Result<Tensor> { Ok(x.named("hidden")) });
    mistake!(
        block(&one()),
        "checkpoint: the policy Names(hiden) mentions the name `hiden`, which no value in the region has; did you \
         mean `hidden`?",
        -1,
        17
    );
    let read = checkpoint(Policy::Nothing, |x: &Tensor| -> Result<Tensor> { Ok(x * x.item::<f32>()?) });
    mistake!(
        read(&one()),
        "item: the value of a traced tensor (f32[]) is not known while its function is traced; return it from the \
         function, or compute with `select`, `cond` or `while_loop` instead",
        -1,
        86
    );
}
