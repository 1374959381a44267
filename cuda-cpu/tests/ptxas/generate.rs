//! Makes instructions: changed forms of the table, reads of special registers, and calls.

use cuda_ptx::table::{Form, rows};
use cuda_ptx::{Opcode, ScalarType, SpecialName, Word};

use crate::place::{Case, Place};

/// A reproducible random generator, splitmix64.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        (bits % end.max(1) as u64) as usize
    }

    fn one<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}

/// Versions and targets, each with some instructions that others do not have.
const PLACES: &[((u32, u32), &str)] = &[
    ((3, 0), "sm_20"),
    ((3, 1), "sm_35"),
    ((4, 3), "sm_53"),
    ((5, 0), "sm_60"),
    ((6, 0), "sm_61"),
    ((6, 3), "sm_70"),
    ((6, 5), "sm_75"),
    ((7, 1), "sm_80"),
    ((7, 4), "sm_86"),
    ((7, 8), "sm_90"),
    ((8, 1), "sm_89"),
    ((8, 4), "sm_90a"),
    ((8, 6), "sm_100"),
    ((8, 8), "sm_100a"),
    ((9, 2), "sm_80"),
    ((9, 2), "sm_90a"),
    ((9, 2), "sm_100a"),
];

/// Operands of every kind.
const OPERANDS: &[&str] = &[
    "%p1",
    "%h1",
    "%w1",
    "%l1",
    "%q1",
    "%f1",
    "%d1",
    "%u1",
    "%s1",
    "%ul1",
    "%uh1",
    "%hf1",
    "%hx1",
    "%b1",
    "5",
    "0",
    "-1",
    "1.5",
    "0f3F800000",
    "0d3FF0000000000000",
    "70000",
    "0x123456789",
    "WARP_SZ",
    "gv",
    "sv+4",
    "lv",
    "cv",
    "P",
    "gv[1]",
    "f",
    "%tid.x",
    "%tid",
    "%clock64",
    "%laneid",
    "%envreg3",
    "%pm1",
    "[%a]",
    "[%a+4]",
    "[%w1]",
    "[gv]",
    "[sv]",
    "[lv]",
    "[P]",
    "[cv]",
    "[16]",
    "_",
    "!%p1",
    "%w1|%p1",
    "%p1|%p2",
    "%w1+4",
    "%w1.b0",
    "%w1.h1",
    "-%w1",
    "{%w1}",
    "{%w1, %w2}",
    "{%w1, %w2, %w3, %w4}",
    "{%h1, %h2}",
    "{%h1, %h2, %h3, %h4}",
    "{%l1, %l2}",
    "{%f1, %f2}",
    "{%w1, _}",
    "$End",
    "$Targets",
];

/// Registers of every type.
const REGISTERS: &[&str] = &[
    "%p3", "%h3", "%w3", "%l3", "%q3", "%f3", "%d3", "%u3", "%s3", "%ul3", "%uh3", "%hf3", "%hx3",
    "%b3",
];

const SPACES: &[&str] = &[
    "global",
    "shared",
    "local",
    "const",
    "param",
    "shared::cta",
    "shared::cluster",
    "param::entry",
    "param::func",
];

/// Words that no instruction of the table has.
const FOREIGN: &[&str] = &["foo", "b256", "v3", "rx", "L3"];

/// Returns changed instructions, of which one in ten is a call and one in ten reads a special register. One in eight of
/// the others is in a function that no kernel calls.
pub(crate) fn cases(mut random: Random, count: usize) -> Vec<Case> {
    let forms: Vec<Vec<Form>> = rows().iter().map(|row| row.forms()).collect();
    let mut words: Vec<&str> = Word::ALL.iter().map(|word| word.name()).collect();
    words.extend(FOREIGN);
    (0..count)
        .map(|number| match number % 10 {
            0 => call(&mut random),
            1 => special(&mut random),
            _ => {
                let mut case = changed(&mut random, &forms, &words);
                case.place.in_function |= number % 8 == 7;
                case
            }
        })
        .collect()
}

