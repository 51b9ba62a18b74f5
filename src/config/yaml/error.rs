//! Messages for the parser's errors, for the author of the file.

use serde_saphyr::granit_parser::ErrorKind;
use serde_saphyr::{Error, ExternalMessageSource};

/// Returns a text with what is wrong and what is expected. The position is reported separately.
pub(super) fn words(error: &Error) -> String {
    match error {
        Error::ExternalMessage { source, .. } => match source.as_ref() {
            ExternalMessageSource::Parser(error) => scanner_words(error.kind()),
            _ => INVALID.into(),
        },
        Error::UnknownAnchor { .. } => {
            "undefined anchor: expected an earlier value with &name; quote text that begins with *".into()
        }
        Error::RecursiveReferencesRequireWeakTypes { .. } => "an anchored value refers to itself".into(),
        Error::MergeValueNotMapOrSeqOfMaps { .. } => "invalid merge: expected a mapping after <<".into(),
        Error::Budget { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => {
            "too large: expected a configuration file of ordinary size and nesting".into()
        }
        Error::Unexpected { .. } | Error::NullIntoString { .. } => "invalid key: expected text".into(),
        Error::AliasError { error, .. } => words(error.without_snippet()),
        _ => INVALID.into(),
    }
}

const INVALID: &str = "invalid YAML: expected mappings and lists of plain or quoted values";

fn scanner_words(kind: &ErrorKind) -> String {
    use ErrorKind as Kind;
    let words = match kind {
        Kind::TabNotAllowed | Kind::TabInBlockIndentation | Kind::TabInIndentation | Kind::TabAtBlockScalarStart => {
            "invalid indentation: expected spaces, found a tab"
        }
        Kind::TabInPlainScalar => "invalid indentation after this value: expected spaces, found a tab",
        Kind::InvalidIndentation
        | Kind::ExpectedBlockMappingKey
        | Kind::ExpectedBlockSequenceEntry
        | Kind::InvalidBlockScalarIndent
        | Kind::UnexpectedEofBlockMapping
        | Kind::UnexpectedEofBlockSequence => {
            "invalid indentation: expected the keys of one mapping, or the items of one list, in one column"
        }
        Kind::UnclosedQuotedScalar | Kind::InvalidQuotedScalarIndent | Kind::DocumentIndicatorInQuotedScalar => {
            "unclosed quote: expected the same quote at the end of the value"
        }
        Kind::InvalidTrailingSingleQuotedScalar | Kind::InvalidTrailingDoubleQuotedScalar => {
            "unexpected text after a quoted value: expected the end of the line"
        }
        Kind::UnknownQuotedScalarEscape
        | Kind::InvalidQuotedScalarHexEscape
        | Kind::InvalidLowSurrogateHexEscape
        | Kind::InvalidLowSurrogate
        | Kind::MissingLowSurrogate
        | Kind::UnpairedLowSurrogate
        | Kind::InvalidUnicodeEscape => {
            "invalid escape in a double-quoted value: expected one such as \\n; single quotes take backslashes as they are"
        }
        Kind::UnclosedFlowCollection { open } => return format!("unclosed {open}: expected {}", closing(*open)),
        Kind::MismatchedFlowCollectionEnd { open, close } => {
            return format!("{open} is closed by {close}: expected {}", closing(*open));
        }
        Kind::MisplacedFlowCollectionEnd => "unexpected closing bracket: no bracket is open",
        Kind::ExpectedFlowMappingSeparator
        | Kind::ExpectedFlowSequenceSeparator
        | Kind::UnexpectedEofFlowMapping
        | Kind::UnexpectedEofFlowSequence
        | Kind::UnexpectedEofImplicitFlowMapping
        | Kind::InvalidColonPlacement
        | Kind::InvalidFlowScalarIndent => {
            "invalid list or mapping in brackets: expected a comma or the closing bracket; quote values with brackets, braces \
             or commas, such as \"${NAME}\""
        }
        Kind::SimpleKeyExpected | Kind::InvalidSimpleKey => "invalid key: expected key: value",
        Kind::MappingValueNotAllowed | Kind::MappingKeyNotAllowed | Kind::InvalidMappingValueWhitespace => {
            "unexpected key in a value: expected one key and value to a line; quote values that contain a colon and a space"
        }
        Kind::BlockSequenceEntryNotAllowed
        | Kind::BlockEntryInFlowCollection
        | Kind::InvalidBlockEntryWhitespace
        | Kind::PlainScalarStartsWithDashFlowIndicator => {
            "unexpected list item: expected each item on a line of its own; quote values that begin with a dash"
        }
        Kind::UnexpectedCharacter { character } => {
            return format!("unexpected {character}: expected quotes around values that begin with it");
        }
        Kind::CommentInterceptedScalar | Kind::CommentNotSeparated => {
            "unexpected comment: expected a space before # and no more of the value after it"
        }
        Kind::DuplicateVersionDirective
        | Kind::UnsupportedYamlMajorVersion
        | Kind::DuplicateTagDirective
        | Kind::ExpectedDocumentStart
        | Kind::MissingDocumentEndBeforeDirective
        | Kind::InvalidDirectiveName
        | Kind::MissingDirectiveName
        | Kind::InvalidDirectiveTerminator => "unexpected directive: quote values that begin with %",
        Kind::RecursionLimitExceeded => "nested too deeply",
        _ => INVALID,
    };
    words.into()
}

fn closing(open: char) -> char {
    if open == '{' { '}' } else { ']' }
}
