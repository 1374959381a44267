//! Checks the Markdown files of this repository: the code that they quote, and the width of lines. `.ci/pages` checks
//! their links.
#![forbid(unsafe_code)]

pub mod quotes;
pub mod widths;
