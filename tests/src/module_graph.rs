//! The import graph of a crate's modules, read from its source.
//!
//! A node is a file; inline modules belong to their file. An edge runs from a file that names an
//! item to the file that defines the item: re-exports are followed to the definition. `mod x;`
//! alone is not an edge. [`joined`] turns the graph of files into the graph of top-level modules.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::Visit;
use syn::{Item, UseTree};

/// A module's path inside its crate; the root is empty.
type ModulePath = Vec<String>;

/// Edges between files, each with the names that the first file imports from the second.
pub type Edges = BTreeMap<PathBuf, BTreeMap<PathBuf, BTreeSet<String>>>;

/// The declarations of one module.
#[derive(Debug, Default)]
struct Module {
    file: PathBuf,
    /// Names of the items that the module defines.
    defines: BTreeSet<String>,
    /// Imported names with their paths, as written.
    imports: BTreeMap<String, Vec<String>>,
    /// Modules whose names are all imported, as written.
    globs: Vec<Vec<String>>,
    /// Paths that the module's code names, as written.
    mentions: BTreeSet<Vec<String>>,
}

/// Every module of one crate.
#[derive(Debug, Default)]
struct Crate {
    modules: BTreeMap<ModulePath, Module>,
}

/// Reads a crate from its root file (`lib.rs` or `main.rs`) and returns its import graph.
///
/// # Panics
/// Panics if a file of the crate cannot be read or is not Rust.
#[must_use]
pub fn edges(root: &Path) -> Edges {
    let mut all = Crate::default();
    all.read_file(root, root.parent().expect("a crate's root file is in a folder"), Vec::new());
    let mut edges = Edges::new();
    for (path, module) in &all.modules {
        let imported = module.imports.values().chain(&module.globs);
        // A single name is a variable or an imported item, never a child module.
        let is_item = |mention: &&Vec<String>| mention.len() > 1 || module.imports.contains_key(&mention[0]);
        for mention in module.mentions.iter().filter(is_item).chain(imported) {
            if let Some(target) = all.file_of(path, mention).filter(|target| *target != module.file) {
                let names = edges.entry(module.file.clone()).or_default().entry(target).or_default();
                names.insert(mention.last().expect("a path has a segment").clone());
            }
        }
    }
    edges
}

/// Joins the files of each top-level module, `x.rs` and all files of `x/`, to one node. `folder` has
/// the root file.
///
/// # Panics
/// A file is outside of `folder`.
#[must_use]
pub fn joined(edges: &Edges, folder: &Path) -> Edges {
    let module = |file: &PathBuf| {
        let inside = file.strip_prefix(folder).expect("a file of the crate");
        folder.join(inside.components().next().expect("a name")).with_extension("")
    };
    let mut joined = Edges::new();
    for (file, targets) in edges {
        for (target, names) in targets.iter().filter(|(target, _)| module(target) != module(file)) {
            let found = joined.entry(module(file)).or_default().entry(module(target)).or_default();
            found.extend(names.iter().cloned());
        }
    }
    joined
}

/// Returns every group of files that import each other, directly or through others.
#[must_use]
pub fn cycles(edges: &Edges) -> Vec<Vec<PathBuf>> {
    let reach: BTreeMap<&PathBuf, BTreeSet<&PathBuf>> =
        edges.keys().map(|file| (file, reachable(edges, file))).collect();
    let mut cycles: Vec<Vec<PathBuf>> = Vec::new();
    for (file, targets) in &reach {
        let is_mutual = |other: &&&PathBuf| reach.get(**other).is_some_and(|back| back.contains(*file));
        let cycle: Vec<PathBuf> = targets.iter().filter(is_mutual).map(|other| (*other).clone()).collect();
        if !cycle.is_empty() && !cycles.contains(&cycle) {
            cycles.push(cycle);
        }
    }
    cycles
}

fn reachable<'a>(edges: &'a Edges, start: &PathBuf) -> BTreeSet<&'a PathBuf> {
    let mut found = BTreeSet::new();
    let mut open: Vec<&PathBuf> = edges.get(start).into_iter().flat_map(|targets| targets.keys()).collect();
    while let Some(file) = open.pop() {
        if found.insert(file) {
            open.extend(edges.get(file).into_iter().flat_map(|targets| targets.keys()));
        }
    }
    found
}

impl Crate {
    /// `folder` holds the files of the module's children.
    fn read_file(&mut self, file: &Path, folder: &Path, path: ModulePath) {
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        self.read_items(&parsed.items, file, folder, path);
    }

    fn read_items(&mut self, items: &[Item], file: &Path, folder: &Path, path: ModulePath) {
        let mut module = Module { file: file.to_owned(), ..Module::default() };
        for item in items {
            match item {
                Item::Use(item) => module.import(&item.tree, &[]),
                Item::Mod(item) if !is_test(&item.attrs) => {
                    let (name, path) = (item.ident.to_string(), child(&path, &item.ident.to_string()));
                    let inner = folder.join(&name);
                    match &item.content {
                        Some((_, items)) => self.read_items(items, file, &inner, path),
                        None => {
                            let beside = || file.parent().expect("a file is in a folder");
                            let other = path_attribute(&item.attrs).map(|other| beside().join(other));
                            let found = other.unwrap_or_else(|| folder.join(format!("{name}.rs")));
                            self.read_file(&found, &inner, path);
                        }
                    }
                }
                Item::Mod(_) => {}
                item => {
                    module.defines.extend(name_of(item));
                    Mentions { found: &mut module.mentions }.visit_item(item);
                }
            }
        }
        self.modules.insert(path, module);
    }

