//! Authentication with tokens and certificates, and the limits on calls and connections.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType, date_time_ymd};
use render_svc::args::GenerationArgs;
use tandem_common::call::Credentials;
use tandem_common::check::{Check, CheckError};
use tandem_common::pb::chat::v1 as chat;
use tandem_common::pb::generate::v1 as generate;
use tandem_common::pb::generate::v1::Stop;
use tandem_common::pb::generate::v1::generate_service_client::GenerateServiceClient;
use tandem_common::pb::generate::v1::generate_service_server::{GenerateService, GenerateServiceServer};
use tandem_common::pb::render::v1::render_service_client::RenderServiceClient;
use tandem_common::pb::render::v1::{TokenizeRequest, TokenizeResponse};
use tandem_common::pb::task::v1::RunTaskRequest;
use tandem_common::pb::task::v1::task_service_client::TaskServiceClient;
use tandem_common::serve::{self, Caller, DeferredRoutes, Health, Security, SecurityArgs, ServeArgs, ServeError};
use tandem_common::status::chain;
use tandem_core::engine::Config;
use tandem_tests::Generation;
use tandem_tests::error_texts;
use tandem_tests::failure::failed;
use tandem_tests::{
    ModelFolder, Running, default_catalog, default_model, render_service_with_args, serve_catalog_with_generation,
};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::SetOnce;
use tokio::task::JoinHandle;
use tonic::service::Routes;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Response, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt as _;

/// Longer than the interval at which files are read again.
const WAIT_LIMIT: Duration = Duration::from_secs(20);

async fn serve(args: ServeArgs) -> Running {
    let model = ModelFolder::new("tiny").with_template("{{ messages[0].content }}").with_tokenizer();
    render_service_with_args(&[model.path()], args).await
}

async fn serve_secured(security: SecurityArgs) -> Running {
    serve(ServeArgs { security, ..ServeArgs::default() }).await
}

async fn tokenize(channel: Channel, authorization: Option<&str>) -> Result<Response<TokenizeResponse>, Status> {
    let mut request = Request::new(TokenizeRequest { text: "a".to_owned(), ..TokenizeRequest::default() });
    if let Some(value) = authorization {
        request.metadata_mut().insert("authorization", value.parse().expect("a header"));
    }
    RenderServiceClient::new(channel).tokenize(request).await
}

async fn is_refused(channel: Channel, authorization: Option<&str>, reason: &str) {
    let status = tokenize(channel, authorization).await.expect_err("should be refused");
    let failure = failed(&status);
    assert_eq!((failure.code, failure.reason.as_str()), (Code::Unauthenticated, reason), "{authorization:?}");
    error_texts::check(&format!("serve/{reason}"), status.message());
}

