//! Operands of regions that are read again: in each order, inside and after the region, in loops; and random programs of this kind.
//!
//! Without the cures of `versions` in `remat-xla` and `extrema` in `remat-opt`, XLA:CPU is wrong in 9 of 41 cases, and in the first random
//! program. Nothing but the value and the updated arguments is a result: a buffer that is a result is never written over.

use remat::DType;

use crate::cases::Cases;
use crate::rereads::{EXTREMA, ORDERS, Program, Step};
use crate::search::program;
use crate::trial::{trial, ways};

/// The random programs that are run.
const RANDOM: u64 = 10;

/// The ways before those within a limit.
const WITHOUT_LIMIT: usize = 12;

/// The way in which every program is run: its regions save nothing, and its arguments are kept.
const FIRST: usize = 2;

pub(crate) fn operands_of_regions_are_read_again(cases: &mut Cases<'_>) {
    // After `first` the operand is value 2. It is read after a region, or inside it too.
    let after = |read: Step| vec![Step::Product(0, 1), Step::Region(2, 0, vec![Step::Unary(0, 1)]), read];
    let inside = |first: Step, read: &dyn Fn(usize) -> Step| {
        let inside = vec![Step::Unary(0, 1), read(1), Step::Binary(1, 4, 5)];
        vec![first, Step::Region(2, 0, inside), read(2)]
    };
    // In a loop it is value 4.
    let in_loop = |read: Step| {
        let body = vec![Step::Product(2, 3), Step::Region(4, 0, vec![Step::Unary(0, 1)]), read, Step::Binary(0, 5, 6)];
        vec![Step::Loop { carry: 0, xs: 1, length: 2, body }]
    };
    for order in 0..2 * ORDERS {
        let f32 = |steps| Ok(Program { dtype: DType::F32, size: 64, steps });
        let steps = inside(Step::Product(0, 1), &|x| Step::Order(order, x));
        conforms(cases, format!("order {order} inside a region"), order.into(), || f32(steps));
        if order >= ORDERS {
            let steps = after(Step::Order(order, 2));
            conforms(cases, format!("order {order} after a region"), order.into(), || f32(steps));
        }
        if order >= ORDERS && order.is_multiple_of(3) {
            let steps = in_loop(Step::Order(order, 4));
            conforms(cases, format!("order {order} in a loop"), order.into(), || f32(steps));
        }
    }
    for op in 0..EXTREMA {
        // Of what is cheap to compute twice.
        let steps = inside(Step::Unary(3, 0), &|x| Step::Extremum(op, x));
        conforms(cases, format!("extremum {op}"), op.into(), || Ok(Program { dtype: DType::F64, size: 64, steps }));
    }
}

pub(crate) fn random_programs_with_regions_agree(cases: &mut Cases<'_>) {
    for seed in 0..RANDOM {
        conforms(cases, format!("seed {seed}"), seed, || program(seed));
    }
}

/// A case that fails if the program is wrong in any way. The number chooses ways.
fn conforms(cases: &mut Cases<'_>, name: String, number: u64, program: impl FnOnce() -> Result<Program, String>) {
    cases.case(name, |engine| {
        let program = program()?;
        // Engines that compile slowly run it in two of the ways: behind a barrier of all operands, and one that the number tells.
        let is_slow = engine.together > 1;
        // Within a limit a plan is searched for, which takes long: every third program runs within one of the limits.
        let is_chosen = |way: usize| match (is_slow, way < WITHOUT_LIMIT) {
            (false, true) => true,
            (false, false) => number.is_multiple_of(3) && way as u64 % 4 == number % 4,
            (true, _) => way == FIRST || way as u64 == number % WITHOUT_LIMIT as u64,
        };
        let outcomes = trial(&*engine.device, &program, is_chosen)?;
        let wrong = outcomes.iter().find_map(|outcome| outcome.wrong.as_ref().map(|wrong| (outcome.way, wrong)));
        let message = |(way, wrong): (usize, &String)| {
            Err(format!("{}: {}: {wrong}\n{program:?}", engine.device.name(), ways()[way].name))
        };
        wrong.map_or(Ok(()), message)
    });
}
