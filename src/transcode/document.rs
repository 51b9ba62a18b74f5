//! Resource files: a DiscoveryResponse, a bare resource, a list of resources, or a resource in its wrapper (FS-1, FS-5).

mod fault;
mod resource;

pub use fault::{DocumentError, DocumentFault};
pub use resource::{FileResource, Format};
use std::cell::OnceCell;
use std::time::Duration;

use prost::Message;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};
use serde_saphyr::Spanned;
use weir_core::proto::{Any, discovery};
use weir_core::xds::WRAPPER_TYPE;

use super::error::{FieldPath, Step};
use super::from_json::kind_of;
use super::locate::{self, YamlPlaces};
use super::tree::{Outline, Tree};
use super::{ANY, Strictness, TranscodeError, Transcoder, type_name, yaml};

/// Faults beyond this number are only counted.
const MAX_FAULTS: usize = 20;
const RESPONSE_TYPE: &str = "envoy.service.discovery.v3.DiscoveryResponse";
/// Returns all resources of a file, or all of its faults.
pub fn read_resources(
    transcoder: &Transcoder,
    format: Format,
    bytes: &[u8],
) -> Result<Vec<FileResource>, DocumentError> {
    let mut reader = DocumentReader { transcoder, resources: Vec::new(), faults: Vec::new(), more: 0 };
    match format {
        Format::Binary => reader.response(bytes),
        Format::Text => reader.text(bytes),
        Format::Json => reader.json(bytes),
        Format::Yaml => reader.yaml(bytes),
    }
    match reader.faults.is_empty() {
        true => Ok(reader.resources),
        false => Err(DocumentError { faults: reader.faults, more: reader.more }),
    }
}

struct DocumentReader<'t> {
    transcoder: &'t Transcoder,
    resources: Vec<FileResource>,
    faults: Vec<DocumentFault>,
    more: usize,
}

/// The form of a document.
enum Shape {
    /// Has all fields except the resources.
    Response(Map<String, Value>),
    List,
    Wrapper,
    Bare,
}

