//! Compiled programs.

use std::sync::Arc;

use remat_ir::{
    Array, Aval, Executable, LiveKind, LiveValue, Loc, MemoryReport, MemoryStats, Result, expect_arguments,
};

use crate::pjrt::{Buffer, Client, Loaded};

/// A compiled program.
pub(super) struct Compiled {
    pub(super) client: Arc<Client>,
    pub(super) loaded: Loaded,
    pub(super) ins: Vec<Aval>,
    pub(super) outs: Vec<Aval>,
    pub(super) memory: MemoryStats,
}

impl Executable for Compiled {
    fn run(&self, args: Vec<Array>) -> Result<Vec<Array>> {
        expect_arguments("xla", self.ins.iter(), args.iter().map(Array::aval))?;
        let args: Vec<Buffer> = args.iter().map(|arg| self.client.upload(arg, 0)).collect::<Result<_>>()?;
        self.loaded.run(&args)?.iter().map(Buffer::download).collect()
    }

    fn memory(&self) -> MemoryStats {
        self.memory
    }

    /// Plugins do not tell which temporaries are live at the peak: they are one value.
    fn memory_report(&self) -> MemoryReport {
        let value = |aval: &Aval, kind| LiveValue {
            bytes: aval.bytes(),
            aval: aval.clone(),
            kind,
            name: None,
            operation: None,
            loc: Loc::UNKNOWN,
        };
        let arguments = self.ins.iter().enumerate().map(|(i, aval)| value(aval, LiveKind::Argument(i)));
        let outputs = self.outs.iter().map(|aval| value(aval, LiveKind::Output));
        let temporaries = Aval::new(remat_ir::DType::U8, [self.memory.temporaries]);
        let temporaries = (self.memory.temporaries > 0).then(|| value(&temporaries, LiveKind::Temporary));
        MemoryReport::new(self.memory, arguments.chain(outputs).chain(temporaries).collect())
    }
}
