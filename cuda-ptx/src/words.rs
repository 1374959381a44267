//! The words of PTX: opcodes, modifiers, types and state spaces.

use std::fmt;

/// Defines an enum of words, in the order of their texts:
/// `words! { /// .. pub enum Color { Blue = "blue", Red = "red" } }`.
///
/// The enum has `ALL`, `name` and `from_name`. Words out of order do not compile, because `from_name` searches them.
macro_rules! words {
    ($(#[$meta:meta])* pub enum $name:ident { $($variant:ident = $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs)] // Each variant is named like its word.
        #[repr(u16)]
        pub enum $name { $($variant,)* }

        impl $name {
            /// All words, in the order of their texts.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];
            const NAMES: &'static [&'static str] = &[$($text,)*];
            const _SORTED: () = assert!($crate::words::is_sorted(Self::NAMES), "words are out of order");

            /// Returns the word, as it is written in PTX.
            pub const fn name(self) -> &'static str {
                Self::NAMES[self as usize]
            }

            /// Returns the variant of a word.
            pub fn from_name(name: &str) -> Option<Self> {
                let () = Self::_SORTED;
                let at = Self::NAMES.binary_search(&name).ok()?;
                Self::ALL.get(at).copied()
            }
        }
    };
}

pub(crate) use words;

/// Returns whether the texts are sorted by their bytes, without repetitions.
pub(crate) const fn is_sorted(names: &[&str]) -> bool {
    let mut i = 1;
    while i < names.len() {
        if !is_less(names[i - 1].as_bytes(), names[i].as_bytes()) {
            return false;
        }
        i += 1;
    }
    true
}

const fn is_less(a: &[u8], b: &[u8]) -> bool {
    let mut i = 0;
    while i < a.len() && i < b.len() {
        if a[i] != b[i] {
            return a[i] < b[i];
        }
        i += 1;
    }
    a.len() < b.len()
}

words! {
    /// An opcode: the part of an instruction before its first dot.
    ///
    /// # Examples
    /// ```
    /// use cuda_ptx::Opcode;
    /// assert_eq!(Opcode::from_name("add"), Some(Opcode::Add));
    /// assert_eq!(Opcode::Lop3.name(), "lop3");
    /// ```
    pub enum Opcode {
        Abs = "abs",
        Activemask = "activemask",
        Add = "add",
        Addc = "addc",
        Alloca = "alloca",
        And = "and",
        Applypriority = "applypriority",
        Atom = "atom",
        Bar = "bar",
        Barrier = "barrier",
        Bfe = "bfe",
        Bfi = "bfi",
        Bfind = "bfind",
        Bmsk = "bmsk",
        Bra = "bra",
        Brev = "brev",
        Brkpt = "brkpt",
        Brx = "brx",
        Call = "call",
        Clusterlaunchcontrol = "clusterlaunchcontrol",
        Clz = "clz",
        Cnot = "cnot",
        Copysign = "copysign",
        Cos = "cos",
        Cp = "cp",
        Createpolicy = "createpolicy",
        Cvt = "cvt",
        Cvta = "cvta",
        Discard = "discard",
        Div = "div",
        Dp2a = "dp2a",
        Dp4a = "dp4a",
        Elect = "elect",
        Ex2 = "ex2",
        Exit = "exit",
        Fence = "fence",
        Fma = "fma",
        Fns = "fns",
        Getctarank = "getctarank",
        Griddepcontrol = "griddepcontrol",
        Isspacep = "isspacep",
        Istypep = "istypep",
        Ld = "ld",
        Ldmatrix = "ldmatrix",
        Ldu = "ldu",
        Lg2 = "lg2",
        Lop3 = "lop3",
        Mad = "mad",
        Mad24 = "mad24",
        Madc = "madc",
        Mapa = "mapa",
        Match = "match",
        Max = "max",
        Mbarrier = "mbarrier",
        Membar = "membar",
        Min = "min",
        Mma = "mma",
        Mov = "mov",
        Movmatrix = "movmatrix",
        Mul = "mul",
        Mul24 = "mul24",
        Multimem = "multimem",
        Nanosleep = "nanosleep",
        Neg = "neg",
        Not = "not",
        Or = "or",
        Pmevent = "pmevent",
        Popc = "popc",
        Prefetch = "prefetch",
        Prefetchu = "prefetchu",
        Prmt = "prmt",
        Rcp = "rcp",
        Red = "red",
        Redux = "redux",
        Rem = "rem",
        Ret = "ret",
        Rsqrt = "rsqrt",
        Sad = "sad",
        Selp = "selp",
        Set = "set",
        Setmaxnreg = "setmaxnreg",
        Setp = "setp",
        Shf = "shf",
        Shfl = "shfl",
        Shl = "shl",
        Shr = "shr",
        Sin = "sin",
        Slct = "slct",
        Sqrt = "sqrt",
        St = "st",
        Stackrestore = "stackrestore",
        Stacksave = "stacksave",
        Stmatrix = "stmatrix",
        Sub = "sub",
        Subc = "subc",
        Suld = "suld",
        Suq = "suq",
        Sured = "sured",
        Sust = "sust",
        Szext = "szext",
        Tanh = "tanh",
        Tcgen05 = "tcgen05",
        Tensormap = "tensormap",
        Testp = "testp",
        Tex = "tex",
        Tld4 = "tld4",
        Trap = "trap",
        Txq = "txq",
        Vabsdiff = "vabsdiff",
        Vabsdiff2 = "vabsdiff2",
        Vabsdiff4 = "vabsdiff4",
        Vadd = "vadd",
        Vadd2 = "vadd2",
        Vadd4 = "vadd4",
        Vavrg2 = "vavrg2",
        Vavrg4 = "vavrg4",
        Vmad = "vmad",
        Vmax = "vmax",
        Vmax2 = "vmax2",
        Vmax4 = "vmax4",
        Vmin = "vmin",
        Vmin2 = "vmin2",
        Vmin4 = "vmin4",
        Vote = "vote",
        Vset = "vset",
        Vset2 = "vset2",
        Vset4 = "vset4",
        Vshl = "vshl",
        Vshr = "vshr",
        Vsub = "vsub",
        Vsub2 = "vsub2",
        Vsub4 = "vsub4",
        Wgmma = "wgmma",
        Wmma = "wmma",
        Xor = "xor",
    }
}

