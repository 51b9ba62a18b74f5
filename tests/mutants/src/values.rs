//! Values that a function may return in place of its own.

use syn::{GenericArgument, PathArguments, Type};

/// Returns other values of a type. Some of them may not compile.
pub fn of(kind: &Type) -> Vec<String> {
    let fixed = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
    match kind {
        Type::Tuple(tuple) if tuple.elems.is_empty() => vec!["()".into()],
        Type::Tuple(_) | Type::Array(_) => fixed(&["Default::default()"]),
        Type::Reference(reference) if reference.mutability.is_none() && is_str(&reference.elem) => {
            fixed(&["\"\"", "\"other\""])
        }
        Type::Path(path) => {
            let Some(last) = path.path.segments.last() else { return Vec::new() };
            let inner = match &last.arguments {
                PathArguments::AngleBracketed(arguments) => arguments.args.iter().find_map(|argument| match argument {
                    GenericArgument::Type(inner) => Some(inner),
                    _ => None,
                }),
                _ => None,
            };
            match (last.ident.to_string().as_str(), inner) {
                ("bool", _) => fixed(&["true", "false"]),
                (
                    "u8" | "u16" | "u32" | "u64" | "u128" | "usize" | "i8" | "i16" | "i32" | "i64" | "i128" | "isize",
                    _,
                ) => fixed(&["0", "1"]),
                ("f32" | "f64", _) => fixed(&["0.0", "1.0"]),
                ("String", _) => fixed(&["String::new()", "\"other\".into()"]),
                ("Option", inner) => std::iter::once("None".into())
                    .chain(
                        inner
                            .filter(|inner| is_plain(inner))
                            .into_iter()
                            .flat_map(of)
                            .map(|value| format!("Some({value})")),
                    )
                    .collect(),
                ("Result", Some(inner)) => of(inner).into_iter().map(|value| format!("Ok({value})")).collect(),
                ("Poll" | "Self", _) => Vec::new(),
                _ => fixed(&["Default::default()"]),
            }
        }
        _ => Vec::new(),
    }
}

fn is_str(kind: &Type) -> bool {
    matches!(kind, Type::Path(path) if path.path.is_ident("str"))
}

fn is_plain(kind: &Type) -> bool {
    let names = ["bool", "u32", "u64", "usize", "String"];
    matches!(kind, Type::Path(path) if names.iter().any(|name| path.path.is_ident(name)))
}
