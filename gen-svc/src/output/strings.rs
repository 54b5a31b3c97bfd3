//! Finds any of several strings in bytes that come one by one.
//!
//! The strings form an Aho-Corasick automaton: a trie in which every node links to the longest
//! other node whose text is a suffix of its text. The current node gives the string that ends at
//! the last byte, and the number of last bytes that are the start of a string. So each byte costs
//! constant time on average, for any number of strings.
//!
//! In UTF-8, no character's bytes are part of another's. So a string in the bytes is in the text.

use std::collections::HashMap;
use std::sync::Arc;

/// The trie's root: no byte of a string is matched.
const ROOT: u32 = 0;

/// Strings to search for.
#[derive(Debug)]
pub struct StringSet {
    strings: Vec<String>,
    nodes: Vec<Node>,
    /// Child of a node by byte.
    children: HashMap<(u32, u8), u32>,
}

#[derive(Debug, Clone, Default)]
struct Node {
    parent: u32,
    byte: u8,
    /// Length of the text that leads here, in bytes.
    depth: usize,
    /// The longest other node that this node's text ends with.
    fallback: u32,
    /// The longest string that ends here, as an index.
    found: Option<usize>,
}

impl StringSet {
    /// Creates a set of `strings`. Empty strings never match; of equal strings the first matches.
    #[must_use]
    pub fn new(strings: &[String]) -> Self {
        let mut set = Self { strings: strings.to_vec(), nodes: vec![Node::default()], children: HashMap::new() };
        for index in 0..set.strings.len() {
            set.insert(index);
        }
        set.link();
        set
    }

    /// Returns true if no string can match.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.children.is_empty()
    }

    fn next(&self, mut node: u32, byte: u8) -> u32 {
        loop {
            match self.children.get(&(node, byte)) {
                Some(&child) => return child,
                None if node == ROOT => return ROOT,
                None => node = self.nodes[node as usize].fallback,
            }
        }
    }

    fn insert(&mut self, index: usize) {
        let mut parent = ROOT;
        for (byte, depth) in self.strings[index].bytes().zip(1..) {
            let fresh = self.nodes.len() as u32;
            let child = *self.children.entry((parent, byte)).or_insert(fresh);
            if child == fresh {
                self.nodes.push(Node { parent, byte, depth, ..Node::default() });
            }
            parent = child;
        }
        if parent != ROOT {
            self.nodes[parent as usize].found.get_or_insert(index);
        }
    }

    /// Fallbacks lead to shorter texts, so the nodes are visited from the shortest to the longest.
    fn link(&mut self) {
        let mut order: Vec<u32> = (0..self.nodes.len() as u32).collect();
        order.sort_by_key(|&node| self.nodes[node as usize].depth);
        for at in order {
            let Node { parent, byte, depth, found, .. } = self.nodes[at as usize];
            if depth < 2 {
                continue; // the root and its children fall back to the root
            }
            let fallback = self.next(self.nodes[parent as usize].fallback, byte);
            let found = found.or(self.nodes[fallback as usize].found);
            let node = &mut self.nodes[at as usize];
            (node.fallback, node.found) = (fallback, found);
        }
    }
}

/// A search for the strings of one set. Clones share the set.
#[derive(Debug, Clone)]
pub struct Search {
    set: Arc<StringSet>,
    node: u32,
}

/// A string that has been found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Match<'a> {
    /// Its index in the set.
    pub index: usize,
    /// The string.
    pub string: &'a str,
}

impl Search {
    /// A search in which no byte has come yet.
    #[must_use]
    pub fn new(set: &Arc<StringSet>) -> Self {
        Self { set: Arc::clone(set), node: ROOT }
    }

    /// Takes the next byte. Returns the longest string that ends with it, if any does.
    pub fn push(&mut self, byte: u8) -> Option<Match<'_>> {
        self.node = self.set.next(self.node, byte);
        let index = self.set.nodes[self.node as usize].found?;
        Some(Match { index, string: &self.set.strings[index] })
    }

    /// Returns how many of the last bytes are the start of a string: the most that there are.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.set.nodes[self.node as usize].depth
    }

    /// Forgets all bytes that have come.
    pub fn restart(&mut self) {
        self.node = ROOT;
    }
}
