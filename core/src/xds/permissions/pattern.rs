//! Patterns of identities, and texts that are filled in from what the patterns match.

use std::fmt;

/// A pattern of names that consist of segments: `spiffe://prod.example/ns/{namespace}/*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentPattern {
    text: Box<str>,
    separator: char,
    segments: Vec<Segment>,
    /// Whether the pattern ends with `*`, so that any text may follow.
    open: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Exactly(Box<str>),
    /// Any segment that is not empty, with the name by which templates refer to it.
    Any(Box<str>),
}

/// What the named segments of a pattern matched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Captures(Vec<(Box<str>, Box<str>)>);

/// Text with references to named segments, and perhaps `*` at the end: `{namespace}/*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    text: Box<str>,
    parts: Vec<TemplatePart>,
    open: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum TemplatePart {
    Text(Box<str>),
    Reference(Box<str>),
}

/// Why a pattern or template cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternFault {
    /// A `*` that is not at the end.
    #[error("* at the end only")]
    InnerStar,
    /// A `*` that would match names of other owners.
    #[error("no * in the trust domain, nor in a DNS name; {{name}} matches one segment")]
    OpenOwner,
    /// A brace without its counterpart, or without a name.
    #[error("braces around a name, such as {{namespace}}")]
    Braces,
    /// A named segment with other text beside it.
    #[error("{{name}} as a whole segment, between separators")]
    PartOfSegment,
    /// Two segments have the same name.
    #[error("each {{name}} once")]
    Twice,
}

impl Captures {
    /// Adds the tenant, so that templates can refer to it. Clients of a relay have one too, although the relay's identity does not name it.
    pub(super) fn with_tenant(mut self, tenant: Option<&str>) -> Self {
        self.0.retain(|(name, _)| **name != *TENANT);
        self.0.extend(tenant.map(|tenant| (TENANT.into(), tenant.into())));
        self
    }

    pub(super) fn tenant(&self) -> Option<&str> {
        self.0.iter().find(|(name, _)| **name == *TENANT).map(|(_, text)| &**text)
    }
}

impl SegmentPattern {
    /// Reads a pattern of DNS names. Their case does not count.
    pub fn dns(text: &str) -> Result<Self, PatternFault> {
        if text.contains('*') {
            return Err(PatternFault::OpenOwner);
        }
        Self::parse(&text.to_ascii_lowercase(), '.')
    }

    /// Reads a pattern of URIs.
    pub fn uri(text: &str) -> Result<Self, PatternFault> {
        if text.matches('/').count() < OWNER_SLASHES && text.ends_with('*') {
            return Err(PatternFault::OpenOwner);
        }
        Self::parse(text, '/')
    }

    fn parse(text: &str, separator: char) -> Result<Self, PatternFault> {
        let (closed, open) = text.strip_suffix('*').map_or((text, false), |closed| (closed, true));
        if closed.contains('*') {
            return Err(PatternFault::InnerStar);
        }
        let segment = |text: &str| {
            let name = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
            match name {
                Some(name) if !name.is_empty() && !name.contains(['{', '}']) => Ok(Segment::Any(name.into())),
                Some(_) => Err(PatternFault::Braces),
                None if text.contains(['{', '}']) => Err(PatternFault::PartOfSegment),
                None => Ok(Segment::Exactly(text.into())),
            }
        };
        let segments = closed.split(separator).map(segment).collect::<Result<Vec<_>, _>>()?;
        let pattern = Self { text: text.into(), separator, segments, open };
        let mut names: Vec<_> = pattern.names().collect();
        if open && matches!(pattern.segments.last(), Some(Segment::Any(_))) {
            return Err(PatternFault::PartOfSegment);
        }
        names.sort_unstable();
        if names.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(PatternFault::Twice);
        }
        Ok(pattern)
    }

    /// Returns the names of the pattern's segments.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().filter_map(|segment| match segment {
            Segment::Any(name) => Some(&**name),
            Segment::Exactly(_) => None,
        })
    }

    pub(super) fn matches(&self, name: &str) -> Option<Captures> {
        let mut captures = Captures::default();
        let mut rest = Some(name);
        for (at, segment) in self.segments.iter().enumerate() {
            let is_last_of_open = self.open && at + 1 == self.segments.len();
            let text = rest?;
            let (head, tail) = match text.split_once(self.separator) {
                _ if is_last_of_open => (text, None),
                Some((head, tail)) => (head, Some(tail)),
                None => (text, None),
            };
            match segment {
                Segment::Exactly(start) if is_last_of_open => head.starts_with(&**start).then_some(())?,
                Segment::Exactly(own) => (head == &**own).then_some(())?,
                Segment::Any(_) if head.is_empty() => return None,
                Segment::Any(name) => captures.0.push((name.clone(), head.into())),
            }
            rest = tail;
        }
        rest.is_none().then_some(captures)
    }
}