    /// Returns the file that defines the item `path`, written in the module `from`.
    fn file_of(&self, from: &[String], path: &[String]) -> Option<PathBuf> {
        self.resolve(from, path, 16).map(|module| self.modules[&module].file.clone())
    }

    /// Returns the module that defines the item `path`. `None` for names of other crates and for
    /// local names.
    fn resolve(&self, from: &[String], path: &[String], depth: usize) -> Option<ModulePath> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => self.descend(Vec::new(), rest, depth),
            "self" => self.descend(from.to_vec(), rest, depth),
            "super" => self.resolve_super(from, rest, depth),
            name if self.modules.contains_key(&child(from, name)) => self.descend(child(from, name), rest, depth),
            name => {
                let import = self.modules[from].imports.get(name).filter(|import| *import != path)?;
                let whole = [import, rest].concat();
                self.resolve(from, &whole, depth.checked_sub(1)?)
            }
        }
    }

    fn resolve_super(&self, from: &[String], rest: &[String], depth: usize) -> Option<ModulePath> {
        let parent = &from[..from.len().checked_sub(1)?];
        match rest.first().map(String::as_str) {
            Some("super") => self.resolve_super(parent, &rest[1..], depth),
            _ => self.descend(parent.to_vec(), rest, depth),
        }
    }

    fn descend(&self, module: ModulePath, rest: &[String], depth: usize) -> Option<ModulePath> {
        let Some((name, rest)) = rest.split_first() else { return Some(module) };
        if self.modules.contains_key(&child(&module, name)) {
            return self.descend(child(&module, name), rest, depth);
        }
        let Some(import) = self.modules[&module].imports.get(name) else {
            return Some(self.through_globs(&module, name, depth).unwrap_or(module));
        };
        self.resolve(&module, &[import, rest].concat(), depth.checked_sub(1)?)
    }

    fn through_globs(&self, module: &ModulePath, name: &str, depth: usize) -> Option<ModulePath> {
        let depth = depth.checked_sub(1)?;
        let globs = self.modules[module].globs.iter();
        globs.filter_map(|glob| self.resolve(module, glob, depth)).find_map(|target| {
            let found = &self.modules[&target];
            match found.imports.get(name) {
                Some(import) => self.resolve(&target, import, depth),
                None => found.defines.contains(name).then_some(target),
            }
        })
    }
}

impl Module {
    fn import(&mut self, tree: &UseTree, prefix: &[String]) {
        let with = |name: &dyn ToString| [prefix, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.import(&path.tree, &with(&path.ident)),
            UseTree::Name(name) if name.ident == "self" => {
                self.imports.insert(prefix.last().cloned().unwrap_or_default(), prefix.to_vec());
            }
            UseTree::Name(name) => {
                self.imports.insert(name.ident.to_string(), with(&name.ident));
            }
            UseTree::Rename(rename) => {
                let target = if rename.ident == "self" { prefix.to_vec() } else { with(&rename.ident) };
                self.imports.insert(rename.rename.to_string(), target);
            }
            UseTree::Glob(_) => self.globs.push(prefix.to_vec()),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(tree, prefix)),
        }
    }
}

/// Collects the paths of more than one segment that code names.
struct Mentions<'a> {
    found: &'a mut BTreeSet<Vec<String>>,
}

impl<'ast> Visit<'ast> for Mentions<'_> {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        let is_keyword = |name: &str| ["crate", "self", "super", "Self"].contains(&name);
        if path.leading_colon.is_none() && path.segments.iter().any(|it| !is_keyword(&it.ident.to_string())) {
            self.found.insert(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        syn::visit::visit_path(self, path);
    }

    /// A visibility such as `pub(super)` imports nothing.
    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {}

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let mut local = Module::default();
        local.import(&item.tree, &[]);
        self.found.extend(local.imports.into_values().chain(local.globs));
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        self.tokens(item.tokens.clone());
        syn::visit::visit_macro(self, item);
    }

    fn visit_meta_list(&mut self, list: &'ast syn::MetaList) {
        self.tokens(list.tokens.clone());
    }
}

impl Mentions<'_> {
    /// Finds paths among the tokens of a macro call.
    fn tokens(&mut self, tokens: TokenStream) {
        let (mut path, mut colons) = (Vec::new(), 0);
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 && !path.is_empty() {
                        self.found.insert(std::mem::take(&mut path));
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                other => {
                    if let TokenTree::Group(group) = other {
                        self.tokens(group.stream());
                    }
                    if !path.is_empty() {
                        self.found.insert(std::mem::take(&mut path));
                    }
                    colons = 0;
                }
            }
        }
        if !path.is_empty() {
            self.found.insert(path);
        }
    }
}

fn name_of(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        _ => return None,
    };
    Some(ident.to_string())
}

fn child(path: &[String], name: &str) -> ModulePath {
    [path, &[name.to_owned()]].concat()
}

/// Returns the file that the attribute `path` names.
fn path_attribute(attributes: &[syn::Attribute]) -> Option<String> {
    let value = attributes.iter().find_map(|attribute| match &attribute.meta {
        syn::Meta::NameValue(pair) if pair.path.is_ident("path") => Some(&pair.value),
        _ => None,
    })?;
    match value {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
        _ => None,
    }
}

/// Returns true for `#[cfg(test)]`.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.meta.require_list().is_ok_and(|list| list.tokens.to_string() == "test")
    })
}
