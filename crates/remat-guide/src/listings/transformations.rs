//! The transformations and their composition.

use remat::{
    BatchAxes, DType, Result, Tensor, Tree, VmapOptions, grad, hessian, jit, jvp, make_jaxpr, scan, value_and_grad,
    value_and_grad_aux, vjp, vmap, vmap_with,
};

// ANCHOR: model
#[derive(Clone, Tree)]
struct Line {
    w: Tensor,
    b: Tensor,
}

/// The mean squared error of a linear model.
fn loss(line: &Line, x: &Tensor, y: &Tensor) -> Tensor {
    (x.matmul(&line.w) + &line.b - y).square().mean(..)
}
// ANCHOR_END: model

pub(crate) fn main() -> Result<()> {
    println!("== grad");
    // ANCHOR: grad
    let x = Tensor::new([[1.0f64, 0.0], [0.0, 1.0], [1.0, 1.0]]);
    let y = Tensor::new([1.0f64, 2.0, 3.0]);
    let line = Line { w: Tensor::zeros([2], DType::F64), b: Tensor::from(0.0f64) };
    // The closure captures the data, which is constant for the derivative.
    let f = |line: &Line| loss(line, &x, &y);

    let (value, gradient) = value_and_grad(f)(&line)?;
    println!("loss {:.4}, gradient {} and {}", value.item::<f64>()?, gradient.w, gradient.b);
    // ANCHOR_END: grad

    println!("== aux");
    // ANCHOR: aux
    let with_errors = |line: &Line| {
        let errors = x.matmul(&line.w) + &line.b - &y;
        (errors.square().mean(..), errors)
    };
    let ((_, errors), _) = value_and_grad_aux(with_errors)(&line)?;
    println!("errors {errors}");
    // ANCHOR_END: aux

    println!("== modes");
    // ANCHOR: modes
    let polar = |(r, phi): &(Tensor, Tensor)| (r * phi.cos(), r * phi.sin());
    let at = (Tensor::from(2.0f64), Tensor::from(0.0f64));
    let (zero, one) = (Tensor::from(0.0f64), Tensor::from(1.0f64));

    // Forward: how both results change with the angle.
    let (point, tangent) = jvp(polar, &at, &(zero.clone(), one.clone()))?;
    println!("({}, {}) moves by ({}, {})", point.0, point.1, tangent.0, tangent.1);
    // Reverse: how the second result changes with both arguments.
    let (_, pullback) = vjp(polar, &at)?;
    let (dr, dphi) = pullback.call(&(zero, one))?;
    println!("by radius {dr}, by angle {dphi}");
    // ANCHOR_END: modes

    println!("== vmap");
    // ANCHOR: vmap
    // One point, one centre: no axis for examples.
    let distance = |(a, b): &(Tensor, Tensor)| (a - b).norm(..);
    let points = Tensor::new([[0.0f64, 3.0, 6.0], [0.0, 4.0, 8.0]]);
    let centre = Tensor::new([0.0f64, 0.0]);

    // Examples are axis 1 of the points; all share the centre.
    let columns = VmapOptions { in_axes: BatchAxes::PerLeaf(vec![Some(1), None]), ..VmapOptions::default() };
    println!("{}", vmap_with(&columns, distance)(&(points.clone(), centre))?);

    // A vmap in a vmap: each point with each. What a closure captures is shared.
    let points = points.t();
    let to_all = |a: &Tensor| vmap(|b: &Tensor| distance(&(a.clone(), b.clone())))(&points);
    println!("{}", vmap(to_all)(&points)?);
    // ANCHOR_END: vmap

    println!("== each");
    // ANCHOR: each
    let of_one = |(x, y): &(Tensor, Tensor)| grad(|line: &Line| loss(line, x, y))(&line);
    let each = vmap(of_one)(&(x.clone(), y.clone()))?;
    println!("gradients of w: {}", each.w);
    // Their mean is the gradient of the mean.
    assert!(each.w.mean(0).allclose(&gradient.w, 1e-12, 0.0)?);
    // ANCHOR_END: each

    println!("== scan");
    // ANCHOR: scan
    // Ten steps of gradient descent. The carry is the model; the losses of all steps are stacked.
    let train = |rate: &Tensor| {
        let step = |line: &Line, _: &Tensor| -> Result<(Line, Tensor)> {
            let (loss, g) = value_and_grad(f)(line)?;
            Ok((Line { w: &line.w - g.w * rate, b: &line.b - g.b * rate }, loss))
        };
        scan(step, &line, &Tensor::arange(0..10))
    };
    let (trained, losses) = train(&Tensor::from(0.3f64))?;
    let [first, last, after] = [losses.index(0), losses.index(-1), f(&trained)].map(|loss| loss.item::<f64>());
    println!("loss {:.4} to {:.4}, then {:.4}", first?, last?, after?);
    // ANCHOR_END: scan

    println!("== compose");
    // ANCHOR: compose
    // The derivative of the last loss with respect to the learning rate, for three rates at once, compiled.
    let last_loss = |rate: &Tensor| Ok(f(&train(rate)?.0));
    let rates = Tensor::new([0.03f64, 0.1, 0.3]);
    let (losses, slopes) = jit(vmap(value_and_grad(last_loss))).call(rates)?;
    println!("losses {losses}\nslopes {slopes}");
    // ANCHOR_END: compose

    println!("== hessian");
    // ANCHOR: hessian
    let of_w = |w: &Tensor| f(&Line { w: w.clone(), b: line.b.clone() });
    let v = Tensor::new([1.0f64, 0.0]);
    // Forward over reverse. No matrix is made.
    let (_, product) = jvp(grad(of_w), &line.w, &v)?;
    println!("Hessian times v: {product}");
    assert!(product.allclose(&hessian(of_w)(&line.w)?.matmul(&v), 1e-12, 0.0)?);
    // ANCHOR_END: hessian

    println!("== jit");
    // ANCHOR: jit
    let step = jit(|(line, x, y): &(Line, Tensor, Tensor)| grad(|line: &Line| loss(line, x, y))(line));
    for rows in [3, 3, 2] {
        step.call((line.clone(), x.index(..rows), y.index(..rows)))?;
        println!("{rows} rows: {} compiled", step.cache_size());
    }
    // ANCHOR_END: jit

    println!("== jaxpr");
    // ANCHOR: jaxpr
    println!("{}", make_jaxpr(grad(|x: &Tensor| x.sin() * x))(&Tensor::from(2.0f64))?.jaxpr);
    // ANCHOR_END: jaxpr
    Ok(())
}
