//! Decodes a parsed module into code: each instruction gets its handlers, and each operand its slot.
//!
//! This folder uses the handlers in `exec`, the operands and effects in `isa`, and the parser's module. `launch` calls
//! it: [`Layout::place`] assigns addresses to variables, then [`decode`] processes the reachable functions, each with a
//! [`Builder`]. [`decoder`] maps each opcode to a function, which takes the modifiers from a [`Form`] and emits ops.
//!
//! Layers, lowest first: `error`, `form` and `layout`; `build` (the builder and its parts); the families of
//! instructions: `memory`, `sync`, `flow`, `hints`; `alu`, `convert`, `collective`; `tensor`.

mod alu;
mod build;
mod collective;
mod convert;
mod error;
mod flow;
mod form;
mod hints;
mod layout;
mod memory;
mod sync;
mod tensor;

use std::borrow::Cow;

use cuda_ptx::{
    Checker, Function, InitValue, Instruction, Module, Opcode as O, RegId, Symbol, Word as W,
};
use rustc_hash::FxHashSet;

use self::alu::lanewise::lanewise;
use self::alu::video::video;
use self::alu::{approximate, arithmetic, bits, compare, moves};
use self::build::builder::{Builder, DISAGREES, Problem};
use self::form::Form;
use self::memory::{atomic, load_store, stack};
use self::sync::{async_copy, cluster, fence, mbarrier};
use self::tensor::{matrix, mma, wmma};
use crate::exec::alu::int_arithmetic::{CARRY_IN, MULTIPLY, SUBTRACT};
use crate::exec::alu::select::Logic;
use crate::exec::alu::video::Video;
use crate::exec::control::{control, join, trap};
use crate::isa::index;
use crate::isa::operand::Passed;
use crate::machine::budget::MAX_REGISTERS;
use crate::machine::code::{Code, Control, FunctionCode, Op};
use crate::machine::debug_info::Sources;
use crate::machine::presets;
use crate::machine::presets::Lifetime;

pub use error::{LoadError, LoadProblem};
use error::{Problems, shortened};
pub(crate) use layout::Layout;

/// Returns the entries and all functions that they may call.
pub(crate) fn reachable(module: &Module) -> FxHashSet<u32> {
    let mut found = FxHashSet::default();
    let entries = (0..).zip(&module.functions).filter(|(_, f)| f.is_entry).map(|(i, _)| i);
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
        left.extend(function.symbols().into_iter().filter_map(|s| match s {
            Symbol::Function(i) => Some(i),
            _ => None,
        }));
    }
    found
}

/// Decodes all reachable functions, and compares the others with the table.
pub(crate) fn decode(
    module: &Module,
    reachable: &FxHashSet<u32>,
    layout: &Layout,
) -> Result<Code, LoadError> {
    let (sources, constants) = (Sources::new(&module.files), layout.constants(module));
    let mut code = Code { sources, constants, ..Code::default() };
    let mut problems = Problems::default();
    for (index, function) in (0..).zip(&module.functions) {
        let mut decoded = FunctionCode { name: function.name.clone(), ..FunctionCode::default() };
        if reachable.contains(&index) {
            decode_function(
                module,
                (index, function),
                layout,
                &mut code,
                &mut decoded,
                &mut problems,
            );
        } else {
            check_function(module, function, &mut problems);
        }
        code.functions.push(decoded);
    }
    code.variables = layout::variable_names(module, reachable, layout);
    problems.error().map_or(Ok(code), Err)
}

