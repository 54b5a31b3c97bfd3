//! The client packages have the version of the services.

use tandem_tests::repository;

#[test]
fn the_client_packages_have_the_version_of_the_services() {
    let version = env!("CARGO_PKG_VERSION");
    let lines = [
        ("python/pyproject.toml", format!("version = \"{version}\"")),
        ("typescript/package.json", format!("\"version\": \"{version}\"")),
        ("typescript/package-lock.json", format!("\"version\": \"{version}\"")),
    ];
    for (file, line) in lines {
        let text = std::fs::read_to_string(repository().join("proto/clients").join(file)).expect("a package");
        assert!(text.contains(&line), "{file} has no line {line}");
    }
}
