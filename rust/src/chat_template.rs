//! One parsed template and what can go wrong with it.

use std::error::Error as _;
use std::io::{self, Write};

use minijinja::value::{Serde, Value};
use minijinja::{Environment, Error, ErrorKind};

use crate::environment::{chat_environment, Raised};
use crate::name_check::find_unknown;

const NAME: &str = "chat_template";
const SOURCE_BYTES_MAX: usize = 4 << 20;
const OUTPUT_BYTES_MAX: usize = 64 << 20;

/// In the order of `shardline_template_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum Status {
    Ok = 0,
    Raised = 1,
    Failed = 2,
    BadSource = 3,
    UnknownName = 4,
    BadInputs = 5,
    TooExpensive = 6,
    Broken = 7,
}

pub struct Failure {
    pub status: Status,
    pub message: String,
}

impl Failure {
    pub fn new(status: Status, message: impl Into<String>) -> Failure {
        Failure {
            status,
            message: message.into(),
        }
    }
}

pub struct ChatTemplate {
    environment: Environment<'static>,
    constants: serde_json::Map<String, serde_json::Value>,
}

impl ChatTemplate {
    pub fn parse(source: &str, constants: &str) -> Result<ChatTemplate, Failure> {
        if source.len() > SOURCE_BYTES_MAX {
            return Err(Failure::new(
                Status::BadSource,
                "it is larger than any real template",
            ));
        }
        let mut environment = chat_environment();
        environment
            .add_template_owned(NAME, without_generation_tags(source))
            .map_err(|error| Failure::new(Status::BadSource, describe(&error)))?;
        let template = ChatTemplate {
            environment,
            constants: json_object(constants)?,
        };
        if let Some(name) = template.unknown_name() {
            return Err(Failure::new(Status::UnknownName, name));
        }
        Ok(template)
    }

    fn unknown_name(&self) -> Option<String> {
        let template = self.environment.get_template(NAME).ok()?;
        find_unknown(&self.environment, &template)
    }

    pub fn render(&self, inputs: &str) -> Result<String, Failure> {
        let mut variables = serde_json::Map::new();
        // Hugging Face always passes these two, as None when the caller has none.
        for name in ["tools", "documents"] {
            variables.insert(name.to_string(), serde_json::Value::Null);
        }
        variables.extend(self.constants.clone());
        variables.extend(json_object(inputs)?);
        let template = self
            .environment
            .get_template(NAME)
            .map_err(|error| Failure::new(Status::Broken, describe(&error)))?;
        let mut output = BoundedOutput::default();
        match template.render_captured_to(Value::from(Serde(&variables)), &mut output) {
            Ok(_) => String::from_utf8(output.bytes)
                .map_err(|_| Failure::new(Status::Broken, "the rendering is not UTF-8")),
            Err(_) if output.overflowed => {
                let message = format!("it makes more than {OUTPUT_BYTES_MAX} bytes");
                Err(Failure::new(Status::TooExpensive, message))
            }
            Err(error) => Err(failure_of(&error)),
        }
    }
}

fn json_object(text: &str) -> Result<serde_json::Map<String, serde_json::Value>, Failure> {
    serde_json::from_str(text).map_err(|error| Failure::new(Status::BadInputs, error.to_string()))
}

fn failure_of(error: &Error) -> Failure {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    let mut out_of_fuel = false;
    while let Some(current) = cause {
        if let Some(raised) = current.downcast_ref::<Raised>() {
            return Failure::new(Status::Raised, raised.0.clone());
        }
        if let Some(inner) = current.downcast_ref::<Error>() {
            out_of_fuel |= inner.kind() == ErrorKind::OutOfFuel;
        }
        cause = current.source();
    }
    let status = if out_of_fuel {
        Status::TooExpensive
    } else {
        Status::Failed
    };
    Failure::new(status, describe(error))
}

/// The error with its line and, in one line, what caused it.
fn describe(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(current) = cause {
        text = format!("{text}: {current}");
        cause = current.source();
    }
    text
}

/// `{% generation %}` and `{% endgeneration %}` only mark the assistant's part for training; what
/// stands between them is rendered as it is.
fn without_generation_tags(source: &str) -> String {
    let mut result = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let (before, tag) = rest.split_at(start);
        let Some(end) = tag.find("%}") else {
            break;
        };
        let inner = &tag[2..end];
        let name = inner.trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+');
        result.push_str(before);
        match name {
            "generation" => result.push_str(&tag[..end].replacen("generation", "if true", 1)),
            "endgeneration" => result.push_str(&tag[..end].replacen("endgeneration", "endif", 1)),
            _ => {
                result.push_str("{%");
                rest = &tag[2..];
                continue;
            }
        }
        result.push_str("%}");
        rest = &tag[end + 2..];
    }
    result.push_str(rest);
    result
}

#[derive(Default)]
struct BoundedOutput {
    bytes: Vec<u8>,
    overflowed: bool,
}

impl Write for BoundedOutput {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + part.len() > OUTPUT_BYTES_MAX {
            self.overflowed = true;
            return Err(io::Error::other("too much output"));
        }
        self.bytes.extend_from_slice(part);
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
