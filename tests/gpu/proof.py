"""The state that all checks share: the settings, and one service or one model of transformers in memory."""

import contextlib
import json

import torch

import models
import reference
import service


class Proof:
    """The settings of a run. A service or a model stays in memory until a check needs another one."""

    def __init__(self, args, checks):
        self.device, self.small = args.device, args.small
        self.program, self.options = args.gen_svc, args.option
        self.work, self.checks = args.work, checks
        self.stack, self.key, self.held = contextlib.ExitStack(), None, None
        checks.on_failure = self.drop

    def size(self, large, small):
        """Returns a number of the proof, or the one for a machine without a GPU."""
        return small if self.small else large

    def check(self, name, seconds, work, *arguments, is_needed=False):
        """Runs `work(self, *arguments)` as a check with a budget in seconds."""
        self.checks.run(name, seconds, lambda: work(self, *arguments), is_needed=is_needed)

    def check_model(self, name, seconds, model):
        """Makes a model, as a check."""
        self.check(name, seconds, lambda _: {"folder": self.make(model).name})

    def config(self, name):
        """Returns the configuration of a model."""
        return models.config(name, self.small)

    def make(self, name):
        """Makes a model, unless it exists."""
        if not models.exists(self.work / name):
            self.drop()
            models.make(name, self.work / name, self.device, self.small)
            reference.free()
        return self.work / name

    def prompts(self, name, lengths, seed, count=None):
        """Returns random prompts for a model. The lengths repeat up to the count."""
        vocabulary = self.config(name).vocab_size
        return models.prompts(count or len(lengths), lengths, vocabulary, seed)

    def service(self, name, *options):
        """Returns a service of a model on the device, which is started if it does not run."""
        options, folder = self.on_device(*options), self.make(name)
        log = self.work / "gen-svc.log"
        return self._hold((name, *options), lambda: service.serve(self.program, folder, log, options, self.checks.left))

    def reference(self, name, dtype):
        """Returns a model of transformers on the device, which is loaded if it is not."""
        folder = self.make(name)
        return self._hold((name, dtype), lambda: reference.loaded(folder, self.device, dtype))

    def drop(self):
        """Ends the service, or frees the model."""
        self.key = self.held = None
        self.stack.close()

    def kept(self, file, make):
        """Returns the JSON of a file, which is made if it is missing."""
        path = self.work / file
        if not path.exists():
            found = json.dumps(make())
            path.write_text(found)
        return json.loads(path.read_text())

    def enqueued_steps(self, name, options, sequences, positions):
        """Returns the milliseconds of steps that are launched without waits, by number of sequences."""
        folder, steps = self.make(name), self.size(64, 4)
        self.drop()
        options, left = self.on_device(*options), self.checks.left()
        return service.enqueued_steps(self.program, folder, options, sequences, positions, steps, left)

    def on_device(self, *options):
        """Returns options of gen-svc, with the device unless they name one. A proof on a CPU needs libtorch there."""
        own = "cpu-torch" if self.device == "cpu" else self.device
        device = [] if "--device" in options else ["--device", own]
        return [*device, *options, *self.options]

    def two_devices(self):
        """Returns a list of two devices for gen-svc, or None on a machine with one GPU."""
        if self.device == "cpu":
            return "cpu-torch,cpu-torch"
        return "cuda:0,cuda:1" if torch.cuda.device_count() > 1 else None

    def _hold(self, key, start):
        if self.key != key:
            self.drop()
            self.held = self.stack.enter_context(start())
            self.key = key
        return self.held
