//! Reads `instructions.txt`. The head of that file describes its notation.
//!
//! A line that does not follow the notation yields no row. A test reads every line.

use std::collections::HashMap;

use super::Set;
use super::{
    Constants, Integers, Lanes, Memory, NOTHING, Needs, Part, Pattern, Place, Row, Second, Target,
    Type, Value,
};
use crate::words::{Modifier, Opcode, ScalarType};

/// The mark of sections whose instructions work only on a thread's own registers.
const DATA: &str = ": data";

/// The sets of words by name.
type Sets = HashMap<&'static str, &'static str>;

/// Reads all lines.
pub(super) fn read(text: &'static str) -> Vec<Row> {
    let (mut sets, mut common, mut section, mut rows) = (Sets::new(), Vec::new(), "", Vec::new());
    for (number, line) in (1..).zip(text.lines()) {
        if let Some(name) = line.strip_prefix("## ") {
            section = name;
        } else if let Some((name, words)) =
            line.strip_prefix('@').and_then(|set| set.split_once(' '))
        {
            sets.insert(name, words);
        } else if let Some(line) = line.strip_prefix("> ") {
            common.extend(word_needs(line));
        } else if !line.is_empty() && !line.starts_with('#') {
            rows.extend(read_line((number, line), section, &sets, &common).unwrap_or_default());
        }
    }
    rows
}

