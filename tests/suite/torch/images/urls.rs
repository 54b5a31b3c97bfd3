//! Images at URLs: the hosts that are allowed, and the errors. The server of the tests is on
//! the loopback interface.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tandem_core::engine::Engine;
use tandem_core::error::RequestError;
use tandem_core::media::{ImageHost, Marked, MediaFile, MediaSource, Origin, is_public};
use tandem_core::request::{GenerateRequest, Input, PreparedRequest};
use tandem_tests::error_texts;
use tandem_tests::failure::{Failed, failed};
use tandem_tests_full::image_model::{ImageModel, bitmap};
use tonic::{Code, Status};

use super::{ask, finish, for_each, image, request, start, text, user, with_input};

const MAX_IMAGE_BYTES: usize = 8192;

/// A web server.
struct Web {
    address: SocketAddr,
    requests: Arc<AtomicUsize>,
}

impl Web {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let (address, requests) = (listener.local_addr().expect("an address"), Arc::<AtomicUsize>::default());
        let counter = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                counter.fetch_add(1, Ordering::SeqCst);
                // A client that has read enough closes the connection.
                let _ = answer(stream);
            }
        });
        Self { address, requests }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    fn hosts(&self, are_private: bool) -> Vec<ImageHost> {
        let start = if are_private { "private:" } else { "" };
        let hosts = [self.address.to_string(), format!("localhost:{}", self.address.port())];
        hosts.iter().map(|host| format!("{start}http://{host}").parse().expect("a host")).collect()
    }
}

fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
    let (status, body) = match first.split(' ').nth(1) {
        Some("/image") => ("200 OK", bitmap(40, 28, 1)),
        Some("/moved") => ("302 Found\r\nlocation: /image", Vec::new()),
        Some("/large") => ("200 OK", vec![b'x'; 4 * MAX_IMAGE_BYTES]),
        Some("/text") => ("200 OK", b"no image".to_vec()),
        _ => ("404 Not Found", Vec::new()),
    };
    // Without a length: the end of the connection ends the body.
    stream.write_all(format!("HTTP/1.1 {status}\r\nconnection: close\r\n\r\n").as_bytes())?;
    stream.write_all(&body)
}

fn at(url: &str) -> Vec<Value> {
    user([json!({"type": "image_url", "image_url": {"url": url}}), text("What is this?")])
}

fn fetched(engine: &Engine, messages: Vec<Value>) -> Result<PreparedRequest, RequestError> {
    let mut request = request(messages);
    request.fetch_images(engine.model())?;
    request.prepare(engine.model())
}

fn serve(folder: &std::path::Path, hosts: Vec<ImageHost>) -> Engine {
    start(folder, |config| {
        config.image_hosts = hosts;
        config.media.image.max_bytes = MAX_IMAGE_BYTES;
    })
}

#[test]
fn image_at_an_allowed_url_is_that_of_its_data() {
    let web = Web::start();
    for_each(|model, folder| {
        let engine = serve(folder, web.hosts(true));
        let data = user([image(1), text("What is this?")]);
        let expected = ask(&engine, request(data));
        let block = json!({"type": "image", "url": web.url("image")});
        for messages in [at(&web.url("image")), user([block, text("What is this?")])] {
            let prepared = fetched(&engine, messages).unwrap_or_else(|error| panic!("{}", error.chain()));
            finish(engine.submit(prepared, None).expect("room")).is_same(&expected, model);
        }
    });
}

