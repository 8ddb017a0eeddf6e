//! Values as Python writes them: `repr` of floats and JSON by `json.dumps`.

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// `repr(float)`: shortest digits, scientific from 1e16 up and below 1e-4.
pub fn float_repr(value: f64) -> String {
    if value.is_nan() {
        return "nan".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.into();
    }
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific
        .split_once('e')
        .expect("the format has an exponent");
    let exponent: i32 = exponent.parse().expect("the exponent is a number");
    if (-4..16).contains(&exponent) {
        let plain = format!("{value}");
        return if plain.contains('.') {
            plain
        } else {
            plain + ".0"
        };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

/// `repr` of a value; what `str` gives for everything but strings.
pub fn repr(value: &Value) -> String {
    match value.kind() {
        ValueKind::Number if !value.is_integer() => {
            f64::try_from(value.clone()).map_or_else(|_| value.to_string(), float_repr)
        }
        ValueKind::String => format!("{value:?}"),
        ValueKind::Seq => {
            let items: Vec<String> = value
                .try_iter()
                .into_iter()
                .flatten()
                .map(|v| repr(&v))
                .collect();
            match (value.is_tuple(), items.as_slice()) {
                (true, [only]) => format!("({only},)"),
                (true, _) => format!("({})", items.join(", ")),
                (false, _) => format!("[{}]", items.join(", ")),
            }
        }
        ValueKind::Map => {
            let entry = |key: Value| {
                let item = value.get_item(&key).unwrap_or_default();
                format!("{}: {}", repr(&key), repr(&item))
            };
            let entries: Vec<String> = value.try_iter().into_iter().flatten().map(entry).collect();
            format!("{{{}}}", entries.join(", "))
        }
        _ => value.to_string(),
    }
}

/// The options of `json.dumps` that Hugging Face's `tojson` passes on.
struct JsonStyle {
    ensure_ascii: bool,
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
}

/// Hugging Face's `tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
pub fn to_json(value: &Value, positional: &[Value], kwargs: &Kwargs) -> Result<String, Error> {
    let argument = |index: usize, name: &str| -> Result<Option<Value>, Error> {
        match positional.get(index) {
            Some(given) => Ok(Some(given.clone())),
            None => kwargs.get::<Option<Value>>(name),
        }
    };
    let ensure_ascii = argument(0, "ensure_ascii")?.is_some_and(|flag| flag.is_true());
    let indent = indent_text(argument(1, "indent")?)?;
    let separators = argument(2, "separators")?.filter(|value| !value.is_none());
    let sort_keys = argument(3, "sort_keys")?.is_some_and(|flag| flag.is_true());
    kwargs.assert_all_used()?;
    let (item_separator, key_separator) = match separators {
        Some(pair) => separator_pair(&pair)?,
        None if indent.is_some() => (",".to_string(), ": ".to_string()),
        None => (", ".to_string(), ": ".to_string()),
    };
    let style = JsonStyle {
        ensure_ascii,
        indent,
        item_separator,
        key_separator,
        sort_keys,
    };
    let mut out = String::new();
    write_value(value, &style, 0, &mut out)?;
    Ok(out)
}

fn indent_text(indent: Option<Value>) -> Result<Option<String>, Error> {
    let Some(indent) = indent.filter(|value| !value.is_none()) else {
        return Ok(None);
    };
    if let Some(text) = indent.as_str() {
        return Ok(Some(text.to_string()));
    }
    let width = i64::try_from(indent)?;
    Ok(Some(
        " ".repeat(usize::try_from(width.clamp(0, 64)).unwrap_or(0)),
    ))
}

fn separator_pair(pair: &Value) -> Result<(String, String), Error> {
    let texts: Vec<String> = pair.try_iter()?.map(|part| part.to_string()).collect();
    match texts.as_slice() {
        [item, key] => Ok((item.clone(), key.clone())),
        _ => Err(Error::new(
            ErrorKind::InvalidOperation,
            "separators must be a pair of strings",
        )),
    }
}

fn write_value(
    value: &Value,
    style: &JsonStyle,
    depth: usize,
    out: &mut String,
) -> Result<(), Error> {
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => out.push_str(&number_text(value)),
        ValueKind::String => write_string(value.as_str().unwrap_or_default(), style, out),
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Vec<Value> = value.try_iter()?.collect();
            write_items(items.len(), ('[', ']'), style, depth, out, |index, out| {
                write_value(&items[index], style, depth + 1, out)
            })?;
        }
        ValueKind::Map => {
            let mut entries = Vec::new();
            for key in value.try_iter()? {
                entries.push((key_text(&key)?, value.get_item(&key)?));
            }
            if style.sort_keys {
                entries.sort_by(|a, b| a.0.cmp(&b.0));
            }
            write_items(
                entries.len(),
                ('{', '}'),
                style,
                depth,
                out,
                |index, out| {
                    write_string(&entries[index].0, style, out);
                    out.push_str(&style.key_separator);
                    write_value(&entries[index].1, style, depth + 1, out)
                },
            )?;
        }
        kind => {
            return Err(Error::new(
                ErrorKind::BadSerialization,
                format!("a value of type {kind} is not JSON serializable"),
            ))
        }
    }
    Ok(())
}

fn write_items(
    count: usize,
    brackets: (char, char),
    style: &JsonStyle,
    depth: usize,
    out: &mut String,
    mut write_item: impl FnMut(usize, &mut String) -> Result<(), Error>,
) -> Result<(), Error> {
    out.push(brackets.0);
    for index in 0..count {
        if index > 0 {
            out.push_str(&style.item_separator);
        }
        break_line(style, depth + 1, out);
        write_item(index, out)?;
    }
    if count > 0 {
        break_line(style, depth, out);
    }
    out.push(brackets.1);
    Ok(())
}

fn break_line(style: &JsonStyle, depth: usize, out: &mut String) {
    if let Some(indent) = &style.indent {
        out.push('\n');
        for _ in 0..depth {
            out.push_str(indent);
        }
    }
}

fn number_text(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    match f64::try_from(value.clone()) {
        Ok(number) if number.is_nan() => "NaN".into(),
        Ok(number) if number.is_infinite() => if number > 0.0 {
            "Infinity"
        } else {
            "-Infinity"
        }
        .into(),
        Ok(number) => float_repr(number),
        Err(_) => value.to_string(),
    }
}

fn key_text(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().to_string()),
        ValueKind::Number => Ok(number_text(key)),
        ValueKind::Bool => Ok(if key.is_true() { "true" } else { "false" }.into()),
        ValueKind::None => Ok("null".into()),
        kind => Err(Error::new(
            ErrorKind::BadSerialization,
            format!("a value of type {kind} cannot be a JSON key"),
        )),
    }
}

fn write_string(text: &str, style: &JsonStyle, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            control if (control as u32) < 0x20 => escape_unit(control as u16, out),
            wide if style.ensure_ascii && (wide as u32) > 0x7e => {
                for unit in wide.encode_utf16(&mut [0; 2]) {
                    escape_unit(*unit, out);
                }
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

fn escape_unit(unit: u16, out: &mut String) {
    out.push_str(&format!("\\u{unit:04x}"));
}
