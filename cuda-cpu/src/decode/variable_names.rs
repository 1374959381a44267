//! Names and addresses of variables, for faults.

use cuda_ptx::{Module, Space, Variable};
use rustc_hash::FxHashSet;

use super::layout::{Layout, functions, shared_users, variables_of};
use crate::{
    fault::FaultSpace,
    machine::variable_names::{NamedVariable, VariableNames},
};

/// Returns all variables of global, constant and shared memory that reachable functions may name.
pub(crate) fn variable_names(
    module: &Module,
    reachable: &FxHashSet<u32>,
    layout: &Layout,
) -> VariableNames {
    let users = shared_users(module, reachable);
    let mut all = Vec::new();
    for (i, variable) in (0..).zip(&module.variables) {
        let only_user = users.get(&i).copied().flatten();
        all.extend(named(variable, layout.module_address(i), only_user));
    }
    let unsized_one = module.variables.iter().find(|v| is_dynamic(v));
    for (index, function) in functions(module, reachable) {
        let own = function.is_entry.then_some(index);
        for (i, variable) in variables_of(function) {
            let address = layout.body_address(index, i);
            all.extend(named(variable, address, own));
            if is_dynamic(variable) && function.is_entry {
                all.push(dynamic(variable, layout, index));
            }
        }
        if let Some(variable) = unsized_one.filter(|_| function.is_entry) {
            all.push(dynamic(variable, layout, index));
        }
    }
    VariableNames(all)
}

fn named(variable: &Variable, address: Option<u64>, user: Option<u32>) -> Option<NamedVariable> {
    let (space, kernel) = match variable.space {
        Space::Global | Space::Const => (FaultSpace::Global, None),
        Space::Shared => (FaultSpace::Shared, user),
        _ => return None,
    };
    let (name, address, size) = (variable.name.clone(), address?, Some(variable.size?));
    Some(NamedVariable { name, space, address, size, kernel })
}

fn is_dynamic(variable: &Variable) -> bool {
    variable.space == Space::Shared && variable.size.is_none()
}

/// Describes a variable without a size. It stands for a kernel's whole dynamic shared memory.
fn dynamic(variable: &Variable, layout: &Layout, entry: u32) -> NamedVariable {
    NamedVariable {
        name: variable.name.clone(),
        space: FaultSpace::Shared,
        address: layout.shared_bytes(entry).into(),
        size: None,
        kernel: Some(entry),
    }
}
