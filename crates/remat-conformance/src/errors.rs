//! Programs that cannot run fail with the evaluator's message.

use remat_ir::{Array, DType, Jaxpr, Literal};

use crate::cases::Cases;
use crate::closeness::Closeness;
use crate::conform::Check;

fn zeros(dtype: DType, shape: &[usize]) -> Array {
    Array::full(Literal::from_f64(dtype, 0.0), shape.iter().copied())
}

pub(crate) fn errors_agree(cases: &mut Cases<'_>) {
    let one = "{ lambda ; a:f32[3]. let b:f32[3] = sin a in (b,) }";
    let programs: [(&str, Vec<Array>); 8] = [
        (one, vec![]),
        (one, vec![zeros(DType::F32, &[3]), zeros(DType::F32, &[3])]),
        (one, vec![zeros(DType::F32, &[4])]),
        (one, vec![zeros(DType::F64, &[3])]),
        (one, vec![zeros(DType::F32, &[1, 3])]),
        ("{ lambda ; . let  in () }", vec![zeros(DType::F32, &[])]),
        // Results that do not fit any memory.
        (
            "{ lambda ; a:f32[]. let b:f32[1048576,1048576,1048576] = broadcast_in_dim[shape=(1048576, 1048576, 1048576) \
             broadcast_dimensions=()] a in (b,) }",
            vec![zeros(DType::F32, &[])],
        ),
        (
            "{ lambda ; . let a:i32[1152921504606846975] = iota[dtype=int32 shape=(1152921504606846975,) dimension=0] in (a,) }",
            vec![],
        ),
    ];
    for (number, (text, args)) in programs.into_iter().enumerate() {
        cases.case(format!("program {number}"), |engine| {
            let jaxpr = Jaxpr::parse(text).map_err(|e| e.to_string())?;
            Check::new(jaxpr, args, Closeness::Exact).conform_or_fail(engine)
        });
    }
}
