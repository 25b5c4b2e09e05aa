//! The listings by name.

mod custom_rules;
mod devices;
mod hugging_face;
mod layers;
mod loops;
mod memory;
mod models;
mod optimizers;
mod pictures;
mod policies;
mod questions;
mod readme;
mod saving;
mod start;
mod text;
mod training;
mod transformations;
mod tutorial;
mod wrong_numbers;

use std::error::Error;

type Run = fn() -> Result<(), Box<dyn Error>>;

/// Each listing, and what runs it.
pub(crate) const ALL: &[(&str, Run)] = &[
    ("custom_rules", || Ok(custom_rules::main()?)),
    ("devices", || Ok(devices::main()?)),
    ("hugging_face", hugging_face::main),
    ("layers", || Ok(layers::main()?)),
    ("loops", || Ok(loops::main()?)),
    ("memory", || Ok(memory::main()?)),
    ("models", || Ok(models::main()?)),
    ("optimizers", optimizers::main),
    ("pictures", || Ok(pictures::main()?)),
    ("policies", || Ok(policies::main()?)),
    ("questions", || Ok(questions::main()?)),
    ("readme", || Ok(readme::main()?)),
    ("saving", saving::main),
    ("start", || Ok(start::main()?)),
    ("text", text::main),
    ("training", || Ok(training::main()?)),
    ("transformations", || Ok(transformations::main()?)),
    ("tutorial", || Ok(tutorial::main()?)),
    ("wrong_numbers", || Ok(wrong_numbers::main()?)),
];