impl DocumentReader<'_> {
    fn json(&mut self, bytes: &[u8]) {
        let Some(text) = self.utf8(bytes) else { return };
        if text.trim().is_empty() {
            return self.fault(None, &[], "there is nothing in it");
        }
        let outline: Outline<IgnoredAny> = match serde_json::from_str(text) {
            Ok(outline) => outline,
            Err(error) => return self.fault(Some(error.line() as u64), &[], &words_of(&error)),
        };
        // Parses one item at a time: the parsed values of a whole file take ten times its size.
        let place: &[Step] = if outline.rest.is_array() { &[] } else { &[Step::Field("resources".into())] };
        let items = locate::json_items(text, place).into_iter().map(|(line, item)| {
            let fault = |error: serde_json::Error| (line + error.line() as u64 - 1, words_of(&error));
            (serde_json::from_str(item).map(|Tree(item)| item).map_err(fault), line)
        });
        self.document(&outline.rest, items, Some(locate::json_line(text, &[])));
        self.find_lines(0, &|place| Some(locate::json_line(text, place)));
    }

    fn yaml(&mut self, bytes: &[u8]) {
        let Some(text) = self.utf8(bytes) else { return };
        let documents = match yaml::documents::<Spanned<Outline<Spanned<Tree>>>>(text) {
            Ok(documents) => documents,
            Err(error) => return self.fault(error.line, &[], &error.reason),
        };
        if documents.is_empty() {
            return self.fault(None, &[], "there is nothing in it");
        }
        let places = OnceCell::new();
        for (number, document) in documents.into_iter().enumerate() {
            let known = self.faults.len();
            let line = Some(document.referenced.line()).filter(|line| *line > 0);
            let items = document.value.items.into_iter().map(|item| (Ok(item.value.0), item.referenced.line()));
            self.document(&document.value.rest, items, line);
            self.find_lines(known, &|place| places.get_or_init(|| YamlPlaces::read(text)).line(number, place));
        }
    }

    fn text(&mut self, bytes: &[u8]) {
        let Some(text) = self.utf8(bytes) else { return };
        match self.transcoder.from_text(RESPONSE_TYPE, text) {
            Ok(bytes) => self.response(&bytes),
            Err(error) => self.transcode_fault(error.line(), &[], &error),
        }
    }

    /// Reads a binary DiscoveryResponse, as a server sends it: bodies are kept unchanged.
    fn response(&mut self, bytes: &[u8]) {
        let response = match discovery::DiscoveryResponse::decode(bytes) {
            Ok(response) => response,
            Err(error) => return self.fault(None, &[], &format!("it is no binary DiscoveryResponse: {error}")),
        };
        for (index, any) in response.resources.into_iter().enumerate() {
            let place = [Step::Field("resources".into()), Step::Index(index)];
            self.resource(any, &response.type_url, &response.version_info, &place, None);
        }
    }

    /// Reads one document. An item that is not valid JSON is given as its line and the error.
    fn document(
        &mut self,
        rest: &Value,
        items: impl Iterator<Item = (Result<Value, (u64, String)>, u64)>,
        line: Option<u64>,
    ) {
        let frame = match shape_of(rest) {
            Ok(Shape::Response(frame)) => frame,
            Ok(Shape::List) => Map::new(),
            Ok(Shape::Wrapper) => return self.wrapper(rest, line),
            Ok(Shape::Bare) => return self.bare(rest, items, line),
            Err((place, reason)) => return self.fault(None, &place, &reason),
        };
        let bytes = self.transcoder.from_json(RESPONSE_TYPE, &Value::Object(frame), Strictness::Strict);
        let frame = match bytes.map(|bytes| discovery::DiscoveryResponse::decode(bytes).unwrap_or_default()) {
            Ok(frame) => frame,
            Err(error) => {
                self.transcode_fault(None, &[], &error);
                discovery::DiscoveryResponse::default()
            }
        };
        for (index, (item, line)) in items.enumerate() {
            let step = Step::Index(index);
            let place = if rest.is_array() { vec![step] } else { vec![Step::Field("resources".into()), step] };
            match item {
                Ok(item) => self.item(&item, &frame.type_url, &frame.version_info, &place, Some(line)),
                Err((line, reason)) => self.fault(Some(line), &place, &reason),
            }
        }
    }

    /// Reads a bare resource. A field `resources` of its own type is put back first.
    fn bare(
        &mut self,
        rest: &Value,
        items: impl Iterator<Item = (Result<Value, (u64, String)>, u64)>,
        line: Option<u64>,
    ) {
        let mut whole = rest.clone();
        if let Some(list) = whole.get_mut("resources").and_then(Value::as_array_mut) {
            for (index, (item, _)) in items.enumerate() {
                match item {
                    Ok(item) => list.push(item),
                    Err((line, reason)) => {
                        let place = [Step::Field("resources".into()), Step::Index(index)];
                        return self.fault(Some(line), &place, &reason);
                    }
                }
            }
        }
        self.item(&whole, "", "", &[], line);
    }

    fn item(&mut self, item: &Value, type_url: &str, version: &str, place: &[Step], line: Option<u64>) {
        match self.transcoder.from_json(ANY, item, Strictness::Strict) {
            Ok(bytes) => match Any::decode(bytes) {
                Ok(any) => self.resource(any, type_url, version, place, line),
                Err(error) => self.fault(line, place, &error.to_string()),
            },
            Err(error) => self.transcode_fault(None, place, &error),
        }
    }

    fn wrapper(&mut self, document: &Value, line: Option<u64>) {
        match self.transcoder.from_json(WRAPPER_TYPE, document, Strictness::Strict) {
            Ok(value) => {
                let any = Any { type_url: format!("type.googleapis.com/{WRAPPER_TYPE}"), value };
                self.resource(any, "", "", &[], line);
            }
            Err(error) => self.transcode_fault(None, &[], &error),
        }
    }

    fn resource(&mut self, any: Any, type_url: &str, version: &str, place: &[Step], line: Option<u64>) {
        let wrapper = match type_name(&any.type_url) {
            WRAPPER_TYPE => match discovery::Resource::decode(any.value) {
                Ok(wrapper) => wrapper,
                Err(error) => return self.fault(line, place, &format!("it is no readable wrapper: {error}")),
            },
            _ => discovery::Resource { resource: Some(any), ..discovery::Resource::default() },
        };
        let resource_name = wrapper.resource_name.unwrap_or_default();
        let Some(Any { type_url: found, value: body }) = wrapper.resource else {
            return self.fault(line, place, "it is a wrapper with no resource in it");
        };
        if type_name(&found).is_empty() {
            return self.fault(line, place, "it does not say of what type it is");
        }
        if !type_url.is_empty() && type_name(type_url) != type_name(&found) {
            let reason = format!("it is a {} in a response of {}", type_name(&found), type_name(type_url));
            return self.fault(line, place, &reason);
        }
        let ttl = match wrapper.ttl.map(Duration::try_from).transpose() {
            Ok(ttl) => ttl,
            Err(_) => return self.fault(line, place, "its ttl is negative or too long"),
        };
        let some = |text: String| Some(text).filter(|text| !text.is_empty());
        self.resources.push(FileResource {
            type_url: found,
            name: some(wrapper.name).or_else(|| some(resource_name.name)),
            version: some(wrapper.version).or_else(|| some(version.to_owned())),
            ttl,
            aliases: wrapper.aliases,
            metadata: wrapper.metadata,
            constraints: resource_name.dynamic_parameter_constraints,
            do_not_cache: wrapper.cache_control.is_some_and(|control| control.do_not_cache),
            body,
            line,
        });
    }

    fn utf8<'a>(&mut self, bytes: &'a [u8]) -> Option<&'a str> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Some(text),
            Err(error) => {
                let line = bytes.iter().take(error.valid_up_to()).filter(|byte| **byte == b'\n').count() as u64 + 1;
                self.fault(Some(line), &[], "it is not UTF-8");
                None
            }
        }
    }

    fn transcode_fault(&mut self, line: Option<u64>, place: &[Step], error: &TranscodeError) {
        let inner = error.place().map_or(&[][..], |place| &place.0);
        self.fault(line, &[place, inner].concat(), &error.reason());
    }

    fn fault(&mut self, line: Option<u64>, place: &[Step], reason: &str) {
        if self.faults.len() == MAX_FAULTS {
            self.more += 1;
            return;
        }
        self.faults.push(DocumentFault { line, at: FieldPath(place.to_vec()), reason: reason.to_owned() });
    }

    /// Finds the lines of the latest faults that have no line yet.
    fn find_lines(&mut self, known: usize, line_of: &dyn Fn(&[Step]) -> Option<u64>) {
        for fault in &mut self.faults[known..] {
            fault.line = fault.line.or_else(|| line_of(&fault.at.0));
        }
    }
}

