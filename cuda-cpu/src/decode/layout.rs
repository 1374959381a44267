//! Addresses of variables in global, constant and shared memory, and their names for faults.

use std::ops::Range;

use cuda_ptx::{Function, Init, InitValue, Module, Space, Symbol, Variable};
use rustc_hash::{FxHashMap, FxHashSet};

use super::error::LoadError;
use crate::fault::FaultSpace;
use crate::isa::address::{FUNCTION_STEP, FUNCTION_WINDOW, SHARED_WINDOW};
use crate::isa::index as number_of;
use crate::machine::debug_info::{NamedVariable, VariableNames};
use crate::memory::{Memory, OutOfMemory};

/// Addresses of variables. Addresses in shared memory are offsets. First come the variables that several kernels or a
/// device function use. The variables of single kernels follow and overlap each other.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    module: Vec<Option<u64>>,
    /// Addresses by function index and variable index in its body.
    body: FxHashMap<(u32, u32), u64>,
    /// For each entry, the end of its static shared variables, by function index.
    shared_ends: FxHashMap<u32, u32>,
    /// Allocations to free with the program.
    pub(crate) allocations: Vec<u64>,
}

/// Alignment of the start of dynamic shared memory, in bytes.
const SHARED_ALIGN: u32 = 16;

impl Layout {
    /// Places all variables and writes their initial values.
    pub(crate) fn place(
        module: &Module,
        reachable: &FxHashSet<u32>,
        memory: &Memory,
    ) -> Result<Self, LoadError> {
        let mut layout = Self { module: vec![None; module.variables.len()], ..Self::default() };
        layout.place_shared(module, reachable);
        let placed = layout.place_global(module, reachable, memory);
        if let Err(full) = placed {
            layout.allocations.iter().for_each(|&a| _ = memory.free(a));
            return Err(LoadError::no_room(full));
        }
        layout.initialize(module, reachable, memory);
        Ok(layout)
    }

    pub(crate) fn module_address(&self, index: u32) -> Option<u64> {
        self.module.get(index as usize).copied().flatten()
    }

    /// Returns the address of a variable in a function's body.
    pub(crate) fn body_address(&self, function: u32, variable: u32) -> Option<u64> {
        self.body.get(&(function, variable)).copied()
    }

    /// Returns name, address and size of the module's global and constant variables.
    pub(crate) fn globals(&self, module: &Module) -> Vec<(String, u64, u64)> {
        let placed = module.variables.iter().zip(&self.module);
        let global = placed.filter(|(v, _)| v.space != Space::Shared);
        global.filter_map(|(v, at)| Some((v.name.clone(), (*at)?, v.size.unwrap_or(0)))).collect()
    }

    /// Returns the address ranges of the module's constants.
    pub(crate) fn constants(&self, module: &Module) -> Vec<Range<u64>> {
        let placed = module.variables.iter().zip(&self.module);
        let constants = placed.filter(|(v, _)| v.space == Space::Const);
        let range = |at: u64, v: &Variable| at..at.saturating_add(v.size.unwrap_or(0));
        constants.filter_map(|(v, at)| Some(range((*at)?, v))).collect()
    }

    /// Returns the static shared memory of a kernel in bytes. Dynamic shared memory starts there.
    pub(crate) fn shared_bytes(&self, entry: u32) -> u32 {
        self.shared_end(entry).checked_next_multiple_of(SHARED_ALIGN).unwrap_or(u32::MAX)
    }

    /// Returns the end of a kernel's static shared variables, without padding.
    pub(crate) fn shared_end(&self, entry: u32) -> u32 {
        self.shared_ends.get(&entry).copied().unwrap_or(0)
    }

    fn place_shared(&mut self, module: &Module, reachable: &FxHashSet<u32>) {
        let users = shared_users(module, reachable);
        let mut common = 0;
        let place = |end: &mut u64, v: &Variable| {
            let size = v.size?;
            // Saturates. The launch then fails with too much shared memory.
            let at = end.checked_next_multiple_of(u64::from(v.align.max(1))).unwrap_or(u64::MAX);
            *end = at.saturating_add(size);
            Some(at)
        };
        // The variables that only one entry uses, by entry.
        let mut own: FxHashMap<u32, Vec<usize>> = FxHashMap::default();
        for (i, variable) in module.variables.iter().enumerate() {
            if variable.space != Space::Shared {
                continue;
            }
            match users.get(&number_of(i)) {
                Some(Some(entry)) => own.entry(*entry).or_default().push(i),
                Some(None) => self.module[i] = place(&mut common, variable),
                None => {}
            }
        }
        for (index, f) in functions(module, reachable).filter(|(_, f)| !f.is_entry) {
            for (i, v) in shared_of(f) {
                if let Some(at) = place(&mut common, v) {
                    self.body.insert((index, i), at);
                }
            }
        }
        for (index, f) in functions(module, reachable).filter(|(_, f)| f.is_entry) {
            let mut end = common;
            for &i in own.get(&index).into_iter().flatten() {
                self.module[i] = place(&mut end, &module.variables[i]);
            }
            for (i, v) in shared_of(f) {
                if let Some(at) = place(&mut end, v) {
                    self.body.insert((index, i), at);
                }
            }
            self.shared_ends.insert(index, u32::try_from(end).unwrap_or(u32::MAX));
        }
    }

