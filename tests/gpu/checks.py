"""Checks with a budget of time each. A finished check is kept in a file at once, and not run again."""

import json
import os
import signal
import sys
import threading
import time

# The last seconds of a run: ending processes, printing results.
END_SECONDS = 20
# Budgets are for runs of this length, and grow with longer ones.
USUAL_MINUTES = 8


class OutOfTime(Exception):
    """The budget of a check is spent."""


class Checks:
    """The results so far, and the time of this run."""

    def __init__(self, file, start, minutes, *, only="", again=False):
        self.file, self.only = file, only
        self.results = json.loads(file.read_text()) if file.exists() else {}
        if again:
            self.results = {name: result for name, result in self.results.items() if result["ok"]}
        self.whole = minutes * 60 - END_SECONDS
        self.scale = max(minutes / USUAL_MINUTES, 1)
        self.end = start + self.whole
        self.current, self.until = None, self.end
        self.is_shortened = False
        self.postponed = []
        self.on_failure = self.on_stop = lambda: None
        signal.signal(signal.SIGALRM, self._interrupt)

    def left(self):
        """Returns the seconds that the current check has left."""
        return max(self.until - time.monotonic(), 0.1)

    def record_versions(self, facts):
        """Keeps the versions. Those of another machine become another result."""
        known = [result for name, result in self.results.items() if name.startswith("0 versions")]
        if not any(facts.items() <= result.items() for result in known):
            self.keep(f"0 versions{f', run {len(known) + 1}' if known else ''}", {"ok": True, **facts, "seconds": 0})

    def run(self, name, seconds, work, *, is_needed=False):
        """Runs a check that has no result yet, if its budget is left. The budget includes all loading. Other
        checks need the result of a needed one."""
        if name in self.results or not (is_needed or self.only in name):
            return
        seconds *= self.scale
        if self.end - time.monotonic() < min(seconds, self.whole / 2):
            self.postponed.append(name)
            return
        start = time.monotonic()
        self.current, self.until = name, min(start + seconds, self.end)
        self.is_shortened = self.end < start + seconds
        result = self._result(work)
        if not result["ok"] and self._is_cut():
            self.postponed.append(name)
        else:
            self.keep(name, {**result, "seconds": round(time.monotonic() - start, 1)})
        self.current, self.until = None, self.end

    def keep(self, name, result):
        """Prints a result and adds it to the file, which is whole at any time."""
        self.results[name] = result
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps(self.results, indent=1))
        new.replace(self.file)
        print(line(name, result), flush=True)

    def watch(self):
        """Ends the process at the end of its minutes, even if a call of a library does not return."""
        timer = threading.Timer(self.end + END_SECONDS - time.monotonic(), self._stop)
        timer.daemon = True
        timer.start()

    def _result(self, work):
        """Returns the result of a check, or its failure: the next check runs then too."""
        try:
            signal.setitimer(signal.ITIMER_REAL, self.left())
            try:
                return {"ok": True, **work()}
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except Exception as error:
            failure = {"ok": False, "error": f"{type(error).__name__}: {error}"}
        # The traceback, which holds models in memory, is gone here.
        self.on_failure()
        return failure

    def _is_cut(self):
        """Returns true if the end of the run came before that of the current check's budget."""
        return self.is_shortened and time.monotonic() > self.end - 1

    def _interrupt(self, *_):
        raise OutOfTime("the budget of the check is spent")

    def _stop(self):
        if self.current and self._is_cut():
            self.postponed.append(self.current)
        elif self.current:
            self.keep(self.current, {"ok": False, "error": "it did not end by itself", "seconds": round(self.whole)})
        print("stopped at the end of its minutes")
        self.on_stop()
        sys.stdout.flush()
        os._exit(2)


def line(name, result):
    """Returns a result as a line."""
    facts = ", ".join(f"{key} {value}" for key, value in result.items() if key not in ("ok", "seconds"))
    return f"{'ok    ' if result['ok'] else 'FAILED'} {name}: {facts} ({result['seconds']} s)"
