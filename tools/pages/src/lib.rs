//! Checks the Markdown files of this repository: the code that they quote, and the width of lines. `.ci/pages` runs
//! it, and checks links and spelling.
#![forbid(unsafe_code)]

pub mod quotes;
pub mod widths;
