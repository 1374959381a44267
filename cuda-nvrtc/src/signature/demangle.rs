//! Parses mangled names of the Itanium C++ ABI, as far as kernels use them.
//!
//! `S_`, `S0_`, .. stand for earlier parts of the name, so every part that the ABI counts is kept, in its order.

use super::CType;

/// The maximum depth of nested types.
const MAX_DEPTH: u32 = 32;

/// `long` has 4 bytes in Windows.
const LONG: u32 = if cfg!(windows) { 4 } else { 8 };

/// A part of a name that `S_` can stand for.
#[derive(Debug, Clone)]
enum Part {
    /// The name of a namespace, a class or a function.
    Scope(String),
    Type(Qualified),
}

/// A type, and whether it is `const`.
#[derive(Debug, Clone)]
struct Qualified {
    ty: Type,
    is_const: bool,
}

/// A type in a name.
#[derive(Debug, Clone)]
enum Type {
    Plain(CType),
    /// A function, with the types of its parameters.
    Function(Vec<Qualified>),
}

impl Qualified {
    fn plain(ty: CType) -> Self {
        Self { ty: Type::Plain(ty), is_const: false }
    }

    fn into_type(self) -> CType {
        match self.ty {
            Type::Plain(ty) => ty,
            Type::Function(_) => CType::Other("a function".into()),
        }
    }
}

/// The parameters of a mangled function.
pub(super) fn parameters(name: &str) -> Option<Vec<CType>> {
    let mut parser = Parser::new(name.strip_prefix("_Z")?);
    let of_template = parser.function_name()?.1;
    if of_template {
        parser.qualified(0)?; // the result
    }
    let parameters = parser.parameter_types()?;
    parser.rest.is_empty().then_some(())?;
    Some(parameters.into_iter().map(Qualified::into_type).collect())
}

/// The parameters of the function whose type is the argument of the template `probe`.
pub(super) fn probed(name: &str, probe: &str) -> Option<Vec<CType>> {
    let mut parser = Parser::new(name.strip_prefix("_Z")?);
    let (found, _) = parser.function_name()?;
    (found == probe).then_some(())?;
    match parser.arguments.into_iter().next()??.ty {
        Type::Plain(CType::Pointer { .. }) => None,
        Type::Function(parameters) => {
            Some(parameters.into_iter().map(Qualified::into_type).collect())
        }
        Type::Plain(_) => None,
    }
}

struct Parser<'a> {
    rest: &'a str,
    parts: Vec<Part>,
    /// The arguments of the function's template. `None` for arguments that are not types.
    arguments: Vec<Option<Qualified>>,
}

