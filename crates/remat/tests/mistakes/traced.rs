//! Reading a traced value, branching on one, and tensors that leave their trace.

use std::cell::RefCell;

use remat::{DType, Result, Tensor, grad, jit, make_jaxpr, named_scope, vmap};

fn vector() -> Tensor {
    Tensor::zeros([3], DType::F32)
}

#[test]
fn reading_one() {
    let mean = jit(|x: &Tensor| -> Result<Tensor> {
        let n = x.sum(..).item::<f32>()?;
        Ok(x / n)
    });
    mistake!(
        mean.call(vector()),
        "item: the value of a traced tensor (f32[]) is not known while its function is traced; return it from the \
         function, or compute with `select`, `cond` or `while_loop` instead",
        -3,
        27
    );
    let gradient = grad(|x: &Tensor| -> Result<Tensor> { Ok(Tensor::from(x.to_vec::<f32>()?[0])) });
    mistake!(
        gradient(&vector()),
        "to_vec: the value of a traced tensor (f32[3]) is not known while its function is traced; return it from \
         the function, or compute with `select`, `cond` or `while_loop` instead",
        -1,
        76
    );
    let scoped = vmap(|x: &Tensor| named_scope("loss", || x.array().map(|_| x.clone())));
    mistake!(
        scoped(&vector()),
        "array: the value of a traced tensor (f32[]) is not known while its function is traced; return it from the \
         function, or compute with `select`, `cond` or `while_loop` instead",
        -1,
        61,
        "loss"
    );
    mistake!(
        make_jaxpr(|x: &Tensor| x.allclose(x, 0.0, 0.0).map(|_| ()))(&vector()),
        "allclose: the value of a traced tensor (f32[3]) is not known while its function is traced; return it from \
         the function, or compute with `select`, `cond` or `while_loop` instead",
        1,
        35
    );
}

#[test]
fn branching_on_one() {
    let relu = jit(|x: &Tensor| -> Result<Tensor> {
        if x.gt(0).item::<bool>()? {
            return Ok(x.clone());
        }
        Ok(x.zeros_like())
    });
    mistake!(
        relu.call(Tensor::from(1.0f32)),
        "item: the value of a traced tensor (bool[]) is not known while its function is traced; return it from the \
         function, or compute with `select`, `cond` or `while_loop` instead",
        -5,
        20
    );
}

#[test]
fn printing_one_is_no_mistake() {
    let printed = RefCell::new(String::new());
    jit(|x: &Tensor| {
        printed.replace(format!("{x} {x:?}"));
        x.clone()
    })
    .call(vector())
    .unwrap();
    assert_eq!(printed.into_inner(), "Traced<f32[3]> Traced<f32[3]>");
}

#[test]
fn a_stored_tensor() {
    let stored = RefCell::new(None);
    let made = line!() + 2;
    let f = jit(|x: &Tensor| {
        let hidden = named_scope("layer", || x.sin());
        stored.replace(Some(hidden.clone()));
        hidden
    });
    f.call(vector()).unwrap();
    let hidden = stored.take().unwrap();
    let escaped = |operation: &str| {
        format!(
            "{operation}: a tensor (f32[3]) is used after the function in which it was traced has ended; it was made \
             at {}:{made}:48 (layer). Return it from the function instead of storing it",
            file!()
        )
    };
    mistake!(&hidden + 1, &escaped("add"), 0, 14);
    mistake!(hidden.to_vec::<f32>(), &escaped("to_vec"), 0, 21);
    mistake!(jit(|x: &Tensor| x + &hidden).call(vector()), &escaped("add"), 0, 31);
    mistake!(jit(|_: &Tensor| hidden.clone()).call(vector()), &escaped("return"), 0, 14);
    mistake!(f.call(hidden.clone()), &escaped("jit"), 0, 16);
    mistake!(grad(|x: &Tensor| x.sum(..))(&hidden), &escaped("grad"), 0, 14);
    mistake!(vmap(|x: &Tensor| x * 2)(&hidden), &escaped("vmap"), 0, 14);
    mistake!(remat::jvp(|x: &Tensor| x.sin(), &hidden, &vector()), &escaped("jvp"), 0, 14);
    let add = |c: &Tensor, x: &Tensor| (c + x, ());
    mistake!(remat::scan(add, &Tensor::from(0.0f32), &hidden), &escaped("scan"), 0, 14);
    let (_, pullback) = remat::vjp(|x: &Tensor| x.sin(), &vector()).unwrap();
    mistake!(pullback.call(&hidden), &escaped("vjp"), -1, 25);
}

#[test]
fn a_tensor_of_an_open_trace_in_a_closed_program() {
    let outer = jit(|x: &Tensor| -> Result<Tensor> {
        make_jaxpr(|y: &Tensor| y + x)(&Tensor::from(1.0f32))?;
        Ok(x.clone())
    });
    mistake!(
        outer.call(vector()),
        "make_jaxpr: the function captures a tensor (f32[3]) of a function that is being traced; make it a part of \
         the argument",
        -3,
        9
    );
}

#[test]
fn a_compiled_program_in_a_trace() {
    let compiled = jit(|x: &Tensor| x * 2).lower(&vector()).unwrap().compile().unwrap();
    let outer = jit(|x: &Tensor| -> Result<Tensor> { Ok(compiled.call(vec![x.clone()])?.remove(0)) });
    mistake!(
        outer.call(vector()),
        "compiled: a compiled program cannot be called while a function is traced; call the jitted function",
        -1,
        66
    );
    mistake!(compiled.call(vec![]), "compiled: takes 1 leaf and got 0", 0, 23);
    mistake!(compiled.call(vec![Tensor::from(1.0f32)]), "compiled: leaf 0 is f32[] and must be f32[3]", 0, 23);
    mistake!(compiled.call(vec![vector(), vector()]), "compiled: takes 1 leaf and got 2", 0, 23);
}
