//! Checks the Markdown files of this repository: the code that they quote, and the width of lines. `.ci/links` checks
//! their links.
#![forbid(unsafe_code)]

pub mod quotes;
pub mod widths;