/// Reads a line. It has a row for each opcode and for each combination of words that depend on each other.
fn read_line(
    (number, line): (usize, &'static str),
    section: &'static str,
    sets: &Sets,
    common: &[(Modifier, Needs)],
) -> Option<Vec<Row>> {
    let (form, rest) = line.split_once(" | ").unwrap_or((line, ""));
    let (text, operands) = form.split_once(' ').unwrap_or((form, ""));
    let end = text.find(['.', '[']).unwrap_or(text.len());
    let (opcodes, modifiers) = text.split_at(end);
    let operands = operands.split(", ").filter(|text| !text.is_empty()).map(operand);
    let operands: Vec<_> = operands.collect::<Option<_>>()?;
    let mut rows = Vec::new();
    for opcode in alternatives(opcodes, sets)? {
        for places in places(modifiers, sets)? {
            let mut row = Row {
                opcode: Opcode::from_name(opcode)?,
                words: places.iter().flat_map(|place| place.words.modifiers()).collect(),
                places,
                operands: operands.clone(),
                needs: NOTHING,
                before: None,
                word_needs: Vec::new(),
                runs: true,
                data: section.ends_with(DATA),
                section: section.trim_end_matches(DATA),
                line: number,
                text: expanded(text, sets),
                remarks: rest,
            };
            rest.split(", ").try_for_each(|part| requirement(&mut row, part))?;
            let is_stated = |word| row.word_needs.iter().any(|(own, _)| *own == word);
            let common =
                common.iter().filter(|(word, _)| row.words.contains(*word) && !is_stated(*word));
            let common: Vec<_> = common.copied().collect();
            row.word_needs.extend(common);
            rows.push(row);
        }
    }
    Some(rows)
}

/// Reads `cluster 7.8 sm_90`: the requirement of a word in every line.
fn word_needs(text: &str) -> Option<(Modifier, Needs)> {
    let (word, rest) = text.split_once(' ')?;
    Some((Modifier::from_name(word)?, needs(rest)?))
}

/// Returns a name with the words of its sets.
fn expanded(text: &str, sets: &Sets) -> String {
    sets.iter().fold(text.to_owned(), |text, (name, words)| {
        text.replace(&format!("{{@{name}}}"), &format!("{{{words}}}"))
    })
}

/// Reads a requirement of a line: `no`, `7.0 sm_80`, or `relu 7.0` for the forms with one word or opcode.
fn requirement(row: &mut Row, text: &'static str) -> Option<()> {
    if text == "no" {
        row.runs = false;
        return Some(());
    }
    if let Some(limit) = text.strip_prefix("before ") {
        row.before = Some(needs(limit)?);
        return Some(());
    }
    let (first, rest) = text.split_once(' ').unwrap_or((text, ""));
    let (word, opcode) = (Modifier::from_name(first), Opcode::from_name(first));
    match word {
        Some(word) if row.words.contains(word) => row.word_needs.push((word, needs(rest)?)),
        _ if opcode == Some(row.opcode) => row.needs = needs(rest)?,
        // The word or opcode of another row of the line.
        _ if word.is_some() || opcode.is_some() => {}
        _ => row.needs = needs(text)?,
    }
    Some(())
}

/// Reads `7.0 sm_80`. Each part may be left out.
fn needs(text: &str) -> Option<Needs> {
    let mut needs = NOTHING;
    for part in text.split_whitespace() {
        if let Some(name) = part.strip_prefix("sm_") {
            let number = name.trim_end_matches('a');
            needs.target = Target { number: number.parse().ok()?, specific: name != number };
        } else {
            let (major, minor) = part.split_once('.')?;
            needs.version = (major.parse().ok()?, minor.parse().ok()?);
        }
    }
    Some(needs)
}

/// Returns the words of `{a,b}`, of `{@set}`, or a single word.
fn alternatives(text: &'static str, sets: &Sets) -> Option<Vec<&'static str>> {
    let Some(inside) = text.strip_prefix('{') else { return Some(vec![text]) };
    let inside = inside.strip_suffix('}')?;
    let inside = match inside.strip_prefix('@') {
        Some(name) => sets.get(name).copied()?,
        None => inside,
    };
    Some(inside.split(',').collect())
}

/// Reads the modifiers of a name. Returns a choice for each combination of words that depend on each other.
fn places(text: &'static str, sets: &Sets) -> Option<Vec<Vec<Place>>> {
    let mut all = vec![Vec::new()];
    let mut rest = text;
    while !rest.is_empty() {
        let end = if rest.starts_with('[') { rest.find(']')? + 1 } else { part_end(rest) };
        let (part, after) = rest.split_at(end);
        rest = after;
        let choices = match part.strip_prefix('[') {
            Some(group) => optional_places(group.strip_suffix(']')?, sets)?,
            None => required_places(part, sets)?,
        };
        let combined = all.iter().flat_map(|before: &Vec<Place>| {
            choices.iter().map(move |choice| before.iter().chain(choice).cloned().collect())
        });
        all = combined.collect();
    }
    Some(all)
}

/// Reads a required part, such as `.{a,b}`. Alternatives with dots are choices of several words.
fn required_places(part: &'static str, sets: &Sets) -> Option<Vec<Vec<Place>>> {
    let words = part.strip_prefix('.')?;
    let fixed = words.ends_with('!');
    let words = alternatives(words.trim_end_matches('!'), sets)?;
    if !words.iter().any(|word| word.contains('.')) {
        return Some(vec![vec![place(&words, false, fixed)?]]);
    }
    let places =
        |word: &'static str| word.split('.').map(|word| place(&[word], false, fixed)).collect();
    words.into_iter().map(places).collect()
}

/// Reads the inside of brackets. Several parts, as in `[.a.b]`, are written together or not at all.
fn optional_places(group: &'static str, sets: &Sets) -> Option<Vec<Vec<Place>>> {
    let mut choices = places(group, sets)?;
    match choices.as_mut_slice() {
        [single] if single.len() == 1 => single.iter_mut().for_each(|place| place.optional = true),
        _ => choices.push(Vec::new()),
    }
    Some(choices)
}

/// Returns the end of a part that begins with a dot: the next dot or bracket outside of braces.
fn part_end(text: &str) -> usize {
    let mut depth = 0;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            '.' | '[' if depth == 0 => return at,
            _ => {}
        }
    }
    text.len()
}

