//! The kernels and the variables of a PTX text.

use std::collections::HashMap;

use cuda_nvrtc::signature::{self, CType};
use cuda_ptx::{Signature, VariableSignature};

/// The kernels and the variables of a PTX text.
pub(crate) struct Contents {
    pub(crate) entries: Vec<Signature>,
    pub(crate) variables: Vec<VariableSignature>,
    /// The C types of the parameters, for the kernels for which the text states them.
    pub(crate) types: HashMap<String, Vec<CType>>,
}

impl Contents {
    /// Reads a PTX text.
    pub(crate) fn of(ptx: &str) -> Result<Self, cuda_ptx::Error> {
        let module = cuda_ptx::module_signature(ptx)?;
        let types = |entry: &Signature| {
            let types = signature::of_entry(ptx, &entry.name)?;
            // With another number of parameters, the stated types are not those of this kernel.
            (types.len() == entry.params.len()).then(|| (entry.name.clone(), types))
        };
        let types = module.entries.iter().filter_map(types).collect();
        Ok(Self { entries: module.entries, variables: module.variables, types })
    }
}
