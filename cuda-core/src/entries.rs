//! What a kernel's parameters are, from its PTX: the same for every backend that takes PTX.

use crate::ParamInfo;

/// The parameters of a kernel as [`EntryInfo`](crate::EntryInfo) lists them.
///
/// ```
/// let ptx = ".version 7.0\n.target sm_50\n.entry k(.param .u64 p, .param .align 8 .b8 s[24]) { ret; }";
/// let kernels = cuda_ptx::signatures(ptx)?;
/// let params = cuda_core::entry_params(&kernels[0].params);
/// assert_eq!((params[0].ty.as_str(), params[1].ty.as_str()), ("u64", "b8[24]"));
/// # Ok::<(), cuda_ptx::Error>(())
/// ```
pub fn entry_params(params: &[cuda_ptx::Param]) -> Vec<ParamInfo> {
    params
        .iter()
        .map(|param| ParamInfo {
            name: param.name.clone(),
            ty: type_name(param),
            offset: param.offset,
            size: param.size,
            align: param.align,
        })
        .collect()
}

/// `u64`, or `b8[24]` for more than one of a type.
fn type_name(param: &cuda_ptx::Param) -> String {
    // PTX writes its types as their variants are called, in lower case.
    let element = format!("{:?}", param.ty).to_ascii_lowercase();
    match param.size / param.ty.size() {
        0 | 1 => element,
        count => format!("{element}[{count}]"),
    }
}

#[cfg(test)]
mod tests {
    use cuda_ptx::ScalarType;

    use super::*;

    fn params(list: &str) -> Vec<ParamInfo> {
        let text = format!(".version 7.0\n.target sm_50\n.visible .entry k({list}) {{ ret; }}");
        entry_params(&cuda_ptx::signatures(&text).unwrap()[0].params)
    }

    #[test]
    fn each_stands_at_its_own_alignment() {
        let params = params(".param .u32 n, .param .u64 p, .param .f32 x");
        let places: Vec<_> = params.iter().map(|p| (p.offset, p.size, p.align)).collect();
        assert_eq!(places, [(0, 4, 4), (8, 8, 8), (16, 4, 4)]);
    }

    #[test]
    fn types_are_written_as_in_ptx() {
        for name in ["b8", "u16", "s32", "f16", "f16x2", "bf16", "bf16x2", "f32", "f64", "b64"] {
            assert!(ScalarType::from_name(name).is_some());
            assert_eq!(params(&format!(".param .{name} x"))[0].ty, name);
        }
        assert_eq!(params(".param .align 16 .b8 x[32]")[0].ty, "b8[32]");
        assert_eq!(params(".param .u32 x[4]")[0].ty, "u32[4]");
    }
}