/// A modifier: one of the parts of an instruction behind its opcode, which dots separate. In `shared::cta`, `::` does
/// not separate parts.
///
/// # Examples
/// ```
/// use cuda_ptx::{Modifier, ScalarType, Word};
/// assert_eq!(Modifier::from_name("ftz"), Some(Modifier::Word(Word::Ftz)));
/// assert_eq!(Modifier::from_name("u32"), Some(Modifier::Type(ScalarType::U32)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Modifier {
    /// A type.
    Type(ScalarType),
    /// Any other modifier.
    Word(Word),
}

impl Modifier {
    /// Returns the modifier that a text names, without the dot.
    pub fn from_name(name: &str) -> Option<Self> {
        let word = Word::from_name(name).map(Self::Word);
        word.or_else(|| ScalarType::from_name(name).map(Self::Type))
    }

    /// Returns the text in PTX, without the dot.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Type(ty) => ty.name(),
            Self::Word(word) => word.name(),
        }
    }
}

impl fmt::Display for Modifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

words! {
    /// A modifier that is not a type ([`Modifier::Word`]).
    pub enum Word {
        L1 = "L1",
        L1EvictFirst = "L1::evict_first",
        L1EvictLast = "L1::evict_last",
        L1EvictNormal = "L1::evict_normal",
        L1EvictUnchanged = "L1::evict_unchanged",
        L1NoAllocate = "L1::no_allocate",
        L2 = "L2",
        L2128B = "L2::128B",
        L2256B = "L2::256B",
        L264B = "L2::64B",
        L2CacheHint = "L2::cache_hint",
        L2EvictFirst = "L2::evict_first",
        L2EvictLast = "L2::evict_last",
        L2EvictNormal = "L2::evict_normal",
        L2EvictUnchanged = "L2::evict_unchanged",
        PropagateNan = "NaN",
        A = "a",
        Abs = "abs",
        AcqRel = "acq_rel",
        Acquire = "acquire",
        Add = "add",
        Alias = "alias",
        Aligned = "aligned",
        All = "all",
        And = "and",
        Any = "any",
        Approx = "approx",
        Arrive = "arrive",
        ArriveDrop = "arrive_drop",
        Async = "async",
        AsyncGeneric = "async::generic",
        B = "b",
        B4e = "b4e",
        B4x16P64 = "b4x16_p64",
        B6x16P32 = "b6x16_p32",
        B8x16 = "b8x16",
        Ballot = "ballot",
        Bfly = "bfly",
        Bulk = "bulk",
        BulkGroup = "bulk_group",
        C = "c",
        Ca = "ca",
        Cas = "cas",
        Cc = "cc",
        Cg = "cg",
        Clamp = "clamp",
        Cluster = "cluster",
        Col = "col",
        CommitGroup = "commit_group",
        CompleteTx = "complete_tx",
        Const = "const",
        CpMask = "cp_mask",
        Cs = "cs",
        Cta = "cta",
        Cv = "cv",
        Cvt = "cvt",
        D = "d",
        Dec = "dec",
        Down = "down",
        Ecl = "ecl",
        Ecr = "ecr",
        Eq = "eq",
        Equ = "equ",
        Exch = "exch",
        ExpectTx = "expect_tx",
        F4e = "f4e",
        Fence = "fence",
        Finite = "finite",
        Fractional = "fractional",
        Ftz = "ftz",
        Full = "full",
        Ge = "ge",
        Geu = "geu",
        Gl = "gl",
        Global = "global",
        Gpu = "gpu",
        Gt = "gt",
        Gtu = "gtu",
        Hi = "hi",
        Hs = "hs",
        Idx = "idx",
        Inc = "inc",
        Infinite = "infinite",
        Init = "init",
        Inval = "inval",
        L = "l",
        LaunchDependents = "launch_dependents",
        LdReduce = "ld_reduce",
        Le = "le",
        Leu = "leu",
        Lo = "lo",
        Load = "load",
        Local = "local",
        Ls = "ls",
        Lt = "lt",
        Ltu = "ltu",
        Lu = "lu",
        M16n16 = "m16n16",
        M16n16k16 = "m16n16k16",
        M16n16k8 = "m16n16k8",
        M16n8 = "m16n8",
        M16n8k128 = "m16n8k128",
        M16n8k16 = "m16n8k16",
        M16n8k256 = "m16n8k256",
        M16n8k32 = "m16n8k32",
        M16n8k4 = "m16n8k4",
        M16n8k64 = "m16n8k64",
        M16n8k8 = "m16n8k8",
        M32n8k16 = "m32n8k16",
        M64n8k16 = "m64n8k16",
        M8n16 = "m8n16",
        M8n32k16 = "m8n32k16",
        M8n8 = "m8n8",
        M8n8k128 = "m8n8k128",
        M8n8k16 = "m8n8k16",
        M8n8k32 = "m8n8k32",
        M8n8k4 = "m8n8k4",
        Mask = "mask",
        Max = "max",
        Mbarrier = "mbarrier",
        MbarrierCompleteTxBytes = "mbarrier::complete_tx::bytes",
        MbarrierInit = "mbarrier_init",
        Min = "min",
        Mma = "mma",
        MmaAsync = "mma_async",
        Mmio = "mmio",
        MulticastCluster = "multicast::cluster",
        Nan = "nan",
        Nc = "nc",
        Ne = "ne",
        Neu = "neu",
        NoComplete = "noComplete",
        Noftz = "noftz",
        Noinc = "noinc",
        Normal = "normal",
        Notanumber = "notanumber",
        Num = "num",
        Number = "number",
        Oob = "oob",
        Or = "or",
        Pack = "pack",
        Param = "param",
        ParamEntry = "param::entry",
        ParamFunc = "param::func",
        Parity = "parity",
        PendingCount = "pending_count",
        Po = "po",
        Popc = "popc",
        Prefetch = "prefetch",
        Proxy = "proxy",
        R = "r",
        Range = "range",
        Rc16 = "rc16",
        Rc8 = "rc8",
        Read = "read",
        Red = "red",
        Reduce = "reduce",
        Relaxed = "relaxed",
        Release = "release",
        Relu = "relu",
        Rm = "rm",
        Rmi = "rmi",
        Rn = "rn",
        Rna = "rna",
        Rni = "rni",
        Row = "row",
        Rp = "rp",
        Rpi = "rpi",
        Rs = "rs",
        Rz = "rz",
        Rzi = "rzi",
        Sat = "sat",
        Satfinite = "satfinite",
        Sc = "sc",
        Shared = "shared",
        SharedCluster = "shared::cluster",
        SharedCta = "shared::cta",
        Shiftamt = "shiftamt",
        Shr15 = "shr15",
        Shr7 = "shr7",
        Sp = "sp",
        SpOrderedMetadata = "sp::ordered_metadata",
        Store = "store",
        Subnormal = "subnormal",
        Sync = "sync",
        SyncRestrictSharedCluster = "sync_restrict::shared::cluster",
        SyncRestrictSharedCta = "sync_restrict::shared::cta",
        Sys = "sys",
        Tensor = "tensor",
        Tensormap = "tensormap",
        TensormapGeneric = "tensormap::generic",
        TestWait = "test_wait",
        To = "to",
        Trans = "trans",
        TryWait = "try_wait",
        Uni = "uni",
        Unified = "unified",
        Unpack = "unpack",
        Up = "up",
        V2 = "v2",
        V4 = "v4",
        V8 = "v8",
        Volatile = "volatile",
        Wait = "wait",
        WaitAll = "wait_all",
        WaitGroup = "wait_group",
        Warp = "warp",
        Wb = "wb",
        Weak = "weak",
        Wide = "wide",
        Wrap = "wrap",
        Wt = "wt",
        X1 = "x1",
        X2 = "x2",
        X4 = "x4",
        Xor = "xor",
        Xorsign = "xorsign",
    }
}

