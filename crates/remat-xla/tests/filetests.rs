//! Tests that are text files: a program and the module that it becomes.

use remat_ir::Result;
use remat_testkit::{Args, FileTests};
use remat_xla::{Attention, Options, Platform, Precision, stablehlo};

#[test]
fn programs_become_modules() {
    let module = |jaxpr: &remat_ir::Jaxpr, args: Args<'_>| -> Result<String> {
        let platform = match args.get::<String>("platform")?.as_deref() {
            Some("tpu") => Platform::Tpu,
            Some("gpu") => Platform::Gpu,
            _ => Platform::Cpu,
        };
        let name = args.get::<String>("name")?.unwrap_or_else(|| "main".to_string());
        let precision = if args.get::<bool>("fast")? == Some(true) { Precision::Default } else { Precision::Highest };
        let donates = args.get::<bool>("donates")? == Some(true);
        let is_fused = args.get::<bool>("cudnn")? == Some(true);
        let attention = if is_fused { Attention::Cudnn } else { Attention::Definition };
        stablehlo(jaxpr, &Options { name, platform, precision, donates, kept: Vec::new(), attention })
    };
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/filetests");
    FileTests::new().command("stablehlo", module).run(folder).unwrap_or_else(|report| panic!("{report}"));
}
