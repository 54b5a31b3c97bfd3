//! Jinja2's filters: the functions after `|`.

mod basic;
mod html;
mod json;
mod numbers;
mod path;
mod pretty;
mod select;
mod sequences;
mod texts;
mod wrap;

use crate::interpreter::{Filter, FilterRow};

const fn row(name: &'static str, run: Filter) -> FilterRow {
    FilterRow { name, run, needs_context: false }
}

const fn with_context(name: &'static str, run: Filter) -> FilterRow {
    FilterRow { name, run, needs_context: true }
}

/// The filters, sorted by name.
static FILTERS: &[FilterRow] = &[
    row("abs", numbers::abs),
    row("attr", basic::attr),
    row("batch", sequences::batch),
    row("capitalize", texts::capitalize),
    row("center", texts::center),
    row("count", basic::length_of),
    row("d", basic::default),
    row("default", basic::default),
    row("dictsort", sequences::dictsort),
    row("e", html::escape),
    row("escape", html::escape),
    row("filesizeformat", numbers::filesizeformat),
    row("first", sequences::first),
    row("float", numbers::float),
    row("forceescape", html::forceescape),
    row("format", texts::format),
    row("groupby", sequences::groupby),
    row("indent", texts::indent),
    row("int", numbers::int),
    row("items", basic::items),
    row("join", sequences::join),
    row("last", sequences::last),
    row("length", basic::length_of),
    row("list", sequences::list_of),
    row("lower", texts::lower),
    with_context("map", select::map),
    row("max", sequences::max),
    row("min", sequences::min),
    row("pprint", pretty::pprint),
    with_context("random", sequences::random),
    with_context("reject", select::reject),
    with_context("rejectattr", select::rejectattr),
    row("replace", texts::replace),
    row("reverse", sequences::reverse),
    row("round", numbers::round),
    row("safe", html::safe),
    with_context("select", select::select),
    with_context("selectattr", select::selectattr),
    row("slice", sequences::slice),
    row("sort", sequences::sort),
    row("string", basic::string),
    row("striptags", html::striptags),
    row("sum", sequences::sum),
    row("title", texts::title),
    row("tojson", json::tojson),
    row("trim", texts::trim),
    row("truncate", texts::truncate),
    row("unique", sequences::unique),
    row("upper", texts::upper),
    row("urlencode", html::urlencode),
    row("wordcount", texts::wordcount),
    row("wordwrap", wrap::wordwrap),
    row("xmlattr", html::xmlattr),
];

/// Returns the filter of this name.
pub(crate) fn find(name: &str) -> Option<&'static FilterRow> {
    let at = FILTERS.binary_search_by(|row| row.name.cmp(name)).ok()?;
    Some(&FILTERS[at])
}

/// Returns true for Jinja2's filter `urlize`, which is not supported because it is for web pages.
pub(crate) fn is_unsupported(name: &str) -> bool {
    name == "urlize"
}
