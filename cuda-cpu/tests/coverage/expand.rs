//! Expands a line of `grammar.txt` to every instruction that it describes.

/// One form of an instruction.
pub(crate) struct Form {
    /// The name, as in `add.sat.s32`.
    pub(crate) name: String,
    /// The whole instruction with operands.
    pub(crate) text: String,
    /// The first target that supports it.
    pub(crate) target: &'static str,
}

/// A line of the grammar.
pub(crate) struct Line {
    pub(crate) pattern: &'static str,
    pub(crate) section: &'static str,
    pub(crate) forms: Vec<Form>,
}

pub(crate) fn lines() -> Vec<Line> {
    let mut section = "";
    let mut lines = Vec::new();
    for line in include_str!("grammar.txt").lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("## ") {
            section = name;
        } else if !line.is_empty() && !line.starts_with('#') {
            lines.push(read(line, section));
        }
    }
    lines
}

fn read(line: &'static str, section: &'static str) -> Line {
    let (line, target) = match line.strip_suffix(" @100a") {
        Some(line) => (line, "sm_100a"),
        None => (line, "sm_90a"),
    };
    let (pattern, operands) = line.split_once(' ').unwrap_or_else(|| panic!("{line}"));
    let form =
        |name: String| Form { text: format!("{name} {}", write(&name, operands)), name, target };
    let forms = expand(pattern).into_iter().map(form).collect();
    Line { pattern, section, forms }
}

/// Expands a pattern to all its alternatives.
fn expand(pattern: &str) -> Vec<String> {
    let Some(at) = pattern.find(['{', '[']) else { return vec![pattern.into()] };
    let (before, rest) = pattern.split_at(at);
    let end = closing(rest);
    let (inside, after) = (&rest[1..end], &rest[end + 1..]);
    let choices: Vec<String> = if rest.starts_with('[') {
        [String::new()].into_iter().chain(expand(inside)).collect()
    } else {
        inside.split(',').map(String::from).collect()
    };
    let tails = expand(after);
    let both = choices.iter().flat_map(|c| tails.iter().map(move |t| format!("{before}{c}{t}")));
    both.collect()
}

/// Returns the position at which the bracket at the start closes.
fn closing(text: &str) -> usize {
    let mut depth = 0;
    for (i, c) in text.char_indices() {
        depth += i32::from("{[".contains(c)) - i32::from("}]".contains(c));
        if depth == 0 {
            return i;
        }
    }
    panic!("no end of {text}")
}

/// Returns the sizes in bits of the types among the modifiers.
fn sizes(name: &str) -> Vec<u32> {
    let size = |part: &str| {
        Some(match part {
            "pred" => return None,
            "f16x2" | "bf16x2" | "u16x2" | "s16x2" | "tf32" => 32,
            "f32x2" => 64,
            "bf16" => 16,
            _ => {
                let digits = part.strip_prefix(['u', 's', 'f', 'b'])?;
                let bits = digits.parse().ok().filter(|b| [8, 16, 32, 64, 128].contains(b))?;
                u32::max(bits, 16)
            }
        })
    };
    name.split('.').skip(1).filter_map(size).collect()
}

/// Writes the operands. Each register is different.
fn write(name: &str, operands: &str) -> String {
    let sizes = sizes(name);
    let last = sizes.last().copied().unwrap_or(32);
    let address = if name.contains(".shared") { "S" } else { "G" };
    let vector = [("v2.", 2), ("v4.", 4), ("v8.", 8)].into_iter().find(|v| name.contains(v.0));
    let value = vector.map_or("R".to_string(), |v| format!("R{}", v.1));
    let atomic = match name.starts_with("red") {
        true => format!("{address}, {value}"),
        false => format!("{value}, {address}, {value}"),
    };
    let operands = match operands {
        "-" => return ";".into(),
        "A" => atomic,
        "B" => format!("R, {address}, R, R"),
        other => other.into(),
    };
    let mut next = 0;
    let mut register = |bits: u32| {
        next += 1;
        format!(
            "%{}{next}",
            match bits {
                16 => "h",
                32 => "w",
                64 => "l",
                _ => "q",
            }
        )
    };
    let mut places = 0;
    let mut out = String::new();
    for token in tokens(&operands) {
        let (letter, count) = token.split_at(1.min(token.len()));
        let mut bits = |letter: &str| {
            Some(match letter {
                "H" => 16,
                "W" => 32,
                "L" => 64,
                "Q" => 128,
                "R" => last,
                "X" => sizes.first().copied().unwrap_or(32),
                "C" => {
                    places += 1;
                    if sizes.len() > 1 { sizes[usize::min(places, sizes.len()) - 1] } else { last }
                }
                _ => return None,
            })
        };
        out += &match (bits(letter), count.parse::<u32>()) {
            (Some(bits), Ok(count)) => {
                let parts: Vec<String> = (0..count).map(|_| register(bits)).collect();
                format!("{{{}}}", parts.join(", "))
            }
            (Some(bits), _) if count.is_empty() => register(bits),
            _ => match token {
                "P" => {
                    next_predicate(&mut out);
                    continue;
                }
                "G" | "S" => format!("[{}]", register(64)),
                "J" => "$End".into(),
                other => other.into(),
            },
        };
    }
    out + ";"
}

/// Appends a predicate. Predicates are numbered by position.
fn next_predicate(out: &mut String) {
    let count = out.matches("%p").count();
    *out += &format!("%p{}", count + 1);
}

/// Splits operands into words and separators.
fn tokens(operands: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = operands;
    while !rest.is_empty() {
        let word =
            rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '.').unwrap_or(rest.len());
        let end = if word > 0 { word } else { 1 };
        tokens.push(&rest[..end]);
        rest = &rest[end..];
    }
    tokens
}

/// Returns a module with the instruction in a kernel.
pub(crate) fn module(form: &Form) -> String {
    format!(
        ".version 8.8\n.target {}\n.address_size 64\n.visible .entry k() {{\n.reg .pred %p<9>; .reg .b16 %h<40>; \
         .reg .b32 %w<40>; .reg .b64 %l<40>; .reg .b128 %q<9>;\n{}\n$End: ret;\n}}\n",
        form.target, form.text
    )
}