words! {
    /// A type of PTX.
    ///
    /// Variables and registers have the fundamental types ([`is_fundamental`](Self::is_fundamental)). The others only
    /// occur in instructions, whose operands are registers of untyped bits.
    pub enum ScalarType {
        B1 = "b1",
        B128 = "b128",
        B16 = "b16",
        B32 = "b32",
        B64 = "b64",
        B8 = "b8",
        BF16 = "bf16",
        BF16x2 = "bf16x2",
        E2M1 = "e2m1",
        E2M1x2 = "e2m1x2",
        E2M3 = "e2m3",
        E2M3x2 = "e2m3x2",
        E3M2 = "e3m2",
        E3M2x2 = "e3m2x2",
        E4M3 = "e4m3",
        E4M3x2 = "e4m3x2",
        E5M2 = "e5m2",
        E5M2x2 = "e5m2x2",
        F16 = "f16",
        F16x2 = "f16x2",
        F32 = "f32",
        F32x2 = "f32x2",
        F64 = "f64",
        Pred = "pred",
        S16 = "s16",
        S16x2 = "s16x2",
        S2 = "s2",
        S32 = "s32",
        S4 = "s4",
        S64 = "s64",
        S8 = "s8",
        TF32 = "tf32",
        U16 = "u16",
        U16x2 = "u16x2",
        U2 = "u2",
        U32 = "u32",
        U4 = "u4",
        U64 = "u64",
        U8 = "u8",
    }
}