impl Template {
    /// Reads a template; a `*` at its end means any rest.
    pub fn parse(text: &str) -> Result<Self, PatternFault> {
        let (mut rest, open) = text.strip_suffix('*').map_or((text, false), |closed| (closed, true));
        if rest.contains('*') {
            return Err(PatternFault::InnerStar);
        }
        let mut parts = Vec::new();
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').ok_or(PatternFault::Braces)?;
            if name.is_empty() || before.contains('}') || name.contains('{') {
                return Err(PatternFault::Braces);
            }
            parts.push(TemplatePart::Text(before.into()));
            parts.push(TemplatePart::Reference(name.into()));
            rest = after;
        }
        if rest.contains('}') {
            return Err(PatternFault::Braces);
        }
        parts.push(TemplatePart::Text(rest.into()));
        Ok(Self { text: text.into(), parts, open })
    }

    /// Returns the names to which the template refers.
    pub fn references(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            TemplatePart::Reference(name) => Some(&**name),
            TemplatePart::Text(_) => None,
        })
    }

    /// Whether the template ends with `*`.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Returns the text for these captures, without the `*`. Captured text is taken literally.
    pub(super) fn fill(&self, captures: &Captures) -> Option<String> {
        let text = |part: &TemplatePart| match part {
            TemplatePart::Text(text) => Some(text.to_string()),
            TemplatePart::Reference(name) => {
                captures.0.iter().find(|(captured, _)| captured == name).map(|(_, text)| text.to_string())
            }
        };
        self.parts.iter().map(text).collect()
    }
}

impl fmt::Display for SegmentPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The name by which texts refer to the tenant.
pub const TENANT: &str = "tenant";
/// `scheme://owner/`: what follows belongs to the owner.
const OWNER_SLASHES: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn captured(pattern: Result<SegmentPattern, PatternFault>, name: &str) -> Option<String> {
        let captures = pattern.unwrap().matches(name)?;
        Some(captures.0.iter().map(|(key, text)| format!("{key}={text}")).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn a_named_segment_matches_one_segment_and_a_star_any_rest() {
        let of = |pattern: &str, name: &str| captured(SegmentPattern::uri(pattern), name);
        let workload = "spiffe://prod.example/ns/{ns}/sa/{account}";
        assert_eq!(of(workload, "spiffe://prod.example/ns/pay/sa/web").as_deref(), Some("ns=pay account=web"));
        for other in [
            "spiffe://prod.example/ns/pay/sa",
            "spiffe://prod.example/ns/pay/sa/web/more",
            "spiffe://prod.example/ns//sa/web",
            "spiffe://prod.example.evil/ns/pay/sa/web",
            "spiffe://evil/ns/pay/sa/web",
            "",
        ] {
            assert_eq!(of(workload, other), None, "{other}");
        }
        let open = "spiffe://prod.example/ns/{ns}/*";
        assert_eq!(of(open, "spiffe://prod.example/ns/pay/sa/web").as_deref(), Some("ns=pay"));
        assert_eq!(of(open, "spiffe://prod.example/ns/pay"), None);
        assert_eq!(of("spiffe://prod.example/ns/pay-*", "spiffe://prod.example/ns/pay-1/x").as_deref(), Some(""));
        let dns = |pattern: &str, name: &str| captured(SegmentPattern::dns(pattern), name);
        assert_eq!(dns("{host}.Pay.example", "a.pay.example").as_deref(), Some("host=a"));
        assert_eq!(dns("{host}.pay.example", "a.b.pay.example"), None);
        assert_eq!(dns("{host}.pay.example", "a.pay.example.evil"), None);
    }

    #[test]
    fn patterns_that_would_match_other_owners_or_be_misread_are_faults() {
        let fault = |pattern: &str| SegmentPattern::uri(pattern).unwrap_err();
        assert_eq!(fault("spiffe://prod*"), PatternFault::OpenOwner);
        assert_eq!(fault("spiffe://prod/*/x"), PatternFault::InnerStar);
        assert_eq!(fault("spiffe://prod/a{b}"), PatternFault::PartOfSegment);
        assert_eq!(fault("spiffe://prod/{a}*"), PatternFault::PartOfSegment);
        assert_eq!(fault("spiffe://prod/{}"), PatternFault::Braces);
        assert_eq!(fault("spiffe://prod/{a}/{a}"), PatternFault::Twice);
        assert_eq!(SegmentPattern::dns("*.pay.example").unwrap_err(), PatternFault::OpenOwner);
        for (template, expected) in [("a*b", PatternFault::InnerStar), ("{a", PatternFault::Braces)] {
            assert_eq!(Template::parse(template).unwrap_err(), expected);
        }
        for template in ["a}", "{}", "{a{b}}"] {
            assert_eq!(Template::parse(template).unwrap_err(), PatternFault::Braces, "{template}");
        }
    }

    #[test]
    fn what_is_filled_in_is_literal() {
        let captures = SegmentPattern::uri("x://o/{ns}").unwrap().matches("x://o/pay*").unwrap();
        let template = Template::parse("{ns}/secret").unwrap();
        assert_eq!(template.fill(&captures).as_deref(), Some("pay*/secret"));
        assert!(!template.is_open() && Template::parse("{ns}/*").unwrap().is_open());
        assert_eq!(Template::parse("{other}").unwrap().fill(&captures), None);
    }
}
