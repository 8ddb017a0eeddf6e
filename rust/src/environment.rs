//! A MiniJinja environment with the settings and names of Hugging Face's `apply_chat_template`.

use std::ffi::CString;
use std::fmt;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, UndefinedBehavior};

use crate::python_methods;
use crate::python_text::{repr, to_json};

/// About one unit per instruction and per 64 bytes made: bounds both time and memory.
const FUEL: u64 = 10_000_000;
const TIME_TEXT_BYTES_MAX: usize = 4096;

/// What `raise_exception` leaves in an error, so that its message can be told from our own.
#[derive(Debug)]
pub struct Raised(pub String);

impl fmt::Display for Raised {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

pub fn chat_environment() -> Environment<'static> {
    let mut environment = Environment::new();
    minijinja_contrib::add_to_environment(&mut environment);
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build();
    environment.set_syntax(syntax.expect("the default delimiters are valid"));
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    environment.set_unknown_method_callback(python_methods::call);
    environment.set_formatter(|out, state, value| match value.kind() {
        ValueKind::Number | ValueKind::Seq | ValueKind::Map => {
            out.write_str(&repr(value)).map_err(Error::from)
        }
        _ => minijinja::escape_formatter(out, state, value),
    });
    environment.add_filter(
        "tojson",
        |value: &Value, args: Rest<Value>, kwargs: Kwargs| to_json(value, &args, &kwargs),
    );
    environment.add_filter("string", |value: &Value| match value.kind() {
        ValueKind::String => value.to_string(),
        _ => repr(value),
    });
    environment.add_test("sequence", |value: &Value| {
        matches!(
            value.kind(),
            ValueKind::Seq | ValueKind::Map | ValueKind::String
        ) || value.is_undefined()
    });
    environment.add_test("iterable", |value: &Value| {
        !value.is_none() && value.try_iter().is_ok()
    });
    environment.add_test("callable", |value: &Value| value.kind() == ValueKind::Plain);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", strftime_now);
    environment.remove_global("debug");
    environment
}

fn raise_exception(message: &Value) -> Result<Value, Error> {
    let message = message.to_string();
    Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
}

/// `datetime.now().strftime(format)`: Python, too, asks the C library.
fn strftime_now(_state: &State, format: &str) -> Result<String, Error> {
    let invalid = || Error::new(ErrorKind::InvalidOperation, "the time format is not usable");
    if format.is_empty() {
        return Ok(String::new());
    }
    let pattern = CString::new(format).map_err(|_| invalid())?;
    let mut buffer = vec![0u8; TIME_TEXT_BYTES_MAX];
    // SAFETY: all pointers are to live, large enough values of the right types.
    let written = unsafe {
        let now = libc::time(std::ptr::null_mut());
        let mut local: libc::tm = std::mem::zeroed();
        if libc::localtime_r(&now, &mut local).is_null() {
            return Err(invalid());
        }
        libc::strftime(
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            pattern.as_ptr(),
            &local,
        )
    };
    if written == 0 {
        return Err(invalid());
    }
    buffer.truncate(written);
    String::from_utf8(buffer).map_err(|_| invalid())
}
