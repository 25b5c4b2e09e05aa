//! Files of plans, which lock how a program runs.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Result, bail};
use remat::Plan;
use remat::report::readable_bytes;
use remat_command::command;

/// The flags of the file of a plan.
#[derive(clap::Args, Default)]
pub(crate) struct Lock {
    /// The file of the plan: if it is there, the step runs as it says; if it is not, or is not a plan of this program, version, device and
    /// number of threads, or needs too much, the plan is made and written
    #[arg(long = "plan", value_name = "FILE")]
    file: Option<PathBuf>,
    /// Fail where the plan of --plan cannot be used, instead of making another
    #[arg(long, requires = "file")]
    locked: bool,
}

impl Lock {
    /// Whether there is a file to read or to write.
    pub(crate) fn is_given(&self) -> bool {
        self.file.is_some()
    }

    /// The plan of the file for a program, if it fits; a note says why it cannot be used. `None` without a file.
    ///
    /// # Errors
    /// With --locked, if it cannot be used; if the output cannot be written.
    pub(crate) fn read(
        &self,
        free: &Plan,
        fits: impl FnOnce(&Plan) -> Result<bool>,
        out: &mut impl Write,
    ) -> Result<Option<Plan>> {
        let Some(file) = &self.file else { return Ok(None) };
        let shown = file.display();
        let problem = match free.load(file) {
            Ok(plan) if fits(&plan)? => return Ok(Some(plan)),
            Ok(plan) => {
                format!("`{shown}` is a plan that needs {}, which is too much now", readable_bytes(plan.peak()))
            }
            // There is nothing to say about a file that is written for the first time.
            Err(_) if !self.locked && !file.exists() => return Ok(None),
            Err(error) => error.message().to_string(),
        };
        if self.locked {
            bail!("{problem}, and --locked makes no other");
        }
        command::note(out, &format!("{problem}; it is planned again"))?;
        Ok(None)
    }

    /// Writes a plan, if there is a file for it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn write(&self, plan: &Plan) -> Result<()> {
        if let Some(file) = &self.file {
            plan.save(file)?;
        }
        Ok(())
    }
}
