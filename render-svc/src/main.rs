//! The program `render-svc`.

use std::io::{self, Write as _};
use std::process::ExitCode;

use render_svc::args::{self, Args, Command, ExplainArgs, RenderArgs, Serve, TokenizeArgs};
use render_svc::cli::query;
use render_svc::{catalog, cli, serve};
use tandem_common::check::Check;
use tandem_common::program::{Build, Invocation};
use tandem_common::status::chain;
use tandem_common::telemetry::{self, Telemetry};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let build = build();
    let (Args { command }, invocation) = Invocation::parse(&build, &args::USUAL_FLAGS);
    let ended = match command {
        Command::Serve(args) if args.dry_run.print_config => print_config(&args, &invocation),
        Command::Serve(args) if args.dry_run.check => check_serve(*args, &build, &invocation),
        Command::Serve(args) => run_server(*args, &build, &invocation),
        Command::Render(args) => render(args),
        Command::Tokenize(args) => tokenize(args),
        Command::Explain(args) => explain(args),
        Command::Check(args) => check(args.into()),
        Command::Completions(args) => invocation.print_completions(args).map_err(Into::into),
        Command::Man(args) => invocation.write_man(&args).map_err(Into::into),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("render-svc: {}", chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

/// The commit is an environment variable of the build, so that a commit rebuilds nothing.
fn build() -> Build {
    let components =
        vec![("minijinja", env!("TANDEM_MINIJINJA").to_owned()), ("tokenizers", env!("TANDEM_TOKENIZERS").to_owned())];
    Build { name: "render-svc", commit: option_env!("TANDEM_COMMIT"), components }
}

/// Prints the settings, and the content of the file of models.
fn print_config(args: &Serve, invocation: &Invocation) -> anyhow::Result<()> {
    invocation.print_unknown_variables();
    let mut settings = invocation.settings();
    if let Some(file) = &args.sources.config {
        settings.insert("models_file".to_owned(), catalog::config_file(file)?);
    }
    Ok(writeln!(io::stdout(), "{:#}", serde_json::Value::Object(settings))?)
}

fn check_serve(args: Serve, build: &Build, invocation: &Invocation) -> anyhow::Result<()> {
    tokio::runtime::Runtime::new()?.block_on(async {
        telemetry::check(build, &args.telemetry)?;
        invocation.print_unknown_variables();
        Ok(writeln!(io::stdout(), "{}", serve::check(args).await?)?)
    })
}

fn check(check: Check) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(check.run())?;
    writeln!(io::stdout(), "SERVING")?;
    Ok(())
}

fn render(args: RenderArgs) -> anyhow::Result<()> {
    telemetry::init(&args.log)?;
    Ok(cli::run(args.into(), args::reader(), io::stdout().lock())?)
}

fn tokenize(args: TokenizeArgs) -> anyhow::Result<()> {
    telemetry::init(&args.log)?;
    Ok(query::run(args.into(), args::reader(), io::stdout().lock())?)
}

fn explain(args: ExplainArgs) -> anyhow::Result<()> {
    telemetry::init(&args.log)?;
    Ok(query::run(args.into(), args::reader(), io::stdout().lock())?)
}

fn run_server(args: Serve, build: &Build, invocation: &Invocation) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    let ended = runtime.block_on(async {
        let telemetry = Telemetry::start(build, &args.telemetry)?;
        telemetry::record_service(build, &invocation.settings());
        invocation.unknown_variables().iter().for_each(|problem| tracing::warn!("{problem}"));
        let ended = serve::run(args, &telemetry).await;
        telemetry.end().await;
        Ok(ended?)
    });
    // Cancels the loading of models, if it still runs.
    runtime.shutdown_background();
    ended
}
