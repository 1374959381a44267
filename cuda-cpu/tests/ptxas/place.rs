//! The module around an instruction.

use std::fmt;

use cuda_ptx::table::Form;

/// The `.version` and `.target` of a module, and the kind of the function with the instruction.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) version: (u32, u32),
    pub(crate) target: String,
    /// Whether it is a `.func`, not an `.entry`.
    pub(crate) in_function: bool,
}

/// An instruction, with its semicolon, in a module.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) place: Place,
    pub(crate) text: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { version: (major, minor), target, in_function } = self;
        let function = if *in_function { " func" } else { "" };
        write!(f, "{major}.{minor} {target}{function}")
    }
}

impl Place {
    /// Returns the place that the table gives for a form.
    pub(crate) fn of_form(form: &Form) -> Self {
        // Kernels have no parameters that they could write.
        let in_function = form.text.contains("param::func")
            || form.text.starts_with("st.") && form.text.contains(".param.");
        Self { version: form.version, target: form.target.clone(), in_function }
    }

    /// Reads `9.2 sm_90a` or `9.2 sm_90a func`.
    pub(crate) fn from_text(text: &str) -> Self {
        let mut parts = text.split(' ');
        let (major, minor) = parts.next().and_then(|version| version.split_once('.')).unwrap();
        Self {
            version: (major.parse().unwrap(), minor.parse().unwrap()),
            target: parts.next().unwrap().to_owned(),
            in_function: parts.next().is_some(),
        }
    }

    /// Returns the number of the architecture, 90 for `sm_90a`.
    pub(crate) fn architecture(&self) -> u32 {
        self.target.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap()
    }

    /// Returns the text of a module before its instructions. It ends with a line break.
    pub(crate) fn head(&self) -> String {
        let Self { version: (major, minor), target, in_function } = self;
        let since = |version, target| self.version >= version && self.architecture() >= target;
        let size = if since((2, 3), 0) { ".address_size 64" } else { "" };
        let wide = if since((8, 3), 70) { ".reg .b128 %q<40>;" } else { "" };
        let halves = if since((4, 2), 53) { ".reg .f16 %hf<9>; .reg .f16x2 %hx<9>;" } else { "" };
        let functions = if since((2, 0), 20) { FUNCTIONS } else { ".func f() { ret; }" };
        let passed = if since((2, 0), 20) { PASSED } else { "" };
        let prototype = if since((2, 1), 20) { PROTOTYPE } else { "" };
        let targets = if since((6, 0), 30) { "$Targets: .branchtargets $End;" } else { "" };
        let function = match *in_function {
            true => ".func inside(.param .b64 P, .param .b32 P32)",
            false => ".visible .entry k(.param .b64 P, .param .b32 P32)",
        };
        format!(
            ".version {major}.{minor}\n.target {target}\n{size}\n.global .u32 gv[4];\n.const .u32 cv[4];\n\
             {functions}\n{function} {{\n{REGISTERS}\n{wide}{halves}\n{passed}\n{prototype}\n\
             {targets}\n"
        )
    }
}

/// The text of a module after its instructions.
pub(crate) const TAIL: &str = "$End: ret;\n}\n";

const REGISTERS: &str = "\
.reg .pred %p<40>; .reg .b8 %b<40>; .reg .b16 %h<60>; .reg .b32 %w<60>; .reg .b64 %l<60>; .reg .b64 %a;
.reg .f32 %f<9>; .reg .f64 %d<9>; .reg .u32 %u<9>; .reg .s32 %s<9>; .reg .u64 %ul<9>; .reg .u16 %uh<9>;
.shared .u32 sv[4]; .local .u32 lv[4];";

const FUNCTIONS: &str = "\
.func f() { ret; } .func takes32(.param .b32 x) { ret; } .func takes64(.param .u64 x) { ret; }
.func takes_float(.param .f32 x) { ret; } .func takes_double(.param .f64 x) { ret; } .func takes16(.param .s16 x) { ret; }
.func takes_bytes(.param .align 4 .b8 x[8]) { ret; }
.func takes_two(.param .b32 x, .param .b64 y) { ret; } .func takes_register(.reg .b32 x) { ret; }
.func (.param .b32 r) returns32() { ret; } .func (.param .f32 r) returns_float() { ret; }
.func (.param .align 4 .b8 r[8]) returns_bytes() { ret; } .func (.reg .b64 r) returns_register() { ret; }
.func (.param .b32 r) both(.param .f64 x) { ret; }";

const PASSED: &str = "\
.param .b32 p32; .param .u64 p64; .param .f32 pf; .param .f64 pd; .param .s16 p16; .param .align 4 .b8 pb[8];
.param .align 8 .b8 pb8[8]; .param .b8 pb1[12]; .param .b32 p32s[2];";

const PROTOTYPE: &str = "\
Takes: .callprototype _ (.param .b32 _); Both: .callprototype (.param .b32 _) _ (.param .f64 _);";
