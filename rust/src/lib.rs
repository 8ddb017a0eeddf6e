//! The C interface of include/shardline_text.h. Panics end here as `Status::Broken`.

mod chat_template;
mod environment;
mod name_check;
mod python_methods;
mod python_text;

use std::panic::{catch_unwind, AssertUnwindSafe};

use chat_template::{ChatTemplate, Failure, Status};

#[repr(C)]
pub struct Text {
    data: *mut u8,
    size: usize,
}

impl Text {
    fn of(text: String) -> Text {
        let bytes = text.into_bytes().into_boxed_slice();
        let size = bytes.len();
        Text {
            data: Box::into_raw(bytes).cast(),
            size,
        }
    }
}

/// SAFETY: `data` points to `size` readable bytes, or `size` is 0.
unsafe fn text_of<'a>(data: *const u8, size: usize) -> Result<&'a str, Failure> {
    let bytes = if size == 0 {
        &[][..]
    } else {
        std::slice::from_raw_parts(data, size)
    };
    std::str::from_utf8(bytes)
        .map_err(|_| Failure::new(Status::BadInputs, "the text is not valid UTF-8"))
}

fn guarded<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(Failure::new(Status::Broken, "the template engine panicked")))
}

/// # Safety
/// As the header says: readable ranges, writable `out` and `text`.
#[no_mangle]
pub unsafe extern "C" fn shardline_template_parse(
    source: *const u8,
    source_size: usize,
    constants: *const u8,
    constants_size: usize,
    out: *mut *mut ChatTemplate,
    text: *mut Text,
) -> Status {
    *out = std::ptr::null_mut();
    let parsed = guarded(|| {
        let source = text_of(source, source_size)?;
        ChatTemplate::parse(source, text_of(constants, constants_size)?)
    });
    match parsed {
        Ok(template) => {
            *out = Box::into_raw(Box::new(template));
            *text = Text::of(String::new());
            Status::Ok
        }
        Err(failure) => {
            *text = Text::of(failure.message);
            failure.status
        }
    }
}

/// # Safety
/// `template` came from `shardline_template_parse`; otherwise as the header says.
#[no_mangle]
pub unsafe extern "C" fn shardline_template_render(
    template: *const ChatTemplate,
    inputs: *const u8,
    inputs_size: usize,
    text: *mut Text,
) -> Status {
    match guarded(|| (*template).render(text_of(inputs, inputs_size)?)) {
        Ok(rendered) => {
            *text = Text::of(rendered);
            Status::Ok
        }
        Err(failure) => {
            *text = Text::of(failure.message);
            failure.status
        }
    }
}

/// # Safety
/// `template` came from `shardline_template_parse` or is null, and is not used again.
#[no_mangle]
pub unsafe extern "C" fn shardline_template_free(template: *mut ChatTemplate) {
    if !template.is_null() {
        drop(Box::from_raw(template));
    }
}

/// # Safety
/// `text` came from one of the calls above and is not used again.
#[no_mangle]
pub unsafe extern "C" fn shardline_text_free(text: Text) {
    if !text.data.is_null() {
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(
            text.data, text.size,
        )));
    }
}