#[test]
fn images_of_other_hosts_and_answers_without_an_image_are_refused() {
    let web = Web::start();
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let mut hosts = web.hosts(true);
    hosts.push(format!("private:http://{closed}").parse().expect("a host"));
    let port = web.address.port();
    let cases = [
        ("other-host", "https://example.com/a.png".to_owned(), "IMAGE_NOT_FETCHED"),
        ("other-scheme", format!("https://127.0.0.1:{port}/image"), "IMAGE_NOT_FETCHED"),
        ("user", format!("http://user:secret@127.0.0.1:{port}/image"), "IMAGE_NOT_FETCHED"),
        ("malformed", "http://[::1/image".to_owned(), "IMAGE_NOT_FETCHED"),
        ("redirect", web.url("moved"), "IMAGE_NOT_FETCHED"),
        ("missing", web.url("nothing"), "IMAGE_NOT_FETCHED"),
        ("no-server", format!("http://{closed}/image"), "IMAGE_NOT_FETCHED"),
        ("too-large", web.url("large"), "IMAGE_OVER_LIMIT"),
        ("no-image", web.url("text"), "INVALID_IMAGE"),
    ];
    for_each(|model, folder| {
        let engine = serve(folder, hosts.clone());
        for (name, url, reason) in &cases {
            let status = Status::from(fetched(&engine, at(url)).expect_err(name));
            let Failed { code, reason: found, field } = failed(&status);
            let path = "hf_messages_json[0].content[0].url";
            assert_eq!(
                (code, found.as_str(), field.as_deref()),
                (Code::InvalidArgument, *reason, Some(path)),
                "{name}"
            );
            let message = status.message().replace(&port.to_string(), "PORT");
            error_texts::check(&format!("generate-image-urls/{name}"), message);
            assert!(!message_has_secret(&status), "{model}, {name}");
        }
    });
}

fn message_has_secret(status: &Status) -> bool {
    status.message().contains("secret")
}

/// The reason in the text depends on which side closes the connection first.
#[test]
fn host_without_tls_is_refused() {
    let web = Web::start();
    let hosts = vec![format!("private:https://{}", web.address).parse().expect("a host")];
    for_each(|model, folder| {
        let engine = serve(folder, hosts.clone());
        let url = format!("https://{}/image", web.address);
        let status = Status::from(fetched(&engine, at(&url)).expect_err(model));
        assert_eq!(failed(&status).reason, "IMAGE_NOT_FETCHED", "{model}");
        assert!(status.message().contains("127.0.0.1 cannot be reached"), "{model}: {}", status.message());
    });
}

/// Neither an address nor a name that resolves to it.
#[test]
fn private_addresses_are_not_fetched_from_by_default() {
    let web = Web::start();
    for_each(|_, folder| {
        let engine = serve(folder, web.hosts(false));
        for host in ["127.0.0.1", "localhost"] {
            let url = format!("http://{host}:{}/image", web.address.port());
            let status = Status::from(fetched(&engine, at(&url)).expect_err("a private address"));
            assert_eq!(failed(&status).reason, "IMAGE_NOT_FETCHED");
            error_texts::check("generate-image-urls/private", status.message().replace("localhost", "127.0.0.1"));
        }
    });
    assert_eq!(web.requests.load(Ordering::SeqCst), 0);
}

#[test]
fn number_of_images_is_checked_before_any_is_fetched() {
    let web = Web::start();
    let block = json!({"type": "image", "url": web.url("image")});
    for_each(|_, folder| {
        let engine = start(folder, |config| {
            config.image_hosts = web.hosts(true);
            config.media.images = 2;
        });
        let status = Status::from(fetched(&engine, user([(); 3].map(|()| block.clone()))).expect_err("too many"));
        assert_eq!(failed(&status).reason, "IMAGE_OVER_LIMIT");
    });
    assert_eq!(web.requests.load(Ordering::SeqCst), 0);
}

#[test]
fn without_an_allowed_host_nothing_is_fetched() {
    let web = Web::start();
    for_each(|_, folder| {
        let engine = start(folder, |_| {});
        let status = Status::from(fetched(&engine, at(&web.url("image"))).expect_err("no host"));
        assert_eq!(failed(&status).reason, "IMAGE_NOT_FETCHED");
        assert!(!engine.model().fetches_images());
    });
    assert_eq!(web.requests.load(Ordering::SeqCst), 0);
}

