//! Finds the places in a file that can be changed.

use std::ops::Range;

use anyhow::{Context, Result};
use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, BinOp, Block, Expr, ImplItemFn, ItemFn, ItemImpl, Pat, ReturnType, Signature, Stmt, Type, UnOp};

use crate::mutation::{Mutant, Place};
use crate::values;

/// Returns the mutants of a file, in the order of their places.
pub fn mutants(file: &str, source: &str) -> Result<Vec<Mutant>> {
    let tree = syn::parse_file(source).with_context(|| format!("{file} is not Rust"))?;
    let mut finder = Finder { file, source, owner: None, function: None, mutants: Vec::new() };
    finder.visit_file(&tree);
    Ok(finder.mutants)
}

/// Returns the modules that only tests use and that have files of their own, as paths without an extension.
pub fn modules_for_tests(file: &str, source: &str) -> Result<Vec<String>> {
    let tree = syn::parse_file(source).with_context(|| format!("{file} is not Rust"))?;
    let stem = file.strip_suffix(".rs").unwrap_or(file);
    let folder = ["mod", "lib", "main"]
        .iter()
        .find_map(|name| stem.strip_suffix(name))
        .filter(|it| it.is_empty() || it.ends_with('/'));
    let folder = folder.map_or_else(|| format!("{stem}/"), str::to_owned);
    let modules = tree.items.iter().filter_map(|item| match item {
        syn::Item::Mod(module) if module.content.is_none() && is_for_tests(&module.attrs) => Some(&module.ident),
        _ => None,
    });
    Ok(modules.map(|name| format!("{folder}{name}")).collect())
}

struct Finder<'a> {
    file: &'a str,
    source: &'a str,
    owner: Option<String>,
    function: Option<String>,
    mutants: Vec<Mutant>,
}

