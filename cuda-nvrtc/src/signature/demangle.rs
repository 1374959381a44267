//! Reads the types of parameters in the text that `cpp_demangle` writes for a mangled name, such as
//! `void axpy<float>(float const*, float*)`. The crate keeps the parsed types private.

use std::fmt;

use cpp_demangle::{DemangleNodeType, DemangleOptions, DemangleWrite, Symbol};

use super::CType;

/// The maximum length of a text in bytes. References to earlier parts let a name of 240 bytes stand for gigabytes.
const MAX_TEXT: usize = 1 << 16;

/// `long` has 4 bytes in Windows.
const LONG: u32 = if cfg!(windows) { 4 } else { 8 };

/// Follows a type that the text states in place of a parameter of the template.
const OF_PARAMETER: char = '\0';

/// The parameters of a mangled function.
pub(super) fn parameters(name: &str) -> Option<Vec<CType>> {
    let text = text(name)?;
    let list = text.strip_suffix(')')?;
    let mut depth = 1;
    let open = list.rfind(|c| {
        depth += i32::from(c == ')') - i32::from(c == '(');
        depth == 0
    })?;
    types(&list[open + 1..])
}

/// The parameters of the function whose type is the argument of the template `probe`.
pub(super) fn probed(name: &str, probe: &str) -> Option<Vec<CType>> {
    let text = text(name)?;
    let argument = text.strip_prefix("void ")?.strip_prefix(probe)?.strip_prefix("<void (*)(")?;
    types(argument.strip_suffix(")>()")?)
}

/// The text of a mangled function. `None` if the types in the text may be others than those of the function.
fn text(name: &str) -> Option<String> {
    // The text of a parameter pack of pointers has one `*`, behind the last type.
    (name.starts_with("_Z") && !name.contains("Dp")).then_some(())?;
    let mut text = Text::default();
    let symbol = Symbol::new(name).ok()?;
    symbol.structured_demangle(&mut text, &DemangleOptions::new()).ok()?;
    // `T::type`, `Box<T>::type` and `decltype (..)` may be any type.
    let is_any = ["\0::", ">::", "decltype "].iter().any(|any| text.written.contains(any));
    (!is_any).then(|| text.written.replace(OF_PARAMETER, ""))
}

#[derive(Default)]
struct Text {
    written: String,
    /// The parts of the name that are being written, outermost first.
    nodes: Vec<DemangleNodeType>,
}

impl DemangleWrite for Text {
    fn push_demangle_node(&mut self, node: DemangleNodeType) {
        self.nodes.push(node);
    }

    fn write_string(&mut self, part: &str) -> fmt::Result {
        self.written.push_str(part);
        if self.written.len() > MAX_TEXT { Err(fmt::Error) } else { Ok(()) }
    }

    fn pop_demangle_node(&mut self) {
        if self.nodes.pop() == Some(DemangleNodeType::TemplateParam) {
            self.written.push(OF_PARAMETER);
        }
    }
}

/// The types of a list of parameters.
fn types(list: &str) -> Option<Vec<CType>> {
    let (mut types, mut text) = (Vec::new(), String::new());
    let (mut angles, mut rounds) = (0u32, 0u32);
    for c in list.chars() {
        match c {
            '<' => angles += 1,
            '>' => angles = angles.checked_sub(1)?,
            // Template arguments decide the size of a class, so its name alone does not identify the type.
            _ if angles > 0 => {}
            ',' if rounds == 0 => types.push(qualified(std::mem::take(&mut text).trim())?.0),
            c => {
                rounds = (rounds + u32::from(c == '(')).checked_sub(u32::from(c == ')'))?;
                text.push(c);
            }
        }
    }
    if !list.is_empty() {
        types.push(qualified(text.trim())?.0);
    }
    (angles == 0 && rounds == 0).then_some(types)
}

/// A type, and whether it is `const`.
fn qualified(text: &str) -> Option<(CType, bool)> {
    let mut ty = text;
    while let Some((rest, "const" | "volatile" | "restrict")) = ty.rsplit_once(' ') {
        ty = rest;
    }
    let is_const = text[ty.len()..].contains("const");
    let ty = if ty.ends_with(')') {
        CType::Other("a function".into())
    } else if let Some(to) = ty.strip_suffix('*') {
        let (to, is_const) = qualified(to)?;
        CType::Pointer { to: to.into(), is_const }
    } else if let Some(to) = ty.strip_suffix('&') {
        CType::Other(format!("{} &", qualified(to.trim_end_matches('&'))?.0))
    } else if let Some((of, count)) = ty.split_once(" (*) [") {
        let (of, is_const) = qualified(of)?;
        CType::Pointer { to: CType::Other(format!("{of}[{count}")).into(), is_const }
    } else {
        named(ty)?
    };
    Some((ty, is_const))
}