/// Returns a request with a marker for one file, for the model whose marker is a token.
fn marked(source: MediaSource) -> GenerateRequest {
    let prompt = "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>What?<|im_end|>";
    let offset = prompt.find("<|image_pad|>").expect("a marker");
    with_input(Input::WithMedia(Marked::Text(prompt.to_owned()), vec![MediaFile { source, offset }]))
}

#[test]
fn a_file_at_a_url_is_that_of_its_bytes() {
    let web = Web::start();
    let folder = ImageModel::all()["qwen2_5_vl"].folder();
    let engine = serve(folder.path(), web.hosts(true));
    let expected = ask(&engine, marked(MediaSource::Bytes(bitmap(40, 28, 1))));
    let mut request = marked(MediaSource::Url(web.url("image")));
    assert!(engine.model().fetches_images());
    request.fetch_images(engine.model()).expect("an allowed host");
    ask(&engine, request).is_same(&expected, "a URL");
    let mut missing = marked(MediaSource::Url(web.url("nothing")));
    let failure = failed(&Status::from(missing.fetch_images(engine.model()).expect_err("no image")));
    assert_eq!((failure.reason.as_str(), failure.field.as_deref()), ("IMAGE_NOT_FETCHED", Some("media[0].url")));
}

#[test]
fn a_file_at_a_url_is_refused_without_an_allowed_host() {
    let folder = ImageModel::all()["qwen2_5_vl"].folder();
    let engine = start(folder.path(), |_| {});
    let mut request = marked(MediaSource::Url("https://example.com/a.png".to_owned()));
    assert!(!engine.model().fetches_images());
    request.fetch_images(engine.model()).expect("nothing is fetched");
    let status = Status::from(request.prepare(engine.model()).expect_err("no host"));
    let failure = failed(&status);
    assert_eq!((failure.reason.as_str(), failure.field.as_deref()), ("IMAGE_NOT_FETCHED", Some("media[0].url")));
    error_texts::check("generate-image-urls/media", status.message());
}

#[test]
fn origins_are_hosts_with_scheme_and_port() {
    let read = |text: &str| text.parse::<Origin>().map(|origin| origin.to_string()).ok();
    for (text, expected) in [
        ("images.example.com", Some("https://images.example.com:443")),
        ("Images.Example.com.", Some("https://images.example.com:443")),
        ("images.example.com:8443", Some("https://images.example.com:8443")),
        ("http://minio", Some("http://minio:80")),
        ("http://minio:9000/", Some("http://minio:9000")),
        ("https://[2001:db8::1]:1", Some("https://[2001:db8::1]:1")),
        ("http://minio/bucket", None),
        ("ftp://minio", None),
        ("user@minio", None),
        ("minio:port", None),
        ("", None),
        ("*", None),
    ] {
        assert_eq!(read(text).as_deref(), expected, "{text:?}");
    }
}

/// From IANA's registries of special-purpose addresses.
#[test]
fn special_addresses_are_not_public() {
    let is_public = |text: &str| is_public(text.parse::<IpAddr>().expect("an address"));
    for special in [
        "0.0.0.0",
        "10.0.0.1",
        "100.64.0.1",
        "100.127.255.255",
        "127.0.0.1",
        "127.255.0.1",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.8",
        "192.0.2.1",
        "192.168.0.1",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::a00:1",
        "64:ff9b:1::1",
        "100::1",
        "2001::1",
        "2001:2::1",
        "2001:db8::1",
        "2002:7f00:1::",
        "3fff:fff::1",
        "fc00::1",
        "fd00::1",
        "fe80::1",
        "fec0::1",
        "ff02::1",
    ] {
        assert!(!is_public(special), "{special}");
    }
    for public in [
        "1.1.1.1",
        "8.8.8.8",
        "100.63.255.255",
        "100.128.0.1",
        "172.32.0.1",
        "192.0.1.1",
        "198.20.0.1",
        "223.255.255.255",
        "2606:4700:4700::1111",
        "2001:4860:4860::8888",
        "64:ff9b::808:808",
        "2002:808:808::1",
    ] {
        assert!(is_public(public), "{public}");
    }
}