/// Returns a form with one or two changes, in its own module or in another one.
fn changed(random: &mut Random, forms: &[Vec<Form>], words: &[&str]) -> Case {
    let of_row = random.below(forms.len());
    let form = &forms[of_row][random.below(forms[of_row].len())];
    let mut place = Place::of_form(form);
    let moved = random.below(3) == 0;
    if moved {
        let (version, target) = random.one(PLACES);
        (place.version, place.target) = (version, target.to_owned());
    }
    let mut parts = Parts::new(&form.text);
    // A third of the moved ones are else as they were.
    let changes = if moved { random.below(3) } else { 1 + random.below(4) / 3 };
    (0..changes).for_each(|_| parts.change(random, words));
    Case { place, text: parts.text() }
}

/// An instruction in parts.
struct Parts {
    guard: &'static str,
    /// The opcode, then the words.
    name: Vec<String>,
    operands: Vec<String>,
}

impl Parts {
    fn new(text: &str) -> Self {
        let (name, rest) = text.split_once(' ').unwrap_or((text.trim_end_matches(';'), ""));
        let mut operands = vec![String::new()];
        let mut depth = 0;
        for c in rest.trim_end_matches(';').chars() {
            match c {
                '{' | '[' | '(' => depth += 1,
                '}' | ']' | ')' => depth -= 1,
                _ => {}
            }
            match c {
                ',' if depth == 0 => operands.push(String::new()),
                _ => operands.last_mut().unwrap().push(c),
            }
        }
        let trimmed = operands.iter().map(|operand| operand.trim().to_owned());
        let operands = trimmed.filter(|operand| !operand.is_empty()).collect();
        Self { guard: "", name: name.split('.').map(str::to_owned).collect(), operands }
    }

    fn text(&self) -> String {
        let Self { guard, name, operands } = self;
        format!("{guard}{} {};", name.join("."), operands.join(", "))
    }

    fn change(&mut self, random: &mut Random, words: &[&str]) {
        let Self { name, operands, .. } = self;
        let word = 1 + random.below(name.len() - 1);
        let operand = random.below(operands.len());
        let has_words = name.len() > 1;
        match random.below(15) {
            0 if has_words => name[word] = random.one(ScalarType::ALL).name().to_owned(),
            1 if has_words => name[word] = random.one(words).to_owned(),
            2 if has_words => _ = name.remove(word),
            3 => {
                let at = 1 + random.below(name.len());
                name.insert(at, random.one(words).to_owned());
            }
            4 if has_words => {
                let other = 1 + random.below(name.len() - 1);
                name.swap(word, other);
            }
            5 if has_words => name.insert(word, name[word].clone()),
            6 => {
                let space = name.iter().position(|word| SPACES.contains(&word.as_str()));
                let new = random.one(SPACES).to_owned();
                match space {
                    Some(at) => name[at] = new,
                    None => name.insert(word.min(name.len()), new),
                }
            }
            7 => name[0] = random.one(Opcode::ALL).name().to_owned(),
            8 if !operands.is_empty() => _ = operands.remove(operand),
            9 => operands.insert(random.below(operands.len() + 1), random.one(OPERANDS).to_owned()),
            10 if operands.len() > 1 => {
                let other = random.below(operands.len());
                operands.swap(operand, other);
            }
            11 => self.guard = random.one(&["@%p1 ", "@!%p1 ", "@%w1 ", "@%h1 "]),
            12 if !operands.is_empty() => {
                let old = &operands[operand];
                let start = old.find('%').unwrap_or(old.len());
                let end =
                    old[start..].find([',', '}', ']', '|', '.']).map_or(old.len(), |at| start + at);
                let new = format!("{}{}{}", &old[..start], random.one(REGISTERS), &old[end..]);
                operands[operand] = new;
            }
            _ if !operands.is_empty() => operands[operand] = random.one(OPERANDS).to_owned(),
            _ => {}
        }
    }
}