fn place(words: &[&'static str], optional: bool, fixed: bool) -> Option<Place> {
    let words = words.iter().map(|word| Modifier::from_name(word)).collect::<Option<Set>>()?;
    Some(Place { words, optional, fixed })
}

fn operand(text: &'static str) -> Option<Pattern> {
    let memory = |reads, writes| Some(Pattern::Memory(Memory { reads, writes }));
    match text {
        "[r]" => memory(true, false),
        "[w]" => memory(false, true),
        "[rw]" => memory(true, true),
        "[a]" => memory(false, false),
        "policy" => Some(Pattern::Policy),
        "label" => Some(Pattern::Label),
        "targets" => Some(Pattern::Targets),
        "call" => Some(Pattern::Call),
        "fraction" => Some(Pattern::Fraction),
        "=_" => Some(Pattern::Sink),
        _ => match text.strip_prefix('#') {
            Some(set) => integers(set).map(Pattern::Constant),
            None => value(text),
        },
    }
}

/// Reads the values of a constant: nothing, `4/8/16`, `0..3`, `1..` or `0..64*16`.
fn integers(text: &str) -> Option<Integers> {
    if text.is_empty() {
        return Some(Integers::All);
    }
    let Some((first, rest)) = text.split_once("..") else {
        let values = text.split('/').map(|number| number.parse().ok());
        return values.collect::<Option<_>>().map(Integers::OneOf);
    };
    let (last, step) = rest.split_once('*').unwrap_or((rest, "1"));
    let last = if last.is_empty() { i64::MAX as u64 } else { last.parse().ok()? };
    Some(Integers::Range { first: first.parse().ok()?, last, step: step.parse().ok()? })
}

fn value(text: &'static str) -> Option<Pattern> {
    let (text, integers) = match text.split_once('#') {
        Some((text, set)) => (text, integers(set)?),
        None => (text, Integers::All),
    };
    let result = text.starts_with('=');
    let rest = text.trim_start_matches('=');
    let (rest, second) = match rest.split_once("|pred") {
        Some((rest, "")) => (rest, Second::Required),
        Some((rest, "?")) => (rest, Second::Optional),
        Some(_) => return None,
        None => (rest, Second::None),
    };
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
    let (name, marks) = rest.split_at(end);
    let part = match name {
        "part" => Part::Allowed,
        "part2" => Part::Packed(2),
        "part4" => Part::Packed(4),
        "piece" => Part::Required,
        _ => Part::No,
    };
    let ty = match name {
        "T" => Type::Last,
        "2T" => Type::Double,
        "part" | "part2" | "part4" | "piece" => Type::Is(ScalarType::U32),
        _ => match name.strip_prefix('T') {
            Some(number) => Type::Nth(number.parse::<usize>().ok()?.checked_sub(1)?),
            None => Type::Is(ScalarType::from_name(name)?),
        },
    };
    let mut value = Value {
        ty,
        lanes: Lanes::One,
        result,
        relaxed: false,
        constants: if result { Constants::None } else { Constants::Literals },
        part,
        negates: false,
        second,
        optional: false,
        discards: false,
        integers,
    };
    let mut marks = marks.chars();
    while let Some(mark) = marks.next() {
        match mark {
            '~' => value.relaxed = true,
            '!' => value.constants = Constants::None,
            '%' => value.constants = Constants::Special,
            '@' => value.constants = Constants::All,
            '&' => value.constants = Constants::Addresses,
            '?' => value.optional = true,
            '-' => value.negates = true,
            '_' => value.discards = true,
            '*' => {
                value.lanes = match marks.next()? {
                    'v' => Lanes::ByName,
                    digit => Lanes::Count(digit.to_digit(10)? as usize),
                }
            }
            _ => return None,
        }
    }
    Some(Pattern::Value(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_read() {
        let text = include_str!("instructions.txt");
        let sets: Sets =
            text.lines().filter_map(|line| line.strip_prefix('@')?.split_once(' ')).collect();
        for line in
            text.lines().filter(|line| line.starts_with(|c: char| c.is_alphabetic() || c == '{'))
        {
            assert!(
                read_line((1, line), "", &sets, &[]).is_some_and(|rows| !rows.is_empty()),
                "{line}"
            );
        }
    }
}
