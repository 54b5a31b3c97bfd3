//! The pages of `proto/docs` are up to date with the contract and with the examples of each language.
//!
//! With TANDEM_UPDATE_DOCS set, the test writes the pages and succeeds: `cargo xtask docs`.

mod comments;
mod examples;
mod fields;
mod page;

use std::env;
use std::fs;

use prost::Message as _;
use prost_types::FileDescriptorSet;
use tandem_tests::repository;

use self::examples::Examples;
use self::page::PAGES;

const FOLDER: &str = "proto/docs";

#[test]
fn the_pages_are_up_to_date_with_the_contract_and_the_examples() {
    let files = FileDescriptorSet::decode(tandem_common::pb::DESCRIPTORS).expect("the contract has descriptors");
    let examples = Examples::read();
    let folder = repository().join(FOLDER);
    for page in PAGES {
        let (path, text) = (folder.join(format!("{}.md", page.name)), page.text(&files, &examples));
        if env::var_os("TANDEM_UPDATE_DOCS").is_some() {
            fs::create_dir_all(&folder).expect("the folder is writable");
            fs::write(&path, &text).expect("the page is writable");
        }
        let is_same = fs::read_to_string(&path).is_ok_and(|found| found == text);
        assert!(is_same, "{} is out of date: run `cargo xtask docs`", path.display());
    }
}

#[test]
fn every_message_and_service_of_the_contract_has_a_page() {
    let files = FileDescriptorSet::decode(tandem_common::pb::DESCRIPTORS).expect("the contract has descriptors");
    let own = files.file.iter().map(|file| file.name()).filter(|name| name.starts_with("tandem/"));
    let missing: Vec<_> = own.filter(|name| !PAGES.iter().any(|page| page.files.contains(name))).collect();
    assert_eq!(missing, Vec::<&str>::new());
}

#[test]
fn the_suites_run_the_example_of_every_method() {
    let text = fs::read_to_string(repository().join("tests/clients/examples.json")).expect("examples.json");
    let listed: Vec<serde_json::Value> = serde_json::from_str(&text).expect("a list");
    let files = FileDescriptorSet::decode(tandem_common::pb::DESCRIPTORS).expect("the contract has descriptors");
    let services = files.file.iter().flat_map(|file| &file.service);
    let methods = services
        .flat_map(|service| service.method.iter().map(move |method| format!("{}.{}", service.name(), method.name())));
    let missing: Vec<_> = methods.filter(|name| listed.iter().all(|example| example["method"] != **name)).collect();
    assert_eq!(missing, Vec::<String>::new());
}