fn decode_function(
    module: &Module,
    (number, function): (u32, &Function),
    layout: &Layout,
    code: &mut Code,
    into: &mut FunctionCode,
    problems: &mut Problems,
) {
    let Some(body) = &function.body else { return };
    let mut b = Builder::new(module, (number, function), body, layout, code);
    into.entry = Some(b.pc());
    b.code.sources.begin_function(b.pc());
    stack::begin(&mut b);
    let checker = Checker::new(module, body);
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
        let used = body.used_bytes.binary_search_by_key(&index(i), |(at, _)| *at);
        b.used_bytes = used.map_or(u64::MAX, |at| body.used_bytes[at].1);
        while let Some(location) = locations.next_if(|l| l.instruction as usize <= i) {
            b.code.sources.mark(b.pc(), *location);
        }
        if leaders[i] {
            b.emit_plain(Op::new(join));
        }
        pcs.push(b.pc());
        if let Err(reason) = decode_instruction(&mut b, &checker, ins) {
            problems.add(problem(function, ins, reason));
        }
    }
    // Falling off the end, or a jump to a label there, returns.
    b.emit_plain(Op::new(join));
    pcs.push(b.pc());
    let mut end = Op::new(control);
    end.extra = b.add_control(if function.is_entry { Control::Exit } else { Control::Return });
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
        let params = params.map(|(p, at)| own(b, p, at)).collect::<Option<Vec<_>>>();
        let returns = returns.map(|(p, at)| own(b, p, at)).collect::<Option<Vec<_>>>();
        if let (Some(params), Some(returns)) = (params, returns) {
            (into.params, into.returns) = (params.concat(), returns.concat());
        } else {
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

/// Returns the locations of a parameter on the function's own side: one, or one for each element of a vector of
/// registers. `None` if the function has no such registers.
fn own(b: &mut Builder<'_>, param: &cuda_ptx::Param, at: u32) -> Option<Vec<Passed>> {
    let Some(RegId(first)) = param.register else {
        return Some(vec![Passed::Local(at, param.size)]);
    };
    let register = |id| {
        let class = b.class_of(RegId(id));
        Some(Passed::Register(b.register(RegId(id), class).ok()?, class))
    };
    (first..first + param.lanes).map(register).collect()
}

fn problem(
    function: &Function,
    ins: &Instruction,
    reason: Cow<'static, str>,
) -> error::LoadProblem {
    error::LoadProblem {
        function: shortened(&function.name),
        instruction: ins.name().to_string(),
        line: ins.line,
        column: ins.column,
        reason,
        occurrences: 1,
    }
}

fn of_function(function: &Function, reason: Problem) -> error::LoadProblem {
    let name = shortened(&function.name);
    error::LoadProblem {
        function: name.clone(),
        instruction: name,
        line: function.line,
        column: 1,
        reason: reason.into(),
        occurrences: 1,
    }
}

/// Compares the instructions of a function that no kernel reaches with the table. Accepts instructions that PTX has and
/// the CPU device does not run.
fn check_function(module: &Module, function: &Function, problems: &mut Problems) {
    let Some(body) = &function.body else { return };
    let checker = Checker::new(module, body);
    for ins in &body.instructions {
        let is_unsupported = match &ins.opcode {
            Ok(opcode) => decoder(*opcode).is_err(),
            Err(name) => of_unknown(name) != NOT_PTX,
        };
        if !is_unsupported && let Err(mismatch) = checker.check(ins) {
            problems.add(problem(function, ins, mismatch.to_string().into()));
        }
    }
}

/// Compares an instruction with the table of PTX, then decodes it. All of its modifiers must be taken, so none is
/// ignored by mistake.
fn decode_instruction<'a>(
    b: &mut Builder<'a>,
    checker: &Checker<'_>,
    ins: &'a Instruction,
) -> Result<(), Cow<'static, str>> {
    let opcode = ins.opcode.as_ref().copied().map_err(|name| of_unknown(name))?;
    let decode = decoder(opcode)?;
    let checked = checker.check(ins).map_err(|mismatch| mismatch.to_string())?;
    b.check(checked);
    let form = &mut Form::new(ins);
    decode(b, form)?;
    if form.is_spent() { Ok(()) } else { Err(DISAGREES.into()) }
}

/// Returns the reason why an instruction with an unknown word cannot be decoded.
fn of_unknown(name: &str) -> Problem {
    let opcode = name.split('.').next().and_then(O::from_name);
    match opcode.map(decoder) {
        Some(Err(reason)) => reason,
        Some(Ok(_)) if name.starts_with("cp.") && name.contains(".tensor") => {
            async_copy::TENSOR_MAPS
        }
        _ => NOT_PTX,
    }
}

/// A function that decodes an instruction.
type Decoder = fn(&mut Builder<'_>, &mut Form<'_>) -> Result<(), Problem>;

const NOT_PTX: Problem = "PTX has no such instruction, or this version does not know it";
const WARP_GROUPS: Problem =
    "the CPU device has no multiplications by warp groups: compile for sm_80, which has `mma`";
const TEXTURES: Problem = "the CPU device does not support textures and surfaces";
const MULTICAST: Problem = "the CPU device does not support multicast memory";

