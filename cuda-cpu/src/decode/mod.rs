//! Decodes a parsed module into code: each instruction gets its handlers, and each operand its slot.
//!
//! This folder uses the handlers in `exec`, the operands and effects in `isa`, and the parser's module. `launch` calls
//! it: [`Layout::place`] assigns addresses to variables, then [`decode`] processes the reachable functions, each with a
//! [`Builder`].
//!
//! Layers, lowest first: `error`, `layout` and `variables`; `build` (the builder and its parts); the families of
//! instructions: `memory`, `sync`, `flow`, `hints`; `alu`, `collective`; `tensor`.

mod alu;
mod build;
mod collective;
mod error;
mod flow;
mod hints;
mod layout;
mod memory;
mod sync;
mod tensor;
mod variables;

use cuda_ptx::{
    Function, InitValue, Instruction, Module, Opcode as O, ScalarType, Symbol, Word as W,
};
use rustc_hash::FxHashSet;

use self::alu::{compare, lanewise, moves, select, video};
use self::build::builder::{Builder, Problem, UNKNOWN};
use self::memory::{atomic, load_store, stack};
use self::sync::{async_bulk, async_copy, cluster, fence, mbarrier};
use self::tensor::{matrix, mma, wmma};
use crate::{
    exec::{
        alu::video::Video,
        control::{control, join},
        form::Form,
    },
    isa::call::Passed,
    machine::{
        budget::MAX_REGISTERS,
        code::{Code, Control, FunctionCode, Op},
        presets::{self, Lifetime},
        sources::Sources,
    },
};

use error::Problems;
pub use error::{LoadError, LoadProblem};
pub(crate) use layout::Layout;

/// Returns the entries and all functions that they may call.
pub(crate) fn reachable(module: &Module) -> FxHashSet<u32> {
    let mut found = FxHashSet::default();
    let entries =
        (0..module.functions.len() as u32).filter(|&i| module.functions[i as usize].is_entry);
    let inits = module.variables.iter().flat_map(|v| &v.init);
    let addressed = inits.filter_map(|init| match init.value {
        InitValue::Address { symbol: Symbol::Function(i), .. } => Some(i),
        _ => None,
    });
    let mut left: Vec<u32> = entries.chain(addressed).collect();
    while let Some(index) = left.pop() {
        let Some(function) = module.functions.get(index as usize) else { continue };
        if function.body.is_none() || !found.insert(index) {
            continue;
        }
        left.extend(layout::symbols(function).into_iter().filter_map(|s| match s {
            Symbol::Function(i) => Some(i),
            _ => None,
        }));
    }
    found
}

/// Decodes all reachable functions.
pub(crate) fn decode(
    module: &Module,
    reachable: &FxHashSet<u32>,
    layout: &Layout,
) -> Result<Code, LoadError> {
    let mut code = Code { sources: Sources::new(&module.files), ..Code::default() };
    let mut problems = Problems::default();
    for (index, function) in module.functions.iter().enumerate() {
        let mut decoded = FunctionCode { name: function.name.clone(), ..FunctionCode::default() };
        if reachable.contains(&(index as u32)) {
            let function = (index as u32, function);
            decode_function(module, function, layout, &mut code, &mut decoded, &mut problems);
        }
        code.functions.push(decoded);
    }
    code.variables = variables::variables(module, reachable, layout);
    problems.error().map_or(Ok(code), Err)
}

