//! Services as child processes.

use std::process::{Command, ExitStatus, Stdio};

use tandem_common::process::{Service, Signal};

use crate::files::binary;

/// A service as a child process, which can be ended and started again at the same address. Dropping
/// it kills it.
#[derive(Debug)]
pub struct Process {
    service: Service,
    /// The address on which the service listens.
    pub address: String,
    /// The address of its metrics page, if it has one.
    pub metrics: Option<String>,
    command: Vec<String>,
}

impl Process {
    /// Runs `serve` of a program with arguments, and waits until it is ready.
    ///
    /// # Panics
    /// If the service does not start.
    #[must_use]
    pub fn start(address: &str, command: &[impl AsRef<str>]) -> Self {
        Self::start_in(address, command, &[], Stdio::null())
    }

    /// Runs `serve` with environment variables and a destination for its log.
    ///
    /// # Panics
    /// If the service does not start.
    #[must_use]
    pub fn start_in(address: &str, command: &[impl AsRef<str>], variables: &[(&str, &str)], log: Stdio) -> Self {
        let command: Vec<String> = command.iter().map(|word| word.as_ref().to_owned()).collect();
        let (name, arguments) = command.split_first().expect("the command names a program");
        let mut program = Command::new(binary(name));
        program.args(["serve", "--drain-seconds", "60", "--listen", address]).args(arguments);
        program.envs(variables.iter().copied()).stderr(log);
        let service = Service::start(name, &mut program).unwrap_or_else(|error| panic!("{error}"));
        let (address, metrics) = (service.address().to_owned(), service.metrics().map(str::to_owned));
        Self { service, address, metrics, command }
    }

    /// Ends the service with SIGKILL.
    ///
    /// # Panics
    /// If the service has already ended.
    pub fn kill(&mut self) {
        self.service.kill().expect("it is killed");
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// If the signal cannot be sent.
    pub fn signal(&mut self, signal: Signal) {
        self.service.signal(signal).expect("it is signalled");
    }

    /// Waits until the service has ended.
    ///
    /// # Panics
    /// If the wait fails.
    pub fn wait(&mut self) -> ExitStatus {
        self.service.wait().expect("the process ends")
    }

    /// Ends the service with SIGTERM, and returns the exit code.
    ///
    /// # Panics
    /// If the signal or the wait fails.
    pub fn terminate(&mut self) -> Option<i32> {
        self.signal(Signal::TERM);
        self.wait().code()
    }

    /// Starts the service again after it has ended.
    #[must_use]
    pub fn start_again(self) -> Self {
        Self::start(&self.address, &self.command)
    }

    /// Returns the resident memory in bytes.
    ///
    /// # Panics
    /// If the service has ended.
    #[must_use]
    pub fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.service.id())).expect("the process runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the status has the line VmRSS");
        line.trim().trim_end_matches("kB").trim().parse::<u64>().expect("VmRSS is a number") << 10
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.service.kill();
    }
}
