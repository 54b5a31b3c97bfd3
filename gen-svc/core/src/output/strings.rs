//! Finds any of several strings in a stream of bytes.
//!
//! The strings form an Aho-Corasick automaton. This is a trie in which every node links to the
//! longest other node whose text is a suffix of the node's text. The current node determines the
//! string that ends at the last byte. It also determines the number of last bytes that are the
//! start of a string. Each byte therefore costs constant time on average, for any number of
//! strings.
//!
//! In UTF-8, the bytes of a character are never part of another character's bytes. A string that is
//! found in the bytes is therefore in the text.

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
    /// Length of the node's text in bytes.
    depth: usize,
    /// The longest other node that this node's text ends with.
    fallback: u32,
    /// The index of the longest string that ends at this node.
    found: Option<usize>,
}

impl StringSet {
    /// Creates a set of `strings`. Empty strings never match; of several equal strings, the first
    /// matches.
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
    pub string: &'a str,
}

impl Search {
    /// Creates a search before the first byte.
    #[must_use]
    pub fn new(set: &Arc<StringSet>) -> Self {
        Self { set: Arc::clone(set), node: ROOT }
    }

    /// Reads the next byte. Returns the longest string that ends with this byte, or None.
    pub fn push(&mut self, byte: u8) -> Option<Match<'_>> {
        self.node = self.set.next(self.node, byte);
        let index = self.set.nodes[self.node as usize].found?;
        Some(Match { index, string: &self.set.strings[index] })
    }

    /// Returns the largest number of last bytes that are the start of a string.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.set.nodes[self.node as usize].depth
    }

    /// Discards all bytes that were read.
    pub fn restart(&mut self) {
        self.node = ROOT;
    }
}