/// Returns a read of a special register in a module that may be too old for it.
fn special(random: &mut Random) -> Case {
    let name = match random.below(12) {
        0 => format!("%envreg{}", random.below(33)),
        1 => format!("%pm{}", random.below(9)),
        2 => format!("%pm{}_64", random.below(9)),
        _ => format!("%{}", random.one(SpecialName::ALL).name()),
    };
    let element = match random.below(4) {
        0 => random.one(&[".x", ".w", ".q"]),
        1 if SpecialName::from_name(&name[1..]).is_some_and(SpecialName::is_vector) => ".y",
        _ => "",
    };
    let text = match random.below(12) {
        0 => format!("mov.v4.u32 {{%w1, %w2, %w3, %w4}}, {name}{element};"),
        1 => format!("mov.pred %p1, {name}{element};"),
        2 => format!("add.u32 %w1, %w2, {name}{element};"),
        3 => format!("cvt.u16.u32 %h1, {name}{element};"),
        4 => format!("mov.u16 %h1, {name}{element};"),
        5 | 6 => format!("mov.u64 %l1, {name}{element};"),
        _ => format!("mov.u32 %w1, {name}{element};"),
    };
    let (version, target) = random.one(PLACES);
    Case { place: Place { version, target: target.to_owned(), in_function: false }, text }
}

const FUNCTIONS: &[&str] = &[
    "f",
    "takes32",
    "takes64",
    "takes_float",
    "takes_double",
    "takes16",
    "takes_bytes",
    "takes_two",
    "takes_register",
    "returns32",
    "returns_float",
    "returns_bytes",
    "returns_register",
    "both",
    "%l1",
    "%w1",
    "k",
    "gv",
    "5",
];

const ARGUMENTS: &[&str] = &[
    "p32",
    "p64",
    "pf",
    "pd",
    "p16",
    "pb",
    "pb8",
    "pb1",
    "p32s",
    "%w1",
    "%l1",
    "%h1",
    "%f1",
    "%d1",
    "%p1",
    "%b1",
    "5",
    "-1",
    "1.5",
    "0f3F800000",
    "gv",
    "f",
    "%tid.x",
    "{%w1, %w2}",
    "_",
    "P",
    "P32",
    "sv",
];

/// Returns a call. Half of the calls fit their functions, or almost.
fn call(random: &mut Random) -> Case {
    const FITTING: &[(&str, &str, &str)] = &[
        ("", "f", ""),
        ("", "takes32", "p32"),
        ("", "takes64", "p64"),
        ("", "takes_float", "pf"),
        ("", "takes_double", "pd"),
        ("", "takes16", "p16"),
        ("", "takes_bytes", "pb"),
        ("", "takes_two", "p32, p64"),
        ("", "takes_register", "%w1"),
        ("p32", "returns32", ""),
        ("pf", "returns_float", ""),
        ("pb", "returns_bytes", ""),
        ("%l1", "returns_register", ""),
        ("p32", "both", "pd"),
    ];
    let (mut result, mut function, mut arguments) = random.one(FITTING);
    let several;
    match random.below(5) {
        0 => result = random.one(ARGUMENTS),
        1 => function = random.one(FUNCTIONS),
        2 | 3 => arguments = random.one(ARGUMENTS),
        _ => {
            several = format!("{}, {}", random.one(ARGUMENTS), random.one(ARGUMENTS));
            arguments = &several;
        }
    }
    let result = if result.is_empty() { String::new() } else { format!("({result}), ") };
    let arguments = if arguments.is_empty() { String::new() } else { format!(", ({arguments})") };
    let prototype = match function.starts_with('%') || random.below(20) == 0 {
        true => random.one(&[", Takes", ", Both", ", $Targets", ""]),
        false => "",
    };
    let uni = random.one(&["", ".uni"]);
    let text = format!("call{uni} {result}{function}{arguments}{prototype};");
    let (version, target) = random.one(PLACES);
    Case { place: Place { version, target: target.to_owned(), in_function: false }, text }
}