/// A type of C, a class that has a counterpart in Rust, or another class.
fn named(name: &str) -> Option<CType> {
    let integer = |name, size| CType::Integer { name, size };
    let float = |name, size| CType::Float { name, size };
    Some(match name {
        "void" => CType::Void,
        "bool" => CType::Bool,
        "char" => integer("char", 1),
        "signed char" => integer("signed char", 1),
        "unsigned char" => integer("unsigned char", 1),
        "short" => integer("short", 2),
        "unsigned short" => integer("unsigned short", 2),
        "int" => integer("int", 4),
        "unsigned int" => integer("unsigned int", 4),
        "long" => integer("long", LONG),
        "unsigned long" => integer("unsigned long", LONG),
        "long long" => integer("long long", 8),
        "unsigned long long" => integer("unsigned long long", 8),
        "float" => float("float", 4),
        "double" => float("double", 8),
        "__half" => float("__half", 2),
        "__nv_bfloat16" => CType::BFloat16,
        _ => {
            let is_of_name = |c: char| c.is_alphanumeric() || "_:$".contains(c);
            name.chars().all(is_of_name).then(|| CType::Other(name.to_owned()))?
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(types: Option<Vec<CType>>) -> Option<String> {
        let types: Vec<_> = types?.iter().map(ToString::to_string).collect();
        Some(types.join(", "))
    }

    #[test]
    fn parameters_are_read() {
        for (name, types) in [
            ("_Z5saxpyPKfPffj", "const float *, float *, float, unsigned int"),
            ("_Z5emptyv", ""),
            ("_Z1kPKfS0_Pf", "const float *, const float *, float *"),
            ("_Z1kPiS_S_", "int *, int *, int *"),
            ("_Z1kPK6__halfP13__nv_bfloat16", "const __half *, __nv_bfloat16 *"),
            ("_Z1kP6float4S_S0_", "float4 *, float4, float4 *"),
            ("_Z4axpyIfEvPKT_PS0_S0_j", "const float *, float *, float, unsigned int"),
            ("_Z4axpyILi4EdEvPT0_", "double *"),
            ("_ZN2ns5saxpyEPKhPb", "const unsigned char *, bool *"),
            ("_ZL5localPVfPKx", "float *, const long long *"),
            ("_Z1kPPKfPKPf", "const float **, float *const *"),
            ("_Z1kPN2ns3VecE3BoxIfE", "ns::Vec *, Box"),
            ("_Z1kPvPKvRi", "void *, const void *, int &"),
            ("_Z3twoPA4_fPA4_KfPFffE", "float[4] *, const float[4] *, a function"),
        ] {
            assert_eq!(shown(parameters(name)).as_deref(), Some(types), "{name}");
        }
    }

    #[test]
    fn probe_names_hold_the_type_of_a_kernel() {
        let name = "_Z20cuda_nvrtc_signatureIPFvPKfPffjEEvv";
        let types = "const float *, float *, float, unsigned int";
        assert_eq!(shown(probed(name, "cuda_nvrtc_signature")).as_deref(), Some(types));
        assert_eq!(probed("_Z5saxpyPKf", "cuda_nvrtc_signature"), None);
        assert_eq!(probed("_Z20cuda_nvrtc_signatureIPfEvv", "cuda_nvrtc_signature"), None);
    }

    #[test]
    fn unknown_forms_give_no_types() {
        for name in [
            "saxpy", "_Z", "_Z5sax", "_Z1kPq", "_Z1kS_", "_Z1kS5_", "_Z1kT_", "_Z1kDpf", "_Z1kP",
            "_Z9é", "_Z1kA_f",
        ] {
            assert!(parameters(name).is_none_or(|types| types.is_empty()), "{name}");
        }
        assert_eq!(parameters(&format!("_Z1k{}f", "P".repeat(1000))), None);
        assert_eq!(parameters(&format!("_Z{}k", "9".repeat(40))), None);
    }

    #[test]
    fn types_that_the_name_does_not_state_give_none() {
        for name in [
            "_Z1kI3FooEvPNT_4typeE",
            "_Z1kIfEvPN3BoxIT_E4typeE",
            "_Z1kIfEvPDTcl1fEE",
            "_Z1kIJffEEvDpPT_",
        ] {
            assert_eq!(parameters(name), None, "{name}");
        }
    }

    /// Each type is a function that takes the type before it twice.
    #[test]
    fn name_of_a_huge_text_gives_no_types() {
        let doubled = |types: &str| {
            let ids = std::iter::once(String::new()).chain(types.chars().map(String::from));
            let types: String = ids.map(|id| format!("FvS{id}_S{id}_E")).collect();
            parameters(&format!("_Z1kPf{types}"))
        };
        assert_eq!(doubled("01234").map(|types| types.len()), Some(7));
        assert_eq!(doubled("0123456789ABCDEFGHIJKLMNO"), None);
    }
}