/// Waits until the service accepts this authorization.
async fn wait_until_accepted(channel: Channel, authorization: &str) {
    let start = Instant::now();
    while let Err(status) = tokenize(channel.clone(), Some(authorization)).await {
        assert!(start.elapsed() < WAIT_LIMIT, "{status}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_unexpired_tokens_of_the_token_file_are_accepted() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("tokens");
    let lines = "# the team's\nfirst\n\n  second 2999-01-01T00:00:00Z\nexpired 2020-01-01T00:00:00Z\n";
    fs::write(&file, lines).expect("a file");
    let service = serve_secured(SecurityArgs { token_file: Some(file.clone()), ..SecurityArgs::default() }).await;
    let channel = service.channel().await;
    for accepted_header in ["Bearer first", "bearer second"] {
        tokenize(channel.clone(), Some(accepted_header)).await.expect("is accepted");
    }
    for missing in [None, Some("first"), Some("Basic first"), Some("Bearer"), Some("")] {
        is_refused(channel.clone(), missing, "CREDENTIALS_MISSING").await;
    }
    let wrong = ["Bearer third", "Bearer firs", "Bearer firstt", "Bearer ", "Bearer #", "Bearer expired"];
    for invalid in wrong.into_iter().chain(["Bearer 2999-01-01T00:00:00Z"]) {
        is_refused(channel.clone(), Some(invalid), "CREDENTIALS_INVALID").await;
    }
    let health = HealthClient::new(channel.clone()).check(HealthCheckRequest::default()).await;
    health.expect("health needs no token");

    // An invalid file changes nothing. A valid file takes effect soon.
    fs::write(&file, "third 2999-13-01\n").expect("a file");
    tokio::time::sleep(Duration::from_secs(6)).await;
    tokenize(channel.clone(), Some("Bearer first")).await.expect("still accepted");
    fs::write(&file, "third\n").expect("a file");
    wait_until_accepted(channel.clone(), "Bearer third").await;
    is_refused(channel.clone(), Some("Bearer first"), "CREDENTIALS_INVALID").await;
    // Neither a pipe without a writer nor a device without an end stops later changes from taking effect.
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs");
    assert!(made.success());
    for (endless, token) in [(pipe.as_path(), "fourth"), (Path::new("/dev/zero"), "third")] {
        fs::remove_file(&file).expect("a file");
        std::os::unix::fs::symlink(endless, &file).expect("a link");
        tokio::time::sleep(Duration::from_secs(6)).await;
        fs::remove_file(&file).expect("a link");
        fs::write(&file, format!("{token}\n")).expect("a file");
        wait_until_accepted(channel.clone(), &format!("Bearer {token}")).await;
    }
    // A file without tokens rejects every caller.
    fs::write(&file, "# third\n").expect("a file");
    let start = Instant::now();
    while tokenize(channel.clone(), Some("Bearer third")).await.is_ok() {
        assert!(start.elapsed() < WAIT_LIMIT, "it still counts");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// A certificate authority.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a certificate"))
    }

    fn pem(&self) -> Certificate {
        Certificate::from_pem(self.0.pem())
    }

    /// Returns a certificate and its key, valid until the end of `year`.
    fn sign(&self, year: i32) -> [String; 2] {
        self.sign_for(SanType::DnsName("localhost".try_into().expect("a name")), year)
    }

    fn sign_for(&self, name: SanType, year: i32) -> [String; 2] {
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![name];
        (params.not_before, params.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(year, 12, 31));
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.0).expect("a certificate");
        [certificate.pem(), key.serialize_pem()]
    }

    fn identity(&self, year: i32) -> Identity {
        let [certificate, key] = self.sign(year);
        Identity::from_pem(certificate, key)
    }
}

/// The files of a service's certificate and key.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(TempDir::new().expect("a folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, [certificate, key]: [String; 2]) {
        fs::write(self.path("certificate"), certificate).expect("a file");
        fs::write(self.path("key"), key).expect("a file");
    }

    fn args(&self) -> SecurityArgs {
        let (tls_cert, tls_key) = (Some(self.path("certificate")), Some(self.path("key")));
        SecurityArgs { tls_cert, tls_key, ..SecurityArgs::default() }
    }
}

async fn connect(service: &Running, tls: ClientTlsConfig) -> Result<Channel, tonic::transport::Error> {
    let endpoint = Endpoint::from_shared(format!("https://{}", service.address)).expect("an address");
    endpoint.tls_config(tls.domain_name("localhost")).expect("a configuration").connect().await
}