    fn place_global(
        &mut self,
        module: &Module,
        reachable: &FxHashSet<u32>,
        memory: &Memory,
    ) -> Result<(), OutOfMemory> {
        let place = |v: &Variable, allocations: &mut Vec<u64>| {
            let size = v.size.unwrap_or(0);
            // Variables without an initializer are zero.
            let at = memory.alloc_zeroed(size, u64::from(v.align))?;
            allocations.push(at);
            Ok(at)
        };
        for (i, v) in module.variables.iter().enumerate() {
            if matches!(v.space, Space::Global | Space::Const) {
                self.module[i] = Some(place(v, &mut self.allocations)?);
            }
        }
        for (index, f) in functions(module, reachable) {
            for (i, v) in
                variables_of(f).filter(|(_, v)| matches!(v.space, Space::Global | Space::Const))
            {
                let at = place(v, &mut self.allocations)?;
                self.body.insert((index, i), at);
            }
        }
        Ok(())
    }

    fn initialize(&self, module: &Module, reachable: &FxHashSet<u32>, memory: &Memory) {
        for (i, v) in module.variables.iter().enumerate() {
            if let Some(at) = self.module[i].filter(|_| v.space != Space::Shared) {
                v.init.iter().for_each(|init| self.write(module, memory, at, init));
            }
        }
        for (index, f) in functions(module, reachable) {
            for (i, v) in variables_of(f).filter(|(_, v)| v.space != Space::Shared) {
                if let Some(at) = self.body_address(index, i) {
                    v.init.iter().for_each(|init| self.write(module, memory, at, init));
                }
            }
        }
    }

    /// Writes one part of an initializer. The parser has checked that it fits the variable.
    fn write(&self, module: &Module, memory: &Memory, variable: u64, init: &Init) {
        let at = variable.wrapping_add(init.at);
        _ = match &init.value {
            InitValue::Bytes(bytes) => memory.write(at, bytes),
            InitValue::Address { symbol, addend, generic, size } => {
                let address = self.symbol_address(module, *symbol, *generic);
                let bytes = address.wrapping_add_signed(*addend).to_le_bytes();
                memory.write(at, &bytes[..(*size as usize).min(8)])
            }
        };
    }

    fn symbol_address(&self, module: &Module, symbol: Symbol, generic: bool) -> u64 {
        match symbol {
            Symbol::Function(i) => FUNCTION_WINDOW + FUNCTION_STEP * u64::from(i),
            Symbol::Module(i) => {
                let shared =
                    module.variables.get(i as usize).is_some_and(|v| v.space == Space::Shared);
                let window = if shared && generic { SHARED_WINDOW } else { 0 };
                self.module_address(i).unwrap_or(0).wrapping_add(window)
            }
            _ => 0,
        }
    }
}

/// Iterates over the reachable functions with their indices.
pub(super) fn functions<'m>(
    module: &'m Module,
    reachable: &FxHashSet<u32>,
) -> impl Iterator<Item = (u32, &'m Function)> {
    reachable.iter().filter_map(|&f| Some((f, module.functions.get(f as usize)?)))
}

fn shared_of(f: &Function) -> impl Iterator<Item = (u32, &Variable)> {
    variables_of(f).filter(|(_, v)| v.space == Space::Shared)
}

/// Iterates over the variables that a function declares, with their indices.
fn variables_of(f: &Function) -> impl Iterator<Item = (u32, &Variable)> {
    f.body.iter().flat_map(|body| (0..).zip(&body.variables))
}

/// Returns the users of each module-scope variable: the only kernel that uses it, or `None` for several functions or a
/// device function.
fn shared_users(module: &Module, reachable: &FxHashSet<u32>) -> FxHashMap<u32, Option<u32>> {
    let mut users: FxHashMap<u32, Option<u32>> = FxHashMap::default();
    for (index, f) in functions(module, reachable) {
        let user = f.is_entry.then_some(index);
        for symbol in f.symbols() {
            let Symbol::Module(variable) = symbol else { continue };
            let known = users.entry(variable).or_insert(user);
            if *known != user {
                *known = None;
            }
        }
    }
    users
}

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
