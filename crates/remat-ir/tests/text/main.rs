//! Tests of the text form and of the checker.

mod check;
mod control;
mod params;
mod parse;
mod print;

use remat_ir::{Error, Jaxpr, PrintOptions};
use remat_testkit::FileTests;

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

#[test]
fn filetests() {
    let tests = FileTests::new()
        .command("print", |jaxpr, args| {
            let default = PrintOptions::default();
            let options = PrintOptions {
                width: args.get("width")?.unwrap_or(default.width),
                locations: args.has("locations"),
                num_consts: args.get("consts")?.unwrap_or(0),
            };
            let text = jaxpr.display(options).to_string();
            let (again, num_consts) = Jaxpr::parse_closed(&text)?;
            assert_eq!(num_consts, options.num_consts);
            assert_eq!(again.display(options).to_string(), text, "what prints also parses");
            remat_ir::check(&again)?;
            Ok(text)
        })
        .unchecked_command("check", |jaxpr, _| match remat_ir::check(jaxpr) {
            Ok(()) => Ok("no faults".to_string()),
            Err(faults) => Ok(faults.to_string()),
        });
    if let Err(report) = tests.run(format!("{CRATE}/tests/filetests")) {
        panic!("{report}");
    }
}

/// The program of this text.
fn program(text: &str) -> Jaxpr {
    Jaxpr::parse(text).unwrap_or_else(|e: Error| panic!("{e}\n{text}"))
}
