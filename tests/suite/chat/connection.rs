//! `--connect`: TLS, client certificates, tokens, and errors that say what to do.

use std::fs;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tandem_common::serve::SecurityArgs;
use tandem_tests::{ModelFolder, Process};
use tempfile::TempDir;
use tonic::service::Routes;

use super::service::{Fake, run, serve};

/// A folder with the files of an authority, a server, a client and their tokens.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        let this = Self(TempDir::new().expect("a folder"));
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let authority = CertifiedIssuer::self_signed(params, key).expect("a certificate");
        this.write("ca", &authority.pem());
        for name in ["server", "client"] {
            let params = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]);
            let key = KeyPair::generate().expect("a key");
            let certificate = params.expect("parameters").signed_by(&key, &authority).expect("a certificate");
            this.write(&format!("{name}.pem"), &certificate.pem());
            this.write(&format!("{name}.key"), &key.serialize_pem());
        }
        this.write("tokens", "old 2020-01-01T00:00:00Z\nsecret\n");
        this.write("wrong", "guess\n");
        this
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().expect("UTF-8").to_owned()
    }

    fn write(&self, name: &str, content: &str) {
        fs::write(self.0.path().join(name), content).expect("a file");
    }

    fn security(&self, with_client_ca: bool) -> SecurityArgs {
        let path = |name: &str| Some(self.path(name).into());
        SecurityArgs {
            tls_cert: path("server.pem"),
            tls_key: path("server.key"),
            tls_client_ca: if with_client_ca { path("ca") } else { None },
            token_file: path("tokens"),
            ..SecurityArgs::default()
        }
    }
}

/// Asks once, and checks that the answer comes.
#[track_caller]
fn answers(arguments: &[&str]) {
    let output = run(&[arguments, &["Hello"]].concat(), "");
    assert_eq!(output.stdout, b"answer 1\n", "{}", String::from_utf8_lossy(&output.stderr));
}

/// Asks once, and checks that the error contains every one of `words`.
#[track_caller]
fn fails(arguments: &[&str], words: &[&str]) {
    let output = run(&[arguments, &["Hello"]].concat(), "");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && output.stdout.is_empty(), "{arguments:?}");
    for word in words {
        assert!(error.contains(word), "no {word:?} in {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secured_service_answers_with_the_right_files() {
    let files = Files::new();
    let (ca, tokens, wrong) = (files.path("ca"), files.path("tokens"), files.path("wrong"));
    let (cert, key) = (files.path("client.pem"), files.path("client.key"));
    let fake = Fake::start_with_args(files.security(false)).await;
    let address = fake.address();
    let (secured, port) = (format!("https://{address}"), fake.port());
    answers(&["--connect", &secured, "--tls-ca", &ca, "--token-file", &tokens]);
    let fake_host = Fake::start_with_args(files.security(false)).await;
    answers(&["--connect", &format!("localhost:{}", fake_host.port()), "--tls-ca", &ca, "--token-file", &tokens]);
    fails(&["--connect", &secured, "--tls-ca", &ca], &["--token-file FILE"]);
    fails(&["--connect", &secured, "--tls-ca", &ca, "--token-file", &wrong], &["not accepted"]);
    fails(&["--connect", &secured, "--token-file", &tokens], &["--tls-ca FILE"]);
    fails(&["--connect", &address, "--token-file", &tokens], &["uses TLS", "https://", &port.to_string()]);
    fails(&["--connect", &format!("http://{address}"), "--tls-ca", &ca], &["write https://"]);

    let fake = Fake::start_with_args(files.security(true)).await;
    let secured = format!("https://{}", fake.address());
    let identity = ["--tls-cert", &cert, "--tls-key", &key];
    answers(&[&["--connect", &secured, "--tls-ca", &ca, "--token-file", &tokens], &identity[..]].concat());
    fails(&["--connect", &secured, "--tls-ca", &ca, "--token-file", &tokens], &["--tls-cert FILE --tls-key FILE"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_cannot_be_used_says_what_to_do() {
    let (files, fake) = (Files::new(), Fake::start().await);
    let address = fake.address();
    let secured = format!("https://{address}");
    fails(&["--connect", &secured, "--tls-ca", &files.path("ca")], &["does not use TLS", &format!("http://{address}")]);
    fails(&["--connect", "127.0.0.1"], &["has no port", "50051"]);
    fails(&["--connect", "unix:///socket"], &["HOST:PORT"]);
    fails(&["--connect", &address, "--model", "other"], &["has no model other", "SmolLM2"]);
    fails(&["--connect", &address, "--token-file", "/nowhere"], &["--token-file /nowhere", "No such file"]);
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    fails(&["--connect", &free.to_string()], &["no service listens", "chat --keep", "Connection refused"]);
    let other = serve(Routes::default(), SecurityArgs::default()).await;
    fails(&["--connect", &other.address.to_string()], &["not render-svc", "gen-svc"]);
    let model = ModelFolder::new("tiny").with_template("{{ messages[0].content }}").with_tokenizer();
    let service = start(&model.path());
    fails(&["--connect", service.metrics.as_deref().expect("an address")], &["--metrics-listen", "not gRPC"]);
    fails(&["--connect", &service.address], &["generation service", "--generate"]);
}

/// Starts the real render-svc without a generation service.
fn start(model: &Path) -> Process {
    let model = model.to_str().expect("UTF-8");
    Process::start("127.0.0.1:0", &["render-svc", "--models", model, "--metrics-listen", "127.0.0.1:0"])
}