fn shape_of(rest: &Value) -> Result<Shape, (Vec<Step>, String)> {
    let fields = match rest {
        Value::Array(_) => return Ok(Shape::List),
        Value::Object(fields) => fields,
        _ => return Err((Vec::new(), format!("it is {}, and no resource", kind_of(rest)))),
    };
    match fields.get("@type") {
        Some(Value::String(type_url)) if type_name(type_url) == RESPONSE_TYPE => response_of(fields),
        Some(_) => Ok(Shape::Bare),
        None if fields.contains_key("resources") => response_of(fields),
        None if fields.contains_key("resource") => Ok(Shape::Wrapper),
        None => {
            let reason = "it is none of these: a DiscoveryResponse, which has `resources`; a resource in its wrapper, which has \
                          `resource`; a resource, which has `@type`; or a list of resources";
            Err((Vec::new(), reason.into()))
        }
    }
}

fn response_of(fields: &Map<String, Value>) -> Result<Shape, (Vec<Step>, String)> {
    match fields.get("resources") {
        None | Some(Value::Null | Value::Array(_)) => {}
        Some(other) => {
            let reason = format!("it is {} and has to be a list", kind_of(other));
            return Err((vec![Step::Field("resources".into())], reason));
        }
    }
    let rest = fields.iter().filter(|(key, _)| !matches!(key.as_str(), "resources" | "@type"));
    Ok(Shape::Response(rest.map(|(key, value)| (key.clone(), value.clone())).collect()))
}

/// Returns serde_json's message without the position, which is reported separately.
fn words_of(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rfind(" at line ").map_or(text.as_str(), |at| &text[..at]).to_owned()
}
