//! Methods of Python's `str`, `dict` and `list` that chat templates call.

use minijinja::value::{from_args, Kwargs, Rest, Tuple, Value, ValueKind};
use minijinja::{Error, ErrorKind, State};
use minijinja_contrib::pycompat;

/// Every method name that some value answers to; any other is refused when a template is parsed.
pub const KNOWN_METHODS: &[&str] = &[
    // minijinja_contrib::pycompat
    "capitalize",
    "count",
    "endswith",
    "find",
    "format",
    "get",
    "isalnum",
    "isalpha",
    "isascii",
    "isdigit",
    "islower",
    "isnumeric",
    "isspace",
    "isupper",
    "items",
    "join",
    "keys",
    "lower",
    "lstrip",
    "replace",
    "rfind",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "title",
    "upper",
    "values",
    // here
    "casefold",
    "center",
    "copy",
    "expandtabs",
    "index",
    "isdecimal",
    "istitle",
    "ljust",
    "partition",
    "removeprefix",
    "removesuffix",
    "rjust",
    "rpartition",
    "rsplit",
    "swapcase",
    "zfill",
    // loop objects
    "changed",
    "cycle",
];

pub fn call(
    state: &mut State,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let result = match value.kind() {
        ValueKind::String => string_method(state, value.as_str().unwrap_or_default(), method, args),
        ValueKind::Map if method == "copy" => Some(Ok(value.clone())),
        ValueKind::Seq if method == "copy" => Some(Ok(value.clone())),
        ValueKind::Seq if method == "index" => Some(sequence_index(value, args)),
        _ => None,
    };
    match result {
        Some(result) => result,
        None => pycompat::unknown_method_callback(state, value, method, args),
    }
}

fn string_method(
    state: &State,
    text: &str,
    method: &str,
    args: &[Value],
) -> Option<Result<Value, Error>> {
    Some(match method {
        "split" => split(text, args, false),
        "rsplit" => split(text, args, true),
        "partition" => partition(text, args, false),
        "rpartition" => partition(text, args, true),
        "removeprefix" => cut(text, args, |text, part| text.strip_prefix(part)),
        "removesuffix" => cut(text, args, |text, part| text.strip_suffix(part)),
        "casefold" => Ok(Value::from(text.to_lowercase())),
        "swapcase" => Ok(Value::from(swap_case(text))),
        "isdecimal" => Ok(Value::from(
            !text.is_empty() && text.chars().all(|character| character.is_numeric()),
        )),
        "istitle" => Ok(Value::from(is_title(text))),
        "index" => index(text, args),
        "ljust" => pad(state, text, args, |missing| (0, missing)),
        "rjust" => pad(state, text, args, |missing| (missing, 0)),
        "center" => pad(state, text, args, |missing| {
            (missing / 2, missing - missing / 2)
        }),
        "zfill" => zero_fill(state, text, args),
        "expandtabs" => expand_tabs(state, text, args),
        _ => return None,
    })
}

/// `split(sep=None, maxsplit=-1)`; with `from_end` the cuts are counted from the right.
fn split(text: &str, args: &[Value], from_end: bool) -> Result<Value, Error> {
    let (rest, kwargs): (Rest<Value>, Kwargs) = from_args(args)?;
    let argument = |index: usize, name: &str| match rest.get(index) {
        Some(value) => Ok(Some(value.clone())),
        None => kwargs.get::<Option<Value>>(name),
    };
    let separator = argument(0, "sep")?.filter(|value| !value.is_none());
    let limit = match argument(1, "maxsplit")? {
        Some(value) => usize::try_from(i64::try_from(value)?).unwrap_or(usize::MAX),
        None => usize::MAX,
    };
    kwargs.assert_all_used()?;
    let parts = match separator {
        None => split_at_spaces(text, limit, from_end),
        Some(value) => {
            let separator = value
                .as_str()
                .filter(|part| !part.is_empty())
                .ok_or_else(|| {
                    Error::new(
                        ErrorKind::InvalidOperation,
                        "split needs a separator with text",
                    )
                })?;
            split_at(text, separator, limit, from_end)
        }
    };
    Ok(Value::from(parts))
}

fn split_at(text: &str, separator: &str, limit: usize, from_end: bool) -> Vec<Value> {
    let pieces = limit.saturating_add(1);
    if from_end {
        let mut parts: Vec<_> = text.rsplitn(pieces, separator).map(Value::from).collect();
        parts.reverse();
        return parts;
    }
    text.splitn(pieces, separator).map(Value::from).collect()
}