fn decode_function(
    module: &Module,
    (index, function): (u32, &Function),
    layout: &Layout,
    code: &mut Code,
    into: &mut FunctionCode,
    problems: &mut Problems,
) {
    let Some(body) = &function.body else { return };
    let mut b = Builder::new(module, (index, function), body, layout, code);
    into.entry = Some(b.pc());
    b.code.sources.begin_function(b.pc());
    stack::begin(&mut b);
    let mut locations = body.locations.iter().peekable();
    let mut leaders = vec![false; body.instructions.len() + 1];
    for label in &body.labels {
        if let Some(leader) = leaders.get_mut(label.target as usize) {
            *leader = true;
        }
    }
    let mut pcs = Vec::with_capacity(body.instructions.len() + 1);
    for (i, ins) in body.instructions.iter().enumerate() {
        b.begin(ins);
        let used = body.used_bytes.binary_search_by_key(&(i as u32), |(at, _)| *at);
        b.used_bytes = used.map_or(u64::MAX, |at| body.used_bytes[at].1);
        while let Some(location) = locations.next_if(|l| l.instruction as usize <= i) {
            b.code.sources.mark(b.pc(), *location);
        }
        if leaders[i] {
            b.emit_plain(Op::new(join));
        }
        pcs.push(b.pc());
        if let Err(reason) = decode_instruction(&mut b, ins) {
            problems.add(problem(function, ins, reason));
        }
    }
    // Falling off the end, or a jump to a label there, returns.
    b.emit_plain(Op::new(join));
    pcs.push(b.pc());
    let mut end = Op::new(control);
    end.extra = b.code.controls.len() as u32;
    b.code.controls.push(if function.is_entry { Control::Exit } else { Control::Return });
    b.emit_plain(end);

    let target = |label: u32| body.labels.get(label as usize).map_or(0, |l| pcs[l.target as usize]);
    for pc in std::mem::take(&mut b.jumps) {
        let imm = &mut b.code.ops[pc as usize].imm;
        *imm = u64::from(target(*imm as u32));
    }
    for table in std::mem::take(&mut b.tables).into_values() {
        if let Some(targets) = b.code.jump_tables.get_mut(table as usize) {
            targets.iter_mut().for_each(|t| *t = target(*t));
        }
    }
    finish(&mut b, into, problems);
}

/// Fills in the data that calls of the function need.
fn finish(b: &mut Builder<'_>, into: &mut FunctionCode, problems: &mut Problems) {
    let function = b.function;
    into.is_kernel = function.is_entry;
    if !function.is_entry {
        let params = function.params.iter().zip(b.locals.params.clone());
        let returns = function.returns.iter().zip(b.locals.returns.clone());
        into.params = params.filter_map(|(p, at)| own(b, p, at)).collect();
        into.returns = returns.filter_map(|(p, at)| own(b, p, at)).collect();
        if into.params.len() != function.params.len() {
            problems.add(of_function(function, "a register parameter it does not have"));
        }
    }
    if b.locals.too_many {
        problems.add(of_function(function, "more than 512 KiB of local memory for each thread"));
    }
    if b.frame.size() > MAX_REGISTERS {
        problems.add(of_function(function, "more than 64 MiB of registers for each warp"));
    }
    into.local_bytes = b.locals.bytes;
    into.stack_top = b.stack_top;
    into.presets = b.frame.presets();
    into.launch_presets = presets::with_lifetime(&into.presets, Lifetime::ForLaunch);
    into.block_presets = presets::with_lifetime(&into.presets, Lifetime::ForBlock);
    into.frame_bytes = b.frame.size();
}

/// Returns the location of a parameter on the function's own side.
fn own(b: &mut Builder<'_>, param: &cuda_ptx::Param, at: u32) -> Option<Passed> {
    match param.register {
        None => Some(Passed::Local(at, param.size)),
        Some(id) => {
            let class = b.class_of(id);
            Some(Passed::Register(b.register(id, class).ok()?, class))
        }
    }
}

fn problem(function: &Function, ins: &Instruction, reason: Problem) -> error::LoadProblem {
    error::LoadProblem {
        function: function.name.clone(),
        instruction: ins.name().to_string(),
        line: ins.line,
        column: ins.column,
        reason,
        occurrences: 1,
    }
}

fn of_function(function: &Function, reason: Problem) -> error::LoadProblem {
    let name = || function.name.clone();
    error::LoadProblem {
        function: name(),
        instruction: name(),
        line: function.line,
        column: 1,
        reason,
        occurrences: 1,
    }
}

