//! `Jitted::update`: the state is donated, and what an error leaves of it.

use std::sync::Arc;

use remat::ir::{self, Array, Executable, Jaxpr, MemoryReport, MemoryStats};
use remat::{Checks, DType, Device, Error, ErrorKind, OverLimit, Result, Tensor, grad, jit};

/// A state of two tensors.
type State = (Tensor, Tensor);

fn start() -> State {
    (Tensor::arange(0..64).to_dtype(DType::F32), Tensor::zeros([64], DType::F32))
}

fn batch() -> Tensor {
    Tensor::linspace(-1.0, 1.0, 64, DType::F32)
}

/// Adds the batch, and counts.
fn add(((sum, count), batch): &(State, Tensor)) -> Result<(State, Tensor)> {
    Ok(((sum + batch, count + 1), batch.sum(..)))
}

fn values((sum, count): &State) -> [Vec<f32>; 2] {
    [sum.to_vec().unwrap(), count.to_vec().unwrap()]
}

fn address(x: &Tensor) -> *const f32 {
    x.array().unwrap().as_slice::<f32>().unwrap().as_ptr()
}

fn line(error: &Error) -> Option<u32> {
    error.loc().and_then(|loc| loc.site).map(|site| site.line())
}

#[test]
fn the_new_state_takes_the_memory_of_the_old_one() {
    let step = jit(add);
    let (mut state, batch) = (start(), batch());
    let before = [address(&state.0), address(&state.1)];
    let (mut called, mut result) = (start(), None);
    for _ in 0..3 {
        let sum = step.update(&mut state, &batch).unwrap();
        let next;
        (called, next) = step.call((called, batch.clone())).unwrap();
        assert_eq!(sum.item::<f32>().unwrap(), next.item::<f32>().unwrap());
        result = Some(next);
    }
    assert!(result.is_some());
    assert_eq!([address(&state.0), address(&state.1)], before);
    assert_eq!(values(&state), values(&called));

    // What another part of the program refers to is not overwritten.
    let kept = state.clone();
    let expected = values(&kept);
    step.update(&mut state, &batch).unwrap();
    assert_eq!(values(&kept), expected);
    assert_ne!(values(&state), expected);
}

#[test]
fn an_error_in_the_function_leaves_the_state() {
    let step = jit(add);
    let mut state = start();
    let expected = values(&state);
    let error = step.update(&mut state, &Tensor::zeros([3], DType::F32)).unwrap_err();
    assert_eq!(error.message(), "f32[64] and f32[3] do not broadcast: dimension -1 has size 64 and 3");
    assert_eq!(values(&state), expected);
    // It goes on with a batch that fits, in place.
    let before = address(&state.0);
    step.update(&mut state, &batch()).unwrap();
    assert_eq!((address(&state.0), values(&state)[1][0]), (before, 1.0));

    let failed = &batch() + &Tensor::zeros([3], DType::F32);
    step.update(&mut state, &failed).unwrap_err();
    assert_eq!(values(&state)[1][0], 1.0);
}

#[test]
fn a_batch_without_elements_leaves_the_state() {
    let step = jit(add);
    let mut state = start();
    let (expected, before) = (values(&state), address(&state.0));
    let line_of_call = line!() + 1;
    let error = step.update(&mut state, &Tensor::shape_only([64], DType::F32)).unwrap_err();
    assert_eq!((error.kind(), line(&error)), (ErrorKind::Traced, Some(line_of_call)));
    assert_eq!((values(&state), address(&state.0)), (expected, before));
}

#[test]
fn a_memory_limit_leaves_the_state() {
    let mut state = start();
    let (expected, before) = (values(&state), address(&state.0));
    let step = jit(add).memory_limit(100).over_limit(OverLimit::Refuse);
    let line_of_call = line!() + 1;
    let error = step.update(&mut state, &batch()).unwrap_err();
    assert_eq!((error.kind(), line(&error)), (ErrorKind::Memory, Some(line_of_call)));
    assert_eq!((values(&state), address(&state.0)), (expected.clone(), before));

    // Enough for a state that is donated, and not for one that somebody keeps.
    let memory = jit(add).memory(&(start(), batch())).unwrap();
    assert!(memory.donated_peak < memory.peak, "{memory}");
    let step = jit(add).memory_limit(memory.peak - 1).over_limit(OverLimit::Refuse);
    let kept = state.clone();
    let error = step.update(&mut state, &batch()).unwrap_err();
    assert_eq!((error.kind(), values(&state)), (ErrorKind::Memory, expected));
    drop(kept);
    step.update(&mut state, &batch()).unwrap();
    assert_eq!((address(&state.0), values(&state)[1][0]), (before, 1.0));
}