fn split_at_spaces(text: &str, limit: usize, from_end: bool) -> Vec<Value> {
    let mut parts = Vec::new();
    let mut rest = if from_end {
        text.trim_end()
    } else {
        text.trim_start()
    };
    while !rest.is_empty() {
        let cut = if parts.len() == limit {
            None
        } else if from_end {
            rest.rfind(char::is_whitespace)
        } else {
            rest.find(char::is_whitespace)
        };
        match cut {
            None => {
                parts.push(rest);
                rest = "";
            }
            Some(at) if from_end => {
                let space = rest[at..].chars().next().map_or(0, char::len_utf8);
                parts.push(&rest[at + space..]);
                rest = rest[..at].trim_end();
            }
            Some(at) => {
                parts.push(&rest[..at]);
                rest = rest[at..].trim_start();
            }
        }
    }
    // What is left over keeps its outer space on the far side only.
    if from_end {
        if let Some(last) = parts.last_mut().filter(|_| limit != usize::MAX) {
            *last = last.trim_end();
        }
        parts.reverse();
    }
    parts.into_iter().map(Value::from).collect()
}

/// `partition`, or `rpartition` with `from_end`.
fn partition(text: &str, args: &[Value], from_end: bool) -> Result<Value, Error> {
    let (separator,): (&str,) = from_args(args)?;
    if separator.is_empty() {
        return Err(Error::new(ErrorKind::InvalidOperation, "empty separator"));
    }
    let cut = if from_end {
        text.rsplit_once(separator)
    } else {
        text.split_once(separator)
    };
    let parts = match cut {
        Some((before, after)) => [before, separator, after],
        None if from_end => ["", "", text],
        None => [text, "", ""],
    };
    Ok(Value::from(Tuple::from(parts.map(Value::from).to_vec())))
}

fn cut(
    text: &str,
    args: &[Value],
    strip: impl for<'a> Fn(&'a str, &str) -> Option<&'a str>,
) -> Result<Value, Error> {
    let (part,): (&str,) = from_args(args)?;
    Ok(Value::from(strip(text, part).unwrap_or(text)))
}

fn swap_case(text: &str) -> String {
    let mut swapped = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_uppercase() {
            swapped.extend(character.to_lowercase());
        } else {
            swapped.extend(character.to_uppercase());
        }
    }
    swapped
}

fn is_title(text: &str) -> bool {
    let mut in_word = false;
    let mut any = false;
    for character in text.chars() {
        if character.is_uppercase() {
            if in_word {
                return false;
            }
            in_word = true;
            any = true;
        } else if character.is_lowercase() {
            if !in_word {
                return false;
            }
        } else {
            in_word = false;
        }
    }
    any
}

fn index(text: &str, args: &[Value]) -> Result<Value, Error> {
    let (part,): (&str,) = from_args(args)?;
    match text.find(part) {
        Some(at) => Ok(Value::from(text[..at].chars().count())),
        None => Err(Error::new(
            ErrorKind::InvalidOperation,
            "substring not found",
        )),
    }
}

fn sequence_index(value: &Value, args: &[Value]) -> Result<Value, Error> {
    let (wanted,): (Value,) = from_args(args)?;
    match value.try_iter()?.position(|item| item == wanted) {
        Some(at) => Ok(Value::from(at)),
        None => Err(Error::new(
            ErrorKind::InvalidOperation,
            "value is not in the list",
        )),
    }
}

fn pad(
    state: &State,
    text: &str,
    args: &[Value],
    share: impl Fn(usize) -> (usize, usize),
) -> Result<Value, Error> {
    let (width, fill): (usize, Option<char>) = from_args(args)?;
    let missing = width.saturating_sub(text.chars().count());
    state.consume_fuel(missing as u64 / 16)?;
    let (before, after) = share(missing);
    let fill = fill.unwrap_or(' ').to_string();
    Ok(Value::from(format!(
        "{}{text}{}",
        fill.repeat(before),
        fill.repeat(after)
    )))
}

fn zero_fill(state: &State, text: &str, args: &[Value]) -> Result<Value, Error> {
    let (width,): (usize,) = from_args(args)?;
    let missing = width.saturating_sub(text.chars().count());
    state.consume_fuel(missing as u64 / 16)?;
    let sign = usize::from(text.starts_with(['+', '-']));
    Ok(Value::from(format!(
        "{}{}{}",
        &text[..sign],
        "0".repeat(missing),
        &text[sign..]
    )))
}

fn expand_tabs(state: &State, text: &str, args: &[Value]) -> Result<Value, Error> {
    let (size,): (Option<usize>,) = from_args(args)?;
    let size = size.unwrap_or(8).min(64);
    state.consume_fuel((text.len() * size) as u64 / 64)?;
    let mut expanded = String::with_capacity(text.len());
    let mut column = 0;
    for character in text.chars() {
        match character {
            '\t' => {
                let spaces = if size == 0 { 0 } else { size - column % size };
                expanded.push_str(&" ".repeat(spaces));
                column += spaces;
            }
            '\n' | '\r' => {
                expanded.push(character);
                column = 0;
            }
            other => {
                expanded.push(other);
                column += 1;
            }
        }
    }
    Ok(Value::from(expanded))
}