const WARP_GROUPS: Problem =
    "the CPU device has no multiplications by warp groups: compile for sm_80, which has `mma`";
const TEXTURES: Problem = "the CPU device does not support textures and surfaces";

/// Returns the reason why an instruction with an unknown word cannot run.
fn unknown(name: &str) -> Problem {
    match name.split_once('.').and_then(|(opcode, _)| O::from_name(opcode)) {
        Some(O::Wgmma | O::Tcgen05) => WARP_GROUPS,
        Some(O::Tex | O::Tld4 | O::Txq | O::Suld | O::Sust | O::Sured | O::Suq | O::Istypep) => {
            TEXTURES
        }
        Some(O::Cp) if name.contains(".tensor.") => async_copy::TENSOR_MAPS,
        _ => UNKNOWN,
    }
}

fn decode_instruction(b: &mut Builder<'_>, ins: &Instruction) -> Result<(), Problem> {
    let opcode = *ins.opcode.as_ref().map_err(|name| unknown(name))?;
    let form = &mut Form::new(ins, opcode);
    match opcode {
        O::Mov => moves::mov(b, form),
        O::Ld | O::Ldu => load_store::load(b, form),
        O::St | O::Red if form.has(W::Async) => async_bulk::store(b, form),
        O::St => load_store::store(b, form),
        O::Setp => compare::setp(b, form),
        O::Set => compare::set(b, form),
        O::Selp => select::selp(b, form),
        O::Slct => select::slct(b, form),
        O::Testp => compare::testp(b, form),
        O::And | O::Or | O::Xor | O::Not if form.peek_ty() == Some(ScalarType::Pred) => {
            compare::logic(b, form)
        }
        O::Bra => flow::bra(b, form),
        O::Brx => flow::brx(b, form),
        O::Call => flow::call(b, form),
        O::Ret | O::Exit => flow::leave(b, form),
        O::Trap | O::Brkpt => flow::trap(b, form),
        O::Nanosleep => flow::pause(b, form),
        O::Cvta => moves::cvta(b, form),
        O::Isspacep => moves::isspacep(b, form),
        O::Atom | O::Red => atomic::atomic(b, form),
        O::Membar | O::Fence => fence::fence(b, form),
        O::Prefetch
        | O::Prefetchu
        | O::Discard
        | O::Applypriority
        | O::Pmevent
        | O::Createpolicy
        | O::Griddepcontrol
        | O::Setmaxnreg => hints::hint(b, form),
        O::Shfl => collective::shfl(b, form),
        O::Vote => collective::vote(b, form),
        O::Match => collective::match_lanes(b, form),
        O::Redux => collective::redux(b, form),
        O::Activemask => collective::activemask(b, form),
        O::Bar | O::Barrier => collective::barrier(b, form),
        O::Mma => mma::mma(b, form),
        O::Wmma => wmma::wmma(b, form),
        O::Ldmatrix => matrix::load(b, form),
        O::Stmatrix => matrix::store(b, form),
        O::Alloca => stack::alloca(b, form),
        O::Stacksave => stack::save(b, form),
        O::Stackrestore => stack::restore(b, form),
        O::Cp => async_copy::cp(b, form),
        O::Mbarrier => mbarrier::mbarrier(b, form),
        O::Elect => collective::elect(b, form),
        O::Mapa => cluster::map_address(b, form),
        O::Getctarank => cluster::rank(b, form),
        O::Movmatrix => matrix::transpose(b, form),
        O::Wgmma | O::Tcgen05 => Err(WARP_GROUPS),
        O::Tex | O::Tld4 | O::Txq | O::Suld | O::Sust | O::Sured | O::Suq | O::Istypep => {
            Err(TEXTURES)
        }
        name if Video::of_opcode(name).is_some() => video::decode(b, form),
        _ => lanewise::decode(b, form),
    }
}