impl ScalarType {
    /// Returns whether variables and registers can have this type.
    pub const fn is_fundamental(self) -> bool {
        use ScalarType::*;
        matches!(
            self,
            B8 | B16
                | B32
                | B64
                | B128
                | U8
                | U16
                | U32
                | U64
                | S8
                | S16
                | S32
                | S64
                | F16
                | F16x2
                | BF16
                | BF16x2
                | F32
                | F64
                | Pred
        )
    }

    /// Returns the integer type of twice the size.
    pub(crate) const fn doubled(self) -> Option<Self> {
        match self {
            Self::U16 => Some(Self::U32),
            Self::S16 => Some(Self::S32),
            Self::U32 => Some(Self::U64),
            Self::S32 => Some(Self::S64),
            _ => None,
        }
    }

    /// Returns the interpretation of the bits.
    pub const fn kind(self) -> ScalarKind {
        use ScalarType::*;
        match self {
            B1 | B8 | B16 | B32 | B64 | B128 => ScalarKind::Bits,
            U2 | U4 | U8 | U16 | U16x2 | U32 | U64 => ScalarKind::Unsigned,
            S2 | S4 | S8 | S16 | S16x2 | S32 | S64 => ScalarKind::Signed,
            F16 | F16x2 | TF32 | F32 | F32x2 | F64 | E2M1 | E2M1x2 | E2M3 | E2M3x2 | E3M2
            | E3M2x2 | E4M3 | E4M3x2 | E5M2 | E5M2x2 => ScalarKind::Float,
            BF16 | BF16x2 => ScalarKind::Bfloat,
            Pred => ScalarKind::Predicate,
        }
    }

