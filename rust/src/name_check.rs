//! Names a template uses that nobody here answers to: found before it is ever rendered, so that a
//! model is refused when it is loaded and not in the middle of a chat.

use std::collections::HashSet;

use minijinja::machinery::{get_compiled_template, Instruction, Instructions};
use minijinja::{context, Environment, Template};

use crate::python_methods::KNOWN_METHODS;

/// The first unknown filter, test, function or method, as "filter \"name\"".
pub fn find_unknown<'env>(
    environment: &'env Environment<'env>,
    template: &Template<'env, 'env>,
) -> Option<String> {
    let compiled = get_compiled_template(template);
    let streams = || std::iter::once(&compiled.instructions).chain(compiled.blocks.values());
    let mut own_names = HashSet::new();
    for stream in streams() {
        collect_own_names(stream, &mut own_names);
    }
    let globals: HashSet<&str> = environment.globals().map(|(name, _)| name).collect();
    for stream in streams() {
        for instruction in walk(stream) {
            let unknown = match instruction {
                Instruction::ApplyFilter(name, ..) => {
                    (!is_known(environment, name, "name is filter")).then_some(("filter", *name))
                }
                Instruction::PerformTest(name, ..) => {
                    (!is_known(environment, name, "name is test")).then_some(("test", *name))
                }
                Instruction::CallFunction(name, _) => {
                    let known = globals.contains(name) || own_names.contains(name);
                    (!known && !is_engine_function(name)).then_some(("function", *name))
                }
                Instruction::CallMethod(name, _) => {
                    let known = KNOWN_METHODS.contains(name) || own_names.contains(name);
                    (!known).then_some(("method", *name))
                }
                _ => None,
            };
            if let Some((kind, name)) = unknown {
                return Some(format!("{kind} \"{name}\""));
            }
        }
    }
    None
}

/// Functions that exist inside blocks, loops and macros only.
fn is_engine_function(name: &str) -> bool {
    matches!(name, "super" | "loop" | "caller")
}

/// Names the template gives itself (variables, macros, attributes), and those it asks for with
/// `is defined` before it uses them.
fn collect_own_names<'a>(stream: &'a Instructions<'a>, names: &mut HashSet<&'a str>) {
    let mut looked_up = None;
    for instruction in walk(stream) {
        match instruction {
            Instruction::StoreLocal(name, ..)
            | Instruction::SetAttr(name)
            | Instruction::BuildMacro(name, ..) => {
                names.insert(name);
            }
            Instruction::PerformTest("defined", ..) => {
                names.extend(looked_up);
            }
            _ => {}
        }
        looked_up = match instruction {
            Instruction::Lookup(name, ..) => Some(*name),
            _ => None,
        };
    }
}

fn walk<'a>(stream: &'a Instructions<'a>) -> impl Iterator<Item = &'a Instruction<'a>> {
    (0..).map_while(|index| stream.get(index))
}

fn is_known(environment: &Environment<'_>, name: &str, question: &str) -> bool {
    environment
        .compile_expression_owned(question.to_string())
        .and_then(|expression| expression.eval(context! { name }))
        .is_ok_and(|answer| answer.is_true())
}
