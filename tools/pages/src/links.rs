//! Relative links: the file exists, and so does the heading that an anchor names.
//!
//! Links to other sites are not followed. Headings get the anchors that GitHub and mdBook give them.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
};

use pulldown_cmark::{Event, LinkType, Options, Parser, Tag, TagEnd};

/// A link that leads nowhere.
#[derive(Debug, PartialEq, Eq)]
pub struct Broken {
    /// The file that has the link.
    pub file: PathBuf,
    /// The line of the link, from 1.
    pub line: usize,
    /// The target as it is written.
    pub target: String,
    /// The reason.
    pub why: &'static str,
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: `{}`: {}", self.file.display(), self.line, self.target, self.why)
    }
}

/// Checks every link of these files.
///
/// # Errors
/// The error of reading a file.
pub fn check(files: &[PathBuf]) -> io::Result<Vec<Broken>> {
    let mut pages = HashMap::new();
    let mut broken = Vec::new();
    for file in files {
        let page = Page::read(file)?;
        pages.insert(file.clone(), page);
    }
    for file in files {
        for (line, target) in pages[file].links.clone() {
            if let Some(why) = fault(file, &target, &mut pages)? {
                broken.push(Broken { file: file.clone(), line, target, why });
            }
        }
    }
    Ok(broken)
}

/// The reason why a link of `file` leads nowhere.
fn fault(
    file: &Path,
    target: &str,
    pages: &mut HashMap<PathBuf, Page>,
) -> io::Result<Option<&'static str>> {
    let is_elsewhere = target.contains("://") || target.starts_with("mailto:");
    if is_elsewhere {
        return Ok(None);
    }
    let (path, anchor) =
        target.split_once('#').map_or((target, None), |(path, at)| (path, Some(at)));
    let path = match path {
        "" => file.to_path_buf(),
        path => file.parent().unwrap_or(Path::new("")).join(path),
    };
    if !path.exists() {
        return Ok(Some("there is no such file"));
    }
    let Some(anchor) = anchor else { return Ok(None) };
    let is_page = path.extension().is_some_and(|extension| extension == "md");
    if !is_page {
        return Ok(None);
    }
    if !pages.contains_key(&path) {
        pages.insert(path.clone(), Page::read(&path)?);
    }
    let has = pages[&path].anchors.iter().any(|candidate| candidate == anchor);
    Ok((!has).then_some("the page has no such heading"))
}

/// The anchors of a page, and its links with their lines.
#[derive(Debug, Default)]
struct Page {
    anchors: Vec<String>,
    links: Vec<(usize, String)>,
}

impl Page {
    fn read(file: &Path) -> io::Result<Self> {
        let text = fs::read_to_string(file)?;
        let (mut page, mut heading) = (Self::default(), None::<String>);
        let parser = Parser::new_ext(&text, Options::ENABLE_TABLES | Options::ENABLE_FOOTNOTES);
        for (event, range) in parser.into_offset_iter() {
            match event {
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    page.add_anchor(&heading.take().unwrap_or_default())
                }
                Event::Text(part) | Event::Code(part) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&part);
                    }
                }
                Event::Start(Tag::Link { dest_url, link_type, .. })
                    if link_type != LinkType::Email =>
                {
                    page.links.push((line_of(&text, range.start), dest_url.into_string()));
                }
                Event::Start(Tag::Image { dest_url, .. }) => {
                    page.links.push((line_of(&text, range.start), dest_url.into_string()));
                }
                _ => {}
            }
        }
        Ok(page)
    }

    /// Adds the anchor of a heading. A repeated heading gets a number.
    fn add_anchor(&mut self, heading: &str) {
        let anchor = anchor(heading);
        let numbered = (1..).map(|n| format!("{anchor}-{n}"));
        let free = std::iter::once(anchor.clone())
            .chain(numbered)
            .find(|candidate| !self.anchors.contains(candidate));
        self.anchors.extend(free);
    }
}

fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// The anchor of a heading: in lower case, without punctuation, with hyphens for spaces.
fn anchor(heading: &str) -> String {
    let kept =
        heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_are_those_of_github() {
        assert_eq!(anchor("Why a poll never blocks"), "why-a-poll-never-blocks");
        assert_eq!(anchor("`then`, `map`, `inspect`"), "then-map-inspect");
        assert_eq!(anchor("`DeviceBuffer<T>`"), "devicebuffert");
    }

    #[test]
    fn broken_links_are_found_with_their_lines() {
        let folder = tempfile::tempdir().expect("a folder");
        let (page, other) = (folder.path().join("page.md"), folder.path().join("other.md"));
        let text = "# Page\n\n[a](other.md) [b](other.md#two)\n[c](other.md#three)\n\n[d](gone.md) [e](#page)\n\
                    [f](https://example.org/gone)\n\n```\n[g](gone.md)\n```\n";
        fs::write(&page, text).expect("written");
        fs::write(&other, "# One\n## Two\n").expect("written");
        let found = check(&[page.clone(), other]).expect("read");
        let found: Vec<_> =
            found.iter().map(|link| (link.line, link.target.as_str(), link.why)).collect();
        let expected = [
            (4, "other.md#three", "the page has no such heading"),
            (6, "gone.md", "there is no such file"),
        ];
        assert_eq!(found, expected);
    }
}
