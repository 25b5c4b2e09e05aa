//! JAX's tutorial on gradient checkpointing.

use remat::report::{policy_decisions, print_fwd_bwd, print_saved_residuals};
use remat::{DType, Policy, Result, Tensor, Tree, checkpoint, grad};

// ANCHOR: f
#[derive(Clone, Tree)]
struct Args {
    w1: Tensor,
    w2: Tensor,
    w3: Tensor,
    x: Tensor,
}

fn g((w, x): &(Tensor, Tensor)) -> Tensor {
    w.matmul(x).sin()
}

fn f(a: &Args) -> Tensor {
    let x = g(&(a.w1.clone(), a.x.clone()));
    let x = g(&(a.w2.clone(), x));
    g(&(a.w3.clone(), x))
}
// ANCHOR_END: f

// ANCHOR: f4
fn f4(a: &Args) -> Tensor {
    let x = g(&(a.w1.clone(), a.x.clone())).named("a");
    let x = g(&(a.w2.clone(), x)).named("b");
    g(&(a.w3.clone(), x)).named("c")
}
// ANCHOR_END: f4

// ANCHOR: recursive
type Function = fn(&Tensor) -> Tensor;

fn chain<'f>(fs: &'f [Function]) -> impl Fn(&Tensor) -> Tensor + 'f {
    move |x| fs.iter().fold(x.clone(), |x, f| f(&x))
}

fn recursive<'f>(fs: &'f [Function]) -> Box<dyn Fn(&Tensor) -> Tensor + 'f> {
    if fs.len() <= 2 {
        return Box::new(chain(fs));
    }
    let (first, second) = fs.split_at(fs.len() / 2);
    let (first, second) = (checkpoint(Policy::Nothing, recursive(first)), recursive(second));
    Box::new(move |x| second(&first(x)))
}
// ANCHOR_END: recursive

pub(crate) fn main() -> Result<()> {
    println!("== f");
    // ANCHOR: print
    let ones = |shape: &[usize]| Tensor::ones(shape, DType::F32);
    let args = Args { w1: ones(&[5, 4]), w2: ones(&[6, 5]), w3: ones(&[7, 6]), x: ones(&[4]) };
    print_saved_residuals(f, &args)?;
    // ANCHOR_END: print

    println!("== f2");
    // ANCHOR: f2
    let g = checkpoint(Policy::Nothing, g);
    let f2 = |a: &Args| {
        let x = g(&(a.w1.clone(), a.x.clone()));
        let x = g(&(a.w2.clone(), x));
        g(&(a.w3.clone(), x))
    };
    print_saved_residuals(f2, &args)?;
    // ANCHOR_END: f2

    println!("== f3");
    // ANCHOR: f3
    let f3 = checkpoint(Policy::DotsWithNoBatchDims, f);
    print_saved_residuals(&f3, &args)?;
    // ANCHOR_END: f3

    println!("== f4");
    // ANCHOR: names
    let kept_a = checkpoint(Policy::names(["a"]), f4);
    print_saved_residuals(&kept_a, &args)?;
    // ANCHOR_END: names

    println!("== typo");
    // ANCHOR: typo
    let mistyped = checkpoint(Policy::names(["aa"]), f4);
    let error = grad(|args: &Args| mistyped(args).sum(..))(&args).err();
    println!("{}", error.expect("no value has this name"));
    // ANCHOR_END: typo

    println!("== programs");
    // ANCHOR: programs
    print_fwd_bwd(&kept_a, &args)?;
    // ANCHOR_END: programs

    println!("== decisions");
    // ANCHOR: decisions
    print!("{}", policy_decisions(&kept_a, &args)?);
    // ANCHOR_END: decisions

    println!("== recursive");
    // ANCHOR: sines
    let sines: [Function; 8] = [|x: &Tensor| x.sin(); 8];
    println!("one after the other:");
    print_saved_residuals(chain(&sines), &Tensor::from(3.0f32))?;
    println!("by recursion:");
    print_saved_residuals(recursive(&sines), &Tensor::from(3.0f32))?;
    // ANCHOR_END: sines
    Ok(())
}
