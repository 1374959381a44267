//! Expands a row to every instruction that it describes.

use super::{Lanes, Match, Needs, Part, Pattern, Place, Row, Second};
use crate::words::{Modifier, ScalarType};

/// One instruction of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Form {
    /// The name, as in `add.sat.s32`.
    pub name: String,
    /// The instruction with operands. See [`Row::forms`] for their names.
    pub text: String,
    /// A version of PTX that has the instruction.
    pub version: (u32, u32),
    /// A target that has the instruction, as in `sm_90a`.
    pub target: String,
}

impl Row {
    /// Returns the instructions of the row: all combinations of the required words, each without optional words, with
    /// each single optional word, and with the first word of every optional place. Optional operands are left out.
    ///
    /// Their registers are `%p`, `%b`, `%h`, `%w`, `%l` and `%q`, of predicates and of 8 to 128 bits, with numbers from
    /// 1 on; the address is `%a`, the label `$End`.
    pub fn forms(&'static self) -> Vec<Form> {
        let optional = || self.places.iter().enumerate().filter(|(_, place)| place.optional);
        let each = optional()
            .flat_map(|(at, place)| place.words.modifiers().map(move |word| vec![(at, word)]));
        let first =
            optional().filter_map(|(at, place)| Some((at, place.words.modifiers().next()?)));
        let mut choices: Vec<Vec<(usize, Modifier)>> = vec![Vec::new()];
        choices.extend(each);
        choices.extend((optional().count() > 1).then(|| first.collect()));
        choices
            .iter()
            .flat_map(|choice| self.names(choice))
            .filter_map(|name| self.form(&name))
            .collect()
    }

    /// Returns all combinations of the required words with these optional ones, each with the index of its place.
    fn names(&self, choice: &[(usize, Modifier)]) -> Vec<Vec<Modifier>> {
        let mut names: Vec<Vec<Modifier>> = vec![Vec::new()];
        for (at, Place { words, optional, .. }) in self.places.iter().enumerate() {
            let chosen = choice.iter().find(|(place, _)| *place == at).map(|(_, word)| *word);
            let words: Vec<_> = match optional {
                true => chosen.into_iter().collect(),
                false => words.modifiers().collect(),
            };
            if !words.is_empty() {
                let longer = |name: &Vec<Modifier>, word: &Modifier| {
                    name.iter().copied().chain([*word]).collect()
                };
                names = names
                    .iter()
                    .flat_map(|name| words.iter().map(move |word| longer(name, word)))
                    .collect();
            }
        }
        names
    }

    /// Returns a version and a target that have a form: new ones, unless the form ended with old ones.
    fn place(&self, modifiers: &[Modifier]) -> ((u32, u32), String) {
        let Needs { version, target } = self.needs(modifiers);
        match self.before {
            Some(before) if before.version > version => {
                let specific = if target.specific { "a" } else { "" };
                (version.max((2, 0)), format!("sm_{}{specific}", target.number.max(20)))
            }
            Some(_) => (version.max((1, 4)), "sm_13".to_owned()),
            None if target.number > 90 => ((9, 2), "sm_100a".to_owned()),
            None => ((9, 2), "sm_90a".to_owned()),
        }
    }

    fn form(&'static self, modifiers: &[Modifier]) -> Option<Form> {
        let found = self.matches(modifiers)?;
        let mut name = self.opcode.name().to_owned();
        modifiers.iter().for_each(|modifier| name.extend([".", modifier.name()]));
        let mut writer = Writer { found: &found, next: 0 };
        let operands = self.operands.iter().filter_map(|pattern| writer.operand(pattern));
        let operands: Vec<_> = operands.collect();
        let text = format!("{name} {};", operands.join(", "));
        let (version, target) = self.place(modifiers);
        Some(Form { name, text, version, target })
    }
}

struct Writer<'m> {
    found: &'m Match,
    next: usize,
}

impl Writer<'_> {
    fn register(&mut self, ty: ScalarType, relaxed: bool) -> String {
        self.next += 1;
        let letter = match (ty, ty.size()) {
            (ScalarType::Pred, _) => 'p',
            (ScalarType::B8, _) if !relaxed => 'b',
            (_, 1 | 2) => 'h',
            (_, 4) => 'w',
            (_, 8) => 'l',
            _ => 'q',
        };
        format!("%{letter}{}", self.next)
    }

    fn operand(&mut self, pattern: &Pattern) -> Option<String> {
        Some(match pattern {
            Pattern::Value(value) if value.optional => return None,
            Pattern::Value(value) => {
                let ty = self.found.ty(value.ty)?;
                let count = match value.lanes {
                    Lanes::One => 1,
                    Lanes::Count(count) => count,
                    Lanes::ByName => self.found.lanes,
                };
                let elements: Vec<_> =
                    (0..count).map(|_| self.register(ty, value.relaxed)).collect();
                if value.part == Part::Required {
                    return Some(self.register(ty, false) + ".h0");
                }
                let is_vector = count > 1 || matches!(value.lanes, Lanes::Count(_));
                let elements = elements.join(", ");
                let mut text = if is_vector { format!("{{{elements}}}") } else { elements };
                if value.second == Second::Required {
                    text += &format!("|{}", self.register(ScalarType::Pred, false));
                }
                text
            }
            Pattern::Memory(_) => "[%a]".to_owned(),
            Pattern::Constant(integers) => integers.first().to_string(),
            Pattern::Policy if self.found.policy => self.register(ScalarType::B64, false),
            Pattern::Policy => return None,
            Pattern::Label => "$End".to_owned(),
            Pattern::Targets => "$Targets".to_owned(),
            Pattern::Call => "f".to_owned(),
            Pattern::Fraction => "0.5".to_owned(),
            Pattern::Sink => "_".to_owned(),
        })
    }
}
