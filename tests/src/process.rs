//! Services in processes of their own.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use crate::files::binary;

/// A service in a process of its own, which can be ended and started again where it was.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// Where it listens.
    pub address: String,
    /// Where its metrics are, if anywhere.
    pub metrics: Option<String>,
    command: Vec<String>,
}

impl Process {
    /// Starts `serve` of a program, with arguments, and reads what it prints until it is ready.
    ///
    /// # Panics
    /// It does not start.
    #[must_use]
    pub fn start(address: &str, command: &[impl AsRef<str>]) -> Self {
        Self::start_in(address, command, &[], Stdio::null())
    }

    /// The same with variables of its environment, and somewhere for its log.
    ///
    /// # Panics
    /// It does not start.
    #[must_use]
    pub fn start_in(address: &str, command: &[impl AsRef<str>], variables: &[(&str, &str)], log: Stdio) -> Self {
        let command: Vec<String> = command.iter().map(|word| word.as_ref().to_owned()).collect();
        let (name, arguments) = command.split_first().expect("a program");
        let mut program = Command::new(binary(name));
        program.args(["serve", "--drain-seconds", "60", "--listen", address]).args(arguments);
        program.envs(variables.iter().copied()).stdout(Stdio::piped()).stderr(log);
        let child = program.spawn().expect("it starts");
        let mut process = Self { child, address: String::new(), metrics: None, command: command.clone() };
        let lines = BufReader::new(process.child.stdout.take().expect("piped")).lines();
        for line in lines.map(|line| line.expect("a line")) {
            if let Some(address) = line.strip_prefix(&format!("{name} metrics listening on ")) {
                process.metrics = Some(address.to_owned());
            }
            if let Some(address) = line.strip_prefix(&format!("{name} listening on ")) {
                address.clone_into(&mut process.address);
                return process;
            }
        }
        panic!("{name} ended before it was ready");
    }

    /// As `kill -9` does.
    ///
    /// # Panics
    /// It had ended.
    pub fn kill(&mut self) {
        self.child.kill().expect("it is killed");
        self.child.wait().expect("it ends");
    }

    /// As SIGTERM does. The exit code.
    ///
    /// # Panics
    /// It had ended.
    pub fn terminate(&mut self) -> Option<i32> {
        let status = Command::new("kill").arg("-TERM").arg(self.child.id().to_string()).status();
        assert!(status.expect("kill runs").success());
        self.child.wait().expect("it ends").code()
    }

    /// Once it has ended.
    #[must_use]
    pub fn start_again(self) -> Self {
        Self::start(&self.address, &self.command)
    }

    /// Memory that it holds, in bytes.
    ///
    /// # Panics
    /// It is no more.
    #[must_use]
    pub fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
        line.trim().trim_end_matches("kB").trim().parse::<u64>().expect("a number") << 10
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
