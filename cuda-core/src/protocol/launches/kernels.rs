//! Kernels, parameters and variables. The client reads them from PTX. For a cubin, the backend lists the kernels.

pub use cuda_ptx::{ParamType, ScalarKind};

use std::sync::Arc;

use crate::protocol::{Error, Result};

/// A kernel of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryInfo {
    /// Its name, mangled where the compiler mangled it.
    pub name: String,
    /// Its parameters in order.
    pub params: Vec<ParamInfo>,
    /// The variables of the module that the kernel may use, as indices of [`ModuleInfo::variables`]. Empty for a cubin.
    pub variables: Arc<[u32]>,
    /// The maximum number of threads in a block on the module's device.
    pub max_threads: u32,
}

impl EntryInfo {
    /// Returns the size of the parameter block in bytes.
    pub fn param_bytes(&self) -> u32 {
        self.params.last().map_or(0, |last| last.offset + last.size)
    }
}

/// A parameter of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamInfo {
    /// The name in the PTX.
    pub name: String,
    /// The type in the PTX, such as `u64`, or `b8[24]` for a struct.
    pub ty: ParamType,
    /// The offset in bytes from the start of the parameter block.
    pub offset: u32,
    /// Size in bytes.
    pub size: u32,
    /// Alignment in bytes.
    pub align: u32,
}

/// A variable of a module: `__device__` or `__constant__` in CUDA C, `.global` or `.const` in PTX.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VariableInfo {
    /// Its name, mangled where the compiler mangled it.
    pub name: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// Whether kernels only read it (`__constant__`).
    pub is_constant: bool,
}

/// The kernels and the variables of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleInfo {
    /// The kernels, in the order of the text.
    pub entries: Vec<EntryInfo>,
    /// The `.global` and `.const` variables of module scope whose size is known, in the order of the text.
    pub variables: Vec<VariableInfo>,
    /// Whether the text declares `.global` variables, in module scope or in a body. Also true if their size is unknown.
    pub has_variables: bool,
}

/// Lists the kernels of a PTX text, in its order. Their `max_threads` is 0: only a device knows it.
///
/// ```
/// let ptx = ".version 7.0\n.target sm_50\n.entry k(.param .u64 p, .param .align 8 .b8 s[24]) { ret; }";
/// let params = &cuda_core::protocol::entries(ptx)?[0].params;
/// assert_eq!((params[0].ty.to_string(), params[1].ty.to_string()), ("u64".into(), "b8[24]".into()));
/// # Ok::<(), cuda_core::Error>(())
/// ```
///
/// # Errors
/// [`Error::InvalidPtx`].
pub fn entries(ptx: &str) -> Result<Vec<EntryInfo>> {
    module_info(ptx).map(|module| module.entries)
}

/// Lists the kernels and the variables of a PTX text. The `max_threads` of the kernels is 0: only a device knows it.
///
/// ```
/// let ptx = ".version 7.0\n.target sm_50\n.const .f32 scale;\n.entry k() { ld.const.f32 %f1, [scale]; ret; }";
/// let module = cuda_core::protocol::module_info(ptx)?;
/// assert_eq!((module.variables[0].name.as_str(), module.variables[0].bytes), ("scale", 4));
/// assert_eq!(*module.entries[0].variables, [0]);
/// # Ok::<(), cuda_core::Error>(())
/// ```
///
/// # Errors
/// [`Error::InvalidPtx`].
pub fn module_info(ptx: &str) -> Result<ModuleInfo> {
    let module = cuda_ptx::module_signature(ptx);
    let module = module.map_err(|error| {
        let detail = not_ptx(ptx).map_or_else(|| error.to_string(), str::to_owned);
        Error::InvalidPtx { detail }
    })?;
    let has_variables = module.global_bytes != Some(0);
    let entry = |kernel: cuda_ptx::Signature| EntryInfo {
        params: params(&kernel.params),
        variables: kernel.variables,
        name: kernel.name,
        max_threads: 0,
    };
    let variable = |found: cuda_ptx::VariableSignature| VariableInfo {
        name: found.name,
        bytes: found.bytes,
        is_constant: found.space == cuda_ptx::Space::Const,
    };
    let entries = module.entries.into_iter().map(entry).collect();
    let variables = module.variables.into_iter().map(variable).collect();
    Ok(ModuleInfo { entries, variables, has_variables })
}

/// The likely mistake, if the text is not PTX at all.
fn not_ptx(text: &str) -> Option<&'static str> {
    let text = text.trim();
    if text.is_empty() {
        return Some("it is empty");
    }
    if text.starts_with("\u{7f}ELF") {
        return Some("it is a cubin; load it with `load_cubin`, or load the PTX (`nvcc -ptx`)");
    }
    if !text.contains('\n') && [".ptx", ".cu", ".cubin"].iter().any(|end| text.ends_with(end)) {
        return Some("it is the path of a file; pass the text: `std::fs::read_to_string(path)?`");
    }
    let is_source = !text.contains(".version")
        && ["__global__", "#include"].iter().any(|word| text.contains(word));
    is_source.then_some("it is CUDA C; compile it to PTX first: `nvcc -ptx kernel.cu`, or NVRTC")
}

fn params(params: &[cuda_ptx::Param]) -> Vec<ParamInfo> {
    params
        .iter()
        .map(|param| ParamInfo {
            name: param.name.clone(),
            ty: param.param_type,
            offset: param.offset,
            size: param.size,
            align: param.align,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use cuda_ptx::ScalarType;

    use super::*;

    fn params(list: &str) -> Vec<ParamInfo> {
        let text = format!(".version 7.0\n.target sm_50\n.visible .entry k({list}) {{ ret; }}");
        entries(&text).unwrap().remove(0).params
    }

    #[test]
    fn parameters_are_aligned_to_their_size() {
        let params = params(".param .u32 n, .param .u64 p, .param .f32 x");
        let places: Vec<_> = params.iter().map(|p| (p.offset, p.size, p.align)).collect();
        assert_eq!(places, [(0, 4, 4), (8, 8, 8), (16, 4, 4)]);
    }

    #[test]
    fn types_are_spelled_as_in_ptx() {
        for name in ["b8", "u16", "s32", "f16", "f16x2", "bf16", "bf16x2", "f32", "f64", "b64"] {
            assert!(ScalarType::from_name(name).is_some());
            assert_eq!(params(&format!(".param .{name} x"))[0].ty.to_string(), name);
        }
        assert_eq!(params(".param .align 16 .b8 x[32]")[0].ty.to_string(), "b8[32]");
        assert_eq!(params(".param .u32 x[4]")[0].ty.to_string(), "u32[4]");
    }

    #[test]
    fn text_that_is_no_ptx_is_recognized() {
        let message = |text| entries(text).unwrap_err().to_string();
        for (text, advice) in [
            ("", "it is empty"),
            ("kernels/vecadd.ptx", "pass the text"),
            ("extern \"C\" __global__ void k() {}", "compile it to PTX first"),
            ("\u{7f}ELF\u{2}", "it is a cubin"),
        ] {
            assert!(message(text).contains(advice), "{}", message(text));
        }
        let ptx = ".version 7.0\n.target sm_50\n.entry k( // __global__";
        assert!(!message(ptx).contains("CUDA C"), "{}", message(ptx));
    }
}