impl<'a> Parser<'a> {
    fn new(rest: &'a str) -> Self {
        Self { rest, parts: Vec::new(), arguments: Vec::new() }
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    /// Skips `text`, if it comes next.
    fn eat(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// The name of the function, and whether it is an instance of a template.
    fn function_name(&mut self) -> Option<(String, bool)> {
        if self.eat("N") {
            let mut name = self.source_name()?;
            loop {
                let next_is_template = self.peek() == Some('I');
                let ends = self.peek() == Some('E');
                if ends {
                    self.eat("E");
                    return Some((name, false));
                }
                self.parts.push(Part::Scope(name.clone()));
                if next_is_template {
                    self.arguments = self.template_arguments(0)?;
                    // Members of class templates are not kernels.
                    return self.eat("E").then_some((name, true));
                }
                name = format!("{name}::{}", self.source_name()?);
            }
        }
        self.eat("L");
        let name = self.source_name()?;
        if self.peek() != Some('I') {
            return Some((name, false));
        }
        self.parts.push(Part::Scope(name.clone()));
        self.arguments = self.template_arguments(0)?;
        Some((name, true))
    }

    /// A name with its length: `5saxpy`.
    fn source_name(&mut self) -> Option<String> {
        let digits = self.rest.find(|c: char| !c.is_ascii_digit())?;
        let length: usize = self.rest.get(..digits)?.parse().ok()?;
        let end = digits.checked_add(length)?;
        let name = self.rest.get(digits..end)?;
        self.rest = self.rest.get(end..)?;
        (!name.is_empty()).then(|| name.to_owned())
    }

    /// The types of parameters, up to the end or to an `E`.
    fn parameter_types(&mut self) -> Option<Vec<Qualified>> {
        let mut types = Vec::new();
        while !self.rest.is_empty() && self.peek() != Some('E') {
            types.push(self.qualified(1)?);
        }
        // A function without parameters has `void`.
        if let [Qualified { ty: Type::Plain(CType::Void), .. }] = types.as_slice() {
            types.clear();
        }
        Some(types)
    }

    /// `I .. E`
    fn template_arguments(&mut self, depth: u32) -> Option<Vec<Option<Qualified>>> {
        self.eat("I").then_some(())?;
        let mut arguments = Vec::new();
        while !self.eat("E") {
            if self.eat("L") {
                self.qualified(depth + 1)?;
                let end = self.rest.find('E')?;
                let value = &self.rest[..end];
                value.chars().all(|c| c.is_ascii_digit() || c == 'n').then_some(())?;
                self.rest = &self.rest[end + 1..];
                arguments.push(None);
            } else {
                arguments.push(Some(self.qualified(depth + 1)?));
            }
        }
        Some(arguments)
    }

    /// A type.
    fn qualified(&mut self, depth: u32) -> Option<Qualified> {
        (depth < MAX_DEPTH).then_some(())?;
        let first = self.peek()?;
        let known = match first {
            'P' => {
                self.eat("P");
                let Qualified { ty, is_const } = self.qualified(depth + 1)?;
                match ty {
                    Type::Plain(to) => Qualified::plain(CType::Pointer { to: to.into(), is_const }),
                    // A pointer to a function is only read in the argument of the probe.
                    function => Qualified { ty: function, is_const: false },
                }
            }
            'R' | 'O' => {
                self.eat("R");
                self.eat("O");
                let to = self.qualified(depth + 1)?.into_type();
                Qualified::plain(CType::Other(format!("{to} &")))
            }
            'r' | 'V' | 'K' => {
                // The qualifiers together are one part.
                let restrict_or_volatile = self.eat("r") | self.eat("V");
                let is_const = self.eat("K");
                (restrict_or_volatile || is_const).then_some(())?;
                let Qualified { ty, .. } = self.qualified(depth + 1)?;
                Qualified { ty, is_const }
            }
            'A' => {
                self.eat("A");
                let (count, rest) = self.rest.split_once('_')?;
                let is_number = !count.is_empty() && count.chars().all(|c| c.is_ascii_digit());
                is_number.then_some(())?;
                self.rest = rest;
                let Qualified { ty, is_const } = self.qualified(depth + 1)?;
                let of = Qualified { ty, is_const }.into_type();
                Qualified { ty: Type::Plain(CType::Other(format!("{of}[{count}]"))), is_const }
            }
            'F' => {
                self.eat("F");
                self.eat("Y");
                self.qualified(depth + 1)?; // the result
                let parameters = self.parameter_types()?;
                self.eat("E").then_some(())?;
                Qualified { ty: Type::Function(parameters), is_const: false }
            }
            'T' => {
                self.eat("T");
                let index = self.index()?;
                self.arguments.get(index)?.clone()?
            }
            'S' => return self.substitution(depth),
            'N' => return self.nested(depth),
            '0'..='9' => {
                let name = self.source_name()?;
                return self.class(name, depth);
            }
            _ => return self.builtin(),
        };
        self.parts.push(Part::Type(known.clone()));
        Some(known)
    }

    /// `_` is 0, `0_` is 1.
    fn index(&mut self) -> Option<usize> {
        let (digits, rest) = self.rest.split_once('_')?;
        let index = if digits.is_empty() {
            0
        } else {
            usize::from_str_radix(digits, 36).ok()?.checked_add(1)?
        };
        self.rest = rest;
        Some(index)
    }

    /// An earlier part: `S_`, `S0_`. `St` is the namespace `std`.
    fn substitution(&mut self, depth: u32) -> Option<Qualified> {
        self.eat("S");
        if self.eat("t") {
            let name = format!("std::{}", self.source_name()?);
            return self.class(name, depth);
        }
        let index = self.index()?;
        match self.parts.get(index)?.clone() {
            Part::Type(ty) => {
                // An argument list behind a template that was a type before.
                (self.peek() != Some('I')).then_some(ty)
            }
            Part::Scope(name) if self.peek() == Some('I') => {
                self.template_arguments(depth + 1)?;
                self.counted(named(&name))
            }
            Part::Scope(_) => None,
        }
    }

    /// The rest of a class: its template arguments, if any.
    fn class(&mut self, name: String, depth: u32) -> Option<Qualified> {
        if self.peek() == Some('I') {
            self.parts.push(Part::Scope(name.clone()));
            self.template_arguments(depth + 1)?;
            // Its template arguments decide its size, so its name alone does not identify the type.
            return self.counted(CType::Other(name));
        }
        self.counted(named(&name))
    }

    /// `N .. E`: a class of a namespace.
    fn nested(&mut self, depth: u32) -> Option<Qualified> {
        self.eat("N");
        let mut name = if self.eat("S") {
            let index = self.index()?;
            match self.parts.get(index)?.clone() {
                Part::Scope(name)
                | Part::Type(Qualified { ty: Type::Plain(CType::Other(name)), .. }) => name,
                Part::Type(_) => return None,
            }
        } else {
            let name = self.source_name()?;
            self.parts.push(Part::Scope(name.clone()));
            name
        };
        loop {
            name = format!("{name}::{}", self.source_name()?);
            if self.eat("E") {
                return self.counted(CType::Other(name));
            }
            self.parts.push(Part::Scope(name.clone()));
            if self.peek() == Some('I') {
                self.template_arguments(depth + 1)?;
                return if self.eat("E") { self.counted(CType::Other(name)) } else { None };
            }
        }
    }

    /// A type that `S_` may stand for later.
    fn counted(&mut self, ty: CType) -> Option<Qualified> {
        let ty = Qualified::plain(ty);
        self.parts.push(Part::Type(ty.clone()));
        Some(ty)
    }

    fn builtin(&mut self) -> Option<Qualified> {
        let first = self.peek()?;
        if self.eat("Dh") {
            return Some(Qualified::plain(CType::Float { name: "_Float16", size: 2 }));
        }
        let integer = |name, size| CType::Integer { name, size };
        let ty = match first {
            'v' => CType::Void,
            'b' => CType::Bool,
            'c' => integer("char", 1),
            'a' => integer("signed char", 1),
            'h' => integer("unsigned char", 1),
            's' => integer("short", 2),
            't' => integer("unsigned short", 2),
            'i' => integer("int", 4),
            'j' => integer("unsigned int", 4),
            'l' => integer("long", LONG),
            'm' => integer("unsigned long", LONG),
            'x' => integer("long long", 8),
            'y' => integer("unsigned long long", 8),
            'f' => CType::Float { name: "float", size: 4 },
            'd' => CType::Float { name: "double", size: 8 },
            _ => return None,
        };
        self.rest = &self.rest[first.len_utf8()..];
        Some(Qualified::plain(ty))
    }
}

/// A class that has a counterpart in Rust, or another one.
fn named(name: &str) -> CType {
    match name {
        "__half" => CType::Float { name: "__half", size: 2 },
        "__nv_bfloat16" => CType::BFloat16,
        _ => CType::Other(name.to_owned()),
    }
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
}