/// Returns true if a call succeeds. A server may reject a client without a valid certificate only
/// after the connection is established.
async fn call_succeeds(service: &Running, tls: ClientTlsConfig) -> bool {
    match connect(service, tls).await {
        Ok(channel) => tokenize(channel, None).await.is_ok(),
        Err(_) => false,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_replaced_while_the_service_runs() {
    let (old, new, files) = (Authority::new(), Authority::new(), Files::new());
    files.write(old.sign(2999));
    let service = serve_secured(files.args()).await;
    let trusting = |authority: &Authority| ClientTlsConfig::new().ca_certificate(authority.pem());
    let channel = connect(&service, trusting(&old)).await.expect("it is secured");
    tokenize(channel.clone(), None).await.expect("an answer");
    assert!(!call_succeeds(&service, trusting(&new)).await, "another signed it");
    let plain = Endpoint::from_shared(format!("http://{}", service.address)).expect("an address").connect_lazy();
    assert!(tokenize(plain, None).await.is_err(), "TLS is not optional");

    files.write(new.sign(2999));
    let start = Instant::now();
    while !call_succeeds(&service, trusting(&new)).await {
        assert!(start.elapsed() < WAIT_LIMIT, "the new certificate is not served");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    tokenize(channel, None).await.expect("existing connections continue");
}

#[tokio::test(flavor = "multi_thread")]
async fn client_certificate_must_be_unexpired_and_from_the_client_ca() {
    let (ours, theirs, files) = (Authority::new(), Authority::new(), Files::new());
    files.write(ours.sign(2999));
    fs::write(files.path("ca"), ours.0.pem()).expect("a file");
    let service = serve_secured(SecurityArgs { tls_client_ca: Some(files.path("ca")), ..files.args() }).await;
    let tls = || ClientTlsConfig::new().ca_certificate(ours.pem());
    assert!(call_succeeds(&service, tls().identity(ours.identity(2999))).await);
    assert!(!call_succeeds(&service, tls()).await, "no certificate");
    assert!(!call_succeeds(&service, tls().identity(theirs.identity(2999))).await, "another authority");
    assert!(!call_succeeds(&service, tls().identity(ours.identity(2019))).await, "expired");
}

/// A generation service that answers with the identity of its caller, in the message of an error.
struct Identifying;

#[tonic::async_trait]
impl GenerateService for Identifying {
    type GenerateStream = tokio_stream::Pending<Result<generate::GenerateResponse, Status>>;

    async fn generate(
        &self,
        request: Request<generate::GenerateRequest>,
    ) -> Result<Response<Self::GenerateStream>, Status> {
        Err(Status::aborted(&*Caller::of(&request).id))
    }

    async fn get_loaded_model(
        &self,
        request: Request<generate::GetLoadedModelRequest>,
    ) -> Result<Response<generate::GetLoadedModelResponse>, Status> {
        Err(Status::aborted(&*Caller::of(&request).id))
    }
}

impl Identifying {
    async fn serve(security: SecurityArgs) -> Running {
        Running::start(move |listener, shutdown| async move {
            let routes = Routes::new(GenerateServiceServer::new(Self));
            let endpoint = serve::Endpoint {
                listener,
                security: Security::open(&security)?,
                names: vec!["tandem.generate.v1.GenerateService"],
                routes: DeferredRoutes::new(SetOnce::from(routes)),
                outlasts_drain: false,
            };
            let health = Health::new(["tandem.generate.v1.GenerateService"]);
            let announced = health.clone();
            let shutdown = async { shutdown.announced(&announced, Duration::ZERO).await };
            serve::serve(vec![endpoint], &ServeArgs::default(), health, shutdown).await
        })
        .await
    }
}

/// Returns the identity of a client that names a caller.
async fn identity(service: &Running, tls: ClientTlsConfig, caller: &str) -> String {
    let channel = connect(service, tls).await.expect("a connection");
    let mut request = Request::new(generate::GetLoadedModelRequest::default());
    request.metadata_mut().insert("x-tandem-caller", caller.parse().expect("a header"));
    let status = GenerateServiceClient::new(channel).get_loaded_model(request).await.expect_err("an identity");
    status.message().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_of_delegates_call_for_the_callers_that_they_name() {
    let (authority, files) = (Authority::new(), Files::new());
    files.write(authority.sign(2999));
    fs::write(files.path("ca"), authority.0.pem()).expect("a file");
    let delegates = ["Render-Svc", "spiffe://example.com/render"].map(str::to_owned);
    let args =
        SecurityArgs { tls_client_ca: Some(files.path("ca")), tls_delegates: delegates.to_vec(), ..files.args() };
    let service = Identifying::serve(args).await;
    let client = |name: SanType| {
        let [certificate, key] = authority.sign_for(name, 2999);
        ClientTlsConfig::new().ca_certificate(authority.pem()).identity(Identity::from_pem(certificate, key))
    };
    let dns = |name: &str| client(SanType::DnsName(name.try_into().expect("a name")));
    let uri = |name: &str| client(SanType::URI(name.try_into().expect("a URI")));
    assert_eq!(identity(&service, dns("render-svc"), "token:search").await, "token:search");
    assert_eq!(identity(&service, uri("spiffe://example.com/render"), "address:10.0.0.7").await, "address:10.0.0.7");
    for other in [dns("render-svc.example.com"), dns("web"), uri("spiffe://example.com/web"), uri("render-svc")] {
        let found = identity(&service, other, "token:search").await;
        assert!(found.starts_with("certificate:"), "{found}");
    }
    // A name that cannot be an identity is ignored.
    assert!(identity(&service, dns("render-svc"), "two words").await.starts_with("certificate:"));
}

#[tokio::test(flavor = "multi_thread")]
async fn check_reaches_a_service_with_client_certificates() {
    let (authority, files) = (Authority::new(), Files::new());
    files.write(authority.sign(2999));
    fs::write(files.path("ca"), authority.0.pem()).expect("a file");
    let service = serve_secured(SecurityArgs { tls_client_ca: Some(files.path("ca")), ..files.args() }).await;
    let identity = Some([files.path("certificate"), files.path("key")]);
    let check = Check {
        address: format!("https://{}", service.address).parse().expect("an address"),
        server_name: Some("localhost".to_owned()),
        service: String::new(),
        credentials: Credentials { ca: Some(files.path("ca")), identity, token_file: None },
        timeout: Duration::from_secs(20),
    };
    check.run().await.expect("it is SERVING");
    let unknown = Check { service: "no.such.Service".to_owned(), ..check.clone() }.run().await;
    assert!(matches!(unknown, Err(CheckError::Rejected { .. })), "{unknown:?}");
    let anonymous = Check { credentials: Credentials { identity: None, ..check.credentials.clone() }, ..check };
    let refused = anonymous.run().await;
    // The server rejects the certificate during the handshake or, with TLS 1.3, after it.
    assert!(matches!(refused, Err(CheckError::Connect { .. } | CheckError::NotGrpc { .. })), "{refused:?}");
    let text = refused.expect_err("refused").to_string();
    // The connection may close before the client has read the alert.
    let hints = ["requires a certificate of the client", "may require a client certificate"];
    assert!(hints.iter().any(|hint| text.contains(hint)), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_of_pipes_without_a_writer_are_refused() {
    let folder = TempDir::new().expect("a folder");
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs").success());
    let service = "https://localhost:1".parse().expect("a URI");
    let of_ca = Credentials { ca: Some(pipe.clone()), ..Credentials::default() };
    let text = chain(&of_ca.check(&[service]).expect_err("refused"));
    assert!(text.ends_with("pipe: not a regular file"), "{text}");
    let of_token = Credentials { token_file: Some(pipe), ..Credentials::default() };
    let text = chain(&of_token.token().expect_err("refused"));
    assert!(text.ends_with("pipe: cannot be read within 10s"), "{text}");
}

#[tokio::test]
async fn a_token_is_hidden_in_a_text_that_quotes_it() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("tokens");
    fs::write(&file, "secret-one\nsecret-two\n").expect("a file");
    let credentials = Credentials { token_file: Some(file), ..Credentials::default() };
    let token = credentials.token().expect("a token").expect("a file of tokens");
    let text = token.hide_in("invalid key Bearer secret-one (secret-one, secret-two)");
    assert_eq!(text, "invalid key Bearer [token] ([token], [token])");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_checks_say_what_to_do() {
    let (authority, files) = (Authority::new(), Files::new());
    files.write(authority.sign(2999));
    fs::write(files.path("ca"), authority.0.pem()).expect("a file");
    fs::write(files.path("other"), Authority::new().0.pem()).expect("a file");
    let (secured, plain) = (serve_secured(files.args()).await, serve_secured(SecurityArgs::default()).await);
    let (secured, plain) = (&secured.address, &plain.address);
    let cases = [
        (format!("http://{secured}"), None, "localhost", "https://"),
        (format!("https://{plain}"), Some("ca"), "localhost", "use http://"),
        (format!("https://{secured}"), Some("other"), "localhost", "none of the given authorities"),
        (format!("https://{secured}"), Some("ca"), "other.example.com", "is for another host"),
    ];
    for (address, ca, name, remedy) in cases {
        let check = Check {
            address: address.parse().expect("an address"),
            server_name: Some(name.to_owned()),
            service: String::new(),
            credentials: Credentials { ca: ca.map(|ca| files.path(ca)), ..Credentials::default() },
            timeout: Duration::from_secs(20),
        };
        let text = check.run().await.expect_err(&address).to_string();
        assert!(text.contains(remedy), "{address}: {text}");
    }
}

#[tokio::test]
async fn tls_errors_name_the_file() {
    let (authority, files) = (Authority::new(), Files::new());
    let [certificate, key] = authority.sign(2999);
    let cases = [
        ([key.clone(), key.clone()], "certificate"),
        ([certificate.clone(), certificate.clone()], "key"),
        ([certificate.clone(), authority.sign(2999)[1].clone()], "key"),
    ];
    for (contents, name) in cases {
        files.write(contents);
        let error = Security::open(&files.args()).expect_err("should fail");
        let text = chain(&error);
        assert!(text.contains(&files.path(name).display().to_string()), "{text}");
    }
}

#[tokio::test]
async fn a_key_of_another_certificate_is_refused_with_both_files() {
    let (authority, files) = (Authority::new(), Files::new());
    let [certificate, _] = authority.sign(2999);
    files.write([certificate, authority.sign(2999)[1].clone()]);
    fs::write(files.path("ca"), authority.0.pem()).expect("a file");
    let of_server = chain(&Security::open(&files.args()).expect_err("should fail"));
    let identity = Some(["certificate", "key"].map(|name| files.path(name)));
    let credentials = Credentials { ca: Some(files.path("ca")), identity, ..Credentials::default() };
    let service = "https://localhost:1".parse().expect("a URI");
    let of_client = chain(&credentials.check(&[service]).expect_err("should fail"));
    let errors = [of_server, of_client].map(|text| text.replace(&files.path("").display().to_string(), "FOLDER/"));
    error_texts::check_rows("serve/other-key", errors);
}

#[tokio::test(flavor = "multi_thread")]
async fn unusable_security_files_fail_at_start() {
    let files = Files::new();
    files.write(["no certificate".to_owned(), "no key".to_owned()]);
    fs::write(files.path("empty"), "# no token\n").expect("a file");
    let half = SecurityArgs { tls_key: None, ..files.args() };
    let no_tokens = SecurityArgs { token_file: Some(files.path("empty")), ..SecurityArgs::default() };
    let no_file = SecurityArgs { token_file: Some("does/not/exist".into()), ..SecurityArgs::default() };
    let mut errors = Vec::new();
    for security in [files.args(), half, no_tokens, no_file] {
        let failed = serve_secured(security).await.failure().await;
        errors.push(chain(&failed).replace(&files.path("").display().to_string(), "FOLDER/"));
    }
    error_texts::check_rows("serve/security", errors);
}

fn open(args: &SecurityArgs) -> Security {
    Security::open(args).expect("files that make sense")
}

#[tokio::test]
async fn public_operator_address_requires_client_authentication() {
    let (authority, files) = (Authority::new(), Files::new());
    files.write(authority.sign(2999));
    fs::write(files.path("ca"), authority.0.pem()).expect("a file");
    fs::write(files.path("tokens"), "operator\n").expect("a file");
    let everywhere = "0.0.0.0:0".parse().expect("an address");
    let secured = open(&files.args());
    assert!(matches!(secured.check_operators(everywhere), Err(ServeError::Unprotected { .. })));
    secured.check_operators("127.0.0.1:0".parse().expect("an address")).expect("ours alone");
    secured.with_tokens(files.path("tokens")).expect("tokens").check_operators(everywhere).expect("by their tokens");
    let known = open(&SecurityArgs { tls_client_ca: Some(files.path("ca")), ..files.args() });
    known.check_operators(everywhere).expect("by their certificates");
}

#[tokio::test]
async fn public_listen_address_requires_a_security_setting() {
    let everywhere = "0.0.0.0:0".parse().expect("an address");
    let refused = serve::listen(everywhere, &open(&SecurityArgs::default())).await.expect_err("should be refused");
    assert!(matches!(refused, ServeError::Unprotected { .. }), "{refused}");
    error_texts::check("serve/unprotected", refused);
    serve::listen("127.0.0.1:0".parse().expect("an address"), &open(&SecurityArgs::default()))
        .await
        .expect("ours alone");
}

/// A call on a separate connection whose request message never ends. Dropping it closes the
/// connection.
struct UnfinishedCall {
    body: h2::SendStream<tonic::codegen::Bytes>,
    response: JoinHandle<()>,
    connection: JoinHandle<()>,
}

impl UnfinishedCall {
    async fn open(address: std::net::SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("it listens");
        let (mut sender, connection) = h2::client::handshake(stream).await.expect("it speaks HTTP/2");
        let connection = tokio::spawn(async move {
            let _ = connection.await;
        });
        let request = http::Request::post(format!("http://{address}/tandem.render.v1.RenderService/Tokenize"))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        let (response, body) = sender.send_request(request.body(()).expect("a request"), false).expect("it is sent");
        let response = tokio::spawn(async move {
            let _sender = sender;
            let _ = response.await;
        });
        Self { body, response, connection }
    }

    /// Returns true if the service has rejected the call.
    fn is_rejected(&self) -> bool {
        self.response.is_finished()
    }
}

impl Drop for UnfinishedCall {
    fn drop(&mut self) {
        self.response.abort();
        self.connection.abort();
    }
}

/// Opens an unfinished call on a service with `max_calls: 1`. Returns it with the rejection of the
/// call after it.
async fn open_only_permitted_call(service: &Running, channel: &Channel) -> (UnfinishedCall, Status) {
    let mut call = UnfinishedCall::open(service.address).await;
    let start = Instant::now();
    loop {
        match tokenize(channel.clone(), None).await {
            Err(status) => return (call, status),
            Ok(_) => assert!(start.elapsed() < WAIT_LIMIT, "the unfinished call did not arrive"),
        }
        if call.is_rejected() {
            // The unfinished call arrived during the call above, which had the only permit.
            call = UnfinishedCall::open(service.address).await;
        }
    }
}

async fn wait_until_call_is_accepted(channel: &Channel) {
    let start = Instant::now();
    while let Err(status) = tokenize(channel.clone(), None).await {
        assert!(start.elapsed() < WAIT_LIMIT, "{status}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn call_over_max_calls_is_rejected_with_retry_info() {
    let service = serve(ServeArgs { max_calls: 1, max_connections: 4, ..ServeArgs::default() }).await;
    let channel = service.channel().await;
    let (mut call, status) = open_only_permitted_call(&service, &channel).await;
    let failure = failed(&status);
    assert_eq!((failure.code, failure.reason.as_str()), (Code::ResourceExhausted, "OVERLOADED"));
    error_texts::check("serve/OVERLOADED", status.message());
    assert!(status.get_details_retry_info().is_some_and(|retry| retry.retry_delay.is_some()));
    let health = HealthClient::new(channel.clone()).check(HealthCheckRequest::default()).await;
    health.expect("health checks need no permit");
    call.body.send_reset(h2::Reason::CANCEL);
    wait_until_call_is_accepted(&channel).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_connection_ends_its_calls() {
    let service = serve(ServeArgs { max_calls: 1, max_connections: 4, ..ServeArgs::default() }).await;
    let channel = service.channel().await;
    let (call, status) = open_only_permitted_call(&service, &channel).await;
    assert_eq!(failed(&status).reason, "OVERLOADED");
    drop(call);
    wait_until_call_is_accepted(&channel).await;
}

/// Waits until the service closes a connection.
async fn closed(mut stream: TcpStream) {
    let mut bytes = [0; 256];
    while stream.read(&mut bytes).await.is_ok_and(|count| count > 0) {}
}

#[tokio::test(flavor = "multi_thread")]
async fn excess_and_silent_connections_are_closed() {
    let service = serve(ServeArgs { max_calls: 1, max_connections: 4, ..ServeArgs::default() }).await;
    // One address has three of the four connections.
    let mut silent = Vec::new();
    for _ in 0..3 {
        let mut stream = TcpStream::connect(service.address).await.expect("it listens");
        stream.write_all(b"PRI").await.expect("it is sent");
        silent.push(closed(stream));
    }
    let start = Instant::now();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let one_too_many = TcpStream::connect(service.address).await.expect("it listens");
    tokio::time::timeout(Duration::from_secs(5), closed(one_too_many)).await.expect("closed at once");
    for silent in silent {
        tokio::time::timeout(WAIT_LIMIT, silent).await.expect("closed in time");
    }
    assert!(start.elapsed() > Duration::from_secs(5), "closed too early");
    let channel = service.channel().await;
    tokenize(channel, None).await.expect("there is room again");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_address_has_all_connections() {
    let service = serve(ServeArgs { max_calls: 1, max_connections: 4, ..ServeArgs::default() }).await;
    let mut idle = Vec::new();
    for _ in 0..3 {
        let stream = TcpStream::connect(service.address).await.expect("it listens");
        let (sender, connection) = h2::client::handshake(stream).await.expect("it speaks HTTP/2");
        idle.push((sender, tokio::spawn(connection)));
    }
    let one_too_many = TcpStream::connect(service.address).await.expect("it listens");
    tokio::time::timeout(Duration::from_secs(5), closed(one_too_many)).await.expect("closed at once");
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(([127, 0, 0, 2], 0).into()).expect("an address of the loopback network");
    let other = socket.connect(service.address).await.expect("it listens");
    let (sender, connection) = h2::client::handshake(other).await.expect("there is room for another address");
    let connection = tokio::spawn(connection);
    sender.ready().await.expect("the connection stays open");
    connection.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_over_http_1_have_an_eighth_of_the_places() {
    let service = serve(ServeArgs { max_calls: 40, max_connections: 160, ..ServeArgs::default() }).await;
    // One address has at most three quarters of the 20.
    let mut closing = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let mut stream = TcpStream::connect(service.address).await.expect("it listens");
        stream.write_all(b"POST / HTTP/1.1\r\n").await.expect("it is sent");
        closing.spawn(closed(stream));
    }
    let one_too_many = tokio::time::timeout(Duration::from_secs(5), closing.join_next());
    one_too_many.await.expect("closed at once").expect("a connection").expect("no panic");
    tokenize(service.channel().await, None).await.expect("HTTP/2 has places");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_end_at_max_age_and_clients_reconnect() {
    let service = serve(ServeArgs { max_connection_age_seconds: Some(1), ..ServeArgs::default() }).await;
    let stream = TcpStream::connect(service.address).await.expect("it listens");
    let (_sender, connection) = h2::client::handshake(stream).await.expect("it speaks HTTP/2");
    let channel = service.channel().await;
    let calls = async {
        let (start, mut answers) = (Instant::now(), 0);
        while start.elapsed() < Duration::from_secs(4) {
            match tokenize(channel.clone(), None).await {
                Ok(_) => answers += 1,
                // The request was in flight when the connection ended, and the server did not
                // process it. HTTP/2 reports this, and tonic does not retry.
                Err(status) => assert!(status.get_details_error_info().is_none(), "{status:?}"),
            }
        }
        answers
    };
    let (ended, answers) = tokio::join!(tokio::time::timeout(WAIT_LIMIT, connection), calls);
    ended.expect("the server ends the connection").expect("without an error");
    assert!(answers > 10, "{answers}");
}

/// Returns the arguments for a generation service whose authority is among `theirs`, with a
/// certificate of `ours`.
fn mutual_tls_args(generation: &Generation, theirs: &Files, ours: &Files) -> GenerationArgs {
    let port = generation.running.address.port();
    GenerationArgs {
        generate: vec![format!("https://localhost:{port}").parse().expect("an address")],
        generate_patience_seconds: 1,
        generate_ca: Some(theirs.path("ca")),
        generate_cert: Some(ours.path("certificate")),
        generate_key: Some(ours.path("key")),
        ..GenerationArgs::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn task_reaches_an_authenticated_generation_service() {
    let (authority, files) = (Authority::new(), Files::new());
    files.write(authority.sign(2999));
    fs::write(files.path("ca"), authority.0.pem()).expect("a file");
    fs::write(files.path("tokens"), "# the other service's\nsecret\n").expect("a file");
    fs::write(files.path("wrong"), "guess\n").expect("a file");
    let (tls_client_ca, token_file) = (Some(files.path("ca")), Some(files.path("tokens")));
    let security = SecurityArgs { tls_client_ca, token_file, ..files.args() };
    let config = Config { threads: 1, ..Config::new(default_model()) };
    let generation = Generation::start_with_args(config, ServeArgs { security, ..ServeArgs::default() }).await;
    let known = GenerationArgs {
        generate_token_file: Some(files.path("tokens")),
        ..mutual_tls_args(&generation, &files, &files)
    };
    run_task(known.clone()).await.expect("an answer");
    let unknown = [
        GenerationArgs { generate_token_file: Some(files.path("wrong")), ..known.clone() },
        GenerationArgs { generate_token_file: None, ..known.clone() },
        GenerationArgs { generate_cert: None, generate_key: None, ..known },
    ];
    for args in unknown {
        let failure = failed(&run_task(args.clone()).await.expect_err("the generation service rejects the call"));
        assert_eq!((failure.code, failure.reason.as_str()), (Code::Unavailable, "GENERATION_UNAVAILABLE"), "{args:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn generation_certificate_is_replaced_while_the_service_runs() {
    let (authority, other, files, ours) = (Authority::new(), Authority::new(), Files::new(), Files::new());
    files.write(authority.sign(2999));
    fs::write(files.path("ca"), authority.0.pem()).expect("a file");
    let security = SecurityArgs { tls_client_ca: Some(files.path("ca")), ..files.args() };
    let config = Config { threads: 1, ..Config::new(default_model()) };
    let generation = Generation::start_with_args(config, ServeArgs { security, ..ServeArgs::default() }).await;
    ours.write(other.sign(2999));
    let args = mutual_tls_args(&generation, &files, &ours);
    let service = serve_catalog_with_generation(default_catalog(), args, ServeArgs::default()).await;
    let failure = failed(&ask(&service).await.expect_err("another signed it"));
    assert_eq!((failure.code, failure.reason.as_str()), (Code::Unavailable, "GENERATION_UNAVAILABLE"));
    ours.write(authority.sign(2999));
    let start = Instant::now();
    while let Err(status) = ask(&service).await {
        assert!(start.elapsed() < WAIT_LIMIT, "{status}");
    }
}

async fn run_task(generation: GenerationArgs) -> Result<(), Status> {
    ask(&serve_catalog_with_generation(default_catalog(), generation, ServeArgs::default()).await).await
}

async fn ask(service: &Running) -> Result<(), Status> {
    let message = chat::ChatMessage {
        role: "user".to_owned(),
        content: Some(chat::chat_message::Content::Text("Hi".to_owned())),
        ..chat::ChatMessage::default()
    };
    let conversation = Some(chat::Conversation { messages: vec![message], ..chat::Conversation::default() });
    let stop = Some(Stop { max_new_tokens: Some(2), ..Stop::default() });
    let request = RunTaskRequest { conversation, stop, ..RunTaskRequest::default() };
    let mut events = TaskServiceClient::new(service.channel().await).run_task(request).await?.into_inner();
    while events.message().await?.is_some() {}
    Ok(())
}

#[test]
fn binary_rejects_a_public_address_without_security() {
    let model = ModelFolder::new("tiny");
    let mut render = std::process::Command::new(tandem_tests::binary("render-svc"));
    let ended = render.args(["serve", "--listen", "0.0.0.0:0", "--models"]).arg::<&Path>(&model.path()).output();
    let ended = ended.expect("it starts");
    assert!(!ended.status.success());
    let log = String::from_utf8_lossy(&ended.stderr);
    error_texts::check("serve/unprotected-program", log.lines().last().unwrap_or_default());
}
