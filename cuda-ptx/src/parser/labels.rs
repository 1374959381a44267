//! Finds the labels of a body before it is parsed, so that branches can go forward.
//!
//! A label belongs to its block, because inlined assembly repeats blocks with the same labels. Labels of `.branchtargets`,
//! `.calltargets` and `.callprototype` have separate numbers, in the order of the text.

use std::collections::HashMap;

use crate::ast::Label;
use crate::cursor::Cursor;
use crate::error::{Error, ErrorKind};
use crate::instruction::LabelId;
use crate::lexer::{Kind, Token};
use crate::limits::{MAX_NESTING, index};
use crate::parser::expression::WARP_SIZE;

/// The statement after a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Labeled {
    /// An instruction or the end of a block.
    Code(LabelId),
    /// `.branchtargets` or `.calltargets`.
    Targets(u32),
    /// `.callprototype`.
    Prototype(u32),
}

/// All labels of a body.
pub(crate) struct Labels<'a> {
    by_name: HashMap<(usize, &'a str), (Labeled, u32)>,
    /// The labels of code ([`Labeled::Code`]) by id. The parser fills in the targets.
    pub(crate) code: Vec<Label>,
    targets: u32,
    prototypes: u32,
}

impl<'a> Labels<'a> {
    /// Scans the next block, from its `{` to its `}`. The cursor does not move.
    pub(crate) fn scan(cur: &Cursor<'a>) -> Result<Self, Error> {
        let mut labels =
            Self { by_name: HashMap::new(), code: Vec::new(), targets: 0, prototypes: 0 };
        let first = cur.position();
        let tokens = cur.remaining();
        let mut blocks: Vec<usize> = Vec::new();
        // Sections are skipped. `begins` is set before the `{` of a section; `section` is the number of blocks around it.
        let (mut begins, mut section) = (false, None);
        for (i, token) in tokens.iter().enumerate() {
            match (token.kind, token.text) {
                (Kind::Punct, "{") => {
                    if blocks.len() as u64 >= MAX_NESTING {
                        return Err(Error::limit("MAX_NESTING", MAX_NESTING, token));
                    }
                    if std::mem::take(&mut begins) && section.is_none() {
                        section = Some(blocks.len());
                    }
                    blocks.push(first + i);
                }
                (Kind::Punct, "}") => {
                    blocks.pop();
                    section = section.filter(|around| *around < blocks.len());
                    if blocks.is_empty() {
                        return Ok(labels);
                    }
                }
                (Kind::Dot, ".section") => begins = true,
                _ if section.is_some() => {}
                // `WARP_SZ` is a number, not a label: `1 ? WARP_SZ : 2`.
                (Kind::Ident, WARP_SIZE) => {}
                (Kind::Ident, _) if tokens.get(i + 1).is_some_and(|next| next.is_punct(":")) => {
                    let block = blocks.last().copied().unwrap_or_default();
                    labels.insert(block, token, tokens.get(i + 2))?;
                }
                _ => {}
            }
        }
        Err(Error::at(&cur.peek(), ErrorKind::Unterminated("a block")))
    }

    fn insert(
        &mut self,
        block: usize,
        name: &Token<'a>,
        follows: Option<&Token<'a>>,
    ) -> Result<(), Error> {
        let directive = follows.filter(|token| token.kind == Kind::Dot).map(|token| token.text);
        let labeled = match directive {
            Some(".branchtargets" | ".calltargets") => {
                self.targets += 1;
                Labeled::Targets(self.targets - 1)
            }
            Some(".callprototype") => {
                self.prototypes += 1;
                Labeled::Prototype(self.prototypes - 1)
            }
            _ => {
                let id = LabelId(index(self.code.len()));
                self.code.push(Label { name: name.text.to_owned(), target: 0 });
                Labeled::Code(id)
            }
        };
        match self.by_name.insert((block, name.text), (labeled, name.line)) {
            None => Ok(()),
            Some((_, first_line)) => Err(Error::at(name, ErrorKind::Duplicate { first_line })),
        }
    }

    /// Returns the label `name` of `block`. Does not search the blocks around it.
    pub(crate) fn find(&self, block: usize, name: &str) -> Option<Labeled> {
        self.by_name.get(&(block, name)).map(|(labeled, _)| *labeled)
    }

    /// Returns the line of a label of `block`.
    pub(crate) fn line(&self, block: usize, name: &str) -> Option<u32> {
        self.by_name.get(&(block, name)).map(|(_, line)| *line)
    }
}