/// Returns the decoder of the instructions with this opcode, or the reason why the CPU device runs none of them.
fn decoder(opcode: O) -> Result<Decoder, Problem> {
    Ok(match opcode {
        // Arithmetic.
        O::Add => arithmetic::add,
        O::Sub => arithmetic::subtract,
        O::Mul => arithmetic::multiply,
        O::Mad => arithmetic::multiply_add,
        O::Fma => |b, f| lanewise(arithmetic::fma(f), b, f),
        O::Neg => |b, f| lanewise(arithmetic::negate(f), b, f),
        O::Abs => |b, f| lanewise(arithmetic::magnitude(f), b, f),
        O::Min => |b, f| lanewise(arithmetic::extreme(f, false), b, f),
        O::Max => |b, f| lanewise(arithmetic::extreme(f, true), b, f),
        O::Copysign => |b, f| lanewise(arithmetic::copysign(f), b, f),
        O::Addc => |b, f| arithmetic::with_carry(b, f, CARRY_IN),
        O::Subc => |b, f| arithmetic::with_carry(b, f, CARRY_IN | SUBTRACT),
        O::Madc => |b, f| arithmetic::with_carry(b, f, CARRY_IN | MULTIPLY),
        O::Mul24 => |b, f| lanewise(arithmetic::multiply_24(f), b, f),
        O::Mad24 => |b, f| lanewise(arithmetic::multiply_add_24(f), b, f),
        O::Rem => |b, f| lanewise(arithmetic::remainder(f), b, f),
        O::Sad => |b, f| lanewise(arithmetic::sad(f), b, f),
        O::Dp4a => |b, f| lanewise(arithmetic::dot_of_bytes(f), b, f),
        O::Dp2a => |b, f| lanewise(arithmetic::dot_of_halves(f), b, f),
        O::Div => |b, f| lanewise(approximate::divide(f), b, f),
        O::Rcp => |b, f| lanewise(approximate::reciprocal(f), b, f),
        O::Sqrt => |b, f| lanewise(approximate::root(f), b, f),
        O::Rsqrt => |b, f| lanewise(approximate::reciprocal_root(f), b, f),
        O::Ex2 => |b, f| lanewise(approximate::exponential(f), b, f),
        O::Lg2 => |b, f| lanewise(approximate::logarithm(f), b, f),
        O::Sin => |b, f| lanewise(approximate::sine(f), b, f),
        O::Cos => |b, f| lanewise(approximate::cosine(f), b, f),
        O::Tanh => |b, f| lanewise(approximate::tanh(f), b, f),
        // Bits.
        O::And => |b, f| bits::logic(b, f, Logic::And),
        O::Or => |b, f| bits::logic(b, f, Logic::Or),
        O::Xor => |b, f| bits::logic(b, f, Logic::Xor),
        O::Not => bits::not,
        O::Cnot => |b, f| lanewise(bits::cnot(f), b, f),
        O::Shl => |b, f| lanewise(bits::shift_left(f), b, f),
        O::Shr => |b, f| lanewise(bits::shift_right(f), b, f),
        O::Shf => |b, f| lanewise(bits::funnel_shift(f), b, f),
        O::Prmt => |b, f| lanewise(bits::permute(f), b, f),
        O::Popc => |b, f| lanewise(bits::count_ones(f), b, f),
        O::Clz => |b, f| lanewise(bits::leading_zeros(f), b, f),
        O::Brev => |b, f| lanewise(bits::reverse(f), b, f),
        O::Bfind => |b, f| lanewise(bits::find_first(f), b, f),
        O::Bfe => |b, f| lanewise(bits::extract(f), b, f),
        O::Bfi => bits::insert,
        O::Bmsk => |b, f| lanewise(bits::mask(f), b, f),
        O::Szext => |b, f| lanewise(bits::extend(f), b, f),
        O::Fns => |b, f| lanewise(bits::find_nth(f), b, f),
        O::Lop3 => bits::table,
        // Comparisons, moves, conversions.
        O::Setp => compare::setp,
        O::Set => compare::set,
        O::Testp => compare::testp,
        O::Selp => moves::selp,
        O::Slct => moves::slct,
        O::Mov => moves::mov,
        O::Cvta => moves::cvta,
        O::Isspacep => moves::isspacep,
        O::Cvt => |b, f| lanewise(convert::cvt(f), b, f),
        // Video instructions.
        O::Vadd => |b, f| video(b, f, Video::Add, 1),
        O::Vsub => |b, f| video(b, f, Video::Sub, 1),
        O::Vabsdiff => |b, f| video(b, f, Video::AbsDiff, 1),
        O::Vmin => |b, f| video(b, f, Video::Min, 1),
        O::Vmax => |b, f| video(b, f, Video::Max, 1),
        O::Vshl => |b, f| video(b, f, Video::ShiftLeft, 1),
        O::Vshr => |b, f| video(b, f, Video::ShiftRight, 1),
        O::Vmad => |b, f| video(b, f, Video::MultiplyAdd, 1),
        O::Vset => |b, f| video(b, f, Video::Set, 1),
        O::Vadd2 => |b, f| video(b, f, Video::Add, 2),
        O::Vsub2 => |b, f| video(b, f, Video::Sub, 2),
        O::Vavrg2 => |b, f| video(b, f, Video::Average, 2),
        O::Vabsdiff2 => |b, f| video(b, f, Video::AbsDiff, 2),
        O::Vmin2 => |b, f| video(b, f, Video::Min, 2),
        O::Vmax2 => |b, f| video(b, f, Video::Max, 2),
        O::Vset2 => |b, f| video(b, f, Video::Set, 2),
        O::Vadd4 => |b, f| video(b, f, Video::Add, 4),
        O::Vsub4 => |b, f| video(b, f, Video::Sub, 4),
        O::Vavrg4 => |b, f| video(b, f, Video::Average, 4),
        O::Vabsdiff4 => |b, f| video(b, f, Video::AbsDiff, 4),
        O::Vmin4 => |b, f| video(b, f, Video::Min, 4),
        O::Vmax4 => |b, f| video(b, f, Video::Max, 4),
        O::Vset4 => |b, f| video(b, f, Video::Set, 4),
        // Memory.
        O::Ld | O::Ldu => load_store::load,
        O::St => |b, f| match f.has(W::Async) {
            true => async_copy::store(b, f, false),
            false => load_store::store(b, f),
        },
        O::Red => |b, f| match f.has(W::Async) {
            true => async_copy::store(b, f, true),
            false => atomic::atomic(b, f, false),
        },
        O::Atom => |b, f| atomic::atomic(b, f, true),
        O::Alloca => stack::alloca,
        O::Stacksave => stack::save,
        O::Stackrestore => stack::restore,
        O::Cp => async_copy::cp,
        O::Prefetch => hints::prefetch,
        O::Prefetchu => hints::prefetchu,
        O::Discard => |b, f| hints::line(b, f, W::L2),
        O::Applypriority => |b, f| hints::line(b, f, W::L2EvictNormal),
        O::Createpolicy => hints::policy,
        // Control flow.
        O::Bra => flow::bra,
        O::Brx => flow::brx,
        O::Call => flow::call,
        O::Ret => flow::ret,
        O::Exit => |b, f| {
            f.take(W::Uni);
            b.control(Control::Exit)
        },
        O::Trap | O::Brkpt => |b, _| b.emit(Op::new(trap)),
        O::Nanosleep => flow::pause,
        O::Pmevent => hints::event,
        O::Griddepcontrol => hints::dependent_grids,
        O::Setmaxnreg => hints::max_registers,
        // Warps, blocks and clusters.
        O::Shfl => collective::shfl,
        O::Vote => collective::vote,
        O::Match => collective::match_lanes,
        O::Redux => collective::redux,
        O::Activemask => collective::activemask,
        O::Elect => collective::elect,
        O::Bar => |b, f| collective::barrier(b, f, true),
        O::Barrier => |b, f| collective::barrier(b, f, false),
        O::Membar => fence::membar,
        O::Fence => fence::fence,
        O::Mbarrier => mbarrier::mbarrier,
        O::Mapa => cluster::map_address,
        O::Getctarank => cluster::rank,
        // Matrices.
        O::Mma => mma::mma,
        O::Wmma => wmma::wmma,
        O::Ldmatrix => matrix::load,
        O::Stmatrix => matrix::store,
        O::Movmatrix => matrix::transpose,
        O::Wgmma | O::Tcgen05 => return Err(WARP_GROUPS),
        O::Tex | O::Tld4 | O::Txq | O::Suld | O::Sust | O::Sured | O::Suq | O::Istypep => {
            return Err(TEXTURES);
        }
        O::Tensormap => return Err(async_copy::TENSOR_MAPS),
        O::Multimem => return Err(MULTICAST),
        O::Clusterlaunchcontrol => {
            return Err("the CPU device does not support the cancellation of clusters");
        }
    })
}