/// Within a limit a program is compiled for what a call donates. A later call that donates more is computed in place all the same.
#[test]
fn a_state_that_was_kept_once_is_overwritten_later() {
    let step = jit(add).memory_limit(1 << 20);
    let mut state = start();
    let kept = state.clone();
    step.update(&mut state, &batch()).unwrap();
    drop(kept);
    let before = [address(&state.0), address(&state.1)];
    step.update(&mut state, &batch()).unwrap();
    assert_eq!(([address(&state.0), address(&state.1)], values(&state)[1][0]), (before, 2.0));
}

/// A device on which every run fails.
struct Failing;

struct Program(Arc<Jaxpr>);

impl ir::Device for Failing {
    fn name(&self) -> &str {
        "failing:0"
    }

    fn compile(&self, jaxpr: &Arc<Jaxpr>) -> Result<Arc<dyn Executable>> {
        Ok(Arc::new(Program(jaxpr.clone())))
    }
}

impl Executable for Program {
    fn run(&self, args: Vec<Array>) -> Result<Vec<Array>> {
        let message = format!("{} of {} arguments are overwritten", args.len() - 1, self.0.ins.len());
        Err(Error::new(ErrorKind::Internal, "run", message))
    }

    fn memory(&self) -> MemoryStats {
        MemoryStats::default()
    }

    fn memory_report(&self) -> MemoryReport {
        MemoryReport::new(self.memory(), Vec::new())
    }
}

#[test]
fn a_run_that_fails_loses_the_state_and_says_so() {
    let step = jit(add).on(Device::new(Failing));
    let mut state = start();
    let line_of_call = line!() + 1;
    let error = step.update(&mut state, &batch()).unwrap_err();
    assert_eq!((error.message(), line(&error)), ("2 of 3 arguments are overwritten", Some(line_of_call)));
    let message = "the state is lost: a run that failed (run: 2 of 3 arguments are overwritten) may have overwritten it; \
                   create it anew, or load it";
    let uses = [
        state.0.to_vec::<f32>().unwrap_err(),
        (&state.1 + 1).item::<f32>().unwrap_err(),
        jit(add).update(&mut state, &batch()).unwrap_err(),
        step.update(&mut state, &batch()).unwrap_err(),
    ];
    for error in uses {
        assert_eq!((error.message(), error.kind(), line(&error)), (message, ErrorKind::Internal, Some(line_of_call)));
    }
    // A new state goes on.
    state = start();
    jit(add).update(&mut state, &batch()).unwrap();
    assert_eq!(values(&state)[1][0], 1.0);
}

#[test]
fn checks_keep_the_state() {
    let step = jit(|((sum, count), x): &(State, Tensor)| ((sum + x.log(), count + 1), ())).checks(Checks::NANS);
    let mut state = start();
    step.update(&mut state, &Tensor::ones([64], DType::F32)).unwrap();
    let expected = values(&state);
    let error = step.update(&mut state, &batch()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Value);
    assert_eq!(values(&state), expected);
}

#[test]
fn it_is_an_equation_of_an_open_trace() {
    let step = jit(|(sum, x): &(Tensor, Tensor)| (sum * x, ()));
    let power = |x: &Tensor| -> Result<Tensor> {
        let mut product = Tensor::from(1.0f32);
        for _ in 0..3 {
            step.update(&mut product, x)?;
        }
        Ok(product)
    };
    assert_eq!(grad(power)(&Tensor::from(2.0f32)).unwrap().item::<f32>().unwrap(), 12.0);
}

#[test]
fn options_that_change_forget_programs() {
    let step = jit(add);
    let mut state = start();
    step.update(&mut state, &batch()).unwrap();
    assert_eq!(step.cache_size(), 1);
    let step = step.on(Device::new(Failing));
    assert_eq!(step.cache_size(), 0);
    assert_eq!(step.update(&mut state, &batch()).unwrap_err().operation(), "run");
}
