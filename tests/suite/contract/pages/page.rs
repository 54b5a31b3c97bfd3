//! The text of a page.

use prost_types::{EnumDescriptorProto, FileDescriptorProto, FileDescriptorSet, MethodDescriptorProto};

use super::comments::Comments;
use super::examples::Examples;
use super::fields::{Link, item, list};

/// The numbers of these fields in FileDescriptorProto.
const PACKAGE: i32 = 2;
const MESSAGES: i32 = 4;
const ENUMS: i32 = 5;
const SERVICES: i32 = 6;

const HEAD: &str = "\
<!-- Generated from the comments of the .proto files, and from the examples that the tests run, by
`cargo xtask docs`. -->

";

const INDEX: &str = "\
| Page | Content | Address |
|---|---|---|
| [TaskService](task.md) | conversation to answer, in one call | render-svc |
| [RenderService](render.md) | conversation to prompt, tokenizing | render-svc |
| [RegistryService](registry.md) | models and adapters | render-svc |
| [GenerateService](generate.md) | prompt to a stream of tokens | gen-svc |
| [ControlService](control.md) | load, prefix cache, drain | `--control-listen` of gen-svc |
| [Conversations](chat.md) | messages of a conversation | |

[README.md](../README.md) has the conventions of all methods, [ERRORS.md](../ERRORS.md) the reasons of errors.

## Examples

Each method has an example in five languages. The tests run all of them. An example is the inside of a function,
and follows this start. Its `channel`, `transport` or `connection` comes from `connect`. The start of each
project, with the generation of the code, is in [Python](../clients/python/README.md#generated-code),
[TypeScript](../clients/typescript/README.md#generated-code), [Go](../clients/go.md), [Java](../clients/java.md)
and [Rust](../clients/rust.md).

In Go, replace `example.com/tandem/contract/gen` by the package of your generated code, and keep only the imports
in use: others are errors. In TypeScript, `./contract/tandem` is the folder of the generated code.

";

/// A page: a service, or the messages that several services share.
pub(super) struct Page {
    pub(super) name: &'static str,
    title: &'static str,
    pub(super) files: &'static [&'static str],
}

pub(super) const PAGES: &[Page] = &[
    Page { name: "task", title: "TaskService", files: &["tandem/task/v1/task.proto"] },
    Page {
        name: "render",
        title: "RenderService",
        files: &["tandem/render/v1/render.proto", "tandem/render/v1/parse.proto"],
    },
    Page { name: "registry", title: "RegistryService", files: &["tandem/render/v1/registry.proto"] },
    Page {
        name: "generate",
        title: "GenerateService",
        files: &[
            "tandem/generate/v1/generate.proto",
            "tandem/generate/v1/output_spec.proto",
            "tandem/generate/v1/media_kind.proto",
        ],
    },
    Page { name: "control", title: "ControlService", files: &["tandem/generate/v1/control.proto"] },
    Page { name: "chat", title: "Conversations", files: &["tandem/chat/v1/chat.proto"] },
    Page { name: "README", title: "Reference", files: &[] },
];

impl Page {
    pub(super) fn text(&self, all: &FileDescriptorSet, examples: &Examples) -> String {
        let link = |name: &str| link(all, self, name);
        let reader = if self.title == "ControlService" { "operators" } else { "authors of clients" };
        let mut text = format!("# {}\n\nFor {reader}.\n\n{HEAD}", self.title);
        if self.files.is_empty() {
            return text + INDEX + &examples.markdown("start");
        }
        let files = self.files.iter().map(|name| file(all, name));
        let files: Vec<_> = files.map(|file| (file, Comments::of(file))).collect();
        for (file, comments) in &files {
            text += &intro(file, comments);
            text += &services(file, comments, &link, examples);
        }
        text += "## Messages\n\nAll reasons of errors are in [ERRORS.md](../ERRORS.md).\n\n";
        text + &files.iter().map(|(file, comments)| types(file, comments, &link)).collect::<String>()
    }
}

fn file<'f>(all: &'f FileDescriptorSet, name: &str) -> &'f FileDescriptorProto {
    all.file.iter().find(|file| file.name() == name).expect("a file of the contract")
}

/// Returns a Markdown link from a page to a message or an enum, by its full name.
fn link(all: &FileDescriptorSet, from: &Page, full_name: &str) -> String {
    let full_name = full_name.trim_start_matches('.');
    let name = full_name.rsplit('.').next().unwrap_or_default();
    let has = |file: &&FileDescriptorProto| {
        full_name.strip_suffix(name).is_some_and(|package| package.trim_end_matches('.') == file.package())
            && (file.message_type.iter().any(|known| known.name() == name)
                || file.enum_type.iter().any(|known| known.name() == name))
    };
    let file = all.file.iter().find(has).map_or("", FileDescriptorProto::name);
    match PAGES.iter().find(|page| page.files.contains(&file)) {
        Some(page) if page.name == from.name => format!("[{name}](#{})", name.to_lowercase()),
        Some(page) => format!("[{name}]({}.md#{})", page.name, name.to_lowercase()),
        None => full_name.to_owned(),
    }
}

/// Returns the comment of a file.
fn intro(file: &FileDescriptorProto, comments: &Comments) -> String {
    let paragraphs = [comments.get(&[PACKAGE])].into_iter().filter(|text| !text.is_empty());
    paragraphs.map(|text| format!("{text}\n\nPackage `{}`.\n\n", file.package())).collect()
}

fn services(file: &FileDescriptorProto, comments: &Comments, link: Link<'_>, examples: &Examples) -> String {
    let mut text = String::new();
    for (index, service) in (0..).zip(&file.service) {
        text += &format!("{}\n\n", comments.get(&[SERVICES, index]));
        for (number, method) in (0..).zip(&service.method) {
            let comment = comments.get(&[SERVICES, index, 2, number]);
            let name = format!("{}.{}", service.name(), method.name());
            text += &format!("## {}\n\n{}\n\n{comment}\n\n", method.name(), signature(method, link));
            text += &format!("{}\n", examples.markdown(&name));
        }
    }
    text
}

fn signature(method: &MethodDescriptorProto, link: Link<'_>) -> String {
    let stream = if method.server_streaming() { "stream of " } else { "" };
    format!("{} → {stream}{}", link(method.input_type()), link(method.output_type()))
}

fn types(file: &FileDescriptorProto, comments: &Comments, link: Link<'_>) -> String {
    let mut text = String::new();
    for (index, message) in (0..).zip(&file.message_type) {
        let path = [MESSAGES, index];
        text += &section(message.name(), comments.get(&path), &list(message, &path, comments, link));
    }
    for (index, kind) in (0..).zip(&file.enum_type) {
        text += &section(kind.name(), comments.get(&[ENUMS, index]), &values(kind, index, comments));
    }
    text
}

fn section(name: &str, comment: &str, list: &str) -> String {
    let paragraphs = [comment, list.trim_end()].into_iter().filter(|text| !text.is_empty());
    let body: String = paragraphs.map(|text| format!("{text}\n\n")).collect();
    format!("### {name}\n\n{body}")
}

fn values(kind: &EnumDescriptorProto, index: i32, comments: &Comments) -> String {
    let one = |(number, value): (i32, &prost_types::EnumValueDescriptorProto)| {
        let head = format!("**`{}`** = {}", value.name(), value.number());
        item(&head, comments.get(&[ENUMS, index, 2, number]), "")
    };
    (0..).zip(&kind.value).map(one).collect()
}