impl Finder<'_> {
    fn text(&self, range: Range<usize>) -> &str {
        &self.source[range]
    }

    /// Adds a mutant if the code is in a function: code that the compiler evaluates cannot read a switch.
    fn add(&mut self, span: Span, change: String, place: Place) {
        let Some(function) = self.function.clone() else { return };
        let change = change.split_whitespace().collect::<Vec<_>>().join(" ");
        self.mutants.push(Mutant { file: self.file.into(), line: span.start().line, function, change, place });
    }

    fn function(&mut self, signature: &Signature, body: &Block) {
        if signature.constness.is_some() {
            return;
        }
        let name = signature.ident.to_string();
        let name = self.owner.as_ref().map_or(name.clone(), |owner| format!("{owner}::{name}"));
        let outer = self.function.replace(name);
        if !body.stmts.is_empty() && signature.ident != "default" {
            let at = range(body.brace_token.span.open()).end;
            let old = self.text(range(body.span())).split_whitespace().collect::<String>();
            let values = match &signature.output {
                ReturnType::Default => vec![String::new()],
                ReturnType::Type(_, kind) => values::of(kind),
            };
            for value in values.into_iter().filter(|value| old != format!("{{{}}}", value.replace(' ', ""))) {
                let change = if value.is_empty() { "does nothing".into() } else { format!("returns {value}") };
                self.add(signature.ident.span(), change, Place::Body { at, value });
            }
        }
        self.visit_block(body);
        self.function = outer;
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        if !is_conditional(&item.attrs) {
            self.function(&item.sig, &item.block);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        if !is_conditional(&item.attrs) {
            self.function(&item.sig, &item.block);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let (Some(body), false) = (&item.default, is_conditional(&item.attrs)) {
            self.function(&item.sig, body);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        let of_debug = item.trait_.as_ref().is_some_and(|(_, path, _)| ends_with(path, "Debug"));
        if is_conditional(&item.attrs) || of_debug {
            return;
        }
        let outer = self.owner.replace(type_name(&item.self_ty));
        visit::visit_item_impl(self, item);
        self.owner = outer;
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_conditional(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    // The compiler evaluates these.
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
    fn visit_pat(&mut self, _: &'ast Pat) {}
    fn visit_type(&mut self, _: &'ast Type) {}
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
    fn visit_generic_argument(&mut self, _: &'ast syn::GenericArgument) {}

    fn visit_expr_repeat(&mut self, array: &'ast syn::ExprRepeat) {
        self.visit_expr(&array.expr);
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        let left_out = match statement {
            Stmt::Expr(expression, Some(_)) => is_effect(expression),
            Stmt::Local(local) => matches!(local.pat, Pat::Wild(_)),
            _ => false,
        };
        if left_out {
            let range = range(statement.span());
            let change = format!("{} is left out", self.text(range.clone()));
            self.add(statement.span(), change, Place::Statement { range });
        }
        visit::visit_stmt(self, statement);
    }

    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        if !has_let(&binary.left) && !has_let(&binary.right) {
            let whole = range(binary.span());
            let (left, right) = (self.text(range(binary.left.span())), self.text(range(binary.right.span())));
            let mut found = Vec::new();
            for other in others(&binary.op) {
                found.push((
                    format!("{} becomes {other} in {}", self.text(range(binary.op.span())), self.text(whole.clone())),
                    format!("{left} {other} {right}"),
                ));
            }
            for (change, other) in found {
                self.add(binary.span(), change, Place::Expression { range: whole.clone(), other });
            }
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_unary(&mut self, unary: &'ast syn::ExprUnary) {
        if let (UnOp::Not(_), false) = (&unary.op, has_let(&unary.expr)) {
            let (whole, inner) = (range(unary.span()), self.text(range(unary.expr.span())).to_owned());
            let change = format!("{} loses its negation", self.text(whole.clone()));
            self.add(unary.span(), change, Place::Expression { range: whole, other: inner });
        }
        visit::visit_expr_unary(self, unary);
    }

    fn visit_expr_match(&mut self, matching: &'ast syn::ExprMatch) {
        let catches_all = matching.arms.last().is_some_and(|arm| {
            arm.guard.is_none()
                && (matches!(arm.pat, Pat::Wild(_)) || matches!(&arm.pat, Pat::Ident(it) if it.subpat.is_none()))
        });
        for (index, arm) in matching.arms.iter().enumerate() {
            let at = range(arm.pat.span()).end;
            let pattern = self.text(range(arm.pat.span())).to_owned();
            let guard = arm.guard.as_ref().map(|(_, guard)| &**guard).filter(|guard| !has_let(guard));
            if arm.guard.is_some() && guard.is_none() {
                continue; // a guard with a pattern of its own
            }
            if catches_all && index + 1 < matching.arms.len() {
                let guard = guard.map(|guard| range(guard.span()));
                self.add(arm.pat.span(), format!("the arm {pattern} never matches"), Place::Arm { at, guard });
            }
            if let Some(guard) = guard {
                let range = range(guard.span());
                let change = format!("the guard {} always holds", self.text(range.clone()));
                self.add(guard.span(), change, Place::Expression { range, other: "true".into() });
            }
        }
        visit::visit_expr_match(self, matching);
    }
}

fn range(span: Span) -> Range<usize> {
    span.byte_range()
}

/// Whether an item is only compiled under a condition, such as for tests.
fn is_conditional(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident("cfg") || attribute.path().is_ident("test"))
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    let is_test = |attribute: &Attribute| attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"));
    attributes.iter().any(|attribute| attribute.path().is_ident("cfg") && is_test(attribute))
}

fn ends_with(path: &syn::Path, name: &str) -> bool {
    path.segments.last().is_some_and(|segment| segment.ident == name)
}

fn type_name(kind: &Type) -> String {
    match kind {
        Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default(),
        Type::Reference(reference) => type_name(&reference.elem),
        _ => "impl".into(),
    }
}

/// Whether a statement has an effect that would be missed without it.
fn is_effect(expression: &Expr) -> bool {
    match expression {
        Expr::Assign(_) | Expr::MethodCall(_) | Expr::Call(_) => true,
        Expr::Binary(binary) => is_assignment(&binary.op),
        Expr::Try(tried) => is_effect(&tried.expr),
        Expr::Await(awaited) => is_effect(&awaited.base),
        _ => false,
    }
}

fn is_assignment(operator: &BinOp) -> bool {
    use BinOp::*;
    matches!(
        operator,
        AddAssign(_)
            | SubAssign(_)
            | MulAssign(_)
            | DivAssign(_)
            | RemAssign(_)
            | BitXorAssign(_)
            | BitAndAssign(_)
            | BitOrAssign(_)
            | ShlAssign(_)
            | ShrAssign(_)
    )
}

/// Whether a condition has a pattern: then its parts cannot be put into parentheses.
fn has_let(expression: &Expr) -> bool {
    match expression {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        Expr::Unary(unary) => has_let(&unary.expr),
        _ => false,
    }
}

/// Returns operators that are easily confused with this one, or that differ from it only at a boundary.
fn others(operator: &BinOp) -> &'static [&'static str] {
    use BinOp::*;
    match operator {
        Eq(_) => &["!="],
        Ne(_) => &["=="],
        Lt(_) => &["<=", ">"],
        Le(_) => &["<", ">"],
        Gt(_) => &[">=", "<"],
        Ge(_) => &[">", "<"],
        And(_) => &["||"],
        Or(_) => &["&&"],
        Add(_) => &["-", "*"],
        Sub(_) => &["+", "/"],
        Mul(_) => &["+", "/"],
        Div(_) => &["*", "%"],
        Rem(_) => &["/", "+"],
        BitAnd(_) => &["|"],
        BitOr(_) => &["&"],
        BitXor(_) => &["|"],
        Shl(_) => &[">>"],
        Shr(_) => &["<<"],
        AddAssign(_) => &["-="],
        SubAssign(_) => &["+="],
        MulAssign(_) => &["+="],
        DivAssign(_) => &["*="],
        BitAndAssign(_) => &["|="],
        BitOrAssign(_) => &["&="],
        _ => &[],
    }
}
