//! The golden file of error texts has one text per case.

use std::collections::BTreeMap;

use tandem_tests::error_texts;

#[test]
fn every_case_has_one_text() {
    let mut cases = BTreeMap::new();
    for (case, text) in error_texts::all() {
        assert_eq!(cases.insert(case, text), None, "{case} occurs twice");
        assert!(case.contains('/') && !text.trim().is_empty(), "{case}: {text}");
    }
}