    /// Returns the size in bytes: 1 for a predicate, and for types of less than a byte.
    pub const fn size(self) -> u32 {
        use ScalarType::*;
        match self {
            B1 | U2 | S2 | U4 | S4 | B8 | U8 | S8 | E2M1 | E2M1x2 | E2M3 | E3M2 | E4M3 | E5M2
            | Pred => 1,
            B16 | U16 | S16 | F16 | BF16 | E2M3x2 | E3M2x2 | E4M3x2 | E5M2x2 => 2,
            B32 | U32 | S32 | F16x2 | BF16x2 | U16x2 | S16x2 | TF32 | F32 => 4,
            B64 | U64 | S64 | F64 | F32x2 => 8,
            B128 => 16,
        }
    }
}

impl fmt::Display for ScalarType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The interpretation of a value's bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ScalarKind {
    /// Untyped bits, which hold a value of any kind. Compilers from CUDA 13 on declare many numbers this way.
    Bits,
    /// An unsigned integer.
    Unsigned,
    /// A signed integer.
    Signed,
    /// An IEEE floating-point number, or a vector of two.
    Float,
    /// A brain floating-point number, or a vector of two.
    Bfloat,
    /// A truth value.
    Predicate,
}

/// A state space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Space {
    Global,
    Const,
    Shared,
    Local,
    Param,
}

impl Word {
    /// Returns the state space that the word names.
    pub(crate) fn space(self) -> Option<Space> {
        match self {
            Self::Global => Some(Space::Global),
            Self::Const => Some(Space::Const),
            Self::Shared | Self::SharedCta | Self::SharedCluster => Some(Space::Shared),
            Self::Local => Some(Space::Local),
            Self::Param | Self::ParamEntry | Self::ParamFunc => Some(Space::Param),
            _ => None,
        }
    }
}

/// The declared type of a parameter.
///
/// [`Display`](fmt::Display) writes the type in PTX syntax, without the name: `u64`, `b8[24]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ParamType {
    /// One value.
    Scalar(ScalarType),
    /// Several values: an array, a vector, or a struct, which compilers declare as an array of `b8`.
    Array {
        /// The type of each value.
        element: ScalarType,
        /// The number of values; 0 for `[]`.
        count: u32,
    },
}

impl ParamType {
    /// Returns the type of the value, or of each value of an array.
    pub const fn element(self) -> ScalarType {
        match self {
            ParamType::Scalar(element) | ParamType::Array { element, .. } => element,
        }
    }

    /// Returns the number of values.
    pub const fn count(self) -> u32 {
        match self {
            ParamType::Scalar(_) => 1,
            ParamType::Array { count, .. } => count,
        }
    }

    /// Returns the kind of the value, or of each value of an array.
    pub const fn kind(self) -> ScalarKind {
        self.element().kind()
    }

    /// Returns the size in bytes.
    pub const fn size(self) -> u64 {
        self.element().size() as u64 * self.count() as u64
    }
}

impl fmt::Display for ParamType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParamType::Scalar(element) => element.fmt(f),
            ParamType::Array { element, count: 0 } => write!(f, "{element}[]"),
            ParamType::Array { element, count } => write!(f, "{element}[{count}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for name in "b8 b16 b32 b64 b128 u8 u16 u32 u64 s8 s16 s32 s64 f16 f16x2 bf16 bf16x2 tf32 f32 f32x2 \
            f64 pred"
            .split_whitespace()
        {
            assert_eq!(ScalarType::from_name(name).unwrap().to_string(), name);
        }
    }

    #[test]
    fn types_display_as_in_ptx() {
        let bytes = |count| ParamType::Array { element: ScalarType::B8, count };
        for (ty, text, size) in [
            (ParamType::Scalar(ScalarType::BF16x2), "bf16x2", 4),
            (ParamType::Scalar(ScalarType::U64), "u64", 8),
            (bytes(24), "b8[24]", 24),
            (bytes(1), "b8[1]", 1),
            (bytes(0), "b8[]", 0),
        ] {
            assert_eq!((ty.to_string().as_str(), ty.size()), (text, size));
        }
    }
}
