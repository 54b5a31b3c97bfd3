//! Services as child processes.

use std::process::{Command, ExitStatus, Stdio};

use tandem_process::{Service, Signal};

use crate::files::binary;

/// A service as a child process, which can be ended and started again at the same address. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    service: Service,
    /// The address that it listens on.
    pub address: String,
    /// The address of its metrics page, if it has one.
    pub metrics: Option<String>,
    command: Vec<String>,
}

impl Process {
    /// Runs `serve` of a program with arguments, and waits until it is ready.
    ///
    /// # Panics
    /// It does not start.
    #[must_use]
    pub fn start(address: &str, command: &[impl AsRef<str>]) -> Self {
        Self::start_in(address, command, &[], Stdio::null())
    }

    /// The same with environment variables, and a destination of its log.
    ///
    /// # Panics
    /// It does not start.
    #[must_use]
    pub fn start_in(address: &str, command: &[impl AsRef<str>], variables: &[(&str, &str)], log: Stdio) -> Self {
        let command: Vec<String> = command.iter().map(|word| word.as_ref().to_owned()).collect();
        let (name, arguments) = command.split_first().expect("a program");
        let mut program = Command::new(binary(name));
        program.args(["serve", "--drain-seconds", "60", "--listen", address]).args(arguments);
        program.envs(variables.iter().copied()).stderr(log);
        let service = Service::start(name, &mut program).unwrap_or_else(|error| panic!("{error}"));
        let (address, metrics) = (service.address().to_owned(), service.metrics().map(str::to_owned));
        Self { service, address, metrics, command }
    }

    /// Ends it with SIGKILL.
    ///
    /// # Panics
    /// It had ended.
    pub fn kill(&mut self) {
        self.service.kill().expect("it is killed");
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// The signal cannot be sent.
    pub fn signal(&mut self, signal: Signal) {
        self.service.signal(signal).expect("it is signalled");
    }

    /// Waits until it has ended.
    ///
    /// # Panics
    /// It cannot be waited for.
    pub fn wait(&mut self) -> ExitStatus {
        self.service.wait().expect("it ends")
    }

    /// Ends it with SIGTERM, and returns the exit code.
    ///
    /// # Panics
    /// It cannot be signalled or waited for.
    pub fn terminate(&mut self) -> Option<i32> {
        self.signal(Signal::TERM);
        self.wait().code()
    }

    /// Starts it again, once it has ended.
    #[must_use]
    pub fn start_again(self) -> Self {
        Self::start(&self.address, &self.command)
    }

    /// Resident memory, in bytes.
    ///
    /// # Panics
    /// It has ended.
    #[must_use]
    pub fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.service.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
        line.trim().trim_end_matches("kB").trim().parse::<u64>().expect("a number") << 10
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.service.kill();
    }
}
