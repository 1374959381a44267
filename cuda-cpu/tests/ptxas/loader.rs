//! The judgment of the loader.

use cuda_cpu::{Memory, Program};
use cuda_ptx::{Checker, parse};

use crate::place::{Case, TAIL};

/// Returns the reason why the loader refuses a case.
pub(crate) fn judge(Case { place, text }: &Case) -> Result<(), String> {
    let head = place.head();
    let line = head.lines().count() as u32 + 1;
    let module = parse(&format!("{head}{text}\n{TAIL}")).map_err(|error| error.to_string())?;
    let bodies = module.functions.iter().filter_map(|function| function.body.as_ref());
    let mut runs = true;
    for body in bodies {
        let checker = Checker::new(&module, body);
        for instruction in body.instructions.iter().filter(|own| own.line == line) {
            let checked = checker.check(instruction).map_err(|reason| reason.to_string())?;
            runs &= checked.row().runs();
        }
    }
    // No kernel calls the function.
    if runs || place.in_function {
        let memory = Memory::new(1 << 24);
        let program = Program::load(&module, &memory).map_err(|error| error.to_string())?;
        program.unload(&memory);
    }
    Ok(())
}
